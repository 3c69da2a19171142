"""The interface between climate and whatever can be reserved.

A plugin serves one resource type. Its ``schema`` and ``requirement`` are pure and used by the
API when a lease is asked for; ``start``, ``before_end`` and ``end`` act on the cloud when an
event is due, in a manager, outside any transaction. They run *at least once*: a manager may die
after the effect and before it could say so, so each must look before it acts.
"""

import abc
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from marshmallow import EXCLUDE, Schema

from climate.core.errors import Conflict
from climate.core.lease.model import Granted, Inventory, Lease, Reservation, Resource
from climate.core.matching.requirement import Requirement

# ``with turn("what is shared"):`` is for one at a time, of all threads of all processes. Raises
# Contention after a minute of waiting, and is lost after two minutes; not to be nested.
Turn = Callable[[str], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks: a user in a project, and the token of the request where tokens are checked.

    The token is for the time of the request alone: it is neither kept nor logged.
    """

    project_id: str
    user_id: str
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A resource as the cloud knows it, before (or whether or not) it is registered here.

    ``inventories`` is what it has to share, by resource class: ``VCPU``, ``MEMORY_MB`` (MiB),
    ``DISK_GB`` (GiB), ``CUSTOM_...``. ``usable`` is whether it can be booked now, ``lost`` whether
    it does not even run (one that is switched off for maintenance may), ``disabled`` whether an
    operator has taken it out of service there; a ``refusal`` says why it can never be reserved.
    That it runs is known as of ``heard_at``; None: as of now.
    Unless it is ``complete``, properties that are not told are as they were.
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
class Difference:
    """What an audit found, in a sentence, and what repairs it if that is safe.

    A ``repair`` is done at once, if it is about the pool of a ``reservation_id`` only while no
    lease has that; with a ``lease_id`` a manager hands the lease's resources over again instead.
    With neither, somebody must look.
    """

    what: str
    repair: Callable[[], None] | None = None
    lease_id: str | None = None
    reservation_id: str | None = None


@dataclass(frozen=True, slots=True)
class Child:
    """A part of a reservation that is reserved by itself; ``name`` tells it from the others.

    ``params`` are as users would ask for it.
    """

    name: str
    resource_type: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Holding:
    """A running reservation, and the resources that it should have."""

    lease: Lease
    reservation: Reservation
    resources: Sequence[Granted]


@dataclass(frozen=True, slots=True)
class Expected:
    """What the database says: the registered resources, and what running reservations have.

    ``changing`` are the ids of reservations that a manager is at, of which nothing is known;
    ``elsewhere`` are those of running reservations of other types, ``awaited`` those of leases that
    nobody has begun to start, and ``shared`` the external ids of resources of which reservations of
    other types have some.
    """

    registered: Sequence[Resource]
    running: Sequence[Holding]
    changing: Collection[str]
    elsewhere: Collection[str] = ()
    shared: Collection[str] = ()
    awaited: Collection[str] = ()

    @property
    def known(self) -> set[str]:
        """Return the ids of the reservations that may have something in the cloud."""
        running = {holding.reservation.id for holding in self.running}
        return running.union(self.changing, self.elsewhere)


class NotYet(Exception):
    """The cloud is at it and needs more time: no failure, to be called again shortly."""


class RequestSchema(Schema):
    """A plugin's part of a reservation request; keys that others own are passed over."""

    class Meta:
        """Common keys and those of other types stand beside ours."""

        unknown = EXCLUDE


class ResourcePlugin(abc.ABC):
    """One resource type: what can be asked of it, and how it is handed over and taken back."""

    resource_type: ClassVar[str]
    #: The plugin's part of a reservation request; loads to what is stored as ``params``.
    schema: ClassVar[type[RequestSchema]]
    #: What is asked of ``schema`` for one unit of the type by who does not say more.
    unit: ClassVar[Mapping[str, Any]] = {}
    #: Whether units in use can take more or less of their resources, or be laid out otherwise:
    #: then ``start`` is called again.
    resizes: ClassVar[bool] = True
    #: Whether ``look`` counts what an ended lease does not give back: then the rest can be booked.
    counts_leftovers: ClassVar[bool] = False
    #: The parameters that stay as they are: those of what was looked up.
    fixed: ClassVar[frozenset[str]] = frozenset()
    #: Properties that resources of the type may have from the cloud.
    native_properties: frozenset[str]
    #: Whether something must be made in the cloud when a reservation is asked for: ``arrange``.
    arranges: ClassVar[bool] = False
    #: Whether new parameters are looked up, too: what a reservation consists of changes with them.
    replans: ClassVar[bool] = False

    def look_up(self, params: Mapping[str, Any], _asker: Asker) -> Mapping[str, Any]:
        """Return ``params`` with what the cloud says about what they name, if anything.

        Called when they are asked for, before the transaction; only reads. Raises InvalidInput if
        the project cannot have what they name.
        """
        return params

    def children(self, _params: Mapping[str, Any]) -> Sequence[Child]:
        """Return what is reserved besides, in reservations of the same lease, and goes with it.

        Their start is before, and their end after that of what they are parts of. Pure.
        """
        return ()

    def acts_as_user(self, _params: Mapping[str, Any]) -> bool:
        """Tell whether ``start``, ``before_end`` or ``end`` act as the lease's user. Pure.

        Then the lease has a ``trust_id``. Not where the cloud is made up.
        """
        return False

    def arrange(self, _lease: Lease, _reservation: Reservation, _asker: Asker) -> Mapping[str, Any]:
        """Make what can only be made with the asker's own token; return details to be kept.

        Called once the lease is admitted and held, before anybody sees it. Idempotent.
        """
        return {}

    def abandon(  # noqa: B027 - optional: most types arrange nothing
        self, lease: Lease, reservation: Reservation
    ) -> None:
        """Undo ``arrange``, done or not, for a lease that is not to be. Idempotent."""

    def foretold(self, _reservation_id: str) -> Mapping[str, Any]:
        """Return what users may know before the start of what ``start`` will return. Pure."""
        return {}

    @abc.abstractmethod
    def requirement(self, params: Mapping[str, Any]) -> Requirement:
        """Return what admission must find for ``params``. Pure; raises InvalidInput."""

    @abc.abstractmethod
    def start(
        self, lease: Lease, reservation: Reservation, resources: Sequence[Granted]
    ) -> Mapping[str, Any]:
        """Hand ``resources`` over to the lease's project; return what users need to know.

        Of each the reservation has its ``amounts``, or all of it if there are none.
        Idempotent, and called again when a running reservation has got others: those that it has
        no more are taken back. Raises NotYet to be called again, which is no failed attempt; any
        other exception is one, and is tried again.
        """

    @abc.abstractmethod
    def end(self, lease: Lease, reservation: Reservation, resources: Sequence[Granted]) -> None:
        """Take ``resources`` back, whatever is on them. Idempotent: gone already is fine.

        Raises NotYet as ``start`` does.
        """

    def before_end(  # noqa: B027 - optional: most types have nothing to do
        self, lease: Lease, reservation: Reservation, resources: Sequence[Granted]
    ) -> None:
        """Do what the user asked for shortly before the end. Idempotent."""

    def enroll(self, external_id: str) -> None:  # noqa: B027 - optional
        """Take a resource into service: nobody may use it but through a lease. Idempotent."""

    def withdraw(self, external_id: str) -> None:  # noqa: B027 - optional
        """Give a resource that nobody has back to everybody. Idempotent."""

    def rest(self, external_id: str) -> None:
        """Keep everybody off a resource that is to be without power. Idempotent.

        Raises Conflict if somebody is on it, or it is not one that nobody has.
        """
        raise Conflict(f"{external_id}: a {self.resource_type} is not switched off")

    def rouse(self, external_id: str) -> None:  # noqa: B027 - optional
        """Take a resource back into service that is to have power, or has. Idempotent."""

    @abc.abstractmethod
    def find(self, *, name: str | None = None, external_number: str | None = None) -> Found:
        """Look a resource up in the cloud, to register it.

        Raises NotFound, or Conflict if the name is ambiguous, or the resource is in use or cannot
        be reserved.
        """

    def declared(self, found: Found, _properties: Mapping[str, str]) -> Found:
        """Return what was found, with what the operator's properties say that it has. Pure.

        Raises InvalidInput if they say something that cannot be.
        """
        return found

    @abc.abstractmethod
    def inventory(self) -> Iterable[Found]:
        """Return all that the cloud has of this type and that can be reserved."""

    def look(self, _registered: Sequence[Resource]) -> Iterable[Found]:
        """Return how the registered ones are now; those that are not told of are lost.

        It is for types of which the cloud has too many to look at all.
        """
        return self.inventory()

    def audit(self, _expected: Callable[[], Expected]) -> Iterable[Difference]:
        """Return where the cloud differs from what is expected; change nothing.

        The cloud is looked at first and the expectation asked for after that: what a lease got
        meanwhile must not look like something of nobody's.
        """
        return ()


def do_all(*steps: Callable[[], None]) -> None:
    """Take every step, whichever fail, so that one host strands no other; then say which did.

    Raises the first failure that is none of time, or else NotYet.
    """
    failures: list[Exception] = []
    for step in steps:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - told below, after the others had their turn
            failures.append(error)
    failures.sort(key=lambda error: isinstance(error, NotYet))
    if failures:
        raise failures[0]
