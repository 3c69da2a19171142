"""The objects of API v2, as immutable structs. Times are aware datetimes in UTC.

Unknown members of an answer are ignored, so a client works with later releases of the service. A
status is text, because later releases may have others.
"""

from datetime import datetime
from typing import Any

import msgspec


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """The base class of all objects."""

    def to_dict(self) -> dict[str, Any]:
        """Return the object as JSON values, with times in ISO 8601."""
        values: dict[str, Any] = msgspec.to_builtins(self)
        return values


class Event(Model, frozen=True, kw_only=True):
    """A step of a lease that happens at a certain time, such as its start."""

    id: str
    type: str
    at: datetime
    status: str


class Reservation(Model, frozen=True, kw_only=True):
    """A reservation of a lease.

    ``params`` are the requested parameters. ``details`` has what users need to use the resources.
    ``run_state`` is None unless ``on_start`` is ``manual``.
    """

    id: str
    resource_type: str
    status: str
    run_state: str | None = None
    params: dict[str, Any]
    details: dict[str, Any] = {}
    missing_resources: bool = False
    resources_changed: bool = False
    created_at: datetime | None = None
    updated_at: datetime | None = None


class Waiting(Model, frozen=True, kw_only=True):
    """The place of a lease in the wait list. ``position`` 1 is the first."""

    position: int
    priority: int
    until: datetime
    promised_start: datetime | None = None
    expected_start: datetime | None = None
    held_back: str | None = None


class Lease(Model, frozen=True, kw_only=True):
    """A lease. ``etag`` changes with the lease; it is empty for a lease in a list."""

    id: str
    name: str
    user_id: str
    project_id: str
    status: str
    start: datetime
    end: datetime
    booked_from: datetime | None = None
    start_when: str = "scheduled"
    ready_at: datetime | None = None
    start_delayed_at: datetime | None = None
    started_at: datetime | None = None
    degraded: bool = False
    trust_lost: str | None = None
    reservations: list[Reservation] = []
    events: list[Event] = []
    waiting: Waiting | None = None
    created_at: datetime
    updated_at: datetime | None = None
    etag: str = ""


class LeaseResource(Model, frozen=True, kw_only=True):
    """A resource that a reservation of a lease has or will have."""

    id: str
    name: str
    resource_type: str
    reservation_id: str
    start: datetime
    end: datetime
    busy_until: datetime
    state: str
    ready_at: datetime | None = None
    amounts: dict[str, int] = {}
    handed_over: bool = False
    properties: dict[str, str] = {}


class PastResource(Model, frozen=True, kw_only=True):
    """A resource that a past lease had at its end."""

    id: str
    name: str
    amounts: dict[str, int] = {}


class PastReservation(Model, frozen=True, kw_only=True):
    """A reservation of a past lease."""

    id: str
    resource_type: str
    status: str
    resources: list[PastResource] = []


class PastLease(Model, frozen=True, kw_only=True):
    """A lease that had started, and then ended or was deleted."""

    id: str
    name: str
    user_id: str
    project_id: str
    status: str
    degraded: bool = False
    start: datetime
    end: datetime
    started_at: datetime | None = None
    ended_at: datetime
    created_at: datetime
    reservations: list[PastReservation] = []


class LimitedParty(Model, frozen=True, kw_only=True):
    """A project or a user, its limits (None: unlimited; times in seconds) and its usage."""

    scope: str
    id: str
    limits: dict[str, int | None]
    used: dict[str, float]


class Limits(Model, frozen=True, kw_only=True):
    """The limits of a project and a user.

    ``apply`` is false if no limits apply to the caller. ``period`` is the number of seconds in
    which host-hours are summed.
    """

    apply: bool
    period: int
    parties: list[LimitedParty]


class NamedResource(Model, frozen=True, kw_only=True):
    """A resource with its id and its name."""

    id: str
    name: str


class FreeCapacity(Model, frozen=True, kw_only=True):
    """How many units are free for a reservation during the whole lease (None: not counted)."""

    resource_type: str
    asked: int
    free: int | None = None
    matching: int | None = None
    resources: list[NamedResource] = []


class DryRun(Model, frozen=True, kw_only=True):
    """A request that climate would admit now. Nothing is stored or reserved.

    ``not_checked`` names what only the real request does.
    """

    admitted: bool
    lease: Lease
    reservations: list[FreeCapacity]
    limits: Limits | None = None
    not_checked: list[str] = []


class LeaseReadiness(Model, frozen=True, kw_only=True):
    """Whether provisioners have prepared the hosts of a lease.

    ``state`` is None if the lease needs no preparation.
    ``early`` is the number of seconds between readiness and start; negative: late.
    """

    state: str | None
    hosts: int
    ready: int
    ready_at: datetime | None = None
    early: float | None = None
    reasons: list[str] = []
    waiting_for: list[str] = []


class Lead(Model, frozen=True, kw_only=True):
    """How long before a lease the preparation of a host starts, in seconds, and why."""

    seconds: float
    usual: float
    allowance: float
    own_times: int
    class_times: int


