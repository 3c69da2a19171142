"""Admission: choose and lock the resources of a lease, in the transaction that stores it.

1. One statement per requirement finds candidates. It searches from a random position, so that
   parallel requests rarely choose the same resources.
2. If resources are shared, one more statement reads their free amounts.
3. A pure function chooses among the candidates.
4. One statement locks the chosen resources.
5. Other statements check that the chosen resources are still free: another transaction may have
   booked them, and committed, since step 1.

On PostgreSQL, a new lease needs only one statement for all this in the simplest case: one
requirement, for whole resources, and the operator has configured neither filters nor weighers
(see ``at_once``). If this statement cannot decide, steps 1 and 4 are one statement. A constraint
of the schema also prevents double bookings. The number of statements depends on neither the number
of hosts nor the number of bookings.

Only committed bookings can cause a rejection. If a lease lacks resources because another
transaction has locked some, admission raises LostRace, and the database layer runs the lease's
transaction again.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from sqlalchemy.orm import Session

from climate.core.errors import NotEnoughResources
from climate.core.matching.packing import Units
from climate.core.matching.requirement import EXCLUSIVE
from climate.core.matching.selection import Preference
from climate.core.window import Window, in_words
from climate.db.engine.database import LostRace, is_patient
from climate.db.resources import allocations
from climate.manager.admission.candidates import (
    CandidateSet,
    Demand,
    fetch_more,
    find_candidates,
    is_still_free,
    leaves_enough,
    most_units,
    select,
)
from climate.manager.admission.resizing import growth


def admit(
    session: Session,
    demands: Sequence[Demand],
    occupied: Window,
    preference: Preference,
    locked: Collection[int] = (),
) -> tuple[Units, ...]:
    """Choose and lock new resources for all demands of a lease, or raise.

    A demand is what one reservation requires. ``occupied`` is the lease's window plus cleaning
    time. ``preference`` states which resources to try first. Returns one mapping per demand, from
    resource id to the number of new units. A unit is a whole resource or a fixed share of one.
    Units that a changed lease keeps are not in the mapping. The caller must store the bookings.

    ``locked`` are ids of resources that this transaction has locked already. If there are any, the
    function never waits for a lock, because a wait could cause a deadlock. Raises
    InsufficientResources, LostRace.
    """
    # A transaction that waits for locks acquires all of them at once, in their order.
    locking = not (locked or is_patient(session))
    candidates = find_candidates(session, demands, occupied, preference, locking=locking)
    candidates, chosen = _lock_chosen(session, candidates, locked)
    for demand, units in zip(demands, chosen, strict=True):
        if units and not is_still_free(session, candidates, demand, units):
            raise LostRace
    if not leaves_enough(session, candidates, chosen):
        raise LostRace
    return chosen


def dry_run(
    session: Session, demands: Sequence[Demand], occupied: Window, preference: Preference
) -> tuple[Units, ...] | None:
    """Return the units that ``admit`` would choose now; None if too few are free. Locks nothing.

    The parameters have the same meaning as in ``admit``, and the result has the same form.
    """
    candidates: CandidateSet | None = find_candidates(session, demands, occupied, preference)
    while candidates is not None:
        if (chosen := select(candidates)) is not None:
            return chosen
        candidates = fetch_more(session, candidates)
    return None


class InsufficientResources(NotEnoughResources):
    """Raised if too few resources are free for a lease.

    ``demands`` states what each reservation requires. ``index`` is the position of the demand that
    cannot be met. It is None if each demand could be met alone, but not all together. The module
    ``refusal`` makes the answer to the user from this error.

    ``in_use`` contains the ids of the resources that a started reservation must keep, if it cannot
    keep all of them. ``demands_over`` is set if a changed lease keeps the resources that it has:
    called with an occupied window, it returns the demands in that window, or raises this error.

    The mapping ``details`` contains four numbers about the demand at ``index``: ``asked`` (units
    required), ``matching`` (resources that match), ``free`` and ``missing`` (units). If ``index``
    is None, these numbers are absent. The value of the key ``reservation`` is the position of the
    reservation.
    """

    def __init__(
        self,
        message: str,
        demands: Sequence[Demand],
        index: int | None,
        details: Mapping[str, int],
        in_use: Collection[int] = (),
    ) -> None:
        missing = details["asked"] - details["free"] if details else None
        ids = list(dict.fromkeys(demand.reservation_id for demand in demands))
        number = None if index is None else ids.index(demands[index].reservation_id)
        super().__init__(message, {"reservation": number, **details, "missing": missing})
        self.demands = demands
        self.index = index
        self.in_use = in_use
        self.demands_over: Callable[[Window], Sequence[Demand]] | None = None


def _lock_chosen(
    session: Session, candidates: CandidateSet, held: Collection[int]
) -> tuple[CandidateSet, tuple[Units, ...]]:
    """Choose units for each demand (what one reservation requires), and lock their resources.

    ``held`` are ids of resources that this transaction has locked already. In place of candidates
    that another transaction has locked, the function chooses others. If there are too few, it
    fetches more. Returns all candidates that it fetched, and for each demand a mapping from
    resource id to the number of chosen units. Raises LostRace, InsufficientResources.
    """
    patient = is_patient(session) and not held
    locked = set(held) | candidates.locked
    lost: set[int] = set()
    while True:
        chosen = select(candidates, lost)
        if chosen is None and (more := fetch_more(session, candidates)):
            candidates = more
            continue
        if chosen is None and lost and not locked and not patient:
            # There are no other candidates and a new run would gain nothing: wait once for the
            # locks. (If a row was deleted during the wait, the transaction runs again.)
            patient, lost = True, set()
            continue
        if chosen is None and lost:
            raise LostRace
        if chosen is None:
            raise _insufficient(session, candidates)
        missing = {id_ for units in chosen for id_ in units} - locked
        acquired = allocations.lock(session, missing, wait=patient) if missing else set()
        locked |= acquired
        if acquired == missing:
            break
        lost |= missing - acquired
    short = any(
        sum(units.values()) < demand.maximum
        for units, demand in zip(chosen, candidates.demands, strict=True)
    )
    if lost and short:
        raise LostRace  # the minimum is met, but other transactions may release more
    return candidates, chosen


def _insufficient(session: Session, candidates: CandidateSet) -> InsufficientResources:
    """Return the error that says which requirement of a lease lacks resources, with numbers.

    The error is for the first requirement that cannot be met. If each can be met alone, the error
    says that all of them together cannot be met.
    """
    demands, occupied = candidates.demands, candidates.occupied
    for index, demand in enumerate(demands):
        available = most_units(candidates, index)
        if available < demand.minimum:
            matching = allocations.count(session, demand.requirement)
            free = available + sum(demand.kept.values())
            if named := demand.requirement.named:
                message = growth.why_unavailable(session, demands, index, occupied)
                numbers = {"asked": len(named), "matching": matching, "free": free}
                return InsufficientResources(message, demands, index, numbers)
            return insufficient(demands, index, occupied, matching=matching, free=free)
    return InsufficientResources(
        f"Not enough {demands[0].requirement.noun} available: each reservation could be"
        " served alone, but not all at once",
        demands,
        None,
        {},
    )


def insufficient(
    demands: Sequence[Demand], index: int, occupied: Window, *, matching: int, free: int
) -> InsufficientResources:
    """Return the error that says which requirement of a lease lacks resources, with numbers.

    ``index`` is the position of the demand that cannot be met. ``matching`` resources match its
    requirement, and ``free`` units are free in the window ``occupied``.
    """
    requirement = demands[index].requirement
    noun = requirement.noun
    return InsufficientResources(
        f"Not enough {noun if requirement.is_whole else 'units'} available:"
        f" at least {requirement.minimum} requested,"
        f" {matching} {'match' if requirement.is_whole else f'{noun} match'}"
        f" the requirements, {free} of them free {in_words(occupied)} UTC (cleaning time"
        " included)",
        demands,
        index,
        {"asked": requirement.minimum, "matching": matching, "free": free},
    )


def rows(
    demands: Sequence[Demand], chosen: Sequence[Units], occupied: Window
) -> list[dict[str, object]]:
    """Return the rows of the allocations table that book the chosen units of all demands.

    A demand is what one reservation requires. ``chosen`` contains one mapping per demand, from
    resource id to the number of units.
    """
    return [
        row
        for demand, units_by_id in zip(demands, chosen, strict=True)
        for resource_id, units in units_by_id.items()
        for row in allocation_rows(
            demand, resource_id, units, occupied, is_first=resource_id not in demand.kept
        )
    ]


def allocation_rows(
    demand: Demand, resource_id: int, units: int, occupied: Window, *, is_first: bool = True
) -> list[dict[str, object]]:
    """Return the rows of the allocations table that book ``units`` units of one resource.

    If the reservation books whole resources, this is one row. If it books a share of the resource,
    there is one row per resource class (``VCPU``, ``MEMORY_MB``, ...), and one more row that marks
    an exclusive share. ``is_first`` is false if the reservation already has a part of the resource,
    and so this row.
    """
    row = {
        "resource_id": resource_id,
        "reservation_id": demand.reservation_id,
        "start_at": occupied.start,
        "busy_until": occupied.end,
        "resource_class": None,
        "amount": None,
    }
    booked = [
        {**row, "resource_class": name, "amount": amount * units}
        for name, amount in demand.requirement.amounts.items()
    ] or [row]
    if demand.requirement.exclusive and is_first:
        booked.append({**row, "resource_class": EXCLUSIVE, "amount": 1})
    return booked
