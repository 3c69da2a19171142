"""Types of properties: declarations, stored values, and comparisons in queries."""

from itertools import pairwise

import pytest

from climate.core.errors import InvalidInput, InvalidQuery
from climate.core.matching.booked_hours.properties import PropertyIndex
from climate.core.matching.expression import parse
from climate.core.matching.property_type import (
    Kind,
    PropertyType,
    bind,
    canonical,
    declared,
    reported,
    typed,
)
from climate.core.matching.query import Misfit, has_misfits, matches, version_key
from tests.support.cases import each_case

TYPES = declared(
    [
        "ram_gib = number GiB",
        "firmware=version",
        "healthy = boolean",
        "serial = text",
        "cpu_flags = set",
    ]
)
HOST = {
    "ram_gib": "128",
    "firmware": "1.10",
    "healthy": "True",
    "serial": "0012",
    "cpu_flags": "avx,avx2,sse4 a",
    "vcpus": "16",
}


def accepts(query: object) -> bool:
    wanted = typed(parse(query), TYPES)
    result = matches(wanted, HOST)
    # The calendar in memory has its own way to evaluate queries.
    index = PropertyIndex()
    index.put(0, HOST)
    assert bool(index.matching(wanted)) is result
    return result


class TestDeclarations:
    def test_reads_names_kinds_and_units(self) -> None:
        assert TYPES["ram_gib"] == PropertyType(Kind.NUMBER, "GiB")
        assert TYPES["firmware"] == PropertyType(Kind.VERSION)
        assert declared(["cpu_info:arch = text"]) == {"cpu_info:arch": PropertyType(Kind.TEXT)}

    @each_case(
        "declarations, reason",
        [
            (["ram"], "'ram' declares no property"),
            (["ram = float"], "one of number, version, boolean, text, set"),
            (["= number"], "declares no property"),
            (["x" * 65 + " = text"], "declares no property"),
            (["firmware = version GiB"], "only numbers have a unit"),
            (["a = text", "a = set"], "declared twice"),
        ],
    )
    def test_rejects_other_declarations(self, declarations: list[str], reason: str) -> None:
        with pytest.raises(ValueError, match=reason):
            declared(declarations)


class TestStoredValues:
    def test_values_get_one_form(self) -> None:
        given = {
            "ram_gib": "1e3",
            "firmware": "v2.0-RC1",
            "healthy": "FALSE",
            "serial": " x ",
            "cpu_flags": "sse4 a, avx,avx,",
            "rack": "True",
        }
        assert canonical(TYPES, given) == {
            **given,
            "healthy": "False",
            "cpu_flags": "avx,sse4 a",
        }

    @each_case(
        "name, value, meaning",
        [
            ("ram_gib", "128 GiB", 'declared as number in GiB, and "128 GiB" is not a number'),
            ("firmware", "latest", 'declared as version, and "latest" is not a version'),
            ("healthy", "yes", 'declared as boolean, and "yes" is not true or false'),
            ("cpu_flags", "x" * 65, "declared as set, and "),
        ],
    )
    def test_the_error_names_property_type_and_value(
        self, name: str, value: str, meaning: str
    ) -> None:
        with pytest.raises(InvalidInput) as caught:
            canonical(TYPES, {name: value})
        assert caught.value.message.startswith(f"{name}: the property is ")
        assert meaning in caught.value.message

    def test_only_booleans_of_the_cloud_get_it(self) -> None:
        given = {"healthy": "TRUE", "cpu_flags": '["sse4", "avx"]', "rack": "true"}
        assert reported(TYPES, given) == {**given, "healthy": "True"}
        assert reported(TYPES, {"healthy": "yes"}) == {"healthy": "yes"}


class TestVersions:
    def test_sort_in_their_order(self) -> None:
        ordered = [
            *("0", "0.0.1", "0.9", "1-alpha", "1.0-rc1", "1.0-rc2", "1.0-rc10", "1", "1.0.1"),
            *("1.1", "1.2-4", "1.9", "1.10-rc1", "1.10", "1.10.1", "2", "10", "100.1"),
        ]
        keys = [version_key(version) for version in ordered]
        assert None not in keys
        assert all(a < b for a, b in pairwise(filter(None, keys)))

    @each_case("same", [("1", "1.0.0"), ("v1.2", "1.02"), ("1.0rc1", "1-RC1"), ("1.2", "1_2")])
    def test_have_several_spellings(self, same: tuple[str, str]) -> None:
        assert version_key(same[0]) == version_key(same[1])

    @each_case("text", ["", "x1", "v", "1 2", "1\n", "-1", "1é", "1" * 64])
    def test_other_texts_are_no_versions(self, text: str) -> None:
        assert version_key(text) is None


class TestComparisons:
    @each_case(
        "query",
        [
            [">", "$ram_gib", 9],
            ["in", "$ram_gib", "128.0", "x"],
            [">", "$firmware", "1.9"],
            ["==", "$firmware", "1.10.0"],
            ["!=", "$firmware", "1.1"],
            ["in", "$firmware", "1.1", "v1.10"],
            ["==", "$healthy", "true"],
            ["!=", "$healthy", False],
            ["!=", "$serial", "12"],
            ["<", "$serial", "9"],
            ["==", "$cpu_flags", "sse4 a,avx2, avx"],
            ["contains", "$cpu_flags", "avx"],
            ["!=", "$firmware", "null"],
            ["in", "$fpga", "1", "null"],
            ["contains", "$vcpus", "6"],
        ],
    )
    def test_match_by_the_type(self, query: object) -> None:
        assert accepts(query)

    @each_case(
        "query",
        [
            ["==", "$firmware", "1.1"],
            ["<", "$firmware", "1.9"],
            ["==", "$serial", "12"],
            ["contains", "$cpu_flags", "sse4"],
            ["contains", "$fpga", "a"],
            ["==", "$healthy", "null"],
            ["not", ["contains", "$cpu_flags", "avx2"]],
        ],
    )
    def test_do_not_match_otherwise(self, query: object) -> None:
        assert not accepts(query)

    @each_case(
        "query, reason",
        [
            ([">", "$ram_gib", "big"], 'ram_gib is a number in GiB at [1], and "big" is not a num'),
            (["in", "$firmware", "1", "new"], 'firmware is a version at [1], and "new" is not a v'),
            (["not", ["==", "$healthy", 1]], 'healthy is a boolean at [1][1], and "1" is not true'),
            ([">", "$healthy", True], "healthy is a boolean at [1]: it has no order"),
            ([">=", "$cpu_flags", "a"], "use == or != or contains"),
            (["contains", "$cpu_flags", "a,b"], 'a set at [1], and "a,b" is not one item'),
        ],
    )
    def test_the_error_says_what_does_not_fit(self, query: object, reason: str) -> None:
        with pytest.raises(InvalidQuery) as caught:
            accepts(query)
        assert reason in caught.value.message

    def test_a_stored_expression_that_does_not_fit_matches_nothing(self) -> None:
        query = bind(parse(["==", "$ram_gib", "big"]), TYPES)
        assert isinstance(query, Misfit)
        assert has_misfits(query)
        assert not matches(query, HOST)
