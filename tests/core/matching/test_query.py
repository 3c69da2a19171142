import json
import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from climate.core.errors import InvalidQuery
from climate.core.matching.expression import MAX_CONDITIONS, MAX_DEPTH, parse
from climate.core.matching.query import (
    And,
    Compare,
    Everything,
    In,
    Not,
    Operand,
    Or,
    as_number,
    both,
    check_names,
    matches,
    names,
)
from tests.support.cases import each_case

HOST = {
    "vcpus": "16",
    "memory_mb": "4096.0",
    "hypervisor_hostname": "compute-1",
    "rack": "row 3, rack 9",
    "gpu": "True",
    "motd": "",
}


def accepts(query: object) -> bool:
    return matches(parse(query), HOST)


def refusal(query: object) -> str:
    with pytest.raises(InvalidQuery) as caught:
        parse(query)
    return str(caught.value)


class TestMatching:
    @each_case("query", [None, "", [], "[]", " [ ] ", '""', ["and", []], ["or", "", []]])
    def test_an_empty_expression_matches_everything(self, query: object) -> None:
        assert matches(parse(query), HOST)
        assert matches(parse(query), {})

    @each_case(
        "query",
        [
            ["==", "$hypervisor_hostname", "compute-1"],
            ["=", "$hypervisor_hostname", "compute-1"],
            ["!=", "$hypervisor_hostname", "compute-2"],
            [">=", "$vcpus", "16"],
            ["<=", "$vcpus", "16"],
            [">", "$vcpus", "15"],
            ["<", "$vcpus", "17"],
            ["==", "$rack", "row 3, rack 9"],
            ["and", [">=", "$vcpus", "2"], [">=", "$memory_mb", "2048"]],
        ],
    )
    def test_matches_by_blazars_comparisons(self, query: list[Any]) -> None:
        assert accepts(query)
        assert accepts(json.dumps(query))

    @each_case(
        "query",
        [
            ["!=", "$vcpus", "16"],
            ["==", "$vcpus", "1"],
            [">", "$vcpus", "16"],
            ["<", "$vcpus", "16"],
            ["==", "$hypervisor_hostname", "Compute-1"],
            ["==", "$hypervisor_hostname", "compute-1 "],
        ],
    )
    def test_does_not_match_if_the_comparison_is_false(self, query: list[Any]) -> None:
        assert not accepts(query)

    def test_two_numbers_compare_as_numbers(self) -> None:
        assert accepts([">", "$vcpus", "9"])
        assert accepts(["==", "$vcpus", "1.6e1"])
        assert accepts(["==", "$memory_mb", 4096])
        assert not accepts(["!=", "$vcpus", "+016.0"])

    def test_anything_else_compares_as_text(self) -> None:
        assert accepts(["<", "$vcpus", "9 cores"])
        assert accepts([">", "$hypervisor_hostname", 9])
        assert not accepts(["==", "$vcpus", " 16"])

    def test_text_is_ordered_by_code_point(self) -> None:
        assert matches(parse(["<", "$x", "a"]), {"x": "Z"})
        assert matches(parse(["<", "$x", "é"]), {"x": "z"})
        assert matches(parse(["<", "$x", "\U00010000"]), {"x": "\uffff"})

    def test_numbers_and_flags_need_no_quotes(self) -> None:
        assert accepts([">=", "$vcpus", 15.5])
        assert accepts(["==", "$gpu", True])
        assert not accepts(["==", "$gpu", False])

    @each_case("op", ["=", "==", "!=", ">=", "<=", ">", "<"])
    def test_a_resource_without_the_property_never_matches(self, op: str) -> None:
        assert not accepts([op, "$fpga", "1"])
        assert not accepts(["in", "$fpga", "1", "True"])

    def test_an_empty_value_is_a_value(self) -> None:
        assert accepts(["<", "$motd", "hello"])
        assert accepts(["!=", "$motd", "null"])

    def test_null_means_that_the_property_is_absent(self) -> None:
        assert accepts(["==", "$fpga", "null"])
        assert accepts(["!=", "$gpu", "null"])
        assert not accepts(["==", "$gpu", "null"])
        assert not accepts(["!=", "$fpga", "null"])

    def test_null_does_not_match_the_value_null(self) -> None:
        assert not matches(parse(["==", "$x", "null"]), {"x": "null"})

    def test_and_requires_all_and_or_requires_one(self) -> None:
        yes, no = ["==", "$vcpus", "16"], ["==", "$vcpus", "1"]
        assert accepts(["and", yes, yes])
        assert not accepts(["and", yes, no])
        assert accepts(["or", no, yes])
        assert not accepts(["or", no, no])
        assert accepts(["and", yes])
        assert not accepts(["or", no])

    def test_a_nested_and_applies_all_its_parts(self) -> None:
        yes, no = ["==", "$vcpus", "16"], ["==", "$vcpus", "1"]
        assert not accepts(["and", ["and", yes, no], yes])

    def test_not_negates(self) -> None:
        assert not accepts(["not", ["==", "$gpu", "True"]])
        assert accepts(["not", ["==", "$fpga", "True"]])
        assert not accepts(["not", []])

    def test_contains_finds_a_part_of_a_text(self) -> None:
        assert accepts(["contains", "$rack", "rack 9"])
        assert not accepts(["contains", "$rack", "Rack"])
        assert not accepts(["contains", "$fpga", "a"])

    def test_in_is_equality_with_any_value(self) -> None:
        assert accepts(["in", "$vcpus", "8", "16"])
        assert accepts(["in", "$vcpus", [8, 16.0]])
        assert accepts(["in", "$gpu", "False", True])
        assert not accepts(["in", "$vcpus", "8"])
        assert accepts(["in", "$fpga", "v2", "null"])
        assert not accepts(["in", "$gpu", "null"])


