"""The use cases of a lease: create, show, list, delete (updates have a module of their own).

Each is one transaction: lease, reservations, allocations, events and the notification about it
are written together or not at all.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from sqlalchemy.orm import Session

from climate.core.errors import InvalidDate
from climate.core.lease import blazar_wire
from climate.core.lease.lifecycle import EventStatus, LeaseStatus
from climate.core.lease.model import Lease
from climate.core.lease.schedule import END, RELEASE, START, Planned
from climate.core.once import Once
from climate.core.settings import Settings
from climate.db import events, idempotency, leases
from climate.db.limits import keep_past_use
from climate.db.notifications import outbox
from climate.db.resources import allocations
from climate.db.tables.bulk import Rows, insert
from climate.manager import holds, limits
from climate.manager.admission import Shortage, admit, rows
from climate.manager.drafts import LeaseRequest, Owner, draft, new_event
from climate.manager.farewells import note_end
from climate.manager.refusal import explained
from climate.manager.requests import (
    arranging,
    check_properties,
    requirements_of,
    taken_window,
)
from climate.manager.runtime import Runtime
from climate.manager.search import Wanted
from climate.observability import log_context
from climate.observability.metrics import counted

# Raises a refusal if the lease, locked by then, is not what the caller takes it for.
Precondition = Callable[[Lease], None]


@counted("create")
def create(
    runtime: Runtime, owner: Owner, request: LeaseRequest, once: Once | None = None
) -> Lease:
    """Admit a lease and return it; ``once`` however often it is asked for.

    Raises InvalidDate, InvalidQuery, UnsupportedResourceType, NotEnoughResources, LimitExceeded,
    Contention, AlreadyAnswered, IdempotencyKeyReused, RequestUnderWay; as ``holds.settle`` does.
    """
    now = runtime.clock.now()
    lease = _drafted(runtime, owner, request, now, once)
    log_context.about_lease(lease.id)
    is_held = holds.is_needed(runtime, lease)
    release = new_event(lease.id, Planned(RELEASE, now + runtime.settings.hold_timeout), now)
    stored = holds.held(lease, release) if is_held else lease

    def work(session: Session) -> None:
        if once is not None:
            idempotency.claim(session, once, now, lease.id if is_held else None)
        limit = limits.guard(session, runtime.settings.limits, lease, owner.roles)
        limit.check_dates(None, lease.window, now)
        told = (
            () if is_held else (outbox.rows([("lease.create", blazar_wire.payload(lease))], now),)
        )
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
        lease = holds.settle(runtime, lease, owner.requester, once)
    runtime.wakeup.hint()
    return lease


def _drafted(
    runtime: Runtime, owner: Owner, request: LeaseRequest, now: datetime, once: Once | None
) -> Lease:
    try:
        return draft(runtime, owner, request, now)
    except InvalidDate:
        if once is not None:  # when it was asked for first, it was in time
            recall(runtime, once)
        raise


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
    outbox.write(session, "lease.delete", blazar_wire.payload(gone), now)


def has_begun(lease: Lease) -> bool:
    """Tell whether anything may have been done to the cloud for this lease."""
    start = lease.event(START)
    untouched = start is not None and start.status is EventStatus.UNDONE and start.attempt == 0
    return not (lease.status is LeaseStatus.PENDING and untouched)


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
