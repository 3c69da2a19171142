"""Which hosts match property expressions and extra specs, on every database."""

import json
from typing import Any

import pytest

from tests.support.service import Story, host_reservation

ALL = ["sim-1", "sim-2", "sim-3", "sim-4"]


@pytest.fixture
def fleet(story_everywhere: Story) -> Story:
    """Return four hosts: sim-4 has 64 VCPU, the others 16; their capabilities differ."""
    extras = {
        "sim-1": {"gpu": "True", "slots": "16", "rack": "r 1"},
        "sim-2": {"gpu": "False", "slots": "9", "rack": "r 2"},
        "sim-3": {"slots": "none", "rack": "R 1"},
        "sim-4": {"gpu": "True", "slots": "9.5", "rack": "r 1 "},
    }
    for host_id, name in names(story_everywhere).items():
        story_everywhere.ok("PUT", f"/v1/os-hosts/{host_id}", extras[name])
    return story_everywhere


def names(story: Story) -> dict[str, str]:
    found = story.ok("GET", "/v1/os-hosts")["hosts"]
    return {host["id"]: host["hypervisor_hostname"] for host in found}


def matching(story: Story, query: Any = "", **fields: Any) -> list[str]:
    """Return the names of the hosts of the largest lease possible."""
    wanted = host_reservation(1, 4, **{"resource_properties": query, **fields})
    response = story.call("POST", "/v1/leases", story.lease_body(reservations=[wanted]))
    if response.status_code == 409:
        assert "0 match the requirements" in response.get_json()["error_message"]
        return []
    assert response.status_code == 201, response.get_data(as_text=True)
    lease_id = response.get_json()["lease"]["id"]
    hosts = story.hosts_of(lease_id)
    story.ok("DELETE", f"/v1/leases/{lease_id}")
    return sorted(names(story)[host_id] for host_id in hosts)


def test_an_expression_selects_the_hosts_that_it_describes(fleet: Story) -> None:
    third = next(host_id for host_id, name in names(fleet).items() if name == "sim-3")
    cases: list[tuple[Any, list[str]]] = [
        *(
            (["=", "$gpu", "True"], ["sim-1", "sim-4"]),
            (["==", "$gpu", "True"], ["sim-1", "sim-4"]),
        ),
        *(([">", "$vcpus", "16"], ["sim-4"]), ([">=", "$vcpus", "16"], ALL)),
        *((["<", "$vcpus", "64"], ALL[:3]), (["<=", "$vcpus", "15"], [])),
        # a host without the property does not differ in it
        (["!=", "$gpu", "True"], ["sim-2"]),
        # numbers compare as numbers
        ([">", "$slots", "9"], ["sim-1", "sim-3", "sim-4"]),
        (["and", [">", "$slots", "9"], ["<", "$slots", "100"]], ["sim-1", "sim-4"]),
        *((["==", "$slots", "16.0"], ["sim-1"]), (["==", "$vcpus", "6.4e1"], ["sim-4"])),
        *((["==", "$vcpus", 64], ["sim-4"]), (["==", "$slots", 9.5], ["sim-4"])),
        # texts compare exactly
        *((["==", "$rack", "r 1"], ["sim-1"]), (["==", "$rack", "R 1"], ["sim-3"])),
        (["==", "$rack", "r 1 "], ["sim-4"]),
        *((["==", "$hypervisor_hostname", "sim-2"], ["sim-2"]), (["==", "$id", third], ["sim-3"])),
        *((["==", "$availability_zone", "sim"], ALL), (["==", "$availability_zone", "nova"], [])),
        # all parts of an inner "and" count
        (["and", ["and", ["==", "$gpu", "True"], [">", "$vcpus", "16"]]], ["sim-4"]),
        (["and", [">=", "$vcpus", "16"], ["and", ["==", "$gpu", "True"], []]], ["sim-1", "sim-4"]),
        # operators that Blazar does not have
        (["or", ["==", "$gpu", "False"], [">", "$vcpus", "16"]], ["sim-2", "sim-4"]),
        (["not", ["==", "$gpu", "True"]], ["sim-2", "sim-3"]),
        (["in", "$hypervisor_hostname", "sim-1", "sim-3", "sim-9"], ["sim-1", "sim-3"]),
        *(
            (["==", "$gpu", "null"], ["sim-3"]),
            (["!=", "$gpu", "null"], ["sim-1", "sim-2", "sim-4"]),
        ),
        # traits and inventories of Placement
        (
            ["or", ["==", "$trait:CUSTOM_GPU_HOST", True], ["==", "$rack", "R 1"]],
            ["sim-3", "sim-4"],
        ),
        ([">=", "$resources:CUSTOM_GPU", 1], ["sim-4"]),
    ]
    for query, expected in cases:
        assert matching(fleet, json.dumps(query)) == expected, query
    everything: tuple[Any, ...] = ("", "[]", [], None)
    for empty in everything:
        assert matching(fleet, empty) == ALL


