"""Candidates: the resources that could serve a lease, and the choice among them.

The first statement fetches a handful of candidates for each reservation. These may not suffice,
because a resource that several leases share may be full. In this case, further statements fetch
more candidates, and finally all candidates. The pure function ``select`` chooses among the
candidates.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy.orm import Session

from climate.core.matching import packing
from climate.core.matching.packing import Free, Units
from climate.core.matching.requirement import Layout, Requirement
from climate.core.matching.selection import Candidate, Preference, Selection, rank
from climate.core.window import Window
from climate.db.resources import allocations, capacity, resources

# Extra candidates beyond the needed ones, as other transactions may have locked some. Few at first,
# as locks are rare. Shared resources may be full: then fetch more, and finally all.
_FEW = 2
_SPARE = 8
_MORE = 512
# The allowed numbers of candidates: few values, so that few statements need a query plan.
_STEPS = tuple(3 * 2**power for power in range(14))


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What one reservation requires, and which units of a changed reservation stay.

    A unit is a whole resource or a fixed share of one. ``kept`` maps the id of a resource to the
    number of units that the reservation keeps on it. These units count towards the requirement.
    This transaction has already locked these resources and deleted the bookings of these units.

    ``beside`` are the ids of other resources that the reservation has. Their units do not count
    towards the requirement. If the layout is APART (each unit on another resource), no new unit may
    be on these resources.
    """

    reservation_id: str
    requirement: Requirement
    kept: Units = field(default_factory=dict)
    beside: Collection[int] = ()

    @property
    def minimum(self) -> int:
        """The minimum number of new units to choose, in addition to the units in ``kept``."""
        return max(0, self.requirement.minimum - sum(self.kept.values()))

    @property
    def maximum(self) -> int:
        """The maximum number of new units to choose, in addition to the units in ``kept``."""
        return max(0, self.requirement.maximum - sum(self.kept.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateSet:
    """For each demand of a lease, resources that match and are free over the ``occupied`` window.

    A demand is what one reservation requires. ``ids`` contains a list of candidates (resource ids)
    for each demand, in the order of ``preference``. ``free`` contains the free amounts by resource
    id and resource class (for example VCPU). ``limits`` contains one number for each query that may
    still follow: the maximum number of candidates per demand (None: no maximum).

    If ``locking`` is true, the queries also lock the first candidates. ``locked`` contains the ids
    of the locked resources. ``unchanged`` contains the ids of those locked resources that no other
    transaction changed between the search and the lock.
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
    """Query the database for the first candidates of each demand (what one reservation requires).

    Candidates are resources that match and are free in ``occupied``. ``preference`` decides which
    candidates come first. If ``locking`` is true, and if it is certain which candidates ``select``
    will choose, the query also locks these candidates. On databases other than PostgreSQL, the
    query never locks.
    """
    selection = preference.selection
    is_selective = bool(_classes(demands) or selection)
    wanted = sum(demand.maximum for demand in demands) + len(_kept(demands))
    needed = _step(wanted + _SPARE)
    # For whole resources without a selection, the first fetch suffices, or none does.
    limits: list[int | None] = [needed, *((_step(needed + _MORE), None) if is_selective else ())]
    if selection.weighers:
        del limits[0]  # weighers should compare more than a handful
    if selection.screens:
        limits = [None]  # a screen compares all candidates
    # A single demand for whole resources always gets the first candidates.
    locking = locking and len(demands) == 1 and not (is_selective or _kept(demands))
    if locking:
        limits.insert(0, _step(wanted + _FEW))
    empty = CandidateSet(
        demands=demands,
        occupied=occupied,
        preference=preference,
        limits=tuple(limits),
        locking=locking,
    )
    return _fetch(session, empty)


def few(demand: Demand) -> int:
    """Return how many candidates a first search should find for one demand for whole resources."""
    return _step(demand.maximum + _FEW)


def find_all_candidates(
    session: Session, demands: Sequence[Demand], occupied: Window, preference: Preference
) -> CandidateSet:
    """Return all resources that match each demand and are free in the window ``occupied``.

    A demand is what one reservation requires. Unlike ``find_candidates``, the query has no limit.
    """
    empty = CandidateSet(demands=demands, occupied=occupied, preference=preference, limits=(None,))
    return _fetch(session, empty)


def fetch_more(session: Session, candidates: CandidateSet) -> CandidateSet | None:
    """Query again with a higher limit, and return the larger set of candidates.

    Returns None if the present set already contains all candidates.
    """
    return _fetch(session, candidates) if candidates.limits else None


def _fetch(session: Session, candidates: CandidateSet) -> CandidateSet:
    limit, *limits = candidates.limits
    ids: list[Sequence[int]] = []
    locked, unchanged = set(candidates.locked), set(candidates.unchanged)
    for demand in candidates.demands:
        if not demand.maximum:
            ids.append([])
        elif candidates.locking:
            grabbed = allocations.grab(
                session,
                demand.requirement,
                candidates.occupied,
                limit=limit,
                locking=demand.maximum,
                rotation=candidates.preference.rotation,
            )
            locked.update(grabbed.locked)
            unchanged.update(set(grabbed.locked) - set(grabbed.changed))
            ids.append(list(grabbed.found))
        else:
            ids.append(_find(session, demand, candidates, limit))
    free = _free_amounts(session, candidates, {*_all(ids), *_kept(candidates.demands)})
    is_complete = not any(len(demand_ids) == limit for demand_ids in ids)
    selection = candidates.preference.selection
    if selection:
        ids = _ranked(session, candidates, ids, free)
    return replace(
        candidates,
        limits=() if is_complete else tuple(limits),
        ids=ids,
        free=free,
        locked=frozenset(locked),
        unchanged=frozenset(unchanged),
    )


def _find(
    session: Session, demand: Demand, candidates: CandidateSet, limit: int | None
) -> list[int]:
    requirement = demand.requirement
    if demand.kept and requirement.layout is Layout.TOGETHER:
        # Only the resource of the kept units is eligible, and only while it works.
        return sorted(
            allocations.still_free(session, requirement, candidates.occupied, demand.kept)
        )
    rotation = candidates.preference.rotation
    return allocations.candidates(
        session, requirement, candidates.occupied, limit=limit, rotation=rotation
    )


def _ranked(
    session: Session, candidates: CandidateSet, ids: Sequence[Sequence[int]], free: Free
) -> list[Sequence[int]]:
    """Return the candidates that the operator's filters accept, in the order of the weighers.

    Filters and weighers are functions that the operator configures to reject or to prefer
    resources. ``ids`` and the result contain one list of resource ids per demand. ``free`` contains
    the free amounts by resource id and resource class.
    """
    selection = candidates.preference.selection
    described = describe(session, _all(ids), free, with_inventories=bool(selection.screens))
    ranked: list[Sequence[int]] = []
    for demand, demand_ids in zip(candidates.demands, ids, strict=True):
        ranking = [described[id_] for id_ in demand_ids if id_ in described]
        best = rank(
            ranking,
            demand.requirement,
            selection.filters,
            selection.weighers,
            selection.screens,
        )
        ranked.append([candidate.resource.id for candidate in best])
    return ranked


def accepted(
    session: Session,
    requirement: Requirement,
    ids: Collection[int],
    occupied: Window,
    selection: Selection,
) -> set[int]:
    """Return those of the resources ``ids`` that all screens accept for the requirement.

    The resources are booked for the reservation itself, and match the requirement.
    """
    if not selection.screens:
        return set(ids)
    classes = requirement.amounts
    free = capacity.free(session, ids, classes, occupied) if classes else {}
    described = describe(session, ids, free, with_inventories=True)
    passing = rank(list(described.values()), requirement, (), (), selection.screens)
    return {candidate.resource.id for candidate in passing}


def describe(
    session: Session, ids: Collection[int], free: Free, *, with_inventories: bool
) -> dict[int, Candidate]:
    """Return the stored resources as candidates, by id.

    ``free`` contains the free amounts by resource id and resource class.
    """
    records = resources.find_some(session, ids)
    inventories = capacity.find_some(session, records) if with_inventories else {}
    return {
        id_: Candidate(record, free.get(id_, {}), inventories.get(id_, {}))
        for id_, record in records.items()
    }


def select(candidates: CandidateSet, lost: Collection[int] = ()) -> tuple[Units, ...] | None:
    """Choose units for all demands from the candidates; return None if there are too few.

    A demand is what one reservation requires. The result contains one mapping per demand, from
    resource id to the number of units. Candidates whose ids are in ``lost`` are not chosen, because
    other transactions have locked them.
    """
    demands = [_packed(candidates, index, lost) for index in range(len(candidates.demands))]
    return packing.choose(demands, candidates.free)


def most_units(candidates: CandidateSet, index: int) -> int:
    """Return how many units a demand could get if it were the only demand of the lease.

    A demand is what one reservation requires; ``index`` is its position. The result may exceed the
    maximum of the demand.
    """
    return packing.most(_packed(candidates, index, ()), candidates.free)


def with_room(candidates: CandidateSet, index: int) -> list[int]:
    """Return the ids of resources that have at least one free unit for a demand.

    A demand is what one reservation requires; ``index`` is its position. The function ignores what
    the other demands of the lease need.
    """
    demand = _packed(candidates, index, ())
    if not demand.amounts:
        return list(demand.candidates)
    free = candidates.free
    return [id_ for id_ in demand.candidates if packing.room(free[id_], demand.amounts)]


def is_still_free(session: Session, candidates: CandidateSet, demand: Demand, units: Units) -> bool:
    """Return whether every resource in ``units`` is still a candidate for the demand.

    A candidate matches the demand and has free capacity. The check is needed because another
    transaction may have booked a candidate before the caller locked it. If the demand is for shares
    of resources, this check is not enough; call ``leaves_enough`` as well.
    """
    if units.keys() <= candidates.unchanged:
        return True
    free = allocations.still_free(session, demand.requirement, candidates.occupied, units)
    return free == set(units)


def leaves_enough(session: Session, candidates: CandidateSet, chosen: Sequence[Units]) -> bool:
    """Return whether the chosen shared resources have enough free amounts for all chosen units.

    ``chosen`` contains one mapping per demand (what one reservation requires), from resource id to
    the number of units.
    """
    shared = {
        id_
        for demand, units in zip(candidates.demands, chosen, strict=True)
        for id_ in units
        if demand.requirement.amounts
    }
    if not shared:
        return True
    free = _free_amounts(session, candidates, shared)
    for demand, units in zip(candidates.demands, chosen, strict=True):
        for id_, count in units.items():
            for name, amount in demand.requirement.amounts.items():
                free[id_][name] = free[id_].get(name, 0) - amount * count
    return all(amount >= 0 for amounts in free.values() for amount in amounts.values())


def _free_amounts(
    session: Session, candidates: CandidateSet, ids: Collection[int]
) -> dict[int, dict[str, int]]:
    """Return the free amounts of the resources ``ids``, by resource id and resource class.

    A resource class is, for example, VCPU. Amounts that a changed lease keeps (``Demand.kept``) are
    not free.
    """
    classes = _classes(candidates.demands)
    if not classes:
        return {}
    free = capacity.free(session, ids, classes, candidates.occupied)
    for demand in candidates.demands:
        for id_ in free.keys() & demand.kept.keys():
            for name, amount in demand.requirement.amounts.items():
                free[id_][name] = free[id_].get(name, 0) - amount * demand.kept[id_]
    return free


def _packed(candidates: CandidateSet, index: int, lost: Collection[int]) -> packing.Demand:
    demand = candidates.demands[index]
    requirement = demand.requirement
    closed = {
        id_
        for other in candidates.demands
        for id_ in other.kept
        if requirement.is_whole
        or other.requirement.is_whole
        or (other is not demand and (requirement.exclusive or other.requirement.exclusive))
    }
    closed.update(lost)
    return packing.Demand(
        demand.minimum,
        demand.maximum,
        tuple(id_ for id_ in candidates.ids[index] if id_ not in closed),
        requirement.amounts,
        requirement.layout,
        {**dict.fromkeys(demand.beside, 0), **demand.kept},
        requirement.exclusive,
    )


def _classes(demands: Iterable[Demand]) -> set[str]:
    return {name for demand in demands for name in demand.requirement.amounts}


def _kept(demands: Iterable[Demand]) -> set[int]:
    return {id_ for demand in demands for id_ in demand.kept}


def _all(ids: Iterable[Sequence[int]]) -> set[int]:
    return {id_ for demand_ids in ids for id_ in demand_ids}


def _step(count: int) -> int:
    """Round ``count`` up to a number in ``_STEPS``, the usual limits of queries (3, 6, 12, ...).

    Returns ``count`` if all numbers in ``_STEPS`` are smaller.
    """
    return next((step for step in _STEPS if step >= count), count)
