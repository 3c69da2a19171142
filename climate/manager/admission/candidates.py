"""Candidates: the resources that could serve a lease, and a choice among them.

Statements fetch a handful of candidates first. Where these do not suffice, they fetch more in two
steps, as many of the resources that are shared may be full. The choice itself (``select``) is pure.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy.orm import Session

from climate.core.matching import packing
from climate.core.matching.packing import Free, Units
from climate.core.matching.requirement import Layout, Requirement
from climate.core.matching.selection import Candidate, Preference, rank
from climate.core.window import Window
from climate.db.resources import allocations, capacity, resources

# Candidates beyond those that are needed, to replace those that others have locked. A few at first,
# as hardly any is locked. Shared resources may be full: then more are fetched, and at last all.
_FEW = 2
_SPARE = 8
_MORE = 512
# Each number of candidates is one of these, as each is a statement of its own for the planner.
_STEPS = tuple(3 * 2**power for power in range(14))


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A reservation's requirement, and the units that it may keep, by resource (all locked).

    The kept units are not booked any more. Units ``beside`` stay booked: units that must be apart
    cannot be on these resources.
    """

    reservation_id: str
    requirement: Requirement
    kept: Units = field(default_factory=dict)
    beside: Collection[int] = ()

    @property
    def minimum(self) -> int:
        """Return how many more units are needed."""
        return max(0, self.requirement.minimum - sum(self.kept.values()))

    @property
    def maximum(self) -> int:
        """Return how many more units are welcome."""
        return max(0, self.requirement.maximum - sum(self.kept.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateSet:
    """The candidates of each demand over the ``occupied`` window, and what is free on them.

    ``limits`` are the numbers of candidates to fetch next, None for all. With ``locking``, a fetch
    locks the first candidates. ``locked`` are those that are ours by that; ``unchanged`` are those
    of them that no transaction has changed since they were found.
    """

    demands: Sequence[Demand]
    occupied: Window
    preference: Preference
    limits: tuple[int | None, ...]
    locking: bool = False
    ids: Sequence[Sequence[int]] = ()
    free: Free = field(default_factory=dict)
    locked: frozenset[int] = frozenset()
    unchanged: frozenset[int] = frozenset()


def find_candidates(
    session: Session,
    demands: Sequence[Demand],
    occupied: Window,
    preference: Preference,
    *,
    locking: bool = False,
) -> CandidateSet:
    """Return the first candidates; ``locking`` locks them if no choice among them is left."""
    selection = preference.selection
    keeps = any(demand.kept for demand in demands)
    is_selective = bool(_classes(demands) or selection.filters or selection.weighers)
    wished = sum(demand.maximum for demand in demands) + len(_kept(demands))
    needed = _step(wished + _SPARE)
    # Without shares or a selection, the first candidates suffice or none do.
    limits: list[int | None] = [needed, *((_step(needed + _MORE), None) if is_selective else ())]
    if selection.weighers:
        del limits[0]  # the best of a handful is not much
    # With one demand for whole resources, the first candidates are those that it gets.
    locking = locking and len(demands) == 1 and not (is_selective or keeps)
    if locking:
        limits.insert(0, _step(wished + _FEW))
    empty = CandidateSet(
        demands=demands,
        occupied=occupied,
        preference=preference,
        limits=tuple(limits),
        locking=locking,
    )
    return _fetch(session, empty)


def fetch_more(session: Session, known: CandidateSet) -> CandidateSet | None:
    """Return more candidates than are ``known``; None if there are no more."""
    return _fetch(session, known) if known.limits else None


def _fetch(session: Session, known: CandidateSet) -> CandidateSet:
    limit, *limits = known.limits
    ids: list[Sequence[int]] = []
    locked, unchanged = set(known.locked), set(known.unchanged)
    for demand in known.demands:
        if not demand.maximum:
            ids.append([])
        elif known.locking:
            grabbed = allocations.grab(
                session,
                demand.requirement,
                known.occupied,
                limit=limit,
                locking=demand.maximum,
                rotation=known.preference.rotation,
            )
            locked.update(grabbed.locked)
            unchanged.update(set(grabbed.locked) - set(grabbed.changed))
            ids.append(list(grabbed.found))
        else:
            ids.append(_find(session, demand, known, limit))
    free = _left(session, known, {*_all(ids), *_kept(known.demands)})
    is_complete = not any(len(found) == limit for found in ids)
    selection = known.preference.selection
    if selection.filters or selection.weighers:
        ids = _ranked(session, known, ids, free)
    return replace(
        known,
        limits=() if is_complete else tuple(limits),
        ids=ids,
        free=free,
        locked=frozenset(locked),
        unchanged=frozenset(unchanged),
    )


def _find(session: Session, demand: Demand, known: CandidateSet, limit: int | None) -> list[int]:
    requirement = demand.requirement
    if demand.kept and requirement.layout is Layout.TOGETHER:
        # Only these will do; and of a resource that fails no more may be taken.
        return sorted(allocations.still_free(session, requirement, known.occupied, demand.kept))
    rotation = known.preference.rotation
    return allocations.candidates(
        session, requirement, known.occupied, limit=limit, rotation=rotation
    )


def _ranked(
    session: Session, known: CandidateSet, ids: Sequence[Sequence[int]], free: Free
) -> list[Sequence[int]]:
    """Return the candidates that the operator's filters pass, the best by the weighers first."""
    selection = known.preference.selection
    records = resources.find_some(session, _all(ids))
    ranked: list[Sequence[int]] = []
    for demand, found in zip(known.demands, ids, strict=True):
        candidates = [Candidate(records[id_], free.get(id_, {})) for id_ in found if id_ in records]
        best = rank(candidates, demand.requirement, selection.filters, selection.weighers)
        ranked.append([candidate.resource.id for candidate in best])
    return ranked


def select(known: CandidateSet, lost: Collection[int] = ()) -> tuple[Units, ...] | None:
    """Choose from the candidates except those that are ``lost``; None if they do not suffice."""
    demands = [_packed(known, index, lost) for index in range(len(known.demands))]
    return packing.choose(demands, known.free)


def most_units(known: CandidateSet, index: int) -> int:
    """Return how many units demand ``index`` could get if it were alone."""
    return packing.most(_packed(known, index, ()), known.free)


def is_still_free(session: Session, known: CandidateSet, demand: Demand, units: Units) -> bool:
    """Return whether the units that were chosen for the demand are still free."""
    if units.keys() <= known.unchanged:
        return True
    free = allocations.still_free(session, demand.requirement, known.occupied, units)
    return free == set(units)


def leaves_enough(session: Session, known: CandidateSet, chosen: Sequence[Units]) -> bool:
    """Return whether the chosen units of shared resources are still free."""
    shared = {
        id_
        for demand, units in zip(known.demands, chosen, strict=True)
        for id_ in units
        if demand.requirement.amounts
    }
    if not shared:
        return True
    left = _left(session, known, shared)
    for demand, units in zip(known.demands, chosen, strict=True):
        for id_, count in units.items():
            for name, amount in demand.requirement.amounts.items():
                left[id_][name] = left[id_].get(name, 0) - amount * count
    return all(amount >= 0 for amounts in left.values() for amount in amounts.values())


def _left(session: Session, known: CandidateSet, ids: Collection[int]) -> dict[int, dict[str, int]]:
    """Return what is free on resources beside the units that the demands keep."""
    classes = _classes(known.demands)
    if not classes:
        return {}
    left = capacity.free(session, ids, classes, known.occupied)
    for demand in known.demands:
        for id_ in left.keys() & demand.kept.keys():
            for name, amount in demand.requirement.amounts.items():
                left[id_][name] = left[id_].get(name, 0) - amount * demand.kept[id_]
    return left


def _packed(known: CandidateSet, index: int, lost: Collection[int]) -> packing.Demand:
    demand = known.demands[index]
    requirement = demand.requirement
    closed = {
        id_
        for other in known.demands
        for id_ in other.kept
        if not requirement.amounts or not other.requirement.amounts
    }
    closed.update(lost)
    return packing.Demand(
        demand.minimum,
        demand.maximum,
        tuple(id_ for id_ in known.ids[index] if id_ not in closed),
        requirement.amounts,
        requirement.layout,
        {**dict.fromkeys(demand.beside, 0), **demand.kept},
    )


def _classes(demands: Iterable[Demand]) -> set[str]:
    return {name for demand in demands for name in demand.requirement.amounts}


def _kept(demands: Iterable[Demand]) -> set[int]:
    return {id_ for demand in demands for id_ in demand.kept}


def _all(ids: Iterable[Sequence[int]]) -> set[int]:
    return {id_ for found in ids for id_ in found}


def _step(count: int) -> int:
    """Return ``count`` rounded up to one of the steps."""
    return next((step for step in _STEPS if step >= count), count)
