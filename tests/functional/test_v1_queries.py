"""Property expressions as users write them: which hosts a reservation gets, and what is refused."""

import json
from typing import Any

import pytest

from tests.support.service import Story, host_reservation

ALL = ["sim-1", "sim-2", "sim-3", "sim-4"]


@pytest.fixture
def fleet(story_everywhere: Story) -> Story:
    """Return a service with four hosts: sim-4 has 64 vcpus, the others 16, and extras differ."""
    story = story_everywhere
    extras = {
        "sim-1": {"gpu": "True", "slots": "16", "rack": "r 1"},
        "sim-2": {"gpu": "False", "slots": "9", "rack": "r 2"},
        "sim-3": {"slots": "none", "rack": "R 1"},
        "sim-4": {"gpu": "True", "slots": "9.5", "rack": "r 1 "},
    }
    for host_id, name in names(story).items():
        story.ok("PUT", f"/v1/os-hosts/{host_id}", extras[name])
    return story


def names(story: Story) -> dict[str, str]:
    """Return the names of all hosts by id."""
    found = story.ok("GET", "/v1/os-hosts")["hosts"]
    return {host["id"]: host["hypervisor_hostname"] for host in found}


def hosts(story: Story, query: Any, *, key: str = "resource_properties") -> list[str]:
    """Return the names of all hosts that match ``query``: those of the largest lease possible."""
    body = story.lease_body(reservations=[host_reservation(1, 4, **{key: query})])
    response = story.call("POST", "/v1/leases", body)
    if response.status_code == 409:
        assert "0 match the requirements" in response.get_json()["error_message"]
        return []
    assert response.status_code == 201, response.get_data(as_text=True)
    lease_id = response.get_json()["lease"]["id"]
    found = story.hosts_of(lease_id)
    story.ok("DELETE", f"/v1/leases/{lease_id}")
    return [names(story)[host_id] for host_id in found]


def test_each_expression_selects_the_hosts_it_describes(fleet: Story) -> None:
    third = next(host_id for host_id, name in names(fleet).items() if name == "sim-3")
    cases: list[tuple[Any, list[str]]] = [
        ("", ALL),
        ("[]", ALL),
        ([], ALL),
        (None, ALL),
        # operators
        (["=", "$gpu", "True"], ["sim-1", "sim-4"]),
        (["==", "$gpu", "True"], ["sim-1", "sim-4"]),
        ([">", "$vcpus", "16"], ["sim-4"]),
        ([">=", "$vcpus", "16"], ALL),
        (["<", "$vcpus", "64"], ["sim-1", "sim-2", "sim-3"]),
        (["<=", "$vcpus", "15"], []),
        # a host that lacks the property does not even differ in it
        (["!=", "$gpu", "True"], ["sim-2"]),
        # numbers compare as numbers, in the cloud's properties and in extra ones
        ([">", "$slots", "9"], ["sim-1", "sim-4", "sim-3"]),
        (["and", [">", "$slots", "9"], ["<", "$slots", "100"]], ["sim-1", "sim-4"]),
        (["==", "$slots", "16.0"], ["sim-1"]),
        (["==", "$vcpus", "6.4e1"], ["sim-4"]),
        (["==", "$vcpus", 64], ["sim-4"]),
        (["==", "$slots", 9.5], ["sim-4"]),
        # texts compare exactly
        (["==", "$rack", "r 1"], ["sim-1"]),
        (["==", "$rack", "R 1"], ["sim-3"]),
        (["==", "$rack", "r 1 "], ["sim-4"]),
        (["==", "$hypervisor_hostname", "sim-2"], ["sim-2"]),
        (["==", "$id", third], ["sim-3"]),
        (["==", "$availability_zone", "sim"], ALL),
        (["==", "$availability_zone", "nova"], []),
        # all parts of an inner "and" count
        (["and", ["and", ["==", "$gpu", "True"], [">", "$vcpus", "16"]]], ["sim-4"]),
        (["and", [">=", "$vcpus", "16"], ["and", ["==", "$gpu", "True"], []]], ["sim-1", "sim-4"]),
        # more than the first version of the API ever knew
        (["or", ["==", "$gpu", "False"], [">", "$vcpus", "16"]], ["sim-2", "sim-4"]),
        (["not", ["==", "$gpu", "True"]], ["sim-2", "sim-3"]),
        (["in", "$hypervisor_hostname", "sim-1", "sim-3", "sim-9"], ["sim-1", "sim-3"]),
        (["==", "$gpu", "null"], ["sim-3"]),
        (["!=", "$gpu", "null"], ["sim-1", "sim-2", "sim-4"]),
    ]
    for query, expected in cases:
        found = hosts(fleet, query if isinstance(query, str | None) else json.dumps(query))
        assert found == sorted(expected), query


