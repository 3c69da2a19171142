"""The interface between climate and the resource types that it reserves.

A plug-in is a subclass of ResourcePlugin and serves one resource type. climate calls it

- when a user creates or changes a lease: ``schema``, ``look_up``, ``members``, ``requirement``,
  ``check_change``, ``acts_as_user``, ``preview_details``, ``prepare``, ``discard``;
- when an event of the lease is due: ``start``, ``stop``, ``before_end``, ``end``;
- when an operator registers or deletes a resource: ``find``, ``declared``, ``enroll``,
  ``withdraw``;
- periodically or on an operator's command: ``refresh``, ``enroll``, ``audit``,
  ``disable_service``, ``enable_service``.

Each process creates one object of the class. Several threads use this object at the same time, but
calls for the same lease never overlap. Methods marked "Pure" depend on their arguments only and
send no request to the cloud. Only pure methods may be called while a database transaction is open.

For an event, managers call ``start``, ``before_end`` or ``end`` *at least once*: a manager process
may die after the call changed the cloud and before the result is stored. Another manager then
repeats the call. Therefore each method that changes the cloud first checks which changes are still
missing. Methods marked "Idempotent" must succeed without further effect if their work is already
done.
"""

import abc
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, ClassVar

from climate.core.errors import Conflict, InvalidInput
from climate.core.lease import on_start
from climate.core.lease.model import Granted, Inventory, Lease, Reservation, Resource
from climate.core.matching.requirement import Requirement
from climate.core.provisioning.cleaning import Report
from climate.plugins.request_fields import RequestSchema