class TestMalformed:
    @each_case(
        "query, reason",
        [
            ("hello", 'not JSON: Expecting value: line 1 column 1 (char 0); write it as ["==", '),
            ("vcpus > 3", 'write it as [">", "$vcpus", "3"]'),
            (" $rack='r-1'", 'write it as ["==", "$rack", "r-1"]'),
            ("vcpus > 3 and x", 'write it as ["==", "$vcpus", "4"]'),
            (" ", "not JSON: "),
            ('["==", "$a", "1"', "not JSON: "),
            ("9" * 5000, "not JSON: "),
            ("5", 'expected a list such as ["==", "$vcpus", "4"] at the top level, not 5'),
            ("null", "at the top level, not null"),
            ('""x', "not JSON: "),
            ("NaN", "at the top level, not NaN"),
            (5, "at the top level"),
            (True, "at the top level"),
            ({"==": 1}, 'at the top level, not {"==": 1}'),
            (["and", [], 7], "at [2], not 7"),
            (["~~", "$a", "1"], 'unknown operator "~~" at [0]; use one of =, =='),
            (["AND", []], 'unknown operator "AND" at [0]'),
            ([["==", "$a", "1"]], 'unknown operator ["==", "$a", "1"] at [0]'),
            ([None, "$a", "1"], "unknown operator null at [0]"),
            (["or", ["==", "$a", "1"], ["like", "$a", "1"]], 'operator "like" at [2][0]'),
            (["==", "$a"], "expected three items"),
            (["not", ["==", "$a", "1", "2"]], "at [1], got 4"),
            (["==", "a", "1"], 'expected a property such as "$vcpus" at [1], not "a"'),
            (["==", "$", "1"], 'at [1], not "$"'),
            (["==", 1, "$a"], "at [1], not 1"),
            (["in", "a", "1"], 'at [1], not "a"'),
            (["and", [], ["or", ["==", "$a", None]]], "at [2][1][2], not null"),
            (["==", "$a", ""], 'at [2], not ""'),
            (["==", "$a", ["1"]], 'at [2], not ["1"]'),
            (["==", "$a", math.nan], "finite number, true or false at [2], not NaN"),
            ('["==", "$a", -Infinity]', "at [2], not -Infinity"),
            ('["==", "$a", 1e999]', "at [2], not Infinity"),
            (["==", "$a", 10**400], "at [2], not 1000"),
            (["<", "$a", "null"], "null has no order at [2]; compare it with == or !="),
            (["in", "$a"], '"in" needs a name and at least one value at the top level'),
            (["in", "$a", []], '"in" needs a name and at least one value'),
            (["in", "$a", ["1", []]], "at [2][1], not []"),
            (["in", "$a", "1", ["2"]], 'at [3], not ["2"]'),
            (["contains", "$a"], 'expected three items as in ["contains", "$cpu_flags", "avx2"]'),
            (["contains", "$a", ["b"]], 'at [2], not ["b"]'),
            (["and"], '"and" needs at least one expression at the top level, got 0'),
            (["not", ["or"]], '"or" needs at least one expression at [1], got 0'),
            (["not"], '"not" needs exactly one expression at the top level, got 0'),
            (["not", [], []], '"not" needs exactly one expression at the top level, got 2'),
        ],
    )
    def test_the_error_says_where_and_what_was_expected(self, query: object, reason: str) -> None:
        assert refusal(query).startswith("Malformed requirements ")
        assert reason in refusal(query)

    def test_the_input_is_quoted_as_it_was_sent(self) -> None:
        assert refusal('["~~","$vcpus",1]').startswith('Malformed requirements ["~~","$vcpus",1]: ')
        assert refusal(["~~", "é", None]).startswith('Malformed requirements ["~~", "é", null]: ')

    @each_case("query", ["x" * 10_000, ["x" * 10_000], ["x"] * 10_000])
    def test_long_input_is_quoted_in_part(self, query: object) -> None:
        assert len(refusal(query)) < 700

    def test_the_error_is_a_bad_request(self) -> None:
        with pytest.raises(InvalidQuery) as caught:
            parse("?")
        assert (caught.value.code, caught.value.status) == ("invalid_query", 400)


