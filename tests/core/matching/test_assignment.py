import itertools
from collections.abc import Iterator, Sequence

from hypothesis import given
from hypothesis import strategies as st

from climate.core.assignment import Demand, assign
from tests.support.cases import each_case

Assignment = tuple[tuple[int, ...], ...]


def demands_of(ids: Sequence[int]) -> st.SearchStrategy[list[Demand]]:
    """Generate up to three demands for some of the ids, each with its order of preference."""
    candidates = st.lists(st.sampled_from(ids), unique=True, max_size=len(ids)).map(tuple)
    bounds = st.tuples(st.integers(0, 3), st.integers(0, 3)).map(sorted)
    demand = st.builds(lambda pair, preferred: Demand(*pair, preferred), bounds, candidates)
    return st.lists(demand, max_size=3)


few = demands_of(range(1, 6))


def every_assignment(demands: Sequence[Demand]) -> Iterator[list[int]]:
    """Try all ways to assign each id to one of the demands that accept it, or to none.

    Yields how many ids each demand has got where that is within all bounds.
    """
    ids = sorted({id_ for demand in demands for id_ in demand.candidates})
    takers = [
        [None, *(n for n, demand in enumerate(demands) if id_ in demand.candidates)] for id_ in ids
    ]
    for choice in itertools.product(*takers):
        counts = [choice.count(n) for n in range(len(demands))]
        if all(d.minimum <= c <= d.maximum for d, c in zip(demands, counts, strict=True)):
            yield counts


def total(result: Assignment) -> int:
    return sum(len(ids) for ids in result)


class TestOneDemand:
    def test_gets_its_preferred_candidates(self) -> None:
        assert assign([Demand(1, 2, (7, 3, 5))]) == ((7, 3),)

    def test_gets_fewer_than_the_maximum_if_that_reaches_the_minimum(self) -> None:
        assert assign([Demand(1, 5, (7, 3))]) == ((7, 3),)

    def test_fails_if_there_are_too_few_candidates(self) -> None:
        assert assign([Demand(3, 5, (7, 3))]) is None

    def test_an_empty_demand_succeeds(self) -> None:
        assert assign([Demand(0, 0, (7, 3))]) == ((),)


class TestSeveralDemands:
    def test_no_demands_succeed(self) -> None:
        assert assign([]) == ()

    def test_a_demand_gets_its_only_candidate_before_a_flexible_one(self) -> None:
        assert assign([Demand(1, 1, (1, 2)), Demand(1, 1, (1,))]) == ((2,), (1,))

    def test_others_move_along_a_chain_of_alternatives(self) -> None:
        chain = [Demand(1, 1, (1, 2)), Demand(1, 1, (2, 3)), Demand(1, 1, (1,))]
        assert assign(chain) == ((2,), (3,), (1,))

    def test_a_flexible_demand_moves_more_than_once(self) -> None:
        demands = [Demand(2, 2, (1, 2, 3, 4)), Demand(1, 1, (1,)), Demand(1, 1, (2,))]
        assert assign(demands) == ((3, 4), (1,), (2,))

    def test_every_minimum_is_met_before_any_maximum(self) -> None:
        assert assign([Demand(1, 3, (1, 2, 3)), Demand(2, 2, (1, 2, 3))]) == ((1,), (2, 3))

    def test_the_first_demand_gets_the_remaining_candidates(self) -> None:
        assert assign([Demand(1, 4, (1, 2, 3, 4)), Demand(1, 4, (1, 2, 3, 4))]) == (
            (1, 3, 4),
            (2,),
        )

    def test_fails_if_not_all_can_be_met_together(self) -> None:
        assert assign([Demand(1, 1, (1, 2)), Demand(1, 1, (1, 2)), Demand(1, 1, (1, 2))]) is None


@given(few)
def test_finds_an_assignment_exactly_if_an_exhaustive_search_does(
    demands: list[Demand],
) -> None:
    exists = next(every_assignment(demands), None) is not None
    assert (assign(demands) is not None) == exists


@given(few)
def test_assigns_as_many_as_an_exhaustive_search(demands: list[Demand]) -> None:
    result = assign(demands)
    if result is not None:
        assert total(result) == max(sum(counts) for counts in every_assignment(demands))


@given(few)
def test_every_demand_gets_its_candidates_within_its_bounds(demands: list[Demand]) -> None:
    for demand, ids in zip(demands, assign(demands) or [], strict=False):
        assert demand.minimum <= len(ids) <= demand.maximum
        assert set(ids) <= set(demand.candidates)


@given(few)
def test_assigns_nothing_twice(demands: list[Demand]) -> None:
    handed = [id_ for ids in assign(demands) or [] for id_ in ids]
    assert len(handed) == len(set(handed))


@given(few)
def test_assigns_in_the_order_of_preference(demands: list[Demand]) -> None:
    for demand, ids in zip(demands, assign(demands) or [], strict=False):
        assert list(ids) == sorted(ids, key=demand.candidates.index)


@given(demands_of(range(1, 6)).map(lambda result: result[:1]))
def test_a_single_demand_gets_its_first_candidates(demands: list[Demand]) -> None:
    for demand, ids in zip(demands, assign(demands) or [], strict=False):
        assert ids == demand.candidates[: demand.maximum]


@given(few)
def test_another_candidate_never_makes_it_impossible(demands: list[Demand]) -> None:
    more = [Demand(d.minimum, d.maximum, (*d.candidates, 99)) for d in demands]
    assert assign(demands) is None or assign(more) is not None


class Counted(tuple[int, ...]):
    """Candidates that count the accesses to them."""

    looks = 0

    def __iter__(self) -> Iterator[int]:
        for id_ in super().__iter__():
            Counted.looks += 1
            yield id_

    __slots__ = ()


def looks_at(size: int, demands: list[Demand], *, possible: bool) -> float:
    """Return how often each of ``size`` candidates is accessed to meet the demands."""
    Counted.looks = 0
    assert (assign(demands) is not None) == possible
    return Counted.looks / size


ANY = Counted(range(10_000))
FIRST_HALF = Counted(range(5_000))
THIRDS = [Counted(range(3_000 * n, 3_000 * (n + 2))) for n in range(3)]


@each_case(
    "demands, possible",
    [
        ([Demand(10_000, 10_000, ANY)], True),
        ([Demand(10_001, 10_001, ANY)], False),
        ([Demand(5_000, 5_000, ANY), Demand(5_000, 5_000, ANY)], True),
        ([Demand(5_000, 5_000, ANY), Demand(5_000, 5_000, FIRST_HALF)], True),
        ([Demand(1, 5_000, ANY), Demand(1, 5_000, FIRST_HALF)], True),
        ([Demand(3_000, 3_000, third) for third in (*THIRDS, Counted(range(3_000)))], True),
        ([Demand(100, 100, ANY) for _ in range(100)], True),
        ([Demand(100, 101, ANY) for _ in range(100)], True),
        ([*(Demand(50, 51, FIRST_HALF) for _ in range(100)), Demand(1, 1, ANY)], True),
    ],
)
def test_the_work_grows_linearly_with_the_candidates(demands: list[Demand], possible: bool) -> None:
    each = sum(len(demand.candidates) for demand in demands)
    assert looks_at(each, demands, possible=possible) < 20


def test_the_test_counts_accesses() -> None:
    assert looks_at(10_000, [Demand(10_000, 10_000, ANY)], possible=True) >= 1