def test_extra_specs_of_a_flavor_select_the_hosts_that_they_describe(fleet: Story) -> None:
    second = next(host_id for host_id, name in names(fleet).items() if name == "sim-2")
    fleet.ok("PUT", f"/v1/os-hosts/{second}", {"trait:CUSTOM_QUIET": True})
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ALL),
        ({"hw:cpu_policy": "dedicated", "quota:disk_io": "9", "group_policy": "none"}, ALL),
        ({"capabilities:vcpus": ">= 64"}, ["sim-4"]),
        ({"capabilities:vcpus_total": "<= 16"}, ALL[:3]),
        ({"capabilities:hypervisor_type": "s!= simulated"}, []),
        ({"capabilities:hypervisor_hostname": "<or> sim-1 <or> sim-3"}, ["sim-1", "sim-3"]),
        ({"capabilities:cpu_info": "<all-in> arch 64}}"}, ["sim-4"]),
        # capabilities of operators
        ({"capabilities:slots": "= 9"}, ["sim-1", "sim-2", "sim-4"]),
        ({"aggregate_instance_extra_specs:gpu": "True"}, ["sim-1", "sim-4"]),
        ({"rack": "<in> r"}, ["sim-1", "sim-2", "sim-4"]),
        ({"rack": "r 1 "}, ["sim-4"]),
        ({"trait:CUSTOM_QUIET": "required"}, ["sim-2"]),
        # traits and inventories of Placement
        ({"trait:HW_CPU_X86_AVX2": "required"}, ALL),
        ({"trait:CUSTOM_GPU_HOST": "required"}, ["sim-4"]),
        ({"trait:CUSTOM_GPU_HOST": "forbidden"}, ALL[:3]),
        ({"resources:VCPU": "17", "resources:MEMORY_MB": 1}, ["sim-4"]),
        ({"resources:CUSTOM_GPU": "2", "resources:VCPU": "0"}, ["sim-4"]),
        ({"resources:CUSTOM_GPU": "3"}, []),
        ({"resources:DISK_GB": "1001"}, []),
    ]
    for specs, expected in cases:
        assert matching(fleet, json.dumps(specs)) == expected, specs
    assert matching(fleet, {"trait:CUSTOM_GPU_HOST": "required"}) == ["sim-4"]
    fleet.ok("PUT", f"/v1/os-hosts/{second}", {"trait:CUSTOM_QUIET": False})
    assert matching(fleet, {"trait:CUSTOM_QUIET": "required"}) == []


def test_both_parameters_know_all_properties_and_both_must_match(story: Story) -> None:
    story.ok("PUT", "/v1/os-hosts/4", {"gpu": "64"})
    for key in ("hypervisor_properties", "resource_properties"):
        for name in ("gpu", "vcpus"):
            query = json.dumps(["==", f"${name}", "64"])
            assert matching(story, **{key: query}) == ["sim-4"]
    small, other = '["<=", "$vcpus", "16"]', '["!=", "$hypervisor_hostname", "sim-2"]'
    assert matching(story, other, hypervisor_properties=small) == ["sim-1", "sim-3"]
