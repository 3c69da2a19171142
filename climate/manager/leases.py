"""The use cases of a lease: create, show, list, delete (updates have a module of their own).

Each is one transaction: lease, reservations, allocations, events and the notification about it
are written together or not at all.
"""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

from sqlalchemy.orm import Session

from climate import log_context
from climate.core import wire
from climate.core.errors import InvalidDate
from climate.core.lease import Event, Lease
from climate.core.lifecycle import EventStatus, LeaseStatus
from climate.core.once import Once
from climate.core.schedule import (
    BEFORE_END,
    BEFORE_START,
    END,
    RELEASE,
    START,
    Anchor,
    Notice,
    Planned,
    plan,
)
from climate.core.settings import Settings
from climate.core.window import Window
from climate.db import allocations, events, idempotency, leases, outbox
from climate.db.limits import keep_past_use
from climate.db.rows import Rows, insert
from climate.manager import holds, limits
from climate.manager.admission import Shortage, admit, rows
from climate.manager.farewells import note_end
from climate.manager.refusal import explained
from climate.manager.requests import (
    ReservationRequest,
    arranging,
    check_properties,
    new_reservation,
    requirements_of,
    taken_window,
)
from climate.manager.runtime import Runtime
from climate.manager.search import Wanted
from climate.metrics import counted
from climate.plugins.base import Asker

