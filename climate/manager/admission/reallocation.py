"""Which resources a changed lease keeps, and which it gets instead.

All within the transaction of the change: the lease's bookings are given up, so that they do not
count against it, and what it keeps or gains is taken anew. If that fails, all of it is undone.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from sqlalchemy.orm import Session

from climate.core.change import has_started
from climate.core.errors import NotEnoughResources
from climate.core.lease import Lease, Reservation
from climate.core.packing import Units, first, laid_out, room
from climate.core.requirement import Requirement
from climate.core.selection import Preference
from climate.core.window import Window
from climate.db import allocations, capacity
from climate.db.allocations import Held
from climate.db.engine import LostRace, is_patient
from climate.manager.admission.admission import InUse, Shortage, admit, allocation_rows, rows
from climate.manager.admission.candidates import Search, Wanted
from climate.manager.admission.requirements import check_properties, requirements_of, taken_window
from climate.manager.runtime import Runtime


def reallocate(
    runtime: Runtime,
    session: Session,
    lease: Lease,
    reservations: Sequence[Reservation],
    window: Window,
    now: datetime,
) -> bool:
    """Store the allocations for the changed lease; tell whether it has more, or other shares.

    A pending lease keeps what still fits and takes others for the rest. One that has started
    keeps all it has. Raises NotEnoughResources.
    """
    live = [reservation for reservation in reservations if reservation.stays]
    if not live:
        return False
    requirements = {r.id: requirements_of(runtime, r) for r in live}
    check_properties(session, runtime, [part for parts in requirements.values() for part in parts])
    held = allocations.held(session, list(requirements))
    preference = runtime.preference()
    busy = taken_window(window, now, runtime.settings) if window.end > now else None
    locked = _lock(session, requirements, held, busy, preference)
    if busy is None:  # it ends now: nothing to look for, the rest is the manager's
        busy_until = window.busy(runtime.settings.cleaning_time).end
        allocations.shorten(session, list(requirements), busy_until)
        return False
    allocations.release(session, list(requirements))
    before = {r.id: requirements_of(runtime, r)[0] for r in lease.reservations}
    units = {
        id_: {resource: before[id_].units(one.amounts) for resource, one in held[id_].items()}
        for id_ in requirements
    }
    started = has_started(lease, now)
    growing = _growing(lease, live, window, now)
    wanted = _wanted(session, requirements, units, busy, growing, started=started)
    wanted, taken = _admit(session, wanted, busy, preference, locked, started=started)
    allocations.take(session, rows(wanted, taken, busy))
    allocations.take(session, _kept_rows(wanted, held, busy, started=started))
    resized = any(before[id_].amounts != requirements[id_][0].amounts for id_ in held if held[id_])
    return resized or any(taken)


def _admit(
    session: Session,
    wanted: list[Wanted],
    busy: Window,
    preference: Preference,
    locked: set[int],
    *,
    started: bool,
) -> tuple[list[Wanted], tuple[Units, ...]]:
    """Admit what is wanted, of a pending lease elsewhere if need be: it is not in use yet."""
    try:
        return wanted, admit(session, wanted, busy, preference, locked)
    except NotEnoughResources:
        if started or not any(want.kept for want in wanted):
            raise
    afresh = [replace(want, kept={}) for want in wanted]
    return afresh, admit(session, afresh, busy, preference, locked)


def _lock(
    session: Session,
    requirements: Mapping[str, Sequence[Requirement]],
    held: Mapping[str, Mapping[int, Held]],
    busy: Window | None,
    preference: Preference,
) -> set[int]:
    """Lock what the lease has, at least; return all that is locked now. Raises LostRace.

    Whoever has a lock may not wait for another, or two would wait for each other. So all is
    locked at once: a patient attempt locks besides what it may want, and never waits again.
    """
    mine = {id_ for ids in held.values() for id_ in ids}
    wanted = set(mine)
    patient = is_patient(session)
    if patient and busy is not None:
        wants = [
            Wanted(reservation_id=id_, requirement=part)
            for id_, parts in requirements.items()
            for part in parts
        ]
        wanted.update(Search(session, wants, busy, preference).ids)
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
    return {r.id for r in live if moving or r.params != before.get(r.id)}


def _wanted(
    session: Session,
    requirements: Mapping[str, Sequence[Requirement]],
    units: Mapping[str, Units],
    busy: Window,
    growing: Collection[str],
    *,
    started: bool,
) -> list[Wanted]:
    """Return what each reservation keeps of what it has and still fits, and wants besides.

    Raises NotEnoughResources if one that has started would lose any.
    """
    classes = {name for parts in requirements.values() for part in parts for name in part.amounts}
    mine = {id_ for has in units.values() for id_ in has}
    left = capacity.free(session, mine, classes, busy) if classes else {}
    found = []
    for id_, has in units.items():
        wants = []
        for needs in requirements[id_]:
            # Who uses a host that fails keeps it until there is another.
            fitting = allocations.still_free(session, needs, busy, has, failing_too=started)
            kept = _kept(needs, {one: count for one, count in has.items() if one in fitting}, left)
            wants.append(Wanted(reservation_id=id_, requirement=needs, kept=kept))
        kept_all = sum(sum(want.kept.values()) for want in wants)
        if started and kept_all < sum(has.values()):
            in_use = InUse(has, partial(_wanted_over, session, requirements, units, growing))
            raise _still_in_use(requirements, id_, units, kept_all, in_use)
        found += [want if id_ in growing else _no_more(want) for want in wants]
    return found


def _kept(needs: Requirement, has: Units, left: dict[int, dict[str, int]]) -> Units:
    """Return what can be kept of what it has, and take that from what is left."""
    if needs.is_whole:
        return first(has, needs.maximum)
    fitting = {id_: min(count, room(left[id_], needs.amounts)) for id_, count in has.items()}
    there = {id_: count for id_, count in fitting.items() if count}
    kept = first(laid_out(there, needs.layout), needs.maximum)
    for id_, count in kept.items():
        for name, amount in needs.amounts.items():
            left[id_][name] -= amount * count
    return kept


def _no_more(want: Wanted) -> Wanted:
    """Return ``want`` content with its minimum, or with what it has."""
    maximum = max(want.requirement.minimum, sum(want.kept.values()))
    return replace(want, requirement=replace(want.requirement, maximum=maximum))


def _wanted_over(
    session: Session,
    requirements: Mapping[str, Sequence[Requirement]],
    units: Mapping[str, Units],
    growing: Collection[str],
    busy: Window,
) -> list[Wanted] | None:
    """Return what would be wanted over ``busy``, None if what is in use could not stay."""
    try:
        return _wanted(session, requirements, units, busy, growing, started=True)
    except Shortage:
        return None


def _still_in_use(
    requirements: Mapping[str, Sequence[Requirement]],
    id_: str,
    units: Mapping[str, Units],
    kept: int,
    in_use: InUse,
) -> Shortage:
    held = sum(units[id_].values())
    needs = requirements[id_][-1]
    all_ = replace(needs, minimum=held, maximum=held)
    wanted = [
        Wanted(reservation_id=one, requirement=part)
        for one in units
        for part in ([all_] if one == id_ else requirements[one])
    ]
    return Shortage(
        f"Not enough {needs.noun} available: reservation {id_} is in use with {held} {needs.noun},"
        f" of which it could keep only {kept} (the others are booked by somebody else then,"
        " do not match, or are more than max)",
        wanted,
        [want.reservation_id for want in wanted].index(id_),
        {"asked": held, "matching": held, "free": kept},
        in_use,
    )


def _kept_rows(
    wanted: Sequence[Wanted],
    held: Mapping[str, Mapping[int, Held]],
    busy: Window,
    *,
    started: bool,
) -> list[dict[str, object]]:
    """Return the allocations of what is kept, of a started lease since it has it.

    None of what it has since the future: the clock was set back.
    """
    found = []
    for want in wanted:
        for id_, count in want.kept.items():
            since = held[want.reservation_id][id_].since if started else busy.start
            if since < busy.end:
                found += allocation_rows(want, id_, count, Window(since, busy.end))
    return found