class TestBounds:
    @staticmethod
    def nested(levels: int) -> list[Any]:
        query: list[Any] = ["==", "$vcpus", "16"]
        for _ in range(levels - 1):
            query = ["and", query]
        return query

    def test_limits_the_depth(self) -> None:
        assert accepts(self.nested(MAX_DEPTH))
        assert f"nested more than {MAX_DEPTH} levels deep at [1]" in refusal(
            self.nested(MAX_DEPTH + 1)
        )

    @each_case("levels", [500, 100_000])
    def test_rejects_text_of_any_depth(self, levels: int) -> None:
        assert "Malformed requirements [[[" in refusal("[" * levels)
        assert "levels deep" in refusal('["not",' * levels + "[]" + "]" * levels)

    @each_case("place", [0, 1, 2])
    def test_a_deep_list_is_quoted_in_part_wherever_it_is(self, place: int) -> None:
        query: list[Any] = ["==", "$a", "1"]
        query[place] = json.loads("[" * 500 + "]" * 500)
        assert f"at [{place}]" in refusal(query)

    def test_limits_the_number_of_conditions(self) -> None:
        condition = ["==", "$vcpus", "16"]
        assert accepts(["and"] + [condition] * MAX_CONDITIONS)
        assert f"at most {MAX_CONDITIONS}" in refusal(["and"] + [condition] * (MAX_CONDITIONS + 1))

    def test_each_value_of_in_and_each_empty_expression_counts(self) -> None:
        assert accepts(["in", "$vcpus", *range(MAX_CONDITIONS)])
        assert "201 conditions" in refusal(["in", "$vcpus", *range(MAX_CONDITIONS + 1)])
        assert "201 conditions" in refusal(["or"] + [[]] * (MAX_CONDITIONS + 1))


