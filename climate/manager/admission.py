"""Admission: which resources a lease gets, decided and taken in one transaction.

Per requirement one statement finds candidates (rotated, so that parallel requests do not
collide), for shares one more tells what is left of them, a pure function chooses, one statement
locks what was chosen, and what was chosen is looked at again by statements that see what others
have committed since. The schema's guard is the last word. The number of statements depends on
neither hosts nor bookings: where a handful of candidates does not do, more are looked at in two
steps.

"Too few" is answered from committed bookings alone: resources that somebody else merely has
locked count as candidates, and losing them means LostRace, so the transaction is run again.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from climate.core.errors import NotEnoughResources
from climate.core.packing import Demand, Free, Units, choose, room
from climate.core.requirement import Requirement
from climate.core.window import Window
from climate.db import allocations, capacity
from climate.db.engine import LostRace, is_patient

# Candidates beyond what is needed, to have others when some are locked. Of those to be shared
# some may be full: then more are looked at, and at last all there are.
_SPARE = 16
_MORE = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A reservation's requirement, and the units that it may keep, by resource (all locked).

    What it keeps is booked no more; it stays booked ``beside``, where units apart may not be.
    """

    reservation_id: str
    requirement: Requirement
    kept: Units = field(default_factory=dict)
    beside: Collection[int] = ()

    @property
    def minimum(self) -> int:
        """Return how many more are needed."""
        return max(0, self.requirement.minimum - sum(self.kept.values()))

    @property
    def maximum(self) -> int:
        """Return how many more are welcome."""
        return max(0, self.requirement.maximum - sum(self.kept.values()))


def admit(
    session: Session,
    wanted: Sequence[Wanted],
    busy: Window,
    rotation: float,
    locked: Collection[int] = (),
) -> dict[str, Units]:
    """Choose and lock resources for all of ``wanted`` over ``busy``, or for none.

    ``locked`` are ours already; then no other lock is waited for, as that would be out of order.
    Returns the new units by reservation and resource id (``kept`` not included); nothing is
    stored yet. Raises NotEnoughResources.
    """
    search = Search(session, wanted, busy, rotation)
    chosen = _lock_chosen(search, locked)
    for want, units in zip(wanted, chosen, strict=True):
        if units and not search.is_still_there(want, units):
            raise LostRace
    if not search.leaves_enough(chosen):
        raise LostRace
    return {want.reservation_id: units for want, units in zip(wanted, chosen, strict=True)}


class Search:
    """A look at what could serve ``wanted`` over ``busy``: candidates, and what is left of each."""

    def __init__(
        self, session: Session, wanted: Sequence[Wanted], busy: Window, rotation: float
    ) -> None:
        """Look at a handful of candidates."""
        self.session = session
        self.wanted = wanted
        self.busy = busy
        self._rotation = rotation
        self._classes = {name for want in wanted for name in want.requirement.amounts}
        self._kept = {id_ for want in wanted for id_ in want.kept}
        needed = sum(want.maximum for want in wanted) + len(self._kept) + _SPARE
        # More would be found for shares alone: of the others the first are as good as any.
        more: list[int | None] = [needed + _MORE, None]
        self._limits = [needed, *(more if self._classes else [])]
        self._found: list[list[int]] = []
        self.free: Free = {}
        self.look()

    @property
    def ids(self) -> set[int]:
        """The candidates of all."""
        return {id_ for ids in self._found for id_ in ids}

    def look(self) -> bool:
        """Find candidates, more than before; tell whether there may be more than those before."""
        if not self._limits or (self._found and not self._is_cut):
            return False
        self._limit = self._limits.pop(0)
        self._found = [
            allocations.candidates(
                self.session,
                want.requirement,
                self.busy,
                limit=self._limit,
                rotation=self._rotation,
            )
            if want.maximum
            else []
            for want in self.wanted
        ]
        self.free = self._left(self.ids | self._kept)
        return True

    @property
    def _is_cut(self) -> bool:
        return any(len(ids) == self._limit for ids in self._found)

    def choose(self, lost: Collection[int] = ()) -> tuple[Units, ...] | None:
        """Choose from the candidates but those that are ``lost``; None if they do not do."""
        return choose([self._demand(index, lost) for index in range(len(self.wanted))], self.free)

    def is_still_there(self, want: Wanted, units: Units) -> bool:
        """Tell whether nobody else has meanwhile what was chosen for ``want``."""
        there = allocations.still_free(self.session, want.requirement, self.busy, units)
        return there == set(units)

    def leaves_enough(self, chosen: Sequence[Units]) -> bool:
        """Tell whether what was chosen is still left of what is shared."""
        shared = {
            id_
            for want, units in zip(self.wanted, chosen, strict=True)
            for id_ in units
            if not want.requirement.is_whole
        }
        if not shared:
            return True
        left = self._left(shared)
        for want, units in zip(self.wanted, chosen, strict=True):
            for id_, count in units.items():
                for name, amount in want.requirement.amounts.items():
                    left[id_][name] = left[id_].get(name, 0) - amount * count
        return all(amount >= 0 for amounts in left.values() for amount in amounts.values())

    def nearest(self, index: int) -> int:
        """Return how many units demand ``index`` could get if it were alone."""
        demand = self._demand(index, ())
        if not demand.amounts:
            return len(demand.candidates)
        return sum(room(self.free[id_], demand.amounts) for id_ in demand.candidates)

    def _left(self, ids: Collection[int]) -> dict[int, dict[str, int]]:
        """Return what is left for others than the units that these reservations keep."""
        if not self._classes:
            return {}
        left = capacity.free(self.session, ids, self._classes, self.busy)
        for want in self.wanted:
            for id_ in left.keys() & want.kept.keys():
                for name, amount in want.requirement.amounts.items():
                    left[id_][name] = left[id_].get(name, 0) - amount * want.kept[id_]
        return left

    def _demand(self, index: int, lost: Collection[int]) -> Demand:
        want = self.wanted[index]
        closed = {
            id_
            for other in self.wanted
            for id_ in other.kept
            if want.requirement.is_whole or other.requirement.is_whole
        }
        closed.update(lost)
        requirement = want.requirement
        return Demand(
            want.minimum,
            want.maximum,
            tuple(id_ for id_ in self._found[index] if id_ not in closed),
            requirement.amounts,
            requirement.layout,
            {**dict.fromkeys(want.beside, 0), **want.kept},
        )


