"""The lease that a request asks for, not yet admitted: pure but for its new ids."""

from dataclasses import dataclass, field
from datetime import datetime

from climate.core.errors import InvalidDate
from climate.core.lease.lifecycle import EventStatus, LeaseStatus
from climate.core.lease.model import Event, Lease
from climate.core.lease.schedule import BEFORE_END, BEFORE_START, Anchor, Notice, Planned, plan
from climate.core.settings import Settings
from climate.core.start import Start, StartWhen
from climate.core.window import Window, minute_of
from climate.db.engine import ids
from climate.manager import starting
from climate.manager.requests import ReservationRequest, new_reservations
from climate.manager.runtime import Runtime
from climate.plugins.base import Requester


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who asks: the user and the project of the token, and the user's roles there."""

    user_id: str
    project_id: str
    roles: tuple[str, ...] = ()
    token: str | None = field(default=None, repr=False)

    @property
    def requester(self) -> Requester:
        """Return the same, as plugins know it."""
        return Requester(self.project_id, self.user_id, self.token)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRequest:
    """A lease asked for. ``before_end`` None means the configured default.

    ``user_events`` are (kind, moment) pairs; heads-ups among them replace the configured ones.
    ``asked_at`` is when that was, if not just now: what was the present then is not the past.
    """

    name: str
    start: datetime
    end: datetime
    before_end: datetime | None = None
    reservations: tuple[ReservationRequest, ...] = ()
    user_events: tuple[tuple[str, datetime], ...] = field(default=())
    start_when: StartWhen = StartWhen.SCHEDULED
    asked_at: datetime | None = None


def draft(runtime: Runtime, owner: Owner, request: LeaseRequest, now: datetime) -> Lease:
    """Return the lease that was asked for, not yet admitted. Pure but for its new ids.

    Raises InvalidDate, UnsupportedResourceType, NotProvisioned.
    """
    window = Window(request.start, request.end)
    if window.start < minute_of(request.asked_at or now):
        raise InvalidDate("Start date must be later than current date")
    if window.end <= now:
        raise InvalidDate("End date must be later than current and start date")
    lease_id = ids.new_id()
    notices = _notices(request, window, runtime.settings)
    lease = Lease(
        id=lease_id,
        name=request.name,
        user_id=owner.user_id,
        project_id=owner.project_id,
        window=window,
        status=LeaseStatus.PENDING,
        degraded=False,
        notices=notices,
        reservations=new_reservations(runtime, lease_id, request.reservations, ids.new_id, now),
        events=tuple(new_event(lease_id, event, now) for event in plan(window, notices, now)),
        created_at=now,
        updated_at=None,
        start=Start(when=request.start_when),
    )
    starting.check_possible(runtime, lease)
    return lease


def _notices(request: LeaseRequest, window: Window, settings: Settings) -> tuple[Notice, ...]:
    """Return the configured notices, or the lease's own where it brings some."""
    own = [_user_notice(kind, moment, window) for kind, moment in request.user_events]
    if request.before_end is not None:
        own.append(before_end_notice(window, request.before_end))
    if len({notice.offset for notice in own if notice.kind == BEFORE_END}) > 1:
        raise InvalidDate("a lease has one before_end_lease event, more than one date was given")
    kinds = {notice.kind for notice in own}
    if BEFORE_START not in kinds:
        own += [Notice(BEFORE_START, Anchor.START, -lead) for lead in settings.before_start_leads]
    if BEFORE_END not in kinds and settings.before_end_lead:
        own.append(Notice(BEFORE_END, Anchor.END, -settings.before_end_lead.total_seconds()))
    return tuple(own)


def _user_notice(kind: str, moment: datetime, window: Window) -> Notice:
    if kind == BEFORE_END:
        return before_end_notice(window, moment)
    if kind == BEFORE_START and moment >= window.start:
        raise InvalidDate("a before_start_lease event must be before the start of the lease")
    if moment > window.end:
        raise InvalidDate(f"event {kind} must not be after the end of the lease")
    return Notice(kind, Anchor.START, (moment - window.start).total_seconds())


def new_event(lease_id: str, planned: Planned, now: datetime) -> Event:
    """Return an event to be stored."""
    return Event(
        id=ids.new_id(),
        lease_id=lease_id,
        kind=planned.kind,
        due_at=planned.due_at,
        status=EventStatus.UNDONE,
        attempt=0,
        last_error=None,
        created_at=now,
        updated_at=None,
    )


def before_end_notice(window: Window, before_end: datetime) -> Notice:
    """Return the notice for an explicit moment, strictly inside the lease."""
    if not window.start < before_end < window.end:
        raise InvalidDate("before_end_date must be after the start and before the end of the lease")
    return Notice(BEFORE_END, Anchor.END, (before_end - window.end).total_seconds())
