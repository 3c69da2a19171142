"""Which resources a changed lease keeps, and which it gets instead.

All within the transaction of the change: the lease's bookings are given up, so that they do not
count against it, and what it keeps or gains is taken anew. If that fails, all of it is undone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy.orm import Session

from climate.core.change import has_started
from climate.core.errors import NotEnoughResources
from climate.core.lease import Lease, Reservation
from climate.core.lifecycle import ReservationStatus
from climate.core.requirement import Requirement
from climate.core.window import Window
from climate.db import allocations
from climate.manager.admission import Wanted, admit, rows
from climate.manager.leases import check_properties, requirement_of, taken_window
from climate.manager.runtime import Runtime


def reallocate(
    runtime: Runtime,
    session: Session,
    lease: Lease,
    reservations: Sequence[Reservation],
    window: Window,
    now: datetime,
) -> bool:
    """Store the allocations for the changed lease; tell whether there are new resources.

    A pending lease keeps what still fits and takes others for the rest. One that has started
    keeps all it has. Raises NotEnoughResources.
    """
    live = [r for r in reservations if r.status is not ReservationStatus.DELETED]
    if not live:
        return False
    requirements = {r.id: requirement_of(runtime, r) for r in live}
    check_properties(session, runtime, list(requirements.values()))
    held = allocations.held(session, list(requirements))
    allocations.lock(session, {id_ for ids in held.values() for id_ in ids}, wait=True)
    allocations.release(session, list(requirements))
    if window.end <= now:  # it ends now: nothing to look for, the rest is the manager's
        _take_kept(session, runtime, held, window)
        return False
    busy = taken_window(window, now, runtime.settings)
    growing = _growing(lease, live, window, now)
    started = has_started(lease, now)
    wanted = []
    for id_, ids in held.items():
        kept = _kept(session, requirements[id_], tuple(ids), busy)
        if started and len(kept) < len(ids):
            raise _still_in_use(id_, len(ids), len(kept))
        want = Wanted(reservation_id=id_, requirement=requirements[id_], kept=kept)
        wanted.append(want if id_ in growing else _no_more(want))
    taken = admit(session, wanted, busy, runtime.rng.random())
    allocations.take(session, rows(taken, busy))
    since = {
        want.reservation_id: {
            id_: held[want.reservation_id][id_] if started else busy.start for id_ in want.kept
        }
        for want in wanted
    }
    _take_kept(session, runtime, since, window)
    return any(taken.values())


def _growing(lease: Lease, live: Sequence[Reservation], window: Window, now: datetime) -> set[str]:
    """Return the reservations that are filled up to their maximum, as they changed or moved.

    Shrinking a lease's dates, or prolonging one that runs, is no reason to give it more.
    """
    before = {reservation.id: reservation.params for reservation in lease.reservations}
    moving = not has_started(lease, now) and not lease.window.contains(window)
    return {r.id for r in live if moving or r.params != before[r.id]}


def _kept(
    session: Session, requirement: Requirement, held: tuple[int, ...], busy: Window
) -> tuple[int, ...]:
    """Return those of ``held`` that still fit, as many as are allowed."""
    fitting = allocations.still_free(
        session, requirement.resource_type, requirement.query, busy, held
    )
    return tuple(id_ for id_ in held if id_ in fitting)[: requirement.maximum]


def _no_more(want: Wanted) -> Wanted:
    """Return ``want`` content with its minimum, or with what it has."""
    maximum = max(want.requirement.minimum, len(want.kept))
    return replace(want, requirement=replace(want.requirement, maximum=maximum))


def _still_in_use(reservation_id: str, held: int, kept: int) -> NotEnoughResources:
    return NotEnoughResources(
        f"Not enough hosts available: reservation {reservation_id} is in use with {held} hosts,"
        f" of which it could keep only {kept} (the others are booked by somebody else then,"
        " do not match, or are more than max)"
    )


def _take_kept(
    session: Session,
    runtime: Runtime,
    kept: Mapping[str, Mapping[int, datetime]],
    window: Window,
) -> None:
    """Take what is kept; nothing of it if the clock was set back to before it was taken."""
    busy_until = window.busy(runtime.settings.cleaning_time).end
    allocations.take(
        session,
        [
            {
                "resource_id": resource_id,
                "reservation_id": reservation_id,
                "start_at": start_at,
                "busy_until": busy_until,
            }
            for reservation_id, resources in kept.items()
            for resource_id, start_at in resources.items()
            if start_at < busy_until
        ],
    )
