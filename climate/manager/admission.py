"""Admission: which resources a lease gets, decided and taken in one transaction.

Per requirement one statement finds candidates (rotated, so that parallel requests do not
collide), a pure function assigns them, one statement locks what was chosen, and per requirement
one more statement, which sees what others have committed since, checks again. The schema's guard
is the last word. The number of statements depends on neither hosts nor bookings.

"Too few" is answered from committed bookings alone: resources that somebody else merely has
locked count as candidates, and losing them means LostRace, so the transaction is run again.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from climate.core.assignment import Demand, assign
from climate.core.errors import NotEnoughResources
from climate.core.requirement import Requirement
from climate.core.window import Window
from climate.db import allocations
from climate.db.engine import LostRace, is_patient

# Candidates beyond what is needed, to have others when some are locked.
_SPARE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A reservation's requirement, and the resources that it has (locked) and may keep."""

    reservation_id: str
    requirement: Requirement
    kept: tuple[int, ...] = ()

    @property
    def minimum(self) -> int:
        """Return how many more are needed."""
        return max(0, self.requirement.minimum - len(self.kept))

    @property
    def maximum(self) -> int:
        """Return how many more are welcome."""
        return max(0, self.requirement.maximum - len(self.kept))


def admit(
    session: Session,
    wanted: Sequence[Wanted],
    busy: Window,
    rotation: float,
    locked: Collection[int] = (),
) -> dict[str, tuple[int, ...]]:
    """Choose and lock resources for all of ``wanted`` over ``busy``, or for none.

    ``locked`` are ours already; then no other lock is waited for, as that would be out of order.
    Returns the new resource ids by reservation (``kept`` not included); nothing is stored yet.
    Raises NotEnoughResources.
    """
    found = candidates(session, wanted, busy, rotation)
    chosen = _lock_assigned(session, wanted, found, busy, locked)
    for want, ids in zip(wanted, chosen, strict=True):
        if ids and not _is_still_free(session, want.requirement, busy, ids):
            raise LostRace
    return {want.reservation_id: ids for want, ids in zip(wanted, chosen, strict=True)}


def candidates(
    session: Session, wanted: Sequence[Wanted], busy: Window, rotation: float
) -> list[list[int]]:
    """Return enough candidates for each that no other's choice can leave it short."""
    kept = {id_ for want in wanted for id_ in want.kept}
    total = sum(want.maximum for want in wanted)
    return [
        [
            id_
            for id_ in allocations.candidates(
                session,
                want.requirement.resource_type,
                want.requirement.query,
                busy,
                limit=total + len(kept) + _SPARE,
                rotation=rotation,
            )
            if id_ not in kept
        ]
        if want.maximum
        else []
        for want in wanted
    ]


def _lock_assigned(
    session: Session,
    wanted: Sequence[Wanted],
    found: Sequence[Sequence[int]],
    busy: Window,
    held: Collection[int],
) -> Sequence[tuple[int, ...]]:
    """Assign candidates and lock them, falling back on others for those that are locked."""
    patient = is_patient(session) and not held
    locked = set(held)
    lost: set[int] = set()
    while True:
        chosen = assign(_demands(wanted, found, lost))
        if chosen is None and lost:
            raise LostRace
        if chosen is None:
            raise _refusal(session, wanted, found, busy)
        missing = {id_ for ids in chosen for id_ in ids} - locked
        got = allocations.lock(session, missing, wait=patient) if missing else set()
        locked |= got
        if got == missing:
            break
        lost |= missing - got
    if lost and any(len(ids) < want.maximum for ids, want in zip(chosen, wanted, strict=True)):
        raise LostRace  # we have enough, but might get more once the others are done
    return chosen


def _demands(
    wanted: Sequence[Wanted], found: Sequence[Sequence[int]], lost: set[int]
) -> list[Demand]:
    return [
        Demand(want.minimum, want.maximum, tuple(id_ for id_ in ids if id_ not in lost))
        for want, ids in zip(wanted, found, strict=True)
    ]


def _is_still_free(
    session: Session, requirement: Requirement, busy: Window, ids: Sequence[int]
) -> bool:
    free = allocations.still_free(session, requirement.resource_type, requirement.query, busy, ids)
    return free == set(ids)


def _refusal(
    session: Session, wanted: Sequence[Wanted], found: Sequence[Sequence[int]], busy: Window
) -> NotEnoughResources:
    """Say which requirement failed and how many matched and were free."""
    for want, ids in zip(wanted, found, strict=True):
        if len(ids) < want.minimum:
            requirement = want.requirement
            matching = allocations.count(session, requirement.resource_type, requirement.query)
            return NotEnoughResources(
                f"Not enough hosts available: at least {requirement.minimum} asked for,"
                f" {matching} match the requirements,"
                f" {len(ids) + len(want.kept)} of them free from {busy.start:%Y-%m-%d %H:%M}"
                f" to {busy.end:%Y-%m-%d %H:%M} UTC (cleaning time included)"
            )
    return NotEnoughResources(
        "Not enough hosts available: each reservation could be served alone, but not all at once"
    )


def rows(taken: Mapping[str, Sequence[int]], busy: Window) -> list[dict[str, object]]:
    """Return the allocations to store for ``taken``, resource ids by reservation."""
    return [
        {
            "resource_id": resource_id,
            "reservation_id": reservation_id,
            "start_at": busy.start,
            "busy_until": busy.end,
        }
        for reservation_id, ids in taken.items()
        for resource_id in ids
    ]
