"""Which resources a changed lease keeps, and which it gets instead.

All within the transaction of the change: the lease's bookings are given up, so that they do not
count against it, and what it keeps or gains is taken anew. If that fails, all of it is undone.
"""

from collections.abc import Collection, Mapping, Sequence
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
from climate.db.engine import LostRace, is_patient
from climate.manager.admission import Wanted, admit, candidates, rows
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
    rotation = runtime.rng.random()
    busy = taken_window(window, now, runtime.settings) if window.end > now else None
    locked = _lock(session, requirements, held, busy, rotation)
    allocations.release(session, list(requirements))
    if busy is None:  # it ends now: nothing to look for, the rest is the manager's
        _take_kept(session, runtime, held, window)
        return False
    started = has_started(lease, now)
    growing = _growing(lease, live, window, now)
    wanted = _wanted(session, requirements, held, busy, growing, started=started)
    taken = admit(session, wanted, busy, rotation, locked)
    allocations.take(session, rows(taken, busy))
    since = {
        want.reservation_id: {
            id_: held[want.reservation_id][id_] if started else busy.start for id_ in want.kept
        }
        for want in wanted
    }
    _take_kept(session, runtime, since, window)
    return any(taken.values())


def _lock(
    session: Session,
    requirements: Mapping[str, Requirement],
    held: Mapping[str, Collection[int]],
    busy: Window | None,
    rotation: float,
) -> set[int]:
    """Lock what the lease has, at least; return all that is locked now. Raises LostRace.

    Whoever has a lock may not wait for another, or two would wait for each other. So all is
    locked at once: a patient attempt locks besides what it may want, and never waits again.
    """
    mine = {id_ for ids in held.values() for id_ in ids}
    wanted = set(mine)
    patient = is_patient(session)
    if patient and busy is not None:
        wants = [Wanted(reservation_id=id_, requirement=req) for id_, req in requirements.items()]
        wanted.update(*candidates(session, wants, busy, rotation))
    locked = allocations.lock(session, wanted, wait=patient)
    if not mine <= locked:
        raise LostRace
    return locked


def _growing(lease: Lease, live: Sequence[Reservation], window: Window, now: datetime) -> set[str]:
    """Return the reservations that are filled up to their maximum, as they changed or moved.

    Shrinking a lease's dates, or prolonging one that runs, is no reason to give it more.
    """
    before = {reservation.id: reservation.params for reservation in lease.reservations}
    moving = not has_started(lease, now) and not lease.window.contains(window)
    return {r.id for r in live if moving or r.params != before[r.id]}


def _wanted(
    session: Session,
    requirements: Mapping[str, Requirement],
    held: Mapping[str, Collection[int]],
    busy: Window,
    growing: Collection[str],
    *,
    started: bool,
) -> list[Wanted]:
    """Return what each reservation keeps of what it has and still fits, and wants besides.

    Raises NotEnoughResources if one that has started would lose any.
    """
    found = []
    for id_, ids in held.items():
        needs = requirements[id_]
        # Who uses a host that fails keeps it until there is another.
        fitting = allocations.still_free(
            session, needs.resource_type, needs.query, busy, ids, failing_too=started
        )
        kept = tuple(resource for resource in ids if resource in fitting)[: needs.maximum]
        if started and len(kept) < len(ids):
            raise _still_in_use(id_, len(ids), len(kept))
        want = Wanted(reservation_id=id_, requirement=needs, kept=kept)
        found.append(want if id_ in growing else _no_more(want))
    return found


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
