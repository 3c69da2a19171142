"""The nouns of climate as frozen records: lease, reservation, resource, allocation, event.

The database returns them, decisions depend on them, and plug-ins get them.
Times are aware UTC; ids of leases, reservations and events are UUID text, a resource's id is a
number that clients see as text.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

from climate.core.lease.lifecycle import EventStatus, LeaseStatus, ReservationStatus
from climate.core.lease.schedule import BEFORE_END, END, START, Notice, Planned
from climate.core.record import record
from climate.core.window import Window

# The resource type of compute hosts.
HOST = "physical:host"


class StartWhen(StrEnum):
    """What a start waits for: its time alone, or also for its hosts to be ready."""

    SCHEDULED = "scheduled"
    READY = "ready"


@record(frozen=True, slots=True, kw_only=True)
class Start:
    """The start of a lease; each moment is None until it has come.

    At ``ready_at`` the last host was ready, at ``delayed_at`` a notification announced that the
    start waits for hosts, at ``started_at`` everything was handed over.
    """

    when: StartWhen = StartWhen.SCHEDULED
    ready_at: datetime | None = None
    delayed_at: datetime | None = None
    started_at: datetime | None = None


# The key of a reservation's details under which are the ids of the resources handed over.
HANDED_OVER = "handed_over"
# The key under which is how much of each of them, where not all: amounts by class, by id as text.
SHARES = "handed_over_shares"
NOT_SHOWN = frozenset({HANDED_OVER, SHARES})
# Parameters that only answers with the lease itself show, and no notification: they may be secret.
NOT_TOLD = frozenset({"server"})
# The key that says that the reservation is no more part of its lease, but not taken back yet.
LEAVING = "leaving"
# The parameters of a part of a stack: the stack's reservation, and which part it is.
STACK, PART = "stack", "part"
# Parameters that may be secret and large: they are stored for the plug-in, and never shown.
HIDDEN = frozenset({"template", "files", "parameters", "environment"})


def shown_params(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a reservation's parameters without secrets; as with Nova, user data is one."""
    shown = {name: value for name, value in params.items() if name not in HIDDEN}
    if isinstance(server := params.get("server"), Mapping):
        shown["server"] = {key: one for key, one in server.items() if key != "user_data"}
    return shown


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a resource has of a class, as Placement counts it; one taker gets ``max_unit`` at most.

    Without a ``max_unit`` one may have all of it.
    """

    total: int
    reserved: int = 0
    allocation_ratio: float = 1.0
    max_unit: int | None = None

    @property
    def capacity(self) -> int:
        """How much of it can be taken."""
        return math.floor((self.total - self.reserved) * self.allocation_ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A thing that can be reserved, as the database knows it.

    ``external_id`` is its identity in the cloud, ``properties`` is all that expressions can ask
    about; those named in ``native`` came from the cloud, the others from an operator.
    """

    id: int
    type: str
    external_id: str
    reservable: bool
    properties: Mapping[str, str]
    native: frozenset[str]
    created_at: datetime
    updated_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted(Resource):
    """A resource as a reservation has it: ``amounts`` of its classes, or (none) all of it."""

    amounts: Mapping[str, int]

    @classmethod
    def of(cls, resource: Resource, amounts: Mapping[str, int]) -> Self:
        """Return the resource, granted as far as that."""
        known = {one.name: getattr(resource, one.name) for one in fields(Resource)}
        return cls(**known, amounts=amounts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """A resource taken by a reservation for a window; ``busy_until`` includes cleaning time."""

    resource_id: int
    reservation_id: str
    lease_id: str
    window: Window
    busy_until: datetime


@record(frozen=True, slots=True, kw_only=True)
class Event:
    """Something due at a moment of a lease's life; the manager that runs it is its owner.

    A moved event counts as new: ``created_at`` is when it was moved.
    """

    id: str
    lease_id: str
    kind: str
    due_at: datetime
    status: EventStatus
    attempt: int
    last_error: str | None
    created_at: datetime
    updated_at: datetime | None
    owner: str | None = None

    @classmethod
    def planned(cls, planned: Planned, lease_id: str, id_: str, now: datetime) -> Self:
        """Return a new event of a lease, to be stored under this id."""
        return cls(
            id=id_,
            lease_id=lease_id,
            kind=planned.kind,
            due_at=planned.due_at,
            status=EventStatus.UNDONE,
            attempt=0,
            last_error=None,
            created_at=now,
            updated_at=None,
        )

    @property
    def is_untried(self) -> bool:
        """Whether no attempt has ended yet, whatever attempt is in progress now.

        ``updated_at`` is the only sign of an attempt after which the cloud needed more time.
        """
        is_noted = self.updated_at is not None and self.updated_at > self.promised_at
        return self.attempt <= 1 and not is_noted

    @property
    def promised_at(self) -> datetime:
        """Since when it can run: a lease that starts now has events that were due before."""
        return max(self.due_at, self.created_at)


@record(frozen=True, slots=True, kw_only=True)
class Reservation:
    """What a lease holds of one resource type.

    ``params`` are the user's parameters, checked by the plug-in; ``details`` are what the plug-in
    reported when it started the reservation.
    """

    id: str
    lease_id: str
    resource_type: str
    status: ReservationStatus
    params: Mapping[str, Any]
    details: Mapping[str, Any] = field(default_factory=dict)
    missing_resources: bool = False
    resources_changed: bool = False
    created_at: datetime
    updated_at: datetime | None

    @property
    def stays(self) -> bool:
        """Whether it is neither over nor leaving its lease."""
        return self.status is not ReservationStatus.DELETED and LEAVING not in self.details

    @property
    def stack_id(self) -> str | None:
        """The stack's reservation that this one is a part of: it changes and goes with it."""
        return self.params.get(STACK)

    @property
    def shown_params(self) -> Mapping[str, Any]:
        """The parameters without those that are never shown."""
        return shown_params(self.params)


@record(frozen=True, slots=True, kw_only=True)
class Lease:
    """A window of time, an owner, and reservations.

    By ``trust_id``, which is never shown, managers act as its user in the cloud where a plug-in
    needs that; ``trust_lost`` says why that would fail at present. ``caught_up_at`` is when a
    manager last found events of the lease late. ``version`` grows with each change except the
    progress of events.
    """

    id: str
    name: str
    user_id: str
    project_id: str
    window: Window
    status: LeaseStatus
    degraded: bool
    notices: tuple[Notice, ...]
    reservations: tuple[Reservation, ...]
    events: tuple[Event, ...]
    created_at: datetime
    updated_at: datetime | None
    trust_id: str | None = field(default=None, repr=False)
    trust_lost: str | None = None
    start: Start = field(default_factory=Start)
    caught_up_at: datetime | None = None
    version: int = field(default=0, compare=False)

    @property
    def ails(self) -> bool:
        """Whether some of its resources fail, or its trust is lost."""
        return self.degraded or self.trust_lost is not None

    @property
    def has_begun(self) -> bool:
        """Whether a plug-in may have changed the cloud for this lease."""
        start = self.event(START)
        untouched = start is not None and start.status is EventStatus.UNDONE and start.attempt == 0
        return not (self.status is LeaseStatus.PENDING and untouched)

    def event(self, kind: str) -> Event | None:
        """Return the first event of ``kind``, or None."""
        return next((event for event in self.events if event.kind == kind), None)

    def due(self, event: Event, now: datetime) -> datetime:
        """Return since when an event can run.

        A start may have waited for hosts, and an end for the ``before_end_lease`` event.
        """
        due = event.promised_at
        if event.kind == END:
            before = self.event(BEFORE_END)
            return max(due, before.updated_at) if before and before.updated_at else due
        if self.start.delayed_at is None or event.kind not in {START, BEFORE_END}:
            return due
        return max(due, self.start.ready_at or now)

    def tried_since(self, event: Event, now: datetime) -> datetime:
        """Return the time of an event's first attempt: not before a manager found it late."""
        if event.is_untried:
            return now
        if event.attempt <= 1 and event.updated_at is not None:
            return event.updated_at
        due = self.due(event, now)
        return due if self.caught_up_at is None else max(due, self.caught_up_at)


# The properties that name the hardware class of a host, and the longest name.
_CLASS = ("hardware", "hypervisor_type")
_LONGEST = 255


def hardware(host: Resource) -> str:
    """Return the class of a host: its property ``hardware``, or else its ``hypervisor_type``."""
    values = (host.properties[name] for name in _CLASS if host.properties.get(name))
    return next(values, "")[:_LONGEST]


def node(host: Resource) -> str:
    """Return the name of the node: ``node_name``, ``hypervisor_hostname``, or the external id."""
    names = (host.properties.get(name) for name in ("node_name", "hypervisor_hostname"))
    return next(filter(None, names), host.external_id)[:_LONGEST]