class TestNames:
    def test_lists_the_names_of_a_query(self) -> None:
        query = ["or", ["not", ["==", "$a", "null"]], ["and", ["in", "$b", "1"], [">", "$c", 1]]]
        assert names(parse(query)) == {"a", "b", "c"}
        assert names(Everything()) == frozenset()

    def test_accepts_known_names(self) -> None:
        check_names(parse(["and", ["==", "$a", "1"], []]), {"a", "b"})

    def test_rejects_an_unknown_name_with_its_place(self) -> None:
        query = parse(["and", ["==", "$vcpus", "1"], ["not", ["==", "$gpu", "1"]]])
        with pytest.raises(InvalidQuery, match=r"^Unknown property gpu at \[2\]\[1\]\[1\]$"):
            check_names(query, {"vcpus", "memory_mb"})
        with pytest.raises(InvalidQuery, match=r"^Unknown property gpu at \[1\]$"):
            check_names(parse(["in", "$gpu", "1"]), ())

    def test_suggests_similar_names_in_any_case(self) -> None:
        known = {"gpu_model", "vcpus", "GPUs"}
        with pytest.raises(InvalidQuery, match=r"gpu_modle at \[1\]; did you mean gpu_model\?$"):
            check_names(parse(["==", "$gpu_modle", "1"]), known)
        with pytest.raises(InvalidQuery, match=r"; did you mean GPUs\?$"):
            check_names(parse(["==", "$gpu", "1"]), known)

    def test_a_long_name_is_quoted_in_part(self) -> None:
        with pytest.raises(InvalidQuery) as caught:
            check_names(parse(["==", "$" + "x" * 10_000, "1"]), {"vcpus"})
        assert len(str(caught.value)) < 300


class TestTree:
    def test_an_expression_becomes_a_tree(self) -> None:
        assert parse(["or", ["=", "$a", 1], ["not", ["and", []]], ["in", "$b", ["x"]]]) == Or(
            (
                Compare("==", "a", Operand("1")),
                Not(And((Everything(),))),
                In("b", (Operand("x"),)),
            )
        )

    def test_both_is_a_conjunction(self) -> None:
        a, b = parse(["==", "$a", "1"]), parse(["==", "$b", "1"])
        assert both(a, b) == And((a, b))
        assert both(a, Everything()) == both(Everything(), a) == a


class TestNumbers:
    @each_case(
        "text, number",
        [
            ("0", 0.0),
            ("-0", 0.0),
            ("16", 16.0),
            ("+007", 7.0),
            ("1.50", 1.5),
            ("1e3", 1000.0),
            ("-2.5E-1", -0.25),
            ("1e-999", 0.0),
        ],
    )
    def test_recognises_numbers(self, text: str, number: float) -> None:
        assert as_number(text) == number

    @each_case(
        "text",
        [
            *("", " 1", "1 ", "1\n", "1_0", ".5", "5.", "1e", "e1", "--1", "0x10", "1,5", "True"),
            *("\N{ARABIC-INDIC DIGIT ONE}", "²", "nan", "inf", "Infinity", "1e999", "9" * 400),
        ],
    )
    def test_recognises_text_that_is_no_number(self, text: str) -> None:
        assert as_number(text) is None

    @given(st.text("0123456789+-.eE _", max_size=8) | st.text(max_size=4))
    def test_agrees_with_the_oracle(self, text: str) -> None:
        assert as_number(text) == _number(text)

    @given(st.integers(-(10**300), 10**300) | st.floats(allow_nan=False, allow_infinity=False))
    def test_recognises_every_finite_json_number(self, number: float) -> None:
        assert as_number(json.dumps(number)) == float(number)


