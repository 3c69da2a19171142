"""What could serve a lease: candidates, what is left of each, and a choice among them.

A handful of candidates is looked at first. Where that does not do, more are looked at in two
steps: of what is shared, many may be full.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from climate.core.packing import Demand, Free, Units, choose, most
from climate.core.requirement import Layout, Requirement
from climate.core.selection import Candidate, Preference, Selection, rank
from climate.core.window import Window
from climate.db import allocations, capacity, resources

# Candidates beyond what is needed, to have others when some are locked: few at first, as hardly
# any is. Of those to be shared some may be full: then more are looked at, and at last all.
_FEW = 2
_SPARE = 8
_MORE = 512
# A number of candidates to look for is one of these: each is a statement of its own to plan.
_STEPS = tuple(3 * 2**power for power in range(14))


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


class Search:
    """A look at what could serve ``wanted`` over ``busy``: candidates, and what is left of each."""

    def __init__(
        self,
        session: Session,
        wanted: Sequence[Wanted],
        busy: Window,
        preference: Preference,
        *,
        locking: bool = False,
    ) -> None:
        """Look at a handful of candidates; with ``locking``, lock them if the choice is plain."""
        self.session = session
        self.wanted = wanted
        self.busy = busy
        self._preference = preference
        self._classes = {name for want in wanted for name in want.requirement.amounts}
        self._kept = {id_ for want in wanted for id_ in want.kept}
        wished = sum(want.maximum for want in wanted) + len(self._kept)
        needed = _step(wished + _SPARE)
        # Without shares or a selection the first that are found do, or nothing does.
        choosy = self._classes or preference.selection
        self._limits: list[int | None] = [
            needed,
            *((_step(needed + _MORE), None) if choosy else ()),
        ]
        if preference.selection.weighers:
            del self._limits[0]  # the best of a handful is not much
        self._found: list[list[int]] = []
        self._is_cut = True
        # With one wish for whole resources, the first that are found are those that it gets.
        self._locking = locking and len(wanted) == 1 and not (choosy or self._kept)
        if self._locking:
            self._limits.insert(0, _step(wished + _FEW))
        #: The candidates that are ours already, and those of them that nobody changed meanwhile.
        self.locked: set[int] = set()
        self._certain: set[int] = set()
        self.free: Free = {}
        self.look()

    @property
    def ids(self) -> set[int]:
        """The candidates of all."""
        return {id_ for ids in self._found for id_ in ids}

    def look(self) -> bool:
        """Find candidates, more than before; tell whether there may be more than those before."""
        if not self._limits or not self._is_cut:
            return False
        limit = self._limits.pop(0)
        self._found = [self._find(want, limit) if want.maximum else [] for want in self.wanted]
        self._is_cut = any(len(ids) == limit for ids in self._found)
        self.free = self._left(self.ids | self._kept)
        if self._preference.selection:
            self._select(self._preference.selection)
        return True

    def _find(self, want: Wanted, limit: int | None) -> list[int]:
        needs = want.requirement
        if want.kept and needs.layout is Layout.TOGETHER:
            # There or nowhere; and what fails may be kept, but no more of it taken.
            return sorted(allocations.still_free(self.session, needs, self.busy, want.kept))
        rotation = self._preference.rotation
        where = (self.session, needs, self.busy)
        if not self._locking:
            return allocations.candidates(*where, limit=limit, rotation=rotation)
        grabbed = allocations.grab(*where, limit=limit, locking=want.maximum, rotation=rotation)
        self.locked.update(grabbed.locked)
        self._certain.update(set(grabbed.locked) - set(grabbed.changed))
        return list(grabbed.found)

    def _select(self, selection: Selection) -> None:
        """Leave out what the operator's filters do, and order the rest by the weighers."""
        known = resources.find_some(self.session, self.ids)
        for index, want in enumerate(self.wanted):
            there = [
                Candidate(known[id_], self.free.get(id_, {}))
                for id_ in self._found[index]
                if id_ in known
            ]
            ranked = rank(there, want.requirement, selection.filters, selection.weighers)
            self._found[index] = [one.resource.id for one in ranked]

    def choose(self, lost: Collection[int] = ()) -> tuple[Units, ...] | None:
        """Choose from the candidates but those that are ``lost``; None if they do not do."""
        return choose([self._demand(index, lost) for index in range(len(self.wanted))], self.free)

    def is_still_there(self, want: Wanted, units: Units) -> bool:
        """Tell whether nobody else has meanwhile what was chosen for ``want``."""
        if units.keys() <= self._certain:
            return True
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
        return most(self._demand(index, ()), self.free)

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


def _step(count: int) -> int:
    """Return ``count`` or somewhat more."""
    return next((step for step in _STEPS if step >= count), count)
