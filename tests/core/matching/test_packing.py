"""Packing against brute force: allocations never conflict, and use all the capacity."""

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from climate.core.matching import packing
from climate.core.matching.packing import Demand, Free, Units, choose
from climate.core.matching.requirement import Layout
from tests.support.cases import each_case

SMALL = {"VCPU": 2, "MEMORY_MB": 1}
LARGE = {"VCPU": 4, "MEMORY_MB": 8}

amounts = st.sampled_from([{}, {"VCPU": 1}, {"VCPU": 2, "MEMORY_MB": 3}, {"MEMORY_MB": 4}])
resources = st.dictionaries(
    st.integers(1, 5),
    st.fixed_dictionaries({"VCPU": st.integers(0, 8), "MEMORY_MB": st.integers(0, 8)}),
    max_size=5,
)


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    minimum = draw(st.integers(0, 3))
    return Demand(
        minimum,
        minimum + draw(st.integers(0, 3)),
        tuple(draw(st.permutations(range(1, 6)))[: draw(st.integers(0, 5))]),
        draw(amounts),
        draw(st.sampled_from(Layout)),
    )


def _fits(wanted: list[Demand], free: Free, chosen: tuple[Units, ...]) -> bool:
    """Return whether no allocation exceeds the capacity or shares a whole resource."""
    left = {id_: Counter(has) for id_, has in free.items()}
    users: Counter[int] = Counter()
    for demand, units in zip(wanted, chosen, strict=True):
        for id_, count in units.items():
            users[id_] += 1
            for name, amount in demand.amounts.items():
                left[id_][name] -= amount * count
    wholes = [
        id_ for d, units in zip(wanted, chosen, strict=True) if not d.amounts for id_ in units
    ]
    alone = all(users[id_] == 1 for id_ in wholes)
    return alone and all(amount >= 0 for has in left.values() for amount in has.values())


def _is_laid_out(demand: Demand, units: Units) -> bool:
    match demand.layout if demand.amounts else Layout.APART:
        case Layout.TOGETHER:
            return len(units) <= 1
        case Layout.APART:
            return all(count == 1 for count in units.values())
    return True


def _alone(demand: Demand, free: Free) -> int:
    """Return how many units fit for a single demand, by trying every resource."""
    rooms = [
        min((free[id_][name] // amount for name, amount in demand.amounts.items()), default=1)
        for id_ in demand.candidates
    ]
    if not demand.amounts or demand.layout is Layout.ANYWHERE:
        return sum(rooms)
    if demand.layout is Layout.TOGETHER:
        return max(rooms, default=0)
    return sum(min(room, 1) for room in rooms)


@given(wanted=st.lists(demands(), max_size=3), free=resources)
def test_allocates_only_free_capacity_and_none_twice(wanted: list[Demand], free: Free) -> None:
    chosen = choose(wanted, _all_five(free))
    if chosen is None:
        return
    assert _fits(wanted, _all_five(free), chosen)
    for demand, units in zip(wanted, chosen, strict=True):
        assert units.keys() <= set(demand.candidates)
        assert demand.minimum <= sum(units.values()) <= demand.maximum
        assert _is_laid_out(demand, units)


@given(demand=demands(), free=resources)
def test_a_single_demand_gets_all_the_capacity_that_exists(demand: Demand, free: Free) -> None:
    available = _alone(demand, _all_five(free))
    chosen = choose([demand], _all_five(free))
    if available < demand.minimum:
        assert chosen is None
    else:
        assert chosen is not None
        assert sum(chosen[0].values()) == min(available, demand.maximum)


def _all_five(free: Free) -> Free:
    return {id_: free.get(id_, {"VCPU": 0, "MEMORY_MB": 0}) for id_ in range(1, 6)}


def test_units_fill_a_resource_before_the_next() -> None:
    free = {1: {"VCPU": 4, "MEMORY_MB": 9}, 2: {"VCPU": 4, "MEMORY_MB": 9}}
    assert choose([Demand(3, 3, (2, 1), SMALL)], free) == ({2: 2, 1: 1},)


def test_units_together_go_where_most_of_them_fit() -> None:
    free = {1: {"VCPU": 4, "MEMORY_MB": 9}, 2: {"VCPU": 8, "MEMORY_MB": 9}}
    assert choose([Demand(1, 3, (1, 2), SMALL, Layout.TOGETHER)], free) == ({2: 3},)


def test_units_apart_avoid_resources_that_the_reservation_already_has() -> None:
    free = {id_: {"VCPU": 4, "MEMORY_MB": 9} for id_ in (1, 2, 3)}
    demand = Demand(2, 2, (1, 2, 3), SMALL, Layout.APART, kept={1: 1})
    assert choose([demand], free) == ({2: 1, 3: 1},)


def test_shares_leave_whole_resources_to_demands_for_whole_ones() -> None:
    free = {id_: {"VCPU": 4, "MEMORY_MB": 9} for id_ in (1, 2)}
    for order in itertools.permutations([Demand(1, 1, (1,)), Demand(1, 1, (1, 2), SMALL)]):
        chosen = choose(order, free)
        assert chosen is not None
        assert sorted(chosen, key=str) == [{1: 1}, {2: 1}]


@each_case("candidates", list(itertools.permutations((1, 2, 3, 4))))
def test_shares_take_the_largest_resource_if_the_rest_is_needed_whole(
    candidates: tuple[int, ...],
) -> None:
    free = {id_: {"VCPU": 8 if id_ == 4 else 4} for id_ in candidates}
    wanted = [Demand(3, 3, candidates), Demand(2, 2, candidates, {"VCPU": 4})]
    assert choose(wanted, free) == ({1: 1, 2: 1, 3: 1}, {4: 2})


def test_every_minimum_is_met_before_any_maximum() -> None:
    free = {id_: {"VCPU": 4, "MEMORY_MB": 9} for id_ in (1, 2)}
    whole, share = Demand(1, 2, (1, 2)), Demand(1, 1, (1,), LARGE)
    assert choose([whole, share], free) == ({2: 1}, {1: 1})


def test_small_units_leave_room_for_a_large_one() -> None:
    free = {1: {"VCPU": 4, "MEMORY_MB": 8}, 2: {"VCPU": 2, "MEMORY_MB": 1}}
    wanted = [Demand(1, 1, (1, 2), SMALL), Demand(1, 1, (1,), LARGE)]
    assert choose(wanted, free) == ({2: 1}, {1: 1})


@each_case("resources, tried", [(50, 24), (10_000, 1)])
def test_tries_fewer_orders_the_more_resources_there_are(
    monkeypatch: pytest.MonkeyPatch, resources: int, tried: int
) -> None:
    orders = []
    monkeypatch.setattr(packing, "_pack", lambda *given, **_: orders.append(given[2]))
    ids = tuple(range(resources))
    wanted = [Demand(1, 1, ids, SMALL, Layout.TOGETHER) for _ in range(100)]
    assert choose(wanted, {id_: {"VCPU": 4, "MEMORY_MB": 9} for id_ in ids}) is None
    assert len(orders) == tried