def _lock_chosen(search: Search, held: Collection[int]) -> tuple[Units, ...]:
    """Choose and lock, falling back on others for those that are locked."""
    patient = is_patient(search.session) and not held
    locked = set(held)
    lost: set[int] = set()
    while True:
        chosen = search.choose(lost)
        if chosen is None and search.look():
            continue
        if chosen is None and lost and not locked:
            # There are no others: nothing is gained by trying again rather than waiting.
            patient, lost = True, set()
            continue
        if chosen is None and lost:
            raise LostRace
        if chosen is None:
            raise _refusal(search)
        missing = {id_ for units in chosen for id_ in units} - locked
        got = allocations.lock(search.session, missing, wait=patient) if missing else set()
        locked |= got
        if got == missing:
            break
        lost |= missing - got
    short = any(
        sum(units.values()) < want.maximum
        for units, want in zip(chosen, search.wanted, strict=True)
    )
    if lost and short:
        raise LostRace  # we have enough, but might get more once the others are done
    return chosen


def _refusal(search: Search) -> NotEnoughResources:
    """Say which requirement failed and how many matched and were free."""
    busy = search.busy
    for index, want in enumerate(search.wanted):
        free = search.nearest(index)
        if free < want.minimum:
            requirement = want.requirement
            matching = allocations.count(search.session, requirement)
            return NotEnoughResources(
                f"Not enough hosts available: at least {requirement.minimum} asked for,"
                f" {matching} match the requirements,"
                f" {free + sum(want.kept.values())} of them free from {busy.start:%Y-%m-%d %H:%M}"
                f" to {busy.end:%Y-%m-%d %H:%M} UTC (cleaning time included)"
            )
    return NotEnoughResources(
        "Not enough hosts available: each reservation could be served alone, but not all at once"
    )


def rows(
    wanted: Sequence[Wanted], taken: Mapping[str, Units], busy: Window
) -> list[dict[str, object]]:
    """Return the allocations to store for ``taken``: units by reservation and resource id."""
    return [
        row
        for want in wanted
        for resource_id, units in taken[want.reservation_id].items()
        for row in allocation_rows(want, resource_id, units, busy)
    ]


def allocation_rows(
    want: Wanted, resource_id: int, units: int, busy: Window
) -> list[dict[str, object]]:
    """Return the allocation of a whole resource, or those of each class of ``units`` shares."""
    row = {
        "resource_id": resource_id,
        "reservation_id": want.reservation_id,
        "start_at": busy.start,
        "busy_until": busy.end,
        "resource_class": None,
        "amount": None,
    }
    return [
        {**row, "resource_class": name, "amount": amount * units}
        for name, amount in want.requirement.amounts.items()
    ] or [row]