@pytest.mark.parametrize("key", ["hypervisor_properties", "resource_properties"])
@pytest.mark.parametrize("name", ["gpu", "vcpus"])
def test_both_parameters_know_both_kinds_of_properties(story: Story, key: str, name: str) -> None:
    story.ok("PUT", "/v1/os-hosts/4", {"gpu": "64"})
    assert hosts(story, json.dumps(["==", f"${name}", "64"]), key=key) == ["sim-4"]


def test_both_parameters_must_match(story: Story) -> None:
    wanted = host_reservation(
        1,
        4,
        hypervisor_properties='["<=", "$vcpus", "16"]',
        resource_properties='["!=", "$hypervisor_hostname", "sim-2"]',
    )
    assert story.hosts_of(story.reserve(reservations=[wanted])["id"]) == ["1", "3"]


def test_an_expression_may_be_sent_as_json_and_is_shown_as_text(story: Story) -> None:
    query = ["==", "$vcpus", "64"]
    lease = story.reserve(reservations=[host_reservation(resource_properties=query)])
    assert lease["reservations"][0]["resource_properties"] == '["==", "$vcpus", "64"]'
    assert story.hosts_of(lease["id"]) == ["4"]


def test_a_text_is_shown_as_it_was_sent(story: Story) -> None:
    query = '  [ "=" , "$vcpus" ,\t"64" ] '
    lease = story.reserve(reservations=[host_reservation(resource_properties=query)])
    assert lease["reservations"][0]["resource_properties"] == query


def test_a_malformed_expression_is_refused_and_quoted(story: Story) -> None:
    for query in [
        "vcpus > 4",
        "[",
        '["==", "$vcpus"',
        "5",
        "null",
        "true",
        '{"capabilities:vcpus": ">=8"}',
        '{"capabilities:vcpus"',
        '"x"',
        '["==", "$vcpus"]',
        '["==", "$vcpus", "1", "2"]',
        '["==", "vcpus", "1"]',
        '["==", "$", "1"]',
        '["==", 5, "1"]',
        '["==", "$vcpus", ""]',
        '["==", "$vcpus", null]',
        '["==", "$vcpus", ["1"]]',
        '["~~", "$vcpus", "1"]',
        '["AND", ["==", "$vcpus", "1"]]',
        '[["==", "$vcpus", "1"]]',
        '["and"]',
        '["and", "x"]',
        '["not", [], []]',
        "[" * 5000 + "]" * 5000,
    ]:
        body = story.lease_body(reservations=[host_reservation(resource_properties=query)])
        response = story.call("POST", "/v1/leases", body)
        assert response.status_code == 400, response.get_data(as_text=True)
        assert response.headers["Climate-Error-Code"] == "invalid_query"
        message = response.get_json()["error_message"]
        assert message.startswith(f"Malformed requirements {query[:20]}")
        assert "resource_properties" in message


def test_json_that_is_no_expression_is_refused(story: Story) -> None:
    for value in [5, True, {"==": None}, ["==", "vcpus", "4"]]:
        body = story.lease_body(reservations=[host_reservation(hypervisor_properties=value)])
        assert "hypervisor_properties" in story.refused(400, "POST", "/v1/leases", body)


def test_extra_specs_of_a_flavor_select_the_hosts_they_describe(fleet: Story) -> None:
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ALL),
        ({"hw:cpu_policy": "dedicated", "quota:disk_io": "9", "group_policy": "none"}, ALL),
        ({"capabilities:vcpus": ">= 64"}, ["sim-4"]),
        ({"capabilities:vcpus_total": "<= 16"}, ["sim-1", "sim-2", "sim-3"]),
        ({"capabilities:hypervisor_type": "s!= simulated"}, []),
        ({"capabilities:hypervisor_hostname": "<or> sim-1 <or> sim-3"}, ["sim-1", "sim-3"]),
        ({"capabilities:cpu_info": "<all-in> arch 64}}"}, ["sim-4"]),
        # an operator's own properties, however they are asked for
        ({"capabilities:slots": "= 9"}, ["sim-1", "sim-2", "sim-4"]),
        ({"aggregate_instance_extra_specs:gpu": "True"}, ["sim-1", "sim-4"]),
        ({"rack": "<in> r"}, ["sim-1", "sim-2", "sim-4"]),
        ({"rack": "r 1 "}, ["sim-4"]),
        # what Placement tells
        ({"trait:HW_CPU_X86_AVX2": "required"}, ALL),
        ({"trait:CUSTOM_GPU_HOST": "required"}, ["sim-4"]),
        ({"trait:CUSTOM_GPU_HOST": "forbidden"}, ["sim-1", "sim-2", "sim-3"]),
        ({"resources:VCPU": "17", "resources:MEMORY_MB": 1}, ["sim-4"]),
        ({"resources:CUSTOM_GPU": "2", "resources:VCPU": "0"}, ["sim-4"]),
        ({"resources:CUSTOM_GPU": "3"}, []),
        ({"resources:DISK_GB": "1001"}, []),
    ]
    for specs, expected in cases:
        assert hosts(fleet, json.dumps(specs)) == expected, specs
    assert hosts(fleet, specs := {"trait:CUSTOM_GPU_HOST": "required"}) == ["sim-4"], specs


