"""Chooses which resources the reservations of a lease get, all together. Pure.

``assign`` assigns whole resources, and finds a solution if there is one. For example, a lease may
request "any two hosts" and "one host with a GPU". A simple assignment could give the only host with
a GPU to the first reservation. So ``assign`` also moves assigned resources to other reservations,
along augmenting paths (Kuhn, 1955). It moves many at once, so that large requests stay fast.

``choose`` also assigns parts (shares) of resources. It assigns the largest demand first. If this
fails, it tries other orders. For one reservation, ``choose`` finds a solution if there is one. For
several reservations with different shares, it may miss a solution, because this problem is bin
packing. A result never conflicts with existing bookings.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from climate.core.matching.requirement import Layout

# The number of orders of share demands to try; a lease rarely has more than three reservations.
# _MOST_EXAMINED bounds the candidates examined in all orders, so large requests try fewer orders.
_ORDERS = 24
_MOST_EXAMINED = 250_000

Units = Mapping[int, int]
Free = Mapping[int, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Demand:
    """What one reservation needs: ``minimum`` to ``maximum`` units of the ``candidates``.

    ``candidates`` are ids of resources, the preferred ones first. ``amounts`` is the size of a
    unit, such as ``{"VCPU": 4}``; if it is empty, a unit is a whole resource. ``kept`` are units
    that the reservation already has, as a dict from resource id to number of units. ``minimum`` and
    ``maximum`` do not include the units in ``kept``. If ``exclusive`` is set, no other demand may
    have units on the same resources.
    """

    minimum: int
    maximum: int
    candidates: tuple[int, ...]
    amounts: Mapping[str, int] = field(default_factory=dict)
    layout: Layout = Layout.ANYWHERE
    kept: Units = field(default_factory=dict)
    exclusive: bool = False


def assign(demands: Sequence[Demand]) -> tuple[tuple[int, ...], ...] | None:
    """Return the ids of whole resources for each demand; None if there are not enough.

    Each id is assigned at most once. First every demand gets its minimum. Then each demand gets
    more resources, up to its maximum.
    """
    search = _Search(demands)
    for index, demand in enumerate(demands):
        if search.fill(index, demand.minimum) < demand.minimum:
            return None
    for index, demand in enumerate(demands):
        search.fill(index, demand.maximum - demand.minimum)
    return tuple(
        tuple(id_ for id_ in demand.candidates if search.holder.get(id_) == index)
        for index, demand in enumerate(demands)
    )


class _Search:
    """An unfinished assignment of resources to demands; ``fill`` adds resources to it.

    A resource that is assigned stays assigned, but may move to another demand.
    """

    def __init__(self, demands: Sequence[Demand]) -> None:
        self.holder: dict[int, int] = {}
        self._demands = demands
        self._fresh = [iter(demand.candidates) for demand in demands]
        # Demands from which no chain of moves leads to a free resource any more.
        self._closed: set[int] = set()

    def fill(self, index: int, wanted: int) -> int:
        """Assign up to ``wanted`` more resources to the demand number ``index``.

        Return how many resources were assigned.
        """
        got = 0
        while got < wanted:
            free = next((id_ for id_ in self._fresh[index] if id_ not in self.holder), None)
            if free is None:
                break
            self.holder[free] = index
            got += 1
        while got < wanted and (moved := self._augment(index, wanted - got)):
            got += moved
        return got

    def _augment(self, index: int, wanted: int) -> int:
        """Assign up to ``wanted`` more resources to a demand by moving resources between demands.

        Return how many resources the demand got. The resources move along the path that ``_path``
        finds: the first demand on the path takes free resources, and each further demand takes
        resources from the demand before it.
        """
        path = self._path(index)
        if not path:
            return 0
        movable = [
            [id_ for id_ in self._demands[taker].candidates if self.holder.get(id_) == loser]
            for taker, loser in path
        ]
        count = min(wanted, *(len(ids) for ids in movable))
        for (taker, _), ids in zip(path, movable, strict=True):
            self.holder.update(dict.fromkeys(ids[:count], taker))
        return count

    def _path(self, index: int) -> list[tuple[int, int | None]]:
        """Return the shortest chain of moves that gives the demand ``index`` one more resource.

        The chain is a list of pairs (demand that takes a resource, demand that loses it). In the
        first pair, the resource is free, so the second item is None. The list is empty if there is
        no such chain.
        """
        if index in self._closed:
            return []
        taker: dict[int | None, int] = {}
        reached = [index]
        for present in reached:
            for id_ in self._demands[present].candidates:
                loser = self.holder.get(id_)
                if loser == index or loser in taker or loser in self._closed:
                    continue
                taker[loser] = present
                if loser is None:
                    return _chain(taker, index)
                reached.append(loser)
        self._closed.update(reached)
        return []


def _chain(taker: dict[int | None, int], index: int) -> list[tuple[int, int | None]]:
    chain: list[tuple[int, int | None]] = [(taker[None], None)]
    while (last := chain[-1][0]) != index:
        chain.append((taker[last], last))
    return chain


def choose(demands: Sequence[Demand], free: Free) -> tuple[Units, ...] | None:
    """Return the chosen units of each demand, as a dict from resource id to number of units.

    Returns None if it finds no solution. ``free`` is what is free of each resource, such as ``{1:
    {"VCPU": 8}}``. First every demand gets its minimum. Then each demand gets more units, up to its
    maximum.
    """
    shares = [index for index, demand in enumerate(demands) if demand.amounts]
    if not shares:
        return _whole(demands, range(len(demands)))
    shares.sort(key=lambda index: sum(demands[index].amounts.values()), reverse=True)
    packings = (
        _pack(ordered, free, order, wholes_first=wholes_first)
        for ordered, order, wholes_first in _attempts(demands, free, shares)
    )
    return next((packing for packing in packings if packing is not None), None)


def _attempts(
    demands: Sequence[Demand], free: Free, shares: Sequence[int]
) -> Iterator[tuple[Sequence[Demand], Sequence[int], bool]]:
    """Yield arguments for ``_pack``, the most promising first.

    ``shares`` are the indexes of the demands for parts of resources, the largest first. Each item
    contains the demands, ``shares`` in the order of packing, and ``wholes_first``: whether whole
    resources are reserved before the parts.
    """
    examined = sum(len(demands[index].candidates) for index in shares)
    orders = min(_ORDERS, max(1, _MOST_EXAMINED // max(1, examined)))
    mixed = len(shares) < len(demands)
    for order in itertools.islice(itertools.permutations(shares), orders):
        for wholes_first in (False, True) if mixed else (False,):
            yield demands, order, wholes_first
    if mixed:  # pack shares tightly, which leaves more resources for whole demands
        yield _roomiest(demands, free), shares, False


def _roomiest(demands: Sequence[Demand], free: Free) -> Sequence[Demand]:
    """Return the demands with their candidates sorted by free capacity.

    A demand for parts of resources tries the resources with the most free capacity first. A demand
    for whole resources tries them last.
    """
    sizes = {tuple(demand.amounts.items()) for demand in demands if demand.amounts}
    fitting = {
        id_: sum(room(free.get(id_, {}), dict(size)) for size in sizes)
        for id_ in {id_ for demand in demands for id_ in demand.candidates}
    }
    return [
        _sorted(demand, fitting.__getitem__, reverse=bool(demand.amounts)) for demand in demands
    ]


def most(demand: Demand, free: Free) -> int:
    """Return how many units a demand could get if there were no other demand and no maximum.

    ``free`` is what is free of each resource, such as ``{1: {"VCPU": 8}}``.
    """
    if not demand.amounts:
        return len(demand.candidates)
    fitting = [room(free[id_], demand.amounts) for id_ in demand.candidates]
    if demand.layout is Layout.TOGETHER:
        return max(fitting, default=0)
    return sum(min(count, 1) if demand.layout is Layout.APART else count for count in fitting)


def room(free: Mapping[str, int], amounts: Mapping[str, int]) -> int:
    """Return how many units of the size ``amounts`` fit into ``free``.

    Example: 2, if ``free`` is ``{"VCPU": 9}`` and ``amounts`` is ``{"VCPU": 4}``.
    """
    return max(0, min(free.get(name, 0) // amount for name, amount in amounts.items()))


def first(units: Units, count: int) -> Units:
    """Return the first ``count`` units, as a dict from resource id to number of units.

    ``units`` is such a dict, too. The function takes all units of a resource before it goes on to
    the next resource, so the last resource can have fewer units in the result than in ``units``.
    """
    kept: dict[int, int] = {}
    for id_, has in units.items():
        if count > 0:
            kept[id_] = min(has, count)
            count -= has
    return kept


def laid_out(units: Units, layout: Layout) -> Units:
    """Return the units that the layout allows, as a dict from resource id to number of units.

    With the layout APART, this is one unit of each resource. With TOGETHER, it is all units of the
    resource that has the most. With ANYWHERE, it is all units.
    """
    if layout is Layout.APART:
        return dict.fromkeys(units, 1)
    if layout is Layout.TOGETHER and units:
        fullest = max(units, key=units.__getitem__)
        return {fullest: units[fullest]}
    return units


def _pack(
    demands: Sequence[Demand], free: Free, order: Sequence[int], *, wholes_first: bool
) -> tuple[Units, ...] | None:
    """Return the units of each demand (dict from resource id to number); None if they do not fit.

    The demands for parts of resources are packed first, in ``order`` (indexes of demands). If
    possible, they avoid the candidates of demands for whole resources. With ``wholes_first``, the
    minimum of each demand for whole resources is reserved before the parts are packed.
    """
    wholes = [index for index in range(len(demands)) if index not in order]
    packing = _Packing(free)
    if wholes_first:
        shared = {id_ for index in order for id_ in demands[index].candidates}
        least = [replace(demand, maximum=demand.minimum) for demand in demands]
        reserved = _whole(least, wholes, spared=shared)
        if reserved is None:
            return None
        packing.close(reserved)
    spared = {id_ for index in wholes for id_ in demands[index].candidates}
    for index in order:
        if not packing.fill(index, _last(demands[index], spared), demands[index].minimum):
            return None
    assigned = _whole(demands, wholes, closed=packing.used())
    if assigned is None:
        return None
    packing.close(assigned)
    for index in order:
        packing.fill(index, demands[index], demands[index].maximum)
    taken = dict(zip(wholes, assigned, strict=True))
    return tuple(taken.get(index, packing.units(index)) for index in range(len(demands)))


def _whole(
    demands: Sequence[Demand],
    indexes: Sequence[int],
    *,
    spared: AbstractSet[int] = frozenset(),
    closed: AbstractSet[int] = frozenset(),
) -> tuple[Units, ...] | None:
    """Return whole resources for the demands with these ``indexes``; None if there are too few.

    Resources in ``closed`` are never assigned. Resources in ``spared`` are assigned only if there
    are no others left.
    """
    usable = []
    for demand in (_last(demands[index], spared) for index in indexes):
        candidates = tuple(id_ for id_ in demand.candidates if id_ not in closed)
        usable.append(replace(demand, candidates=candidates))
    assigned = assign(usable)
    return None if assigned is None else tuple(dict.fromkeys(ids, 1) for ids in assigned)


def _last(demand: Demand, spared: AbstractSet[int]) -> Demand:
    """Return the demand with its candidates in ``spared`` moved to the end of the list."""
    return _sorted(demand, spared.__contains__) if spared else demand


def _sorted(demand: Demand, key: Callable[[int], int], *, reverse: bool = False) -> Demand:
    candidates = sorted(demand.candidates, key=key, reverse=reverse)
    return replace(demand, candidates=tuple(candidates))


class _Packing:
    """An unfinished packing: what is still free of each resource, and the units of each demand."""

    def __init__(self, free: Free) -> None:
        self._left = {id_: dict(amounts) for id_, amounts in free.items()}
        self._taken: dict[int, dict[int, int]] = {}
        # The demands that share no resource with others.
        self._exclusive: set[int] = set()

    def units(self, index: int) -> Units:
        return self._taken.get(index, {})

    def used(self) -> set[int]:
        """Return the ids of the resources of which a demand already has a part."""
        return {id_ for units in self._taken.values() for id_ in units}

    def close(self, taken: Sequence[Units]) -> None:
        """Remove the resources in ``taken``, which are assigned as a whole, from the packing."""
        for id_ in itertools.chain(*taken):
            self._left.pop(id_, None)

    def fill(self, index: int, demand: Demand, wanted: int) -> bool:
        """Add units to the demand number ``index`` until it has ``wanted`` units.

        Return whether the demand has that many units now.
        """
        has = self._taken.setdefault(index, {})
        self._exclusive |= {index} if demand.exclusive else set()
        demand = self._alone(index, demand)
        for id_ in self._order(demand, has):
            missing = wanted - sum(has.values())
            if missing <= 0:
                break
            count = min(missing, self._room(demand, id_, has))
            if count:
                has[id_] = has.get(id_, 0) + count
                for name, amount in demand.amounts.items():
                    self._left[id_][name] -= amount * count
        return sum(has.values()) >= wanted

    def _alone(self, index: int, demand: Demand) -> Demand:
        """Return the demand without the candidates that it cannot share with other demands."""
        closed = {
            id_
            for other, units in self._taken.items()
            if other != index and self._exclusive & {index, other}
            for id_ in units
        }
        candidates = tuple(id_ for id_ in demand.candidates if id_ not in closed)
        return replace(demand, candidates=candidates) if closed else demand

    def _order(self, demand: Demand, has: Units) -> Sequence[int]:
        """Return the ids of the resources on which to try to pack units of the demand, in order.

        ``has`` are the units that this packing gave the demand. With the layout TOGETHER, the
        result is only the resource that already has units of the demand. If there is none, it is
        the resource with the most free capacity. An exclusive demand fills its own resources first.
        """
        if demand.layout is not Layout.TOGETHER:
            own = set(demand.kept) if demand.exclusive else set()
            return sorted(demand.candidates, key=lambda id_: id_ not in own)
        if has or demand.kept:
            return [id_ for id_ in demand.candidates if id_ in has or id_ in demand.kept]
        fitting = {
            id_: min(self._room(demand, id_, has), demand.maximum) for id_ in demand.candidates
        }
        return sorted(demand.candidates, key=lambda id_: -fitting[id_])[:1]

    def _room(self, demand: Demand, id_: int, has: Units) -> int:
        if demand.layout is Layout.APART and (id_ in has or id_ in demand.kept):
            return 0
        fitting = room(self._left.get(id_, {}), demand.amounts)
        return min(fitting, 1) if demand.layout is Layout.APART else fitting