# Raises a refusal if the lease, locked by then, is not what the caller takes it for.
Precondition = Callable[[Lease], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who asks: the user and the project of the token, and the user's roles there."""

    user_id: str
    project_id: str
    roles: tuple[str, ...] = ()
    token: str | None = field(default=None, repr=False)

    @property
    def asker(self) -> Asker:
        """Return the same, as plugins know it."""
        return Asker(self.project_id, self.user_id, self.token)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRequest:
    """A lease asked for. ``before_end`` None means the configured default.

    ``user_events`` are (kind, moment) pairs; heads-ups among them replace the configured ones.
    """

    name: str
    start: datetime
    end: datetime
    before_end: datetime | None = None
    reservations: tuple[ReservationRequest, ...] = ()
    user_events: tuple[tuple[str, datetime], ...] = field(default=())


@counted("create")
def create(
    runtime: Runtime, owner: Owner, request: LeaseRequest, once: Once | None = None
) -> Lease:
    """Admit a lease and return it; ``once`` however often it is asked for.

    Raises InvalidDate, InvalidQuery, UnsupportedResourceType, NotEnoughResources, LimitExceeded,
    Contention, AlreadyAnswered, IdempotencyKeyReused, RequestUnderWay; as ``holds.settle`` does.
    """
    now = runtime.clock.now()
    lease = _draft(runtime, owner, request, now)
    log_context.about_lease(lease.id)
    is_held = holds.is_needed(runtime, lease)
    release = new_event(lease.id, Planned(RELEASE, now + runtime.settings.hold_timeout), now)
    stored = holds.held(lease, release) if is_held else lease

    def work(session: Session) -> None:
        if once is not None:
            idempotency.claim(session, once, now, lease.id if is_held else None)
        limit = limits.guard(session, runtime.settings.limits, lease, owner.roles)
        limit.check_dates(None, lease.window, now)
        told = () if is_held else (outbox.rows("lease.create", wire.payload(lease), now),)
        _book(runtime, session, stored, now, *told)
        limit.check_new(session, lease, now)
        if once is not None and not is_held:
            idempotency.remember(session, once, lease)

    try:
        runtime.database.write(work)
    except Shortage as shortage:
        with runtime.database.read() as session:
            limit = limits.guard(session, runtime.settings.limits, lease, owner.roles, lock=False)
            leeway = limits.Leeway(limit=limit)
            raise explained(runtime, session, shortage, lease, leeway) from None
    if is_held:
        lease = holds.settle(runtime, lease, owner.asker, once)
    runtime.wakeup.hint()
    return lease


def _book(runtime: Runtime, session: Session, lease: Lease, now: datetime, *told: Rows) -> None:
    """Store the lease with all that it asks for, and what is told; may raise as ``create``."""
    wanted = [
        Wanted(reservation_id=made.id, requirement=part)
        for made in lease.reservations
        for part in requirements_of(runtime, made)
    ]
    busy = taken_window(lease.window, now, runtime.settings)
    check_properties(session, runtime, [want.requirement for want in wanted])
    taken = admit(session, wanted, busy, runtime.preference())
    insert(session, *leases.rows(lease), allocations.as_rows(rows(wanted, taken, busy)), *told)


def recall(runtime: Runtime, once: Once) -> None:
    """Return if the request is new; raises what ``create`` does if it is not."""
    with runtime.database.read() as session:
        idempotency.look(session, once)


def get(runtime: Runtime, lease_id: str) -> Lease:
    """Return a lease; raises NotFound."""
    with runtime.database.read() as session:
        return holds.shown(leases.get(session, lease_id))


def find_all(runtime: Runtime, project_id: str | None) -> list[Lease]:
    """Return the leases of a project, or all."""
    with runtime.database.read() as session:
        return leases.find_all(session, project_id)


def delete(
    runtime: Runtime, lease_id: str, wait: float = 0.0, precondition: Precondition | None = None
) -> bool:
    """Remove a lease; one that was started is ended first, by a manager.

    The lease shows as DELETING meanwhile; up to ``wait`` seconds are spent waiting for its end.
    Returns whether it is gone. Raises NotFound, and what ``precondition`` raises.
    """
    now = runtime.clock.now()

    def work(session: Session) -> bool:
        lease = holds.shown(leases.get(session, lease_id, lock=True))
        if precondition is not None:
            precondition(lease)
        if not has_begun(lease) and not arranging(runtime, lease.reservations):
            note_end(runtime, session, lease, now)
        elif lease.status is not LeaseStatus.TERMINATED:
            _end_now(session, lease, now)
            return False
        remove(session, lease, now, runtime.settings)
        return True

    gone = runtime.database.write(work)
    runtime.wakeup.hint()
    return gone or _is_gone_within(runtime, lease_id, wait)


def remove(session: Session, lease: Lease, now: datetime, settings: Settings) -> None:
    """Remove the lease's rows, and tell. Resources that were used get their cleaning time."""
    ids = [reservation.id for reservation in lease.reservations]
    if ids and has_begun(lease):
        if settings.limits.enabled:
            keep_past_use(session, lease, ids, now)
        allocations.detach(session, ids, now + settings.cleaning_time)
    gone = replace(lease, status=LeaseStatus.DELETING, updated_at=now)
    leases.delete(session, lease.id)
    outbox.write(session, "lease.delete", wire.payload(gone), now)


def has_begun(lease: Lease) -> bool:
    """Tell whether anything may have been done to the cloud for this lease."""
    start = lease.event(START)
    untouched = start is not None and start.status is EventStatus.UNDONE and start.attempt == 0
    return not (lease.status is LeaseStatus.PENDING and untouched)


def new_event(lease_id: str, planned: Planned, now: datetime) -> Event:
    """Return an event to be stored."""
    return Event(
        id=str(uuid.uuid4()),
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


def _draft(runtime: Runtime, owner: Owner, request: LeaseRequest, now: datetime) -> Lease:
    """Return the lease that was asked for, not yet admitted. Pure but for its new ids."""
    window = Window(request.start, request.end)
    if window.start < now.replace(second=0, microsecond=0) or window.end <= now:
        raise InvalidDate("Start date must be later than current date")
    lease_id = str(uuid.uuid4())
    notices = _notices(request, window, runtime.settings)
    return Lease(
        id=lease_id,
        name=request.name,
        user_id=owner.user_id,
        project_id=owner.project_id,
        window=window,
        status=LeaseStatus.PENDING,
        degraded=False,
        notices=notices,
        reservations=tuple(
            new_reservation(runtime, lease_id, asked, str(uuid.uuid4()), now)
            for asked in request.reservations
        ),
        events=tuple(new_event(lease_id, event, now) for event in plan(window, notices, now)),
        created_at=now,
        updated_at=None,
    )


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


def _end_now(session: Session, lease: Lease, now: datetime) -> None:
    """Leave the rest to a manager: the end is due now, and nothing else is any more."""
    if lease.status is LeaseStatus.DELETING:
        return
    leases.set_status(session, lease.id, LeaseStatus.DELETING, now)
    end = lease.event(END)
    assert end is not None  # noqa: S101 - every lease has one (invariant 2)
    if end.status is not EventStatus.IN_PROGRESS:
        events.rearm(session, end.id, now, now)
    obsolete = [
        event.id
        for event in lease.events
        if event.kind != END and event.status is EventStatus.UNDONE
    ]
    events.remove(session, obsolete)


def _is_gone_within(runtime: Runtime, lease_id: str, wait: float) -> bool:
    deadline = time.monotonic() + wait
    pause = 0.02
    while time.monotonic() < deadline:
        time.sleep(pause)
        with runtime.database.read() as session:
            if not leases.exists(session, lease_id):
                return True
        pause = min(pause * 1.5, 0.2)
    return False