class HostReadiness(Model, frozen=True, kw_only=True):
    """Whether a host is ready for its next lease. ``set_aside`` is the reason of a quarantine."""

    resource_id: str
    name: str
    hardware: str
    state: str | None
    ready_at: datetime | None = None
    early: float | None = None
    set_aside: str | None = None
    set_aside_at: datetime | None = None
    up: bool | None = None
    seen_at: datetime | None = None
    times: list[float] = []
    lead: Lead | None = None


class ReadinessShare(Model, frozen=True, kw_only=True):
    """How many leases had all hosts ready at their start, by hardware class and period."""

    hardware: str
    since: datetime | None
    leases: int
    ready_leases: int
    short_notice: int
    ready_share: float
    hosts: int
    ready_hosts: int
    mean_early: float | None = None


class FreeStep(Model, frozen=True, kw_only=True):
    """How many units are free during a window."""

    start: datetime
    end: datetime
    free: int


class Window(Model, frozen=True, kw_only=True):
    """A window in which climate would admit the lease now; it may start until ``latest_start``."""

    start: datetime
    end: datetime
    latest_start: datetime


class ForbiddenWindow(Model, frozen=True, kw_only=True):
    """A window in which the lease would fit, but that a limit forbids; ``detail`` says which."""

    start: datetime
    end: datetime
    detail: str


class FoundWindows(Model, frozen=True, kw_only=True):
    """The result of a search for windows, the earliest first."""

    windows: list[Window]
    forbidden: list[ForbiddenWindow] = []


class Holder(Model, frozen=True, kw_only=True):
    """A lease that has a resource from ``start`` to ``end``."""

    lease_id: str
    lease_name: str
    project_id: str
    user_id: str
    start: datetime
    end: datetime


class Booking(Holder, frozen=True, kw_only=True):
    """A booking; after its end, the resource is cleaned until ``busy_until``."""

    busy_until: datetime
    status: str
    reservation_id: str
    amounts: dict[str, int] = {}


class Resource(Model, frozen=True, kw_only=True):
    """A reservable resource. ``now`` and ``next`` are set only if the caller asks for bookings.

    ``etag`` changes with the resource; it is empty in a list.
    """

    id: str
    resource_type: str
    name: str
    reservable: bool
    state: str
    power: dict[str, Any] | None = None
    properties: dict[str, str] = {}
    created_at: datetime
    updated_at: datetime | None = None
    now: Holder | None = None
    next: Holder | None = None
    etag: str = ""


class ResourceType(Model, frozen=True, kw_only=True):
    """A resource type, with the JSON Schema of the parameters of its reservations."""

    name: str
    title: str
    description: str
    countable: bool = False
    amounts: list[str] = []
    booked_type: str | None = None
    unit: dict[str, Any] = {}
    fixed: list[str] = []
    schema: dict[str, Any]


class Property(Model, frozen=True, kw_only=True):
    """A property of resources, with up to 20 of its values."""

    name: str
    values: list[str]
    numeric: bool = False
    private: bool = False


class CalendarGroup(Model, frozen=True, kw_only=True):
    """A group of rows: resources with the same value of a property."""

    name: str | None
    first: int
    rows: int
    free_now: int


class CalendarRow(Model, frozen=True, kw_only=True):
    """A resource, and in ``x`` the intervals that occupy it.

    An interval is offset and length in seconds, kind, and for kinds 1 and 6 one more number.
    """

    id: str
    name: str
    state: str
    group: str | None = None
    x: list[int] = []


class CalendarLease(Model, frozen=True, kw_only=True):
    """A lease that intervals of the calendar refer to."""

    id: str
    name: str
    status: str
    degraded: bool = False
    start: datetime
    end: datetime
    project_id: str
    mine: bool


class Calendar(Model, frozen=True, kw_only=True):
    """A page of the calendar.

    ``total`` is the number of rows on all pages, ``reservable`` how many of them leases can book.
    """

    start: datetime
    end: datetime
    version: str
    total: int
    reservable: int | None = None
    offset: int
    rows: list[CalendarRow]
    leases: list[CalendarLease]
    groups: list[CalendarGroup] = []


class Notification(Model, frozen=True, kw_only=True):
    """A notification. If it is about a lease, ``payload`` is the lease in the format of v1."""

    seq: int
    message_id: str
    event_type: str
    lease_id: str | None
    created_at: datetime
    payload: dict[str, Any]


class Subscription(Model, frozen=True, kw_only=True):
    """A webhook: a URL that receives notifications."""

    id: str
    project_id: str
    user_id: str
    url: str
    event_types: list[str] = []
    lease_id: str | None = None
    resource_type: str | None = None
    all_projects: bool = False
    before_start_leads: list[int] = []
    status: str
    reason: str | None = None
    after: int
    delivered_at: datetime | None = None
    dead_letters: int = 0
    created_at: datetime
    updated_at: datetime | None = None


class DeadLetter(Model, frozen=True, kw_only=True):
    """A notification that the receiver of a subscription did not accept."""

    seq: int
    attempts: int
    reason: str
    redelivering: bool
    failed_at: datetime


class Feed(Model, frozen=True, kw_only=True):
    """A calendar feed. Only the answer to the request that creates it has its secret ``url``."""

    id: str
    scope: str
    target_id: str
    name: str
    project_id: str
    user_id: str
    created_at: datetime
    last_read_at: datetime | None = None
    url: str | None = None