def test_expressions_know_what_placement_tells(fleet: Story) -> None:
    gpus = json.dumps(["or", ["==", "$trait:CUSTOM_GPU_HOST", True], ["==", "$rack", "R 1"]])
    assert hosts(fleet, gpus) == ["sim-3", "sim-4"]
    assert hosts(fleet, json.dumps([">=", "$resources:CUSTOM_GPU", 1])) == ["sim-4"]


def test_an_operator_may_give_a_host_a_trait(fleet: Story) -> None:
    query = json.dumps({"trait:CUSTOM_QUIET": "required"})
    second = next(host_id for host_id, name in names(fleet).items() if name == "sim-2")
    fleet.ok("PUT", f"/v1/os-hosts/{second}", {"trait:CUSTOM_QUIET": True})
    assert hosts(fleet, query) == ["sim-2"]
    fleet.ok("PUT", f"/v1/os-hosts/{second}", {"trait:CUSTOM_QUIET": False})
    assert hosts(fleet, query) == []


@pytest.mark.parametrize(
    ("specs", "reason"),
    [
        (
            {"trait:CUSTOM_GPU_HOTS": "forbidden"},
            'trait:CUSTOM_GPU_HOTS in "trait:CUSTOM_GPU_HOTS"',
        ),
        ({"resources:CUSTOM_FPGA": "1"}, 'resources:CUSTOM_FPGA in "resources:CUSTOM_FPGA"'),
        ({"capabilities:vcpu": ">= 1"}, 'vcpu in "capabilities:vcpu"; did you mean vcpus?'),
    ],
)
def test_specs_that_ask_for_what_no_host_has_are_refused(
    story: Story, specs: dict[str, str], reason: str
) -> None:
    body = story.lease_body(reservations=[host_reservation(resource_properties=specs)])
    assert reason in story.refused(400, "POST", "/v1/leases", body)


def test_the_specs_of_a_running_lease_bind_what_is_changed(story: Story) -> None:
    story.ok("PUT", "/v1/os-hosts/2", {"ssd": "4"})
    specs = {"capabilities:ssd": ">= 2"}
    story.reserve(reservations=[host_reservation(resource_properties=specs)])
    assert "ssd" in story.refused(409, "PUT", "/v1/os-hosts/2", {"ssd": "1"})


def test_of_several_reservations_the_one_with_an_unknown_property_is_named(story: Story) -> None:
    pair = [host_reservation(), host_reservation(resource_properties='["==", "$rackk", "1"]')]
    body = story.lease_body(reservations=pair)
    assert "(in reservation 1)" in story.refused(400, "POST", "/v1/leases", body)


def test_an_unknown_property_is_refused_by_name(story: Story) -> None:
    for name in [
        "gpus",
        "VCPUS",
        "metadata",
        "reservable",
        "trust_id",
        "__class__",
        "x y",
        "\u2603",
    ]:
        query = json.dumps(["not", ["==", f"${name}", "1"]])
        body = story.lease_body(reservations=[host_reservation(resource_properties=query)])
        response = story.call("POST", "/v1/leases", body)
        assert response.status_code == 400, response.get_data(as_text=True)
        assert response.headers["Climate-Error-Code"] == "invalid_query"
        assert name in response.get_json()["error_message"]


def test_a_misspelt_property_is_put_right(story: Story) -> None:
    query = '["==", "$vcpu", "4"]'
    body = story.lease_body(reservations=[host_reservation(resource_properties=query)])
    assert "did you mean vcpus?" in story.refused(400, "POST", "/v1/leases", body)
