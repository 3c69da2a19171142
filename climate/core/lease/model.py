"""The data model: leases, reservations, resources, allocations and events. All are immutable.

The functions of ``climate.db`` return these records, and plug-ins receive them. Times are aware
UTC. The ids of leases, reservations and events are UUIDs as text. The id of a resource is a number,
which the API shows as text.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Self

from climate.core.lease.lifecycle import EventStatus, LeaseStatus, ReservationStatus, RunState
from climate.core.lease.schedule import BEFORE_END, END, START, Notice, Planned
from climate.core.record import record
from climate.core.window import Margins, Window, later

# The resource type of compute hosts.
HOST = "physical:host"


class StartWhen(StrEnum):
    """The condition for the start of a lease: its date, or its date and ready hosts.

    SCHEDULED means that the lease starts at its date. READY means that it also waits until
    provisioners have prepared all its hosts.
    """

    SCHEDULED = "scheduled"
    READY = "ready"


@record(frozen=True, slots=True, kw_only=True)
class Start:
    """The start of a lease: its condition, and what has happened so far.

    ``ready_at`` is when the last host was ready. ``delayed_at`` is when a notification announced
    that the start waits for hosts. ``started_at`` is when climate had handed over all resources.
    Each time is None until then.

    ``lead`` is how long before the start the lease has its capacity, so that climate can create
    resources, such as servers; in whole seconds. ``began_at`` is when climate began to create them.
    Until its start date, the lease stays PENDING.
    """

    when: StartWhen = StartWhen.SCHEDULED
    lead: timedelta = timedelta(0)
    began_at: datetime | None = None
    ready_at: datetime | None = None
    delayed_at: datetime | None = None
    started_at: datetime | None = None


# Key of a reservation's details: the ids of the resources that were handed over.
HANDED_OVER = "handed_over"
# Key of a reservation's details: the amounts by resource class of each shared resource, by its id
# as text. Resources that were handed over whole are not in it.
SHARES = "handed_over_shares"
# Key of a reservation's details: its parameters changed while it ran, and the manager has not
# called ``start`` for the new ones yet.
UNAPPLIED = "unapplied"
# Key of a reservation's details: its run state, a ``RunState`` as text. Absent means "stopped".
RUN_STATE = "run_state"
# Key of a reservation's details: the id of the stack in Heat.
STACK_ID = "stack_id"
# Key of a reservation's details: an id of the source that climate deployed last for a stack.
DEPLOYED_SOURCE = "deployed_source"
# Key of a reservation's details: the update of users in Heat that climate has reserved, as a list
# of an id of the update, and the fingerprint of the source.
FOLLOWED_UPDATE = "followed_update"
# Key of a reservation's details: why climate could not reserve what users changed in the cloud.
NOT_RESERVED = "not_reserved"
# Key of a reservation's details: after how many seconds climate had created what it is for.
CREATED_AFTER = "created_after"
# Details that no answer and no notification contains.
NOT_SHOWN = frozenset(
    {HANDED_OVER, SHARES, UNAPPLIED, RUN_STATE, DEPLOYED_SOURCE, FOLLOWED_UPDATE, CREATED_AFTER}
)
# The parameter that says when climate creates the resource, and its values: at the start of the
# lease, never, or when a user starts the reservation.
ON_START = "on_start"
CREATE, NOTHING, MANUAL = "create", "nothing", "manual"
# Parameters that answers contain, but notifications do not: they may be secret.
NOT_NOTIFIED = frozenset({"server"})
# Key of a reservation's details: the lease no longer has the reservation, but the manager has not
# reclaimed its resources yet.
LEAVING = "leaving"
# Parameters of a stack member: the id of the stack's reservation, and the name of the member.
STACK, PART = "stack", "part"
# Parameters that the plug-in needs and no answer contains: they may be secret and large.
HIDDEN = frozenset({"template", "files", "parameters", "environment"})


@dataclass(frozen=True, slots=True)
class Inventory:
    """How much a resource has of one resource class, such as VCPU; as in OpenStack Placement.

    ``total`` is the physical amount. ``reserved`` is the part of it that is not for leases. The
    rest, times ``allocation_ratio`` (overcommit), can be booked. One instance can use at most
    ``max_unit`` (None: no limit).
    """

    total: int
    reserved: int = 0
    allocation_ratio: float = 1.0
    max_unit: int | None = None

    @property
    def capacity(self) -> int:
        """How much of the class all reservations together can have at one time."""
        return math.floor((self.total - self.reserved) * self.allocation_ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A reservable resource, such as a host, as the database stores it.

    ``external_id`` is its name or id in the cloud. ``properties`` are texts such as ``{"vcpus":
    "64"}``, by which users select resources. The properties named in ``native`` come from the
    cloud; an operator or an agent has set the others. Each change, except pushed stats, increments
    ``version``.
    """

    id: int
    type: str
    external_id: str
    reservable: bool
    properties: Mapping[str, str]
    native: frozenset[str]
    created_at: datetime
    updated_at: datetime | None
    version: int = 0

    @property
    def extra_properties(self) -> Mapping[str, str]:
        """The properties that an operator or an agent has set, and not the cloud."""
        return {name: self.properties[name] for name in self.properties.keys() - self.native}


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted(Resource):
    """A resource that a reservation has, wholly or in part.

    ``amounts`` is how much of the resource the reservation has, such as ``{"VCPU": 4}``. It is
    empty if the reservation has the whole resource.
    """

    amounts: Mapping[str, int]

    @classmethod
    def of(cls, resource: Resource, amounts: Mapping[str, int]) -> Self:
        """Return a copy of ``resource`` with the ``amounts`` that a reservation has of it."""
        values = {entry.name: getattr(resource, entry.name) for entry in fields(Resource)}
        return cls(**values, amounts=amounts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """An allocation: a resource is booked for a reservation of a lease.

    ``window`` is the window of the lease. ``busy_until`` is the time at which the cleaning after
    the lease is finished.
    """

    resource_id: int
    reservation_id: str
    lease_id: str
    window: Window
    busy_until: datetime


@record(frozen=True, slots=True, kw_only=True)
class Event:
    """A step of a lease, such as its start or a reminder, which a manager runs when it is due.

    ``owner`` is the manager process that has claimed the event. If a change of the lease moves the
    event to another time, ``created_at`` becomes the time of that change.
    """

    id: str
    lease_id: str
    kind: str
    due_at: datetime
    status: EventStatus = EventStatus.UNDONE
    attempt: int = 0
    last_error: str | None = None
    created_at: datetime
    updated_at: datetime | None = None
    owner: str | None = None

    @classmethod
    def planned(cls, planned: Planned, lease_id: str, id_: str, now: datetime) -> Self:
        """Return a new event of the lease for ``planned``, an item of the lease's event plan."""
        kind, due_at = planned.kind, planned.due_at
        return cls(id=id_, lease_id=lease_id, kind=kind, due_at=due_at, created_at=now)

    @property
    def is_untried(self) -> bool:
        """Whether no attempt to run the event has ended yet; the first attempt may be under way.

        The property examines two fields, because ``attempt`` does not count an attempt that ends
        because the cloud needs more time. Such an attempt changes only ``updated_at``.
        """
        is_noted = self.updated_at is not None and self.updated_at > self.promised_at
        return self.attempt <= 1 and not is_noted

    @property
    def promised_at(self) -> datetime:
        """The time from which the event can run: its due time, or its creation if that is later."""
        return max(self.due_at, self.created_at)


@record(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A reservation: the part of a lease that requests resources of one type.

    ``params`` are the user's parameters, such as ``{"min": 1, "max": 2}``, which the plug-in has
    validated. ``details`` are what the plug-in reported at the start, and internal notes such as
    ``HANDED_OVER``.
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
        """Whether the lease keeps the reservation: it is neither DELETED nor being removed."""
        return self.status is not ReservationStatus.DELETED and LEAVING not in self.details

    @property
    def stack_id(self) -> str | None:
        """The id of the reservation for the whole stack, if this reservation is for a part of it.

        None if this reservation is not for a part of a stack.
        """
        return self.params.get(STACK)

    @property
    def run_state(self) -> RunState | None:
        """The run state of a reservation with ``on_start: manual``; None for all others."""
        if self.params.get(ON_START) != MANUAL:
            return None
        return RunState(self.details.get(RUN_STATE, RunState.STOPPED))

    @property
    def shown_params(self) -> Mapping[str, Any]:
        """The parameters that API answers may contain: without secrets and user data."""
        shown = {name: value for name, value in self.params.items() if name not in HIDDEN}
        if isinstance(server := self.params.get("server"), Mapping):
            shown["server"] = {key: value for key, value in server.items() if key != "user_data"}
        return shown


@record(frozen=True, slots=True, kw_only=True)
class Lease:
    """A lease: the right of a user to use resources during a window of time.

    ``trust_id`` is the Keystone trust with which plug-ins act as the user; API answers never
    contain it. ``trust_lost`` is why the trust does not work now (None: no problem is known).
    ``caught_up_at`` is when a manager last found that events of the lease were late. ``version``
    grows with each change of the lease. It does not grow when an event makes progress.

    ``offered_until`` is when an offer expires (None: the lease is no offer). An offer is a lease
    with the status CREATING. A request that accepts it sets ``updated_at``.

    ``cleaning`` is how long the resources stay booked after the lease, in whole seconds, as climate
    has learned it (None: as long as the operator has configured).
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
    offered_until: datetime | None = None
    cleaning: timedelta | None = None
    version: int = field(default=0, compare=False)

    @property
    def is_degraded(self) -> bool:
        """Whether a resource has failed, or the Keystone trust of the lease does not work."""
        return self.degraded or self.trust_lost is not None

    @property
    def is_offer(self) -> bool:
        """Whether the lease is an offer, which a request may be accepting."""
        return self.status is LeaseStatus.CREATING and self.offered_until is not None

    @property
    def is_unaccepted_offer(self) -> bool:
        """Whether the lease is an offer that no request has begun to accept. It may be expired."""
        return self.is_offer and self.updated_at is None

    @property
    def has_begun(self) -> bool:
        """Whether a manager has tried to start the lease, so that the cloud may have changed."""
        if self.status is LeaseStatus.WAITING:
            return False
        start = self.event(START)
        untouched = start is not None and start.status is EventStatus.UNDONE and start.attempt == 0
        untouched &= self.start.began_at is None
        return not (self.status is LeaseStatus.PENDING and untouched)

    def margins(self, configured: timedelta) -> Margins:
        """Return how long before and after its window the lease occupies resources.

        ``configured`` is the operator's cleaning time. It applies if climate has learned none.
        """
        cleaning = configured if self.cleaning is None else self.cleaning
        return Margins(self.start.lead, cleaning)

    def busy_until(self, end: datetime, configured: timedelta) -> datetime:
        """Return until when resources stay booked that the lease has until ``end``.

        ``configured`` is that of ``margins``.
        """
        return later(end, self.margins(configured).cleaning)

    @property
    def booked_from(self) -> datetime:
        """When the bookings of the lease begin: the lead before its start."""
        return self.window.start - self.start.lead

    def waits_for_hosts(self, now: datetime) -> bool:
        """Return whether the start is due, but may still wait for hosts to be prepared."""
        may_wait = self.start.when is StartWhen.READY and self.status is LeaseStatus.PENDING
        return may_wait and self.window.start <= now < self.window.end

    def event(self, kind: str) -> Event | None:
        """Return the first event with this ``kind``; None if there is none."""
        return next((event for event in self.events if event.kind == kind), None)

    def due(self, event: Event, now: datetime) -> datetime:
        """Return the earliest time at which a manager could have run ``event``.

        - If the lease waited for its hosts, the start and ``before_end_lease`` could not run before
          the hosts were ready. If the hosts are not ready yet, the result is ``now``.
        - The end must wait for the event ``before_end_lease``. The result is the time when that
          event last changed, if this is later than the end's due time.
        - In all other cases, the result is the event's due time, or its creation if that is later.
        """
        due = event.promised_at
        if event.kind == END:
            before = self.event(BEFORE_END)
            return max(due, before.updated_at) if before and before.updated_at else due
        if self.start.delayed_at is None or event.kind not in {START, BEFORE_END}:
            return due
        return max(due, self.start.ready_at or now)

    def tried_since(self, event: Event, now: datetime) -> datetime:
        """Return when the first attempt to run ``event`` ended; ``now`` if none has ended yet.

        After several attempts, this time is no longer stored. Then the result is the earliest time
        at which a manager could run the event, or ``caught_up_at`` if that is later.
        """
        if event.is_untried:
            return now
        if event.attempt <= 1 and event.updated_at is not None:
            return event.updated_at
        due = self.due(event, now)
        return due if self.caught_up_at is None else max(due, self.caught_up_at)


# The properties that name the hardware class of a host, and the length of the longest name.
_CLASS = ("hardware", "hypervisor_type")
_LONGEST = 255


def hardware(host: Resource) -> str:
    """Return the hardware class of a host, such as ``r740``, from its properties.

    This is the property ``hardware``, or else ``hypervisor_type``, or else an empty text.
    """
    values = (host.properties[name] for name in _CLASS if host.properties.get(name))
    return next(values, "")[:_LONGEST]


def node(host: Resource) -> str:
    """Return the name by which provisioners know a host, from its properties.

    This is the property ``node_name``, or else ``hypervisor_hostname``, or else ``external_id``.
    """
    names = (host.properties.get(name) for name in ("node_name", "hypervisor_hostname"))
    return next(filter(None, names), host.external_id)[:_LONGEST]
