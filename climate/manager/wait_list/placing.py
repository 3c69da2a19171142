"""Place a waiting lease: book it, move its booking to an earlier time, or withdraw the booking.

Each function changes one lease in one transaction. Like any other admission, it locks the lease,
then the rows of the limits, then resources. If it fails, nothing changes. So a lease never loses
its booking because climate looks for a better one.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from climate.core.errors import LimitExceeded, NotFound
from climate.core.lease import blazar_wire
from climate.core.lease.change import moved
from climate.core.lease.lifecycle import LEASE, EventStatus, LeaseStatus, step
from climate.core.lease.model import Event, Lease
from climate.core.lease.schedule import plan
from climate.core.lease.wait_list import HeldBack, Wait
from climate.core.matching.requirement import Requirement
from climate.core.notifications import event_type
from climate.core.notifications.event_type import EventType
from climate.core.window import Margins, Window, second_from
from climate.db.engine import ids
from climate.db.events import queue as event_queue
from climate.db.leases import leases, waits
from climate.db.notifications import outbox
from climate.db.resources import allocations
from climate.manager.admission import window_search
from climate.manager.admission.admission import InsufficientResources, admit, rows
from climate.manager.admission.candidates import Demand
from climate.manager.admission.gates import Gate
from climate.manager.admission.limits.limits import LimitGate
from climate.manager.admission.requirements import (
    margins_of,
    occupied_by,
    requirements_of,
    with_new_margins,
)
from climate.manager.leases.event_plan import reminder_gates, reschedule
from climate.manager.process.runtime import Runtime

# Searches for a window, if other requests book the windows that were found.
_ATTEMPTS = 5
_SECOND = timedelta(seconds=1)


class _NothingEarlier(Exception):
    """Raised to roll back a transaction that found no earlier start for a lease."""


def book_earliest(runtime: Runtime, wait: Wait) -> datetime | None:
    """Book the earliest free window for a waiting lease; return its start.

    Returns None if the lease was not booked: it does not wait any more, or it is held back.
    """
    for _ in range(_ATTEMPTS):
        now = runtime.clock.now()
        window = _earliest(runtime, wait, now)
        if window is None:
            hold_back(runtime, wait, HeldBack.NO_WINDOW)
            return None
        try:
            return window.start if book(runtime, wait, window) else None
        except InsufficientResources:
            continue  # another request has booked the window meanwhile
    return None


def book_now(runtime: Runtime, wait: Wait) -> bool:
    """Book a waiting lease from now on; return whether it was booked."""
    start = second_from(max(runtime.clock.now(), wait.earliest))
    window = Window(start, start + wait.length)
    try:
        return window.end <= wait.end_by and book(runtime, wait, window)
    except InsufficientResources:
        return False


def book(runtime: Runtime, wait: Wait, window: Window) -> bool:
    """Book a window for a waiting lease; return False if it does not wait, or a limit forbids it.

    Raises InsufficientResources.
    """
    try:
        is_booked = runtime.database.write(
            lambda session: _book(runtime, session, wait, window, runtime.clock.now())
        )
    except LimitExceeded:
        hold_back(runtime, wait, HeldBack.LIMIT)
        return False
    if is_booked:
        runtime.wakeup.hint()
    return is_booked


def move_forward(runtime: Runtime, wait: Wait) -> datetime | None:
    """Move the booking of a lease to an earlier time, if possible; return its new start.

    ``wait`` has a promise. The function removes the booking in a transaction, searches, and rolls
    back if it finds nothing earlier.
    """
    try:
        start = runtime.database.write(
            lambda session: _move(runtime, session, wait, runtime.clock.now())
        )
    except (_NothingEarlier, InsufficientResources):
        return None
    if start is not None:
        runtime.wakeup.hint()
    return start


def _book(runtime: Runtime, session: Session, wait: Wait, window: Window, now: datetime) -> bool:
    lease = locked(session, wait.lease_id)
    if lease is None or not _is_waiting(lease):
        return False
    booked = replace(
        with_new_margins(runtime, session, lease, window.start, now),
        window=window,
        status=step(LEASE, lease.status, LeaseStatus.PENDING),
        updated_at=now,
        events=tuple(
            Event.planned(planned, lease.id, ids.new_id(), now)
            for planned in plan(window, lease.notices, now)
        ),
    )
    gates = [*reminder_gates(runtime, booked), *_gates(runtime, wait)]
    for gate in gates:
        gate.before(session, booked, now)
    _take(runtime, session, booked, now)
    event_queue.remove(session, [event.id for event in lease.events])
    leases.update(session, booked)
    leases.insert_events(session, booked.events, lead=booked.start.lead)
    for gate in gates:
        gate.after(session, booked, now)
    waits.promise(session, lease.id, window.start)
    _tell(session, event_type.LEASE_PROMISED, booked, now)
    _tell(session, event_type.LEASE_CREATE, booked, now)
    return True


def _move(runtime: Runtime, session: Session, wait: Wait, now: datetime) -> datetime | None:
    lease = locked(session, wait.lease_id)
    if lease is None or lease.has_begun or lease.window.start <= now:
        return None
    allocations.release(session, [reservation.id for reservation in lease.reservations])
    length = lease.window.end - lease.window.start
    # Only earlier starts, because it is slow to check that the present one is possible.
    start, end = second_from(max(now, wait.earliest)), lease.window.end - _SECOND
    if start + length > end:
        raise _NothingEarlier
    requirements, within = requirements_of_lease(runtime, lease), Window(start, end)
    margins = _margins(runtime, session, lease, requirements, now)
    query = window_search.window_search(runtime, requirements, length, within, margins=margins)
    offer = next(window_search.offers(runtime, session, query), None)
    if offer is None:
        raise _NothingEarlier
    earlier = with_new_margins(runtime, session, lease, offer.window.start, now)
    changed = moved(earlier, offer.window, lease.notices, now)
    _take(runtime, session, changed, now)
    leases.update(session, changed)
    reschedule(session, lease, changed, now)
    waits.promise(session, lease.id, offer.window.start)
    payload = blazar_wire.payload(changed)
    outbox.write(session, event_type.LEASE_MOVED_FORWARD, payload, now, lease.window)
    return offer.window.start


def _take(runtime: Runtime, session: Session, lease: Lease, now: datetime) -> None:
    """Choose and book resources for the window of a lease; low ids first, so that gaps stay large.

    Only one process at a time places the leases of a pool, so there are few conflicts.
    """
    demands = [
        Demand(reservation_id=reservation.id, requirement=requirement)
        for reservation in lease.reservations
        for requirement in requirements_of(runtime.catalog, reservation, lease.project_id)
    ]
    occupied = occupied_by(lease, now, runtime.settings)
    chosen = admit(session, demands, occupied, runtime.preference(packs=True))
    allocations.take(session, rows(demands, chosen, occupied))


def _earliest(runtime: Runtime, wait: Wait, now: datetime) -> Window | None:
    """Return the earliest free window of a waiting lease; None if there is none before its end."""
    start = second_from(max(now, wait.earliest))
    if start + wait.length > wait.end_by:
        return None
    with runtime.database.read() as session:
        lease = _found(session, wait.lease_id)
        if lease is None:
            return None
        requirements = requirements_of_lease(runtime, lease)
        within = Window(start, wait.end_by)
        margins = _margins(runtime, session, lease, requirements, now)
        return window_search.earliest(runtime, session, requirements, wait.length, within, margins)


def _margins(
    runtime: Runtime,
    session: Session,
    lease: Lease,
    requirements: Sequence[Requirement],
    now: datetime,
) -> Margins:
    """Return how long before and after its window a new booking of the lease needs capacity."""
    live = [each for each in lease.reservations if each.stays]
    return margins_of(runtime, session, live, requirements, now)


def requirements_of_lease(runtime: Runtime, lease: Lease) -> Sequence[Requirement]:
    """Return what the reservations of a lease need, without requirements for 0 units."""
    parts = (
        requirements_of(runtime.catalog, r, lease.project_id) for r in lease.reservations if r.stays
    )
    return [part for each in parts for part in each if part.maximum]


def hold_back(runtime: Runtime, wait: Wait, reason: HeldBack) -> None:
    """Store why a waiting lease was not placed, so that passes leave it out for a minute."""
    now = runtime.clock.now()
    runtime.database.write(lambda session: waits.hold_back(session, wait, reason, now))


def locked(session: Session, lease_id: str) -> Lease | None:
    """Lock a lease, and return it; None if it does not exist any more."""
    try:
        return leases.get(session, lease_id, lock=True)
    except NotFound:
        return None


def _found(session: Session, lease_id: str) -> Lease | None:
    return leases.find_some(session, [lease_id]).get(lease_id)


def _is_waiting(lease: Lease) -> bool:
    """Return whether the lease waits, and no manager has begun to remove it from the list."""
    is_expiring = any(
        event.attempt or event.status is not EventStatus.UNDONE for event in lease.events
    )
    return lease.status is LeaseStatus.WAITING and not is_expiring


def _gates(runtime: Runtime, wait: Wait) -> list[Gate]:
    """Return the check of the limits, as for a new lease; none if the limits do not apply."""
    rules = runtime.settings.limits
    return [LimitGate(rules, ())] if rules.enabled and not wait.is_exempt else []


def _tell(session: Session, type_: EventType, lease: Lease, now: datetime) -> None:
    outbox.write(session, type_, blazar_wire.payload(lease), now)