# Few names and close values, so that comparisons often hold.
_NAMES = st.sampled_from(["$a", "$A", "$a b"])
_TEXTS = st.sampled_from(["16", "9", "16.0", "1e3", "-0", "a", "A", "a ", "True", "é", "null"])
_STORABLE = st.characters(codec="utf-8", exclude_characters="\0")  # what else is refused
_VALUES = (_TEXTS | st.text(_STORABLE, min_size=1, max_size=2)).filter(
    lambda condition: condition != "null"
)
_OPERANDS = _VALUES | st.booleans() | st.integers(-20, 2000) | st.floats(-20, 20)
_MAYBE_NULL = _OPERANDS | st.just("null")
_COMPARISONS = st.tuples(
    st.sampled_from(["=", "==", "!=", ">=", "<=", ">", "<"]), _NAMES, _OPERANDS
)
_LEAVES = st.one_of(
    _COMPARISONS.map(list),
    st.tuples(st.sampled_from(["=", "==", "!="]), _NAMES, st.just("null")).map(list),
    st.builds(
        lambda name, values: ["in", name, *values], _NAMES, st.lists(_MAYBE_NULL, min_size=1)
    ),
    st.builds(lambda name, values: ["in", name, values], _NAMES, st.lists(_MAYBE_NULL, min_size=1)),
    st.just([]),
)
_QUERIES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda part: ["not", part], inner),
        st.builds(
            lambda word, parts: [word, *parts],
            st.sampled_from(["and", "or"]),
            st.lists(inner, min_size=1, max_size=3),
        ),
    ),
    max_leaves=8,
)
_PROPERTIES = st.dictionaries(_NAMES.map(lambda name: name[1:]), _TEXTS | st.text(max_size=2))
_WORDS = st.sampled_from(["and", "or", "not", "in", "==", "<", "$a", "null", ""])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | _WORDS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.builds(lambda word, rest: [word, *rest], _WORDS, st.lists(inner, max_size=3))
        | st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
)


def _number(text: str) -> float | None:
    """Parse a number like ``float``, except for spellings that only Python accepts."""
    before, dot, after = text.partition(".")
    if set(text) - set("0123456789+-.eE") or (
        dot and not (before[-1:].isdigit() and after[:1].isdigit())
    ):
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) < math.inf else None


def _oracle(query: Any, properties: Mapping[str, str]) -> bool:
    """Evaluate JSON directly, without a syntax tree."""
    if query == []:
        return True
    word, *rest = query
    if word == "not":
        return not _oracle(rest[0], properties)
    if word in ("and", "or"):
        verdicts = [_oracle(part, properties) for part in rest]
        return all(verdicts) if word == "and" else any(verdicts)
    if word == "in":
        values = rest[1] if isinstance(rest[1], list) else rest[1:]
        return any(_oracle(["==", rest[0], value], properties) for value in values)
    return _compare(word, properties.get(rest[0][1:]), str(rest[1]))


def _compare(op: str, actual: str | None, wanted: str) -> bool:
    if wanted == "null":
        return (actual is not None) if op == "!=" else (actual is None)
    if actual is None:
        return False
    left, right = _number(actual), _number(wanted)
    order = _order(actual, wanted) if left is None or right is None else _order(left, right)
    signs = {"=": "0", "==": "0", "!=": "-+", ">=": "0+", "<=": "-0", ">": "+", "<": "-"}
    return order in signs[op]


def _order(left: Any, right: Any) -> str:
    return "0" if left == right else "+" if left > right else "-"


class TestAgainstAnOracle:
    @given(_QUERIES, st.lists(_PROPERTIES, min_size=1, max_size=4))
    def test_evaluation(self, query: list[Any], hosts: list[dict[str, str]]) -> None:
        parsed = parse(json.dumps(query))
        assert parsed == parse(query)
        for properties in hosts:
            assert matches(parsed, properties) == _oracle(query, properties)

    @given(_QUERIES, _QUERIES, _PROPERTIES)
    def test_both(self, a: list[Any], b: list[Any], properties: dict[str, str]) -> None:
        expected = _oracle(a, properties) and _oracle(b, properties)
        assert matches(both(parse(a), parse(b)), properties) == expected


class TestArbitraryInput:
    @given(_JSON)
    def test_accepts_or_rejects_any_json(self, value: Any) -> None:
        for source in (value, json.dumps(value)):
            try:
                matches(parse(source), HOST)
            except InvalidQuery as error:
                assert str(error).startswith("Malformed requirements ")  # noqa: PT017 - may pass

    @given(st.text() | st.text('[]{}",$=<>!ab1.eE- '))
    def test_accepts_or_rejects_any_text(self, text: str) -> None:
        try:
            parse(text)
        except InvalidQuery as error:
            assert str(error).startswith("Malformed requirements ")  # noqa: PT017 - may pass
