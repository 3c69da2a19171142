"""The interface between climate and the resource types that it reserves.

A plug-in serves one resource type. The API calls its pure methods (``schema``, ``requirement``)
when a user requests a lease. A manager calls ``start``, ``before_end`` and ``end`` when an event is
due, outside any transaction and *at least once*: a manager may die after the effect and before it
records the result. Therefore each method checks the cloud before it changes anything.
"""

import abc
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from marshmallow import EXCLUDE, Schema, fields

from climate.core.errors import Conflict, InvalidQuery
from climate.core.lease.model import Granted, Inventory, Lease, Reservation, Resource
from climate.core.matching.extra_specs import read
from climate.core.matching.requirement import Requirement

# ``with turn("name"):`` holds an advisory lock, exclusive among all threads of all processes.
# Raises Contention after waiting for one minute. The lock expires after two minutes. Do not nest.
Turn = Callable[[str], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class Requester:
    """The user who sent a request: user, project and, with Keystone, the token of the request.

    The token is valid for this request only. It is neither stored nor logged.
    """

    project_id: str
    user_id: str
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredResource:
    """A resource as the cloud reports it, registered in climate or not.

    ``inventories`` are the amounts that reservations can share, by resource class: ``VCPU``,
    ``MEMORY_MB`` (MiB), ``DISK_GB`` (GiB), ``CUSTOM_...``. A ``usable`` resource can be reserved
    now. A ``lost`` resource does not run at all (a host in maintenance may still run). A
    ``disabled`` resource was taken out of service by an operator, in the cloud. A ``refusal`` is
    the reason why the resource can never be reserved. ``heard_at`` is the time of the cloud's last
    sign of life of the resource, or None for now. If the resource is not ``complete``, properties
    that are missing here keep their stored values.
    """

    external_id: str
    properties: Mapping[str, str]
    inventories: Mapping[str, Inventory] = field(default_factory=dict)
    usable: bool = True
    lost: bool = False
    disabled: bool = False
    heard_at: datetime | None = None
    refusal: str | None = None
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Drift:
    """A difference between the cloud and the database, and its repair where one is safe.

    ``repair`` runs immediately; with a ``reservation_id``, only if no lease has that reservation.
    With a ``lease_id``, a manager starts the lease's reservations again instead. With neither, an
    operator must decide.
    """

    description: str
    repair: Callable[[], None] | None = None
    lease_id: str | None = None
    reservation_id: str | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """A part of a composite reservation (a stack), stored as a reservation of its own.

    ``name`` is unique within the composite. ``params`` have the form of a user's request.
    """

    name: str
    resource_type: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class HeldReservation:
    """A running reservation, and the resources that belong to it."""

    lease: Lease
    reservation: Reservation
    resources: Sequence[Granted]


@dataclass(frozen=True, slots=True)
class ExpectedState:
    """The state that the database records: registered resources and running reservations.

    ``changing`` are the ids of reservations that a manager works on: their state in the cloud is
    unknown. ``elsewhere`` are the ids of running reservations of other types. ``awaited`` are the
    ids of reservations whose lease has not begun to start. ``shared`` are the external ids of
    resources that reservations of other types use in part.
    """

    registered: Sequence[Resource]
    running: Sequence[HeldReservation]
    changing: Collection[str]
    elsewhere: Collection[str] = ()
    shared: Collection[str] = ()
    awaited: Collection[str] = ()

    @property
    def known(self) -> set[str]:
        """The ids of the reservations that may have objects in the cloud."""
        running = {held.reservation.id for held in self.running}
        return running.union(self.changing, self.elsewhere)


class NotYet(Exception):
    """The cloud needs more time. This is not a failure: the manager calls again shortly."""


class RequestSchema(Schema):
    """The plug-in's part of a reservation request; ignores keys of other types."""

    class Meta:
        """Common keys and keys of other resource types stand in the same object."""

        unknown = EXCLUDE


class ResourcePlugin(abc.ABC):
    """One resource type: its request parameters, and how to hand resources over and reclaim them.

    Methods that act on the cloud must be idempotent.
    """

    resource_type: ClassVar[str]
    #: The plug-in's part of a reservation request. Its output is stored as ``params``.
    schema: ClassVar[type[RequestSchema]]
    #: The request for one unit of the type, where the user gives no parameters.
    unit: ClassVar[Mapping[str, Any]] = {}
    #: Whether a running reservation can change its amounts or layout; ``start`` is then called
    #: again.
    resizes: ClassVar[bool] = True
    #: Whether ``refresh`` subtracts what an ended lease has not released, so that climate can
    #: reserve the rest.
    counts_leftovers: ClassVar[bool] = False
    #: The parameters that users cannot change, because ``look_up`` resolved them.
    fixed: ClassVar[frozenset[str]] = frozenset()
    #: The properties that the cloud reports for resources of the type.
    native_properties: frozenset[str]
    #: Whether ``prepare`` creates something in the cloud while climate admits the lease.
    needs_preparation: ClassVar[bool] = False
    #: Whether ``look_up`` also runs for changed parameters, because they change the members.
    looks_up_changes: ClassVar[bool] = False

    def look_up(self, params: Mapping[str, Any], _requester: Requester) -> Mapping[str, Any]:
        """Return ``params`` with the cloud's data about the objects that they name.

        Called before the transaction that admits the lease. Only reads. Raises InvalidInput if the
        project cannot use what the parameters name.
        """
        return params

    def members(self, _params: Mapping[str, Any]) -> Sequence[Member]:
        """Return the further reservations that this reservation consists of. Pure.

        They are reserved in the same lease, start before this reservation and end after it.
        """
        return ()

    def acts_as_user(self, _params: Mapping[str, Any]) -> bool:
        """Tell whether ``start``, ``before_end`` or ``end`` act as the lease's user. Pure.

        If so, the lease gets a ``trust_id``. False with a simulated cloud.
        """
        return False

    def prepare(
        self, _lease: Lease, _reservation: Reservation, _requester: Requester
    ) -> Mapping[str, Any]:
        """Create what requires the requester's own token; return details for the reservation.

        Called after admission, while the lease is held and not yet visible. Idempotent.
        """
        return {}

    def discard(  # noqa: B027 - optional: most types prepare nothing
        self, lease: Lease, reservation: Reservation
    ) -> None:
        """Undo ``prepare``, completed or not, for a lease that is not confirmed. Idempotent."""

    def preview_details(self, _reservation_id: str) -> Mapping[str, Any]:
        """Return the details of ``start`` that users may see before the start. Pure."""
        return {}

    @abc.abstractmethod
    def requirement(self, params: Mapping[str, Any]) -> Requirement:
        """Return what admission must find for ``params``. Pure; raises InvalidInput."""

    @abc.abstractmethod
    def start(
        self, lease: Lease, reservation: Reservation, resources: Sequence[Granted]
    ) -> Mapping[str, Any]:
        """Hand ``resources`` over to the lease's project; return the details that users need.

        The reservation gets the ``amounts`` of each resource, or the whole resource if it has
        none. The manager calls this again when the resources of a running reservation change; it
        then also reclaims those that were removed. Idempotent. Raises NotYet while the cloud needs
        more time. The manager retries after any other exception, and counts it as a failure.
        """

    @abc.abstractmethod
    def end(self, lease: Lease, reservation: Reservation, resources: Sequence[Granted]) -> None:
        """Reclaim ``resources``, and delete what users put on them.

        Idempotent: succeeds if they are already gone. Raises NotYet as ``start`` does.
        """

    def before_end(  # noqa: B027 - optional: most types have nothing to do
        self, lease: Lease, reservation: Reservation, resources: Sequence[Granted]
    ) -> None:
        """Run the user's action shortly before the end. Idempotent."""

    def enroll(self, external_id: str) -> None:  # noqa: B027 - optional
        """Take a resource into service: only leases can use it from now on. Idempotent."""

    def withdraw(self, external_id: str) -> None:  # noqa: B027 - optional
        """Release an unreserved resource to all projects. Idempotent."""

    def disable_service(self, external_id: str) -> None:
        """Stop all use of a free resource that is about to be powered off. Idempotent.

        Raises Conflict if the resource is in use or not free.
        """
        raise Conflict(f"{external_id}: a {self.resource_type} cannot be powered off")

    def enable_service(self, external_id: str) -> None:  # noqa: B027 - optional
        """Put a resource that was powered off back into service. Idempotent."""

    @abc.abstractmethod
    def find(
        self, *, name: str | None = None, external_number: str | None = None
    ) -> DiscoveredResource:
        """Find a resource in the cloud, to register it.

        Raises NotFound. Raises Conflict if the name is ambiguous, or the resource is in use or
        cannot be reserved.
        """

    def declared(
        self, resource: DiscoveredResource, _properties: Mapping[str, str]
    ) -> DiscoveredResource:
        """Return the resource with the amounts that an operator's properties declare. Pure.

        Raises InvalidInput if a declared amount is invalid.
        """
        return resource

    @abc.abstractmethod
    def inventory(self) -> Iterable[DiscoveredResource]:
        """Return all resources of this type in the cloud that can be reserved."""

    def refresh(self, _registered: Sequence[Resource]) -> Iterable[DiscoveredResource]:
        """Return the current state of the registered resources; the missing ones are lost.

        Override this for types of which the cloud has too many resources to list.
        """
        return self.inventory()

    def audit(self, _expected: Callable[[], ExpectedState]) -> Iterable[Drift]:
        """Return where the cloud differs from the expected state; change nothing.

        Read the cloud first and call ``expected`` afterwards. Otherwise resources that a lease
        gets in between look like leftovers.
        """
        return ()


def run_all(*steps: Callable[[], None]) -> None:
    """Run every step, even if some fail, so that one host does not block the others.

    Raises the first failure other than NotYet, or else the first NotYet.
    """
    failures: list[Exception] = []
    for step in steps:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - raised below, after all steps ran
            failures.append(error)
    failures.sort(key=lambda error: isinstance(error, NotYet))
    if failures:
        raise failures[0]


#: Values of ``on_start`` and ``on_end``.
CREATE, NOTHING = "create", "nothing"
DELETE, KEEP = "delete", "keep"


class WholeNumber(fields.Integer):
    """An integer, as a number or as text: command lines send ``"1"``. Rejects ``1.5``."""

    def _validated(self, value: Any) -> int:  # noqa: ANN401 - marshmallow's signature
        if isinstance(value, bool | float):
            raise self.make_error("invalid", input=value)
        if isinstance(value, str) and not value.strip().isdecimal():
            raise self.make_error("invalid", input=value)
        return super()._validated(value)


class Expression(fields.Field[str]):
    """A property expression or extra specs, as text or JSON; stored as text."""

    def _deserialize(self, value: Any, *_args: Any, **_kwargs: Any) -> str:  # noqa: ANN401
        try:
            read(value)
        except InvalidQuery as error:
            raise InvalidQuery(f"{error.message} (in {self.name})") from None
        if value is None:
            return ""
        return value if isinstance(value, str) else json.dumps(value)
