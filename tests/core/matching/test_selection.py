"""Filters and weighers select and order candidates."""

import datetime as dt
import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from climate.core.lease.model import Resource
from climate.core.matching.extra_specs import read
from climate.core.matching.query import Everything
from climate.core.matching.requirement import Requirement
from climate.core.matching.selection import Candidate, Weigher, rank
from climate.plugins import filters
from tests.support.cases import each_case

ANY = Requirement("physical:host", 1, 1, Everything())
_INTEGERS = st.integers(-1_000_000, 1_000_000)


def candidate(id_: int, free: dict[str, int] | None = None, **properties: str) -> Candidate:
    resource = Resource(
        id=id_,
        type="physical:host",
        external_id=f"host-{id_}",
        reservable=True,
        properties=properties,
        native=frozenset(),
        created_at=dt.datetime(2030, 1, 1, tzinfo=dt.UTC),
        updated_at=None,
    )
    return Candidate(resource, free or {})


def by(name: str) -> Weigher:
    return lambda item, _requirement: float(item.resource.properties[name])


def ids(
    candidates: list[Candidate], *weighers: tuple[Weigher, float], requirement: Requirement = ANY
) -> list[int]:
    return [item.resource.id for item in rank(candidates, requirement, [], weighers)]


class TestRank:
    def test_all_filters_must_pass(self) -> None:
        candidates = [candidate(id_) for id_ in range(12)]
        even = lambda item, _: item.resource.id % 2 == 0  # noqa: E731
        third = lambda item, _: item.resource.id % 3 == 0  # noqa: E731
        assert [item.resource.id for item in rank(candidates, ANY, [even, third], [])] == [0, 6]

    def test_without_weighers_the_order_stays(self) -> None:
        assert ids([candidate(3), candidate(1), candidate(2)]) == [3, 1, 2]

    def test_the_largest_weight_is_first_and_ties_keep_their_order(self) -> None:
        candidates = [
            candidate(1, w="1"),
            candidate(2, w="9"),
            candidate(3, w="1"),
            candidate(4, w="9"),
        ]
        assert ids(candidates, (by("w"), 1.0)) == [2, 4, 1, 3]

    def test_a_negative_multiplier_reverses_the_order(self) -> None:
        candidates = [candidate(1, w="1"), candidate(2, w="9"), candidate(3, w="5")]
        assert ids(candidates, (by("w"), -1.0)) == [1, 3, 2]

    def test_multipliers_weigh_normalised_values(self) -> None:
        candidates = [candidate(1, mib="1000000", score="0"), candidate(2, mib="0", score="0.1")]
        assert ids(candidates, (by("mib"), 1.0), (by("score"), 2.0)) == [2, 1]
        assert ids(candidates, (by("mib"), 2.0), (by("score"), 1.0)) == [1, 2]

    def test_a_weigher_with_equal_values_has_no_effect(self) -> None:
        candidates = [candidate(1, w="7", x="0"), candidate(2, w="7", x="1")]
        assert ids(candidates, (by("w"), 100.0), (by("x"), 0.1)) == [2, 1]

    def test_normalises_the_largest_floats(self) -> None:
        most = repr(sys.float_info.max)
        candidates = [candidate(1, w=f"-{most}"), candidate(2, w=most), candidate(3, w="0")]
        assert ids(candidates, (by("w"), 1.0)) == [2, 3, 1]

    @each_case("weight", [math.nan, math.inf])
    def test_rejects_a_weight_that_is_not_finite(self, weight: float) -> None:
        with pytest.raises(ValueError, match="gives host-1 the weight"):
            ids([candidate(1)], (lambda *_: weight, 1.0))

    def test_ranks_no_candidates(self) -> None:
        assert ids([], (by("w"), 1.0)) == []

    # Integers, as a sum with 1 does not show a difference such as 1e-48.
    @given(st.lists(st.tuples(_INTEGERS, _INTEGERS), max_size=8), st.floats(-5, 5))
    def test_a_candidate_that_is_best_in_all_is_first(
        self, weights: list[tuple[int, int]], multiplier: float
    ) -> None:
        candidates = [candidate(at, a=repr(a), b=repr(b)) for at, (a, b) in enumerate(weights)]
        ranked = ids(candidates, (by("a"), 1.0), (by("b"), multiplier))
        assert sorted(ranked) == list(range(len(candidates)))
        turned = [(a, math.copysign(1.0, multiplier) * b) for a, b in weights]
        best = tuple(max(column) for column in zip(*turned, strict=True))
        if abs(multiplier) > 1e-6 and best in turned:
            assert turned[ranked[0]] == best


class TestBuiltInPreferences:
    @each_case(
        "properties, passes",
        [
            ({}, True),
            ({"maintenance": "False"}, True),
            ({"maintenance": "True"}, False),
            ({"maintenance": "yes"}, False),
        ],
    )
    def test_no_maintenance_excludes_hosts_in_maintenance(
        self, properties: dict[str, str], passes: bool
    ) -> None:
        assert filters.no_maintenance(candidate(1, None, **properties), ANY) is passes

    def test_fewest_properties_spares_special_hosts(self) -> None:
        plain, special = candidate(1, vcpus="1"), candidate(2, vcpus="1", gpu="1", ssd="1")
        weigh = (filters.fewest_properties, 1.0)
        assert ids([special, plain], weigh) == [1, 2]
        query = read({"capabilities:gpu": "1", "capabilities:ssd": "1"}).query
        requirement = Requirement("physical:host", 1, 1, query)
        assert ids([special, plain], weigh, requirement=requirement) == [2, 1]

    def test_fewest_left_fills_partly_used_hosts(self) -> None:
        candidates = [
            candidate(1, {"VCPU": 16}),
            candidate(2, {"VCPU": 4}),
            candidate(3, {"VCPU": 8}),
        ]
        share = Requirement("virtual:instance", 1, 1, Everything(), {"VCPU": 4})
        weigh = (filters.fewest_left, 1.0)
        assert ids(candidates, weigh, requirement=share) == [2, 3, 1]
        assert ids(candidates, weigh) == [1, 2, 3]

    def test_lowest_id_prefers_hosts_registered_first(self) -> None:
        assert ids([candidate(3), candidate(1), candidate(2)], (filters.lowest_id, 1.0)) == [
            1,
            2,
            3,
        ]
