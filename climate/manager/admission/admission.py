"""Admission: choose and lock the resources of a lease, in the transaction that stores it.

For each requirement, one statement finds candidates, starting at a random place so that parallel
requests do not collide. For shares, one more statement reads what is free on them. A pure function
chooses, one statement locks the chosen resources, and further statements, which see what others
committed since, check that they are still free. (PostgreSQL finds and locks whole resources in one
statement, which also says which of them need the check.) The schema's guard is the last word. The
number of statements depends on neither hosts nor bookings; where a handful of candidates does not
suffice, more are fetched in two steps.

A refusal counts committed bookings only. Resources that another transaction has locked count as
candidates: losing them raises LostRace, so that the transaction runs again.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from climate.core.errors import NotEnoughResources
from climate.core.matching.packing import Units
from climate.core.matching.selection import Preference
from climate.core.window import Window
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


def admit(
    session: Session,
    demands: Sequence[Demand],
    occupied: Window,
    preference: Preference,
    locked: Collection[int] = (),
) -> tuple[Units, ...]:
    """Choose and lock resources for all demands over the ``occupied`` window, or for none.

    This transaction has ``locked`` already; then it waits for no other lock, as it would take
    locks out of order. Returns the new units of each demand by resource id, without those it keeps;
    stores nothing. Raises InsufficientResources.
    """
    # A transaction that waits for locks takes all of them at once, in their order.
    locking = not (locked or is_patient(session))
    known = find_candidates(session, demands, occupied, preference, locking=locking)
    known, chosen = _lock_chosen(session, known, locked)
    for demand, units in zip(demands, chosen, strict=True):
        if units and not is_still_free(session, known, demand, units):
            raise LostRace
    if not leaves_enough(session, known, chosen):
        raise LostRace
    return chosen


def dry_run(
    session: Session, demands: Sequence[Demand], occupied: Window, preference: Preference
) -> tuple[Units, ...] | None:
    """Return what ``admit`` would choose now, None if it would refuse. Locks nothing."""
    known: CandidateSet | None = find_candidates(session, demands, occupied, preference)
    while known is not None:
        if (chosen := select(known)) is not None:
            return chosen
        known = fetch_more(session, known)
    return None


@dataclass(frozen=True, slots=True)
class InUse:
    """Resources that the reservation must keep because they are handed over.

    ``demands_over`` returns the demands if they have to stay over another window, None if they
    cannot.
    """

    ids: Collection[int]
    demands_over: Callable[[Window], Sequence[Demand] | None]


class InsufficientResources(NotEnoughResources):
    """Too few resources for ``demands[index]``, or (None) only for all demands at once."""

    def __init__(
        self,
        message: str,
        demands: Sequence[Demand],
        index: int | None,
        details: Mapping[str, int],
        in_use: InUse | None = None,
    ) -> None:
        """Keep the demands, for the explanation of the refusal."""
        missing = details["asked"] - details["free"] if details else None
        number = None if index is None else _number(demands, index)
        super().__init__(message, {"reservation": number, **details, "missing": missing})
        self.demands = demands
        self.index = index
        self.in_use = in_use


def _number(demands: Sequence[Demand], index: int) -> int:
    """Return the number of the reservation, within the lease, that ``demands[index]`` is for."""
    ids = list(dict.fromkeys(demand.reservation_id for demand in demands))
    return ids.index(demands[index].reservation_id)


def _lock_chosen(
    session: Session, known: CandidateSet, held: Collection[int]
) -> tuple[CandidateSet, tuple[Units, ...]]:
    """Choose and lock; replace candidates that others have locked by other candidates."""
    patient = is_patient(session) and not held
    locked = set(held) | known.locked
    lost: set[int] = set()
    while True:
        chosen = select(known, lost)
        if chosen is None and (more := fetch_more(session, known)):
            known = more
            continue
        if chosen is None and lost and not locked and not patient:
            # There are no other candidates. To run again gains nothing, so wait once for the locks.
            # (A transaction that waited for a row that was deleted meanwhile has to look again.)
            patient, lost = True, set()
            continue
        if chosen is None and lost:
            raise LostRace
        if chosen is None:
            raise _shortage(session, known)
        missing = {id_ for units in chosen for id_ in units} - locked
        got = allocations.lock(session, missing, wait=patient) if missing else set()
        locked |= got
        if got == missing:
            break
        lost |= missing - got
    short = any(
        sum(units.values()) < demand.maximum
        for units, demand in zip(chosen, known.demands, strict=True)
    )
    if lost and short:
        raise LostRace  # enough, but there may be more once the other transactions end
    return known, chosen


def _shortage(session: Session, known: CandidateSet) -> InsufficientResources:
    """Return the refusal: which requirement failed, and how many resources matched and are free."""
    occupied = known.occupied
    for index, demand in enumerate(known.demands):
        available = most_units(known, index)
        if available < demand.minimum:
            requirement = demand.requirement
            matching = allocations.count(session, requirement)
            free = available + sum(demand.kept.values())
            noun = requirement.noun
            return InsufficientResources(
                f"Not enough {noun if requirement.is_whole else 'units'} available:"
                f" at least {requirement.minimum} asked for,"
                f" {matching} {'match' if requirement.is_whole else f'{noun} match'}"
                f" the requirements, {free} of them free from {occupied.start:%Y-%m-%d %H:%M}"
                f" to {occupied.end:%Y-%m-%d %H:%M} UTC (cleaning time included)",
                known.demands,
                index,
                {"asked": requirement.minimum, "matching": matching, "free": free},
            )
    return InsufficientResources(
        f"Not enough {known.demands[0].requirement.noun} available: each reservation could be"
        " served alone, but not all at once",
        known.demands,
        None,
        {},
    )


def rows(
    demands: Sequence[Demand], taken: Sequence[Units], occupied: Window
) -> list[dict[str, object]]:
    """Return the allocations to store for ``taken``: the units of each demand by resource id."""
    return [
        row
        for demand, chosen in zip(demands, taken, strict=True)
        for resource_id, units in chosen.items()
        for row in allocation_rows(demand, resource_id, units, occupied)
    ]


def allocation_rows(
    demand: Demand, resource_id: int, units: int, occupied: Window
) -> list[dict[str, object]]:
    """Return the allocation of a whole resource, or those of each class of ``units`` shares."""
    row = {
        "resource_id": resource_id,
        "reservation_id": demand.reservation_id,
        "start_at": occupied.start,
        "busy_until": occupied.end,
        "resource_class": None,
        "amount": None,
    }
    return [
        {**row, "resource_class": name, "amount": amount * units}
        for name, amount in demand.requirement.amounts.items()
    ] or [row]
