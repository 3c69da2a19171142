"""Reallocation: decide and store which resources a changed lease keeps, gains and loses.

The transaction of the change locks the lease's resources. It deletes the lease's allocations
(bookings), so that these resources are free for the new choice, and then stores the allocations
that the lease keeps or gains. If the change fails, the transaction rolls back, and the lease keeps
its old allocations.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from sqlalchemy.orm import Session

from climate.core.errors import ResourcesInUse
from climate.core.lease.change import has_started
from climate.core.lease.model import Lease, Reservation
from climate.core.matching.packing import Units, first, laid_out, room
from climate.core.matching.requirement import Requirement
from climate.core.matching.selection import Preference, Selection
from climate.core.window import Window
from climate.db.engine.database import LostRace, is_patient
from climate.db.resources import allocations, capacity
from climate.db.resources.allocations import Held
from climate.manager.admission.admission import (
    InsufficientResources,
    admit,
    allocation_rows,
    rows,
)
from climate.manager.admission.candidates import Demand, accepted, few, find_candidates
from climate.manager.admission.requirements import by_reservation, occupied_by
from climate.manager.admission.resizing import growth
from climate.manager.process.runtime import Runtime


def reallocate(
    runtime: Runtime,
    session: Session,
    lease: Lease,
    after: Lease,
    joining: Mapping[str, Collection[int]],
    now: datetime,
) -> bool:
    """Change the bookings of the stored ``lease`` to the reservations and dates of ``after``.

    ``joining`` contains the ids of resources that join by name, by reservation id. Only a pending
    lease may exchange resources that no longer fit. Returns True if the lease gets additional or
    larger hosts, instances or other units. A manager must then give the users of a started lease
    access to them. Raises Conflict, InsufficientResources, LostRace.
    """
    if not (live := [each for each in after.reservations if each.stays]):
        return False
    requirements = by_reservation(runtime.catalog, live, lease.project_id)
    held = allocations.held(session, ids := list(requirements))
    requirements = growth.with_named(requirements, held, joining)
    preference = runtime.preference()
    occupied = _occupied(runtime, lease, after.window, now)
    locked = _lock(session, requirements, held, occupied, preference)
    if occupied is None:  # the lease ends now; a manager reclaims its resources
        busy_until = lease.busy_until(after.window.end, runtime.settings.cleaning_time)
        allocations.shorten(session, ids, busy_until)
        return False
    allocations.release(session, ids)
    before = by_reservation(runtime.catalog, lease.reservations, lease.project_id)
    units = _units(before, held)
    started, growing = has_started(lease, now), _growing(lease, live, after.window, now)
    selection = None if started else preference.selection
    demands_over = partial(_demands, session, requirements, units, growing, selection=selection)
    demands, gained = _admit(session, demands_over, occupied, preference, locked, started=started)
    allocations.take(session, rows(demands, gained, occupied))
    booked_from = None if started else after.window.start - lease.start.lead
    allocations.take(session, _kept_rows(demands, held, occupied, booked_from))
    sizes = ((before[id_][0], requirements[id_][0]) for id_ in held if held[id_])
    return any(a.amounts != b.amounts for a, b in sizes) or any(gained)


def _units(
    requirements: Mapping[str, Sequence[Requirement]], held: Mapping[str, Mapping[int, Held]]
) -> dict[str, dict[int, int]]:
    """Return how many units each reservation has booked, by reservation and resource id."""
    return {
        id_: {key: requirements[id_][0].units(part.amounts) for key, part in booked.items()}
        for id_, booked in held.items()
    }


def _occupied(runtime: Runtime, lease: Lease, window: Window, now: datetime) -> Window | None:
    """Return when a lease with new dates occupies resources; None if it ends now."""
    if window.end <= now:
        return None
    return occupied_by(replace(lease, window=window), now, runtime.settings)


def _admit(
    session: Session,
    demands_over: Callable[[Window], list[Demand]],
    occupied: Window,
    preference: Preference,
    locked: set[int],
    *,
    started: bool,
) -> tuple[list[Demand], tuple[Units, ...]]:
    """Choose and lock new units for a changed lease; return the demands, and the new units of each.

    A demand is what one reservation requires, with the units that it keeps; ``demands_over``
    returns those in a window. ``locked`` are ids of resources that the transaction has locked
    already. If too few units are free, and the lease has not ``started``, the function tries again
    with demands that keep nothing. The lease may then get entirely different resources. Not if the
    user names resources: these join what the lease has.
    """
    demands: list[Demand] = []
    try:
        demands = demands_over(occupied)
        if not any(demand.maximum for demand in demands):
            return demands, tuple({} for _ in demands)  # the lease gains nothing
        return demands, admit(session, demands, occupied, preference, locked)
    except InsufficientResources as shortage:
        if started or any(demand.requirement.named for demand in demands):
            shortage.demands_over = demands_over
            raise
        if not any(demand.kept for demand in demands):
            raise
    others = [replace(demand, kept={}) for demand in demands]
    return others, admit(session, others, occupied, preference, locked)


def _lock(
    session: Session,
    requirements: Mapping[str, Sequence[Requirement]],
    held: Mapping[str, Mapping[int, Held]],
    occupied: Window | None,
    preference: Preference,
) -> set[int]:
    """Lock the resources that the lease has booked; return the ids of all locked resources.

    ``requirements`` and ``held`` (the bookings) are by reservation id, ``held`` also by resource
    id. ``occupied`` is the new window plus cleaning time (None: the lease ends now).

    The first attempts of a transaction raise LostRace if another transaction has locked a resource
    of the lease. A later attempt (``is_patient``) waits for these locks. To avoid deadlocks, it
    waits only once: the same statement also locks the candidates for new resources. The result
    includes these candidates.
    """
    present = {id_ for ids in held.values() for id_ in ids}
    ids = set(present)
    patient = is_patient(session)
    if patient and occupied is not None:
        demands = [
            Demand(reservation_id=id_, requirement=part)
            for id_, parts in requirements.items()
            for part in parts
        ]
        candidates = find_candidates(session, demands, occupied, preference)
        for demand, candidate_ids in zip(demands, candidates.ids, strict=True):
            # A screen receives all free resources; most of them are not needed.
            most = few(demand) if preference.selection.screens else None
            ids.update(candidate_ids[:most])
    locked = allocations.lock(session, ids, wait=patient)
    if not present <= locked:
        raise LostRace
    return locked


def _growing(lease: Lease, live: Sequence[Reservation], window: Window, now: datetime) -> set[str]:
    """Return the ids of those reservations in ``live`` that may gain resources.

    ``lease`` is the lease before the change. ``live`` and ``window`` are the reservations and dates
    after it. A reservation may gain resources in two cases:

    - The parameters of the reservation changed.
    - The lease has not started, and the new window is not within the present one.
    """
    before = {reservation.id: reservation.params for reservation in lease.reservations}
    moving = not has_started(lease, now) and not lease.window.contains(window)
    return {r.id for r in live if moving or r.params != before.get(r.id)}


def _demands(
    session: Session,
    requirements: Mapping[str, Sequence[Requirement]],
    units: Mapping[str, Units],
    growing: Collection[str],
    occupied: Window,
    selection: Selection | None,
) -> list[Demand]:
    """Return what each reservation of a changed lease requires, and which units it keeps.

    ``requirements`` are by reservation id. ``units`` contains the present number of units by
    reservation id and resource id. A reservation keeps the units that still match and are free in
    ``occupied``. Reservations whose id is not in ``growing`` gain units only to reach their
    minimum. ``selection`` contains the screens that kept units must pass. It is None if the lease
    has started: such a lease keeps its resources, whatever the operator's screens say. Raises
    InsufficientResources if a started lease would lose units.
    """
    started = selection is None
    classes = {name for parts in requirements.values() for part in parts for name in part.amounts}
    present = {id_ for held in units.values() for id_ in held}
    free = capacity.free(session, present, classes, occupied) if classes else {}
    demands = []
    for id_, held in units.items():
        parts = []
        for part in requirements[id_]:
            fitting = _fitting(session, part, held, occupied, selection)
            keepable = {key: count for key, count in held.items() if key in fitting}
            kept = _kept(part, keepable, free)
            parts.append(Demand(reservation_id=id_, requirement=part, kept=kept))
        kept_all = sum(sum(demand.kept.values()) for demand in parts)
        if started:
            _check_maximum(id_, requirements[id_], sum(held.values()))
        if started and kept_all < sum(held.values()):
            raise _still_in_use(requirements, id_, units, kept_all)
        demands += [demand if id_ in growing else _no_more(demand) for demand in parts]
    return demands


def _fitting(
    session: Session,
    part: Requirement,
    held: Collection[int],
    occupied: Window,
    selection: Selection | None,
) -> set[int]:
    """Return the ids of those held resources that the reservation can keep in ``occupied``.

    ``selection`` is that of ``_demands``.
    """
    if selection is None:
        # A running lease keeps a failing host until healing replaces it.
        return allocations.still_free(session, part, occupied, held, failing_too=True)
    fitting = allocations.still_free(session, part, occupied, held)
    return accepted(session, part, fitting, occupied, selection)


def _kept(part: Requirement, held: Units, free: dict[int, dict[str, int]]) -> Units:
    """Return the units in ``held`` that the reservation can keep under the requirement ``part``.

    ``held`` and the result map resource ids to numbers of units. ``free`` contains the free amounts
    by resource id and resource class; the function subtracts the amounts of the kept units from
    ``free``.
    """
    if part.is_whole:
        return first(held, part.maximum)
    fitting = {id_: min(count, room(free[id_], part.amounts)) for id_, count in held.items()}
    nonzero = {id_: count for id_, count in fitting.items() if count}
    kept = first(laid_out(nonzero, part.layout), part.maximum)
    for id_, count in kept.items():
        for name, amount in part.amounts.items():
            free[id_][name] -= amount * count
    return kept


def _no_more(demand: Demand) -> Demand:
    """Return the demand with a lower maximum, so that it gains no units beyond its minimum.

    The new maximum is the number of units that the reservation keeps, or its minimum if that is
    greater.
    """
    maximum = max(demand.requirement.minimum, sum(demand.kept.values()))
    return replace(demand, requirement=replace(demand.requirement, maximum=maximum))


def _check_maximum(id_: str, parts: Sequence[Requirement], held: int) -> None:
    """Raise ResourcesInUse if a started reservation has more units than its new maximum."""
    maximum = sum(part.maximum for part in parts)
    noun = parts[-1].noun if parts[-1].is_whole else "units"
    if held > maximum:
        raise ResourcesInUse(
            f"Reservation {id_} is in use with {held} {noun}, and the change would leave it only"
            f" {maximum}: it keeps all until the lease ends or the reservation is removed"
        )


def _still_in_use(
    requirements: Mapping[str, Sequence[Requirement]],
    id_: str,
    units: Mapping[str, Units],
    kept: int,
) -> InsufficientResources:
    held = sum(units[id_].values())
    requirement = requirements[id_][-1]
    keep_all = replace(requirement, minimum=held, maximum=held)
    demands = [
        Demand(reservation_id=reservation_id, requirement=part)
        for reservation_id in units
        for part in ([keep_all] if reservation_id == id_ else requirements[reservation_id])
    ]
    return InsufficientResources(
        f"Not enough {requirement.noun} available: reservation {id_} is in use with {held}"
        f" {requirement.noun},"
        f" of which it could keep only {kept} (the others are booked by other leases then,"
        " do not match, or exceed max)",
        demands,
        [demand.reservation_id for demand in demands].index(id_),
        {"asked": held, "matching": held, "free": kept},
        list(units[id_]),
    )


def _kept_rows(
    demands: Sequence[Demand],
    held: Mapping[str, Mapping[int, Held]],
    occupied: Window,
    booked_from: datetime | None,
) -> list[dict[str, object]]:
    """Return the rows of the allocations table (bookings) for the units that a lease keeps.

    ``held`` contains the earlier bookings by reservation id and resource id. If the lease has
    started (``booked_from`` is None), the rows keep the start of the earlier bookings. Else they do
    so from ``booked_from`` on, when the bookings of the lease may begin. If the clock was set back,
    that start may be later than the end of the new booking; then there is no row for the unit.
    """
    kept_rows = []
    for demand in demands:
        for id_, count in demand.kept.items():
            since = held[demand.reservation_id][id_].since
            if booked_from is not None:
                since = min(max(since, booked_from), occupied.start)
            if since < occupied.end:
                kept_rows += allocation_rows(demand, id_, count, Window(since, occupied.end))
    return kept_rows
