"""Nova flavor extra specs as requirements: matching and rejection."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from climate.core.errors import InvalidQuery
from climate.core.matching.expression import MAX_CONDITIONS
from climate.core.matching.extra_specs import CountedDevices, read
from climate.core.matching.query import Compare, Everything, Operand, check_names, matches, names
from tests.support.cases import each_case

HOST = {
    "hypervisor_type": "QEMU",
    "vcpus": "16",
    "memory_mb": "65536",
    "local_gb": "1.5e2",
    "cpu_info": '{"features": ["avx", "avx2"]}',
    "cpu_info:arch": "x86_64",
    "rack": "row 3",
    "motd": "",
    "trait:HW_CPU_X86_AVX2": "True",
    "trait:CUSTOM_WAS": "False",
}


def accepts(specs: object) -> bool:
    return matches(read(specs).query, HOST)


def has(operation: object, name: str = "vcpus") -> bool:
    return accepts({f"capabilities:{name}": operation})


def refusal(specs: object) -> str:
    with pytest.raises(InvalidQuery) as caught:
        read(specs)
    return caught.value.message


class TestReading:
    @each_case("specs", [{}, "{}", " {} ", None, "", []])
    def test_no_specs_match_everything(self, specs: object) -> None:
        assert read(specs).query == Everything()
        assert read(specs).amounts == {}

    def test_accepts_an_expression_too(self) -> None:
        assert read('["==", "$vcpus", 16]').query == Compare("==", "vcpus", Operand("16"))
        assert "not JSON" in refusal('{"capabilities:vcpus": ')
        assert "not JSON" in refusal('{"a":' * 100_000) or "levels deep" in refusal(
            '{"a":' * 100_000
        )

    def test_text_and_decoded_specs_are_equivalent(self) -> None:
        specs = {"capabilities:vcpus": ">= 8", "trait:HW_CPU_X86_AVX2": "required"}
        assert read(json.dumps(specs)) == read(specs)
        assert accepts(specs)

    def test_all_specs_must_match(self) -> None:
        yes, no = {"capabilities:vcpus": ">= 8"}, {"capabilities:rack": "row 4"}
        assert accepts(yes)
        assert not accepts(no)
        assert not accepts({**yes, **no})


class TestOperators:
    @each_case(
        "operation, verdict",
        [
            ("16", True),
            ("16.0", False),
            (16, True),
            (" 16", False),
            ("= 8", True),
            ("= 17", False),
            ("== 16.0", True),
            ("== 8", False),
            ("!= 8", True),
            ("!= 1.6e1", False),
            (">= 9", True),
            (">= 17", False),
            ("<= 16", True),
            ("<= 9", False),
            ("s== 16", True),
            ("s== 16.0", False),
            ("s!= 16.0", True),
            ("s>= 9", False),
            ("s> 15", True),
            ("s<= 9", True),
            ("s< 16", False),
            ("<in> 6", True),
            ("<in> 61", False),
            ("<all-in> 1 6", True),
            ("<all-in> 1 7", False),
            ("<or> 8 <or> 16", True),
            ("<or> 8 <or> 16.0", False),
            ("<or> 16", True),
            ("  >=   8  ", True),
        ],
    )
    def test_compare_as_in_nova(self, operation: object, verdict: bool) -> None:
        assert has(operation) is verdict

    @each_case("operation", ["16", "!= 1", "s!= 1", "<in> 1", "s>= 0", "null"])
    def test_an_absent_property_never_matches(self, operation: str) -> None:
        assert not has(operation, "fpga")

    @each_case("operation", ["= 1", "== 1", "!= 1", ">= 1", "<= 1"])
    def test_text_never_matches_a_numeric_comparison(self, operation: str) -> None:
        assert not has(operation, "hypervisor_type")

    def test_a_bare_value_is_the_whole_text(self) -> None:
        assert has("row 3", "rack")
        assert not has("row", "rack")
        assert has("", "motd")
        assert not has("qemu", "hypervisor_type")

    def test_numbers_and_flags_need_no_quotes(self) -> None:
        assert accepts({"capabilities:trait:HW_CPU_X86_AVX2": True})
        assert not accepts({"capabilities:vcpus": 16.0})

    @each_case(
        "operation, reason",
        [
            (">=8", 'unknown operator ">=8" in "capabilities:vcpus"; use =, ==, !=, >=, <=, s=='),
            ("> 8", 'unknown operator ">"'),
            ("< 8", "and then a space"),
            ("=8", 'unknown operator "=8"'),
            ("<or>8", 'unknown operator "<or>8"'),
            (">=", 'exactly one word after >= in "capabilities:vcpus", got 0'),
            ("s== a b", "exactly one word after s== "),
            ("<in>", "exactly one word after <in> "),
            ("<all-in>", "expected <all-in> and one word or more"),
            ("<or>", "expected <or> a <or> b, and so on"),
            ("<or> a b", "expected <or> a <or> b"),
            ("<or> a <or>", "expected <or> a <or> b"),
            (">= many", '>= compares numbers, and "many" is none in "capabilities:vcpus"'),
            ("= nan", "is none"),
            (">= 1_000", "is none"),
            (None, 'expected a text in "capabilities:vcpus", not null'),
            (["16"], 'not ["16"]'),
            ({}, "not {}"),
            (float("inf"), "not Infinity"),
        ],
    )
    def test_rejects_mistakes_with_their_place(self, operation: object, reason: str) -> None:
        assert reason in refusal({"capabilities:vcpus": operation})


class TestScopes:
    def test_a_nested_scope_is_part_of_the_name(self) -> None:
        assert accepts({"capabilities:cpu_info:arch": "x86_64"})
        assert names(read({"capabilities:a:b:c": "1"}).query) == {"a:b:c"}

    def test_a_key_without_scope_is_a_capability(self) -> None:
        assert accepts({"hypervisor_type": "QEMU"})
        assert not accepts({"hypervisor_type": "KVM"})

    def test_aggregate_specs_match_properties(self) -> None:
        assert accepts({"aggregate_instance_extra_specs:rack": "<in> row"})
        assert names(read({"aggregate_instance_extra_specs:ssd": "true"}).query) == {"ssd"}

    @each_case(
        "name, known",
        [
            ("vcpus_total", "vcpus"),
            ("total_usable_ram_mb", "memory_mb"),
            ("free_ram_mb", "memory_mb"),
            ("total_usable_disk_gb", "local_gb"),
        ],
    )
    def test_maps_the_names_of_novas_scheduler(self, name: str, known: str) -> None:
        assert names(read({f"capabilities:{name}": ">= 1"}).query) == {known}

    @each_case(
        "key",
        [
            *("quota:cpu_shares", "hw:cpu_policy", "hw:numa_nodes", "hw_rng:allowed", "os:secure"),
            *("hw_video:ram_max_mb", "vmware:hw_version", "group_policy", "hide_hypervisor_id"),
            "trove:datastore",
        ],
    )
    def test_ignores_specs_that_select_no_hosts(self, key: str) -> None:
        assert read({key: "1"}).query == Everything()
        assert read({key: "1"}).amounts == {}

    @each_case(
        "key, meant",
        [
            ("capability:vcpus", "capabilities"),
            ("Capabilities:vcpus", "capabilities"),
            ("capabilites:vcpus", "capabilities"),
            ("traits:CUSTOM_A", "trait"),
            ("TRAIT:CUSTOM_A", "trait"),
            ("trait0:CUSTOM_A", "trait"),
            ("resource:VCPU", "resources"),
            ("aggregate_instance_extra_spec:ssd", "aggregate_instance_extra_specs"),
        ],
    )
    def test_rejects_a_misspelt_scope_with_a_suggestion(self, key: str, meant: str) -> None:
        assert refusal({key: "required"}).endswith(
            f'unknown scope in "{key}"; did you mean {meant}?'
        )

    @each_case("key", ["pci_passthrough:alias", "accel:device_profile"])
    def test_reports_specs_that_select_hosts_by_devices(self, key: str) -> None:
        selector = read({key: "a:1", "hw:other": "2"})
        assert (selector.query, dict(selector.devices)) == (Everything(), {key: "a:1"})

    @each_case("key", ["capabilities:", ""])
    def test_rejects_a_spec_without_a_name(self, key: str) -> None:
        assert "the name of a property is missing" in refusal({key: "1"})

    def test_rejects_an_unknown_property_with_its_place(self) -> None:
        with pytest.raises(InvalidQuery) as caught:
            check_names(read({"capabilities:vcpu": "= 1"}).query, {"vcpus"})
        expected = 'Unknown property vcpu in "capabilities:vcpu"; did you mean vcpus?'
        assert caught.value.message == expected


COUNTED = CountedDevices(
    aliases={"gpu": "CUSTOM_GPU", "a100": "CUSTOM_GPU", "nic": "CUSTOM_NIC"},
    profiles={"fpga": {"FPGA": 1}, "mix": {"CUSTOM_GPU": 2, "FPGA": 1}},
)
ALIAS, PROFILE = "pci_passthrough:alias", "accel:device_profile"


@each_case(
    "specs, amounts, uncounted",
    [
        ({"hw:cpu_policy": "shared"}, {}, ()),
        ({ALIAS: "gpu:2,nic:1"}, {"CUSTOM_GPU": 2, "CUSTOM_NIC": 1}, ()),
        ({ALIAS: " gpu : 1 , a100:2"}, {"CUSTOM_GPU": 3}, ()),
        ({ALIAS: "gpu:0"}, {}, ()),
        ({ALIAS: "gpu:1,fpga:1"}, {"CUSTOM_GPU": 1}, (ALIAS,)),
        ({PROFILE: "fpga"}, {"FPGA": 1}, ()),
        ({ALIAS: "gpu:1,nic:1", PROFILE: "mix"}, {"CUSTOM_GPU": 3, "CUSTOM_NIC": 1, "FPGA": 1}, ()),
        ({ALIAS: "gpu:1", PROFILE: "other"}, {"CUSTOM_GPU": 1}, (PROFILE,)),
        ({ALIAS: "fpga:1", PROFILE: "gpu"}, {}, (PROFILE, ALIAS)),
        ({"accel:other": "fpga", PROFILE: "mix"}, {"CUSTOM_GPU": 2, "FPGA": 1}, ("accel:other",)),
        *(({ALIAS: text}, {}, (ALIAS,)) for text in ("", "gpu", "gpu:-1", "gpu:\u0663", "gpu:1:2")),
    ],
)
def test_counts_the_devices_of_listed_aliases_and_profiles(
    specs: dict[str, str], amounts: dict[str, int], uncounted: tuple[str, ...]
) -> None:
    devices = COUNTED.requested(specs)
    assert (devices.amounts, devices.uncounted) == (amounts, uncounted)


class TestTraits:
    def test_are_required_or_forbidden(self) -> None:
        assert accepts({"trait:HW_CPU_X86_AVX2": "required"})
        assert not accepts({"trait:HW_CPU_X86_AVX2": "forbidden"})
        assert accepts({"trait:CUSTOM_X": "forbidden"})
        assert not accepts({"trait:CUSTOM_X": "required"})

    def test_a_removed_trait_is_absent(self) -> None:
        assert accepts({"trait:CUSTOM_WAS": "forbidden"})
        assert not accepts({"trait:CUSTOM_WAS": "required"})

    def test_are_flags_in_expressions(self) -> None:
        assert accepts(["==", "$trait:HW_CPU_X86_AVX2", True])

    def test_ignores_the_number_of_a_group(self) -> None:
        assert names(read({"trait1:A": "required", "trait_NET:B": "required"}).query) == {
            "trait:A",
            "trait:B",
        }

    @each_case(
        "specs, reason",
        [
            (
                {"trait:X": "Required"},
                'expected required or forbidden in "trait:X", not "Required"',
            ),
            ({"trait:X": True}, "expected required or forbidden"),
            ({"trait:avx2": "required"}, "expected up to 58 of A-Z, 0-9 and _ after the colon"),
            ({"trait:": "required"}, "expected up to 58"),
            ({"trait:" + "A" * 59: "required"}, "expected up to 58"),
        ],
    )
    def test_rejects_mistakes(self, specs: Mapping[str, Any], reason: str) -> None:
        assert reason in refusal(specs)


class TestResources:
    def test_are_amounts_and_no_part_of_the_query(self) -> None:
        selector = read({"resources:CUSTOM_GPU": "1", "resources:VCPU": 4, "capabilities:a": "1"})
        assert selector.amounts == {"CUSTOM_GPU": 1, "VCPU": 4}
        assert names(selector.query) == {"a"}

    def test_an_amount_of_zero_is_ignored(self) -> None:
        bare_metal = {"resources:VCPU": "0", "resources:CUSTOM_BAREMETAL": "1"}
        assert read(bare_metal).amounts == {"CUSTOM_BAREMETAL": 1}

    def test_adds_up_the_groups(self) -> None:
        specs = {"resources1:VGPU": "1", "resources2:VGPU": "2", "resources_NET:X": "1"}
        assert read(specs).amounts == {"VGPU": 3, "X": 1}

    @each_case(
        "value, reason",
        [
            ("one", 'expected a whole number in "resources:VCPU", not "one"'),
            ("-1", "expected a whole number"),
            ("1.0", "expected a whole number"),
            ("\N{ARABIC-INDIC DIGIT ONE}", "expected a whole number"),
            (2**31, "expected at most 2147483647"),
            ("9" * 400, "expected a whole number"),
        ],
    )
    def test_rejects_mistakes(self, value: object, reason: str) -> None:
        assert reason in refusal({"resources:VCPU": value})

    def test_rejects_a_class_name_that_is_too_long(self) -> None:
        assert "expected up to 54 of A-Z" in refusal({"resources:" + "A" * 55: "1"})


def test_limits_the_number_of_conditions() -> None:
    many = {f"capabilities:c{at}": "1" for at in range(MAX_CONDITIONS)}
    assert len(names(read(many).query)) == MAX_CONDITIONS
    assert f"at most {MAX_CONDITIONS}" in refusal({**many, "resources:VCPU": "1"})
    assert f"at most {MAX_CONDITIONS}" in refusal(
        {"capabilities:a": "<or> " + " <or> ".join("x" * (MAX_CONDITIONS + 1))}
    )


_OPERATORS = [
    *("=", "==", "!=", ">=", "<=", "s==", "s!=", "s>=", "s>", "s<=", "s<"),
    *("<in>", "<all-in>", "<or>"),
]
_WORDS = st.lists(st.sampled_from(["16", "9", "a", "<or>", "x y", "\u2003", "é", ""]), max_size=4)
_VALUES = st.builds(lambda op, words: " ".join([op, *words]), st.sampled_from(_OPERATORS), _WORDS)
_KEYS = st.sampled_from(["capabilities:a", "trait:A", "resources:A", "a", "hw:a", "resources1:A"])


@given(
    st.dictionaries(_KEYS, _VALUES | st.text() | st.integers()),
    st.dictionaries(st.just("a"), st.text()),
)
def test_accepts_or_rejects_any_specs(specs: dict[str, Any], properties: dict[str, str]) -> None:
    try:
        selector = read(specs)
    except InvalidQuery:
        assert refusal(specs).startswith("Malformed requirements ")
        return
    matches(selector.query, properties)
    assert all(amount > 0 for amount in selector.amounts.values())


def _as_nova(value: str, operation: str) -> bool:
    """Evaluate an operation as Nova's documentation describes it."""
    op, *words = operation.split() or [""]
    ours = {
        "=": lambda: float(value) >= float(words[0]),
        "==": lambda: float(value) == float(words[0]),
        "!=": lambda: float(value) != float(words[0]),
        ">=": lambda: float(value) >= float(words[0]),
        "<=": lambda: float(value) <= float(words[0]),
        "s==": lambda: value == words[0],
        "s!=": lambda: value != words[0],
        "s>=": lambda: value >= words[0],
        "s>": lambda: value > words[0],
        "s<=": lambda: value <= words[0],
        "s<": lambda: value < words[0],
        "<in>": lambda: words[0] in value,
        "<all-in>": lambda: all(word in value for word in words),
        "<or>": lambda: value in words[::2],
    }
    return ours[op]() if op in ours else value == operation


@given(st.sampled_from(["16", "9", "16.0", "-1", "1e3"]), _VALUES)
def test_accepted_operations_mean_the_same_as_in_nova(value: str, operation: str) -> None:
    try:
        query = read({"capabilities:a": operation}).query
    except InvalidQuery:
        return
    assert matches(query, {"a": value}) is _as_nova(value, operation)
