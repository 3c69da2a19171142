import itertools
from collections.abc import Iterator, Sequence

from hypothesis import given
from hypothesis import strategies as st

from climate.core.matching.packing import Demand, assign
from tests.support.cases import each_case

Assignment = tuple[tuple[int, ...], ...]


def demands_of(ids: Sequence[int]) -> st.SearchStrategy[list[Demand]]:
    """Generate up to three demands for some of the ids, each with its order of preference."""
    candidates = st.lists(st.sampled_from(ids), unique=True, max_size=len(ids)).map(tuple)
    bounds = st.tuples(st.integers(0, 3), st.integers(0, 3)).map(sorted)
    demand = st.builds(
        lambda pair, preferred: Demand(pair[0], pair[1], preferred), bounds, candidates
    )
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


CHAIN = [Demand(1, 1, (1, 2)), Demand(1, 1, (2, 3)), Demand(1, 1, (1,))]
EXAMPLES = [
    ("the preferred candidates", [Demand(1, 2, (7, 3, 5))], ((7, 3),)),
    ("fewer than the maximum", [Demand(1, 5, (7, 3))], ((7, 3),)),
    ("too few candidates", [Demand(3, 5, (7, 3))], None),
    ("an empty demand", [Demand(0, 0, (7, 3))], ((),)),
    ("no demand", [], ()),
    ("the only candidate of one", [Demand(1, 1, (1, 2)), Demand(1, 1, (1,))], ((2,), (1,))),
    ("a chain of alternatives", CHAIN, ((2,), (3,), (1,))),
    (
        "a flexible demand moves more than once",
        [Demand(2, 2, (1, 2, 3, 4)), Demand(1, 1, (1,)), Demand(1, 1, (2,))],
        ((3, 4), (1,), (2,)),
    ),
    (
        "every minimum before any maximum",
        [Demand(1, 3, (1, 2, 3)), Demand(2, 2, (1, 2, 3))],
        ((1,), (2, 3)),
    ),
    ("the rest for the first", [Demand(1, 4, (1, 2, 3, 4))] * 2, ((1, 3, 4), (2,))),
    ("not all together", [Demand(1, 1, (1, 2))] * 3, None),
]


@each_case("name, demands, expected", EXAMPLES)
def test_examples(name: str, demands: list[Demand], expected: Assignment | None) -> None:
    assert assign(demands) == expected, name


@given(few)
def test_finds_the_largest_assignment_that_an_exhaustive_search_finds(
    demands: list[Demand],
) -> None:
    result = assign(demands)
    possible = [sum(counts) for counts in every_assignment(demands)]
    assert (result is not None) == bool(possible)
    if result is None:
        return
    assigned = [id_ for ids in result for id_ in ids]
    assert len(assigned) == max(possible)
    assert len(assigned) == len(set(assigned)), "assigned twice"
    for demand, ids in zip(demands, result, strict=True):
        assert demand.minimum <= len(ids) <= demand.maximum
        assert set(ids) <= set(demand.candidates)
        assert list(ids) == sorted(ids, key=demand.candidates.index), "not in preferred order"


@given(demands_of(range(1, 6)).map(lambda demands: demands[:1]))
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


ANY = Counted(range(2_000))
FIRST_HALF = Counted(range(1_000))
THIRDS = [Counted(range(600 * n, 600 * (n + 2))) for n in range(3)]


@each_case(
    "demands, possible",
    [
        ([Demand(2_000, 2_000, ANY)], True),
        ([Demand(2_001, 2_001, ANY)], False),
        ([Demand(1_000, 1_000, ANY), Demand(1_000, 1_000, ANY)], True),
        ([Demand(1_000, 1_000, ANY), Demand(1_000, 1_000, FIRST_HALF)], True),
        ([Demand(1, 1_000, ANY), Demand(1, 1_000, FIRST_HALF)], True),
        ([Demand(600, 600, third) for third in (*THIRDS, Counted(range(600)))], True),
        ([Demand(20, 20, ANY) for _ in range(100)], True),
        ([Demand(20, 21, ANY) for _ in range(100)], True),
        ([*(Demand(10, 11, FIRST_HALF) for _ in range(100)), Demand(1, 1, ANY)], True),
    ],
)
def test_the_work_grows_linearly_with_the_candidates(demands: list[Demand], possible: bool) -> None:
    each = sum(len(demand.candidates) for demand in demands)
    assert looks_at(each, demands, possible=possible) < 20


def test_the_test_counts_accesses() -> None:
    assert looks_at(2_000, [Demand(2_000, 2_000, ANY)], possible=True) >= 1