# ``with turn("name"):`` holds the advisory lock of this name. At most one thread of all climate
# processes holds it. The call raises Contention if it cannot get the lock within one minute. The
# lock expires after two minutes. A thread that holds a lock must not request another.
Turn = Callable[[str], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class Requester:
    """The sender of an API request: project id, user id and, with Keystone, the request's token.

    Use the token only while this request is processed, and neither store nor log it.
    """

    project_id: str
    user_id: str
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredResource:
    """A resource, such as a host, as the cloud reports it, whether registered in climate or not."""

    #: The identity of the resource in the cloud, unique within the resource type.
    external_id: str
    #: The properties that the cloud reports. Expressions in requests can compare them.
    properties: Mapping[str, str]
    #: The amounts that several reservations can share, by resource class: ``VCPU``, ``MEMORY_MB``
    #: (MiB), ``DISK_GB`` (GiB), ``CUSTOM_...``. Empty if nothing can be shared.
    inventories: Mapping[str, Inventory] = field(default_factory=dict)
    #: Whether the resource can be reserved now.
    usable: bool = True
    #: Whether the resource has stopped working. A host in maintenance is not usable, but not lost
    #: while it runs. climate replaces lost resources in running leases.
    lost: bool = False
    #: Whether an operator took the resource out of service in the cloud. climate then does not
    #: assume that a lost host is off because climate powered it off.
    disabled: bool = False
    #: When the resource last reported to the cloud (UTC); None: when climate queried the cloud.
    heard_at: datetime | None = None
    #: Whether ``properties`` and ``inventories`` have all values. If not, climate keeps the stored
    #: inventories, and the stored properties that are missing here.
    complete: bool = True
    #: The state of a bare-metal node; None for all others, and if it is unknown.
    provision: Report | None = None


@dataclass(frozen=True, slots=True)
class Drift:
    """A difference between the cloud and the database, and how to repair it.

    - If ``lease_id`` is set, a manager calls ``start`` again for this running lease.
    - Otherwise, if ``repair`` is set, climate calls ``repair``, unless the reservation
      ``reservation_id`` is part of a lease that has not ended yet.
    - If neither is set, there is no automatic repair, and an operator must decide.
    """

    description: str
    repair: Callable[[], None] | None = None
    lease_id: str | None = None
    reservation_id: str | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """A part of a composite reservation: for instance, the servers of a stack.

    climate stores each part as a separate reservation. ``name`` is unique within the composite
    reservation. ``params`` are request parameters as a user would send them, which the ``schema``
    of the part's type has not validated yet.
    """

    name: str
    resource_type: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class HeldReservation:
    """A running reservation, with the resources that it has according to the database."""

    lease: Lease
    reservation: Reservation
    resources: Sequence[Granted]


@dataclass(frozen=True, slots=True)
class ExpectedState:
    """The state that the cloud should have for a resource type, according to the database.

    An audit compares it with the state of the cloud.
    """

    #: The registered resources of the type.
    registered: Sequence[Resource]
    #: The running reservations of the type.
    running: Sequence[HeldReservation]
    #: The ids of reservations, of any type, whose lease is being started, changed or ended. Their
    #: state in the cloud is unknown.
    changing: Collection[str]
    #: The ids of reservations of other types, in running leases.
    elsewhere: Collection[str] = ()
    #: The external ids of resources of this type that reservations of other types have.
    shared: Collection[str] = ()
    #: The ids of reservations, of any type, whose lease has not begun, or that users have stopped.
    awaited: Collection[str] = ()

    @property
    def known(self) -> set[str]:
        """The ids of the reservations in ``running``, ``changing`` and ``elsewhere``.

        Objects in the cloud for any other reservation are leftovers, which should have been
        deleted. The only exceptions are objects that ``prepare`` created for the reservations in
        ``awaited``.
        """
        running = {held.reservation.id for held in self.running}
        return running.union(self.changing, self.elsewhere)


@dataclass(frozen=True, slots=True)
class CloudChange:
    """What users changed in the cloud: new parameters, and details to store with them."""

    params: Mapping[str, Any]
    details: Mapping[str, Any]


class QuotesRequest(InvalidInput):
    """An InvalidInput whose message may quote secret values of the request: do not store it."""


class NotYet(Exception):
    """Raised by a plug-in's method while the cloud has not finished an action.

    The message says what climate waits for. The manager calls the method again after about a
    second. If it still raises NotYet ten minutes after the first call, this counts as a failure.
    """


class ResourcePlugin(abc.ABC):
    """A resource type: validates requests, hands resources over to projects and reclaims them.

    ``params`` are always request parameters that ``schema`` has validated. In all methods except
    ``look_up``, they are the result of ``look_up``.
    """

    #: The name of the type in requests, such as ``physical:host``.
    resource_type: ClassVar[str]
    #: The name of the type for people, in the plural, and what users get. Clients show both.
    title: ClassVar[str] = ""
    description: ClassVar[str] = ""
    #: The type of the resources that reservations book. None: reservations book resources of their
    #: own type. An empty text: only the members of a reservation book resources.
    booked_type: ClassVar[str | None] = None
    #: Validates the type's parameters in a request. ``look_up`` completes its output, which climate
    #: stores as the ``params`` of the reservation.
    schema: ClassVar[type[RequestSchema]]
    #: The parameters of a request for one unit. Queries of availability use them as defaults.
    unit: ClassVar[Mapping[str, Any]] = {}
    #: The type of the resources that units are on, if it is another type; calendars show these.
    resources_type: ClassVar[str | None] = None
    #: Whether users can change the amounts of a unit, and the layout of units, after the lease
    #: began to start. If not, they can still change the number of units. The manager calls
    #: ``start`` again after either change.
    resizes: ClassVar[bool] = True
    #: Whether ``refresh`` subtracts the amounts that an ended lease still occupies. climate then
    #: lets users reserve the rest. Otherwise it lets them reserve nothing of a resource that a
    #: lease could not release.
    counts_leftovers: ClassVar[bool] = False
    #: Whether a running reservation can give back whole resources that ``unused`` returns, and
    #: gain those that a user names. The manager then calls ``start`` with the remaining ones.
    gives_back: ClassVar[bool] = False
    #: The names of parameters that users cannot change, for instance because ``look_up`` sets them.
    fixed: ClassVar[frozenset[str]] = frozenset()
    #: Changes of parameters in ``fixed`` that are possible nevertheless: (name, old, new value).
    unfixed: ClassVar[frozenset[tuple[str, Any, Any]]] = frozenset()
    #: The names of the properties that the cloud can report for resources of the type.
    native_properties: frozenset[str]
    #: The names of the properties that ``declared`` reads.
    capacity_properties: frozenset[str] = frozenset()
    #: Whether ``prepare`` creates anything for each reservation.
    needs_preparation: ClassVar[bool] = False
    #: Whether climate calls ``look_up`` and ``members`` also when a user changes a reservation.
    looks_up_changes: ClassVar[bool] = False
    #: Whether users can change in the cloud what ``start`` created; see ``changed_in_cloud``.
    follows_changes: ClassVar[bool] = False

    @property
    def type_of_resources(self) -> str:
        """The type of the resources that reservations use; ``physical:host`` for instances."""
        return self.resources_type or self.resource_type

    def look_up(self, params: Mapping[str, Any], _requester: Requester) -> Mapping[str, Any]:
        """Look up objects in the cloud that ``params`` names; return ``params`` with their data.

        For instance, add the sizes of the flavor whose id is in ``params``. climate calls this
        method before it searches for free resources. The method changes nothing in the cloud.
        Raises InvalidInput if the requester's project cannot use one of these objects.
        """
        return params

    def check_change(  # noqa: B027 - optional
        self, before: Mapping[str, Any], after: Mapping[str, Any], requester: Requester
    ) -> None:
        """Raise InvalidInput if the requester cannot use what ``after`` newly names."""

    def members(self, _params: Mapping[str, Any]) -> Sequence[Member]:
        """Return the parts of a composite reservation, such as a stack; by default, none. Pure.

        climate adds a reservation for each part to the same lease. The parts start before the
        composite reservation. They end after it, or ``[virtual:stack] end_patience`` seconds later.
        """
        return ()

    def acts_as_user(self, _params: Mapping[str, Any]) -> bool:
        """Return whether ``start``, ``before_end`` or ``end`` act as the lease's user. Pure.

        If so, climate creates a Keystone trust before it confirms the lease, and stores its id as
        the lease's ``trust_id``. A plug-in of a simulated cloud, without Keystone, returns False.
        """
        return False

    def source_of(self, _params: Mapping[str, Any]) -> str:
        """Return an id of the image or template that ``start`` uses (64 characters). Pure."""
        return ""

    def prepares(self, _params: Mapping[str, Any]) -> bool:
        """Return whether ``prepare`` creates anything for a reservation of the lease. Pure."""
        return self.needs_preparation

    def prepare(
        self, _lease: Lease, _reservation: Reservation, _requester: Requester
    ) -> Mapping[str, Any]:
        """Create the objects in the cloud that require the requester's token. Idempotent.

        For a new lease, climate first books resources, then calls this method, and then confirms
        the lease and shows the lease to users. climate adds the returned details to the details of
        the reservation.
        """
        return {}

    def discard(self, lease: Lease, reservation: Reservation) -> None:  # noqa: B027 - optional
        """Delete what ``prepare`` created for a lease that was not confirmed. Idempotent.

        Succeed even if these objects do not exist: climate may not have called ``prepare``.
        """

    def needs_start(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
        """Return whether new parameters of a running reservation take effect only by ``start``.

        If the reservation gains resources, climate calls ``start`` in any case. By default, return
        whether ``on_start`` becomes ``create``, or is not ``manual`` any more. Pure.
        """
        return on_start.needs_start(before, after)

    def preview_details(self, _reservation_id: str) -> Mapping[str, Any]:
        """Return the details that users see before ``start``, such as an id. Pure."""
        return {}

    @abc.abstractmethod
    def requirement(self, params: Mapping[str, Any]) -> Requirement:
        """Return the number and kind of resources that a reservation needs. Pure.

        Raises InvalidInput if ``schema`` accepts the parameters but they cannot be reserved.
        """

    @abc.abstractmethod
    def start(
        self, lease: Lease, reservation: Reservation, resources: Sequence[Granted]
    ) -> Mapping[str, Any]:
        """Hand ``resources`` over to the lease's project; return the new details for users.

        The project gets the ``amounts`` of each resource, or the whole resource if ``amounts`` is
        empty. Skip resources that are not ``reservable``: they are out of service, and the manager
        calls this method again when they are back.

        The manager also calls this method when the resources of a running reservation have changed.
        ``resources`` are then the new ones. Reclaim all other resources that the cloud still
        assigns to the reservation.

        The returned details replace those of the reservation. Idempotent. Raise NotYet while the
        cloud has not finished. After any other exception, the manager stores that the attempt has
        failed, and retries.
        """

    def changed_in_cloud(self, _lease: Lease, _reservation: Reservation) -> CloudChange | None:
        """Return what users have changed of a running reservation in the cloud; None if nothing.

        climate reserves the difference, and calls ``start`` again. Raise NotYet while the cloud is
        making the change.
        """
        return None

    def unused(self, _resources: Sequence[Granted]) -> Iterable[Granted]:
        """Yield those of a running reservation's resources on which users have no objects.

        For example, yield the hosts without servers. climate reads only as many as it needs.
        """
        return ()

    @abc.abstractmethod
    def end(self, lease: Lease, reservation: Reservation, resources: Sequence[Granted]) -> None:
        """Reclaim ``resources``, and delete the users' objects on them, such as servers.

        Idempotent. The manager calls this method at the end of the lease, and when a user has
        removed the reservation from a running lease. Succeed even if ``start`` has failed before,
        or if the objects do not exist any more. Raise NotYet while the cloud has not finished.
        """

    def stop(
        self, lease: Lease, reservation: Reservation, resources: Sequence[Granted]
    ) -> Mapping[str, Any]:
        """Delete what ``start`` created; return the details of the stopped reservation. Idempotent.

        The manager calls this method if a user stops a reservation with ``on_start: manual``. The
        capacity stays reserved. By default, call ``end`` as with ``on_end: delete``.
        """
        params = {**reservation.params, "on_end": DELETE}
        self.end(lease, replace(reservation, params=params), resources)
        return self.preview_details(reservation.id)

    def before_end(  # noqa: B027 - optional: most types have nothing to do
        self, lease: Lease, reservation: Reservation, resources: Sequence[Granted]
    ) -> None:
        """Perform the action that must happen before the lease ends, such as saving images.

        Idempotent. The manager calls this method when the event ``before_end_lease`` is due. The
        request or the configuration selects the action.
        """

    def enroll(self, external_id: str) -> None:  # noqa: B027 - optional
        """Close a registered resource, such as a host, so that no project can use it. Idempotent.

        climate calls this method at registration, and whenever the resource becomes usable again.
        Later, ``start`` opens the resource to the project of a lease. If ``start`` has already
        handed the resource over to a reservation, this method changes nothing.
        """

    def withdraw(self, external_id: str) -> None:  # noqa: B027 - optional
        """Open a resource that an operator has deleted from climate to all projects. Idempotent."""

    def disable_service(self, external_id: str) -> None:
        """Prevent new servers on a free host that climate is about to power off. Idempotent.

        climate calls this only for ``physical:host``. Raises Conflict if the host is reserved or
        has servers. This default always raises Conflict, for all other resource types.
        """
        raise Conflict(f"{external_id}: a {self.resource_type} cannot be powered off")

    def enable_service(self, external_id: str) -> None:  # noqa: B027 - optional
        """Undo ``disable_service``, because the host has been powered on again. Idempotent."""

    @abc.abstractmethod
    def find(
        self, *, name: str | None = None, external_number: str | None = None
    ) -> DiscoveredResource:
        """Return the resource in the cloud that an operator wants to register.

        ``external_number`` is the hypervisor id that a request of API v1 may contain. Plug-ins for
        hosts ignore ``name`` if this id is set. Raises NotFound if there is no such resource.
        Can raise InvalidInput if the name is malformed. Raises Conflict if several resources have
        the name, if the resource is in use, or if it can never be reserved.
        """

    def declared(
        self, resource: DiscoveredResource, _properties: Mapping[str, str]
    ) -> DiscoveredResource:
        """Return ``resource`` with the capacity that the operator's properties declare. Pure.

        Override this method, and set ``capacity_properties``, for resource types whose capacity the
        cloud does not report. Raises InvalidInput if such a property is not a valid amount.
        """
        return resource

    def check_unused(self, resource: DiscoveredResource) -> None:  # noqa: B027 - optional
        """Raise Conflict if ``resource`` is in use, so that it cannot be registered now."""

    @abc.abstractmethod
    def inventory(self) -> Iterable[DiscoveredResource]:
        """Return all resources in the cloud that an operator can register or has registered."""

    def refresh(self, _registered: Sequence[Resource]) -> Iterable[DiscoveredResource]:
        """Return the present state of the registered resources, and possibly of others.

        By default, return the whole inventory; override this if it is too long to list. climate
        treats a registered resource that is missing in the result as failed (``lost``).
        """
        return self.inventory()

    def audit(self, _expected: Callable[[], ExpectedState]) -> Iterable[Drift]:
        """Return the differences between the cloud and the expected state; change nothing.

        Read the cloud first, then call ``_expected``, which reads the database. Otherwise, the
        objects of a lease that starts in between would look like leftovers.
        """
        return ()


def run_all(*steps: Callable[[], object]) -> None:
    """Call all steps, even if some fail; raise the first error, NotYet only without others."""
    failures: list[Exception] = []
    for step in steps:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - raised below, after all steps ran
            failures.append(error)
    failures.sort(key=lambda error: isinstance(error, NotYet))
    if failures:
        raise failures[0]


#: Values of the request parameter ``on_end``.
DELETE, KEEP = "delete", "keep"
