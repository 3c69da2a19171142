"""Parameters of reservations in v1, as clients write them."""

import json
from typing import Any

import pytest

from tests.conftest import MakeStory
from tests.support.bodies import (
    HOSTS_AND_INSTANCES,
    ONLY_SIM_4,
    change_of,
    instances,
    put,
    rejected_put,
    status_of_request,
)
from tests.support.service import Story, host_reservation

MISSING = object()


def rejected(story: Story, *reservations: dict[str, Any]) -> str:
    body = story.lease_body(reservations=list(reservations))
    return story.refused(400, "POST", "/v1/leases", body)


def test_rejects_malformed_numbers_of_hosts(story: Story) -> None:
    out_of_range = [(2, 1), (0, 1), (-1, 1), (0, 0), ("0", "1"), ("-1", 1), (1, 0)]
    for minimum, maximum in (*out_of_range, (1, 10**30), (10**30, 10**30)):
        rejected(story, host_reservation(minimum, maximum))
    value: Any
    for key in ("min", "max"):
        for value in ("foo", "", " ", "1.5", "1e3", 1.5, 1.0, True, None, [1], {}):
            message = rejected(story, host_reservation(**{key: value}))
            assert message.startswith(f"Malformed parameter {key}")
    for key in ("min", "max", "hypervisor_properties", "resource_properties"):
        reservation = host_reservation()
        del reservation[key]
        assert rejected(story, reservation) == f"Missing parameter {key}"
    for value in ("other", "DEFAULT", 5, True, ["snapshot"]):
        assert "before_end" in rejected(story, host_reservation(before_end=value))
    assert "reservations[1]" in rejected(story, host_reservation(), host_reservation("x"))
    assert story.ok("GET", "/v1/leases") == {"leases": []}


def test_reads_numbers_as_text_and_properties_as_text_or_json(story: Story) -> None:
    def reserve(minimum: Any = 1, maximum: Any = 1, **fields: Any) -> dict[str, Any]:
        body = [host_reservation(minimum, maximum, **fields)]
        lease = story.reserve(reservations=body)
        hosts = story.hosts_of(lease["id"])
        story.ok("DELETE", f"/v1/leases/{lease['id']}")
        return {**lease["reservations"][0], "hosts": hosts}

    shown = reserve("1", "2")
    assert (shown["min"], shown["max"]) == (1, 2)
    empty: Any
    for empty in (None, "", [], "[]"):
        shown = reserve(4, 4, hypervisor_properties=empty, resource_properties=empty)
        assert len(shown["hosts"]) == 4
    text = '  [ "=" , "$vcpus" ,\t"64" ] '
    for sent, stored in ((text, text), (["==", "$vcpus", "64"], ONLY_SIM_4)):
        shown = reserve(resource_properties=sent)
        assert (shown["resource_properties"], shown["hosts"]) == (stored, ["4"])


@pytest.mark.parametrize(
    ("requested", "configured", "shown", "snapshots"),
    [
        ({}, "", "default", 0),
        ({}, "snapshot", "default", 1),
        ({"before_end": None}, "snapshot", "default", 1),
        ({"before_end": "default"}, "snapshot", "default", 1),
        ({"before_end": ""}, "snapshot", "", 0),
        ({"before_end": "snapshot"}, "", "snapshot", 1),
    ],
)
def test_before_end_takes_snapshots_if_requested_or_configured(
    make_story: MakeStory,
    requested: dict[str, Any],
    configured: str,
    shown: str,
    snapshots: int,
) -> None:
    story = make_story(**{"physical:host__before_end": configured})
    story.register(1)
    lease = story.reserve(0, 120, reservations=[host_reservation(**requested)])
    assert lease["reservations"][0]["before_end"] == shown
    story.run()
    story.cloud.boot_server("sim-1", "vm")
    story.at(60)
    effects = [effect for effect in story.cloud.effects() if effect["effect"] == "snapshot"]
    assert len(effects) == snapshots


def test_changed_parameters_are_checked_with_the_others(story: Story) -> None:
    lease = story.reserve(reservations=[host_reservation(1, 2)])
    changes: list[dict[str, Any]] = [
        {"min": 3},
        {"max": 0},
        {"min": "x"},
        {"max": ""},
        {"before_end": "x"},
        {"hypervisor_properties": '["=="]'},
        {"resource_properties": '["==", "$nope", "1"]'},
    ]
    for fields in changes:
        rejected_put(story, lease, 400, reservations=change_of(lease, **fields))
    for start in ("pending", "active"):
        for kind in ("virtual:instance", "no:such", ""):
            change = change_of(lease, resource_type=kind)
            rejected_put(story, lease, 409, reservations=change)
        if start == "pending":
            story.at(60)
    active = {**lease["reservations"][0], "status": "active"}
    repeated = change_of(lease, resource_type="physical:host", max=3)
    (changed,) = put(story, lease, reservations=repeated)["reservations"]
    assert changed == {**active, "max": 3, "updated_at": "2030-01-15 13:00:00"}
    assert len(story.hosts_of(lease["id"])) == 3


MALFORMED_EXPRESSIONS = [
    *("vcpus > 4", "[", '["==", "$vcpus"', "5", "null", "true"),
    *('{"capabilities:vcpus": ">=8"}', '{"capabilities:vcpus"', '"x"', '["==", "$vcpus"]'),
    *('["==", "$vcpus", "1", "2"]', '["==", "vcpus", "1"]', '["==", "$", "1"]'),
    *('["==", 5, "1"]', '["==", "$vcpus", ""]', '["==", "$vcpus", null]'),
    *('["==", "$vcpus", ["1"]]', '["~~", "$vcpus", "1"]', '["AND", ["==", "$vcpus", "1"]]'),
    *('[["==", "$vcpus", "1"]]', '["and"]', '["and", "x"]', '["not", [], []]'),
    "[" * 5000 + "]" * 5000,
]


def test_rejects_malformed_expressions_and_unknown_properties(story: Story) -> None:
    def invalid_query(query: Any) -> str:
        body = story.lease_body(reservations=[host_reservation(resource_properties=query)])
        response = story.call("POST", "/v1/leases", body)
        assert response.status_code == 400, response.get_data(as_text=True)
        assert response.headers["Climate-Error-Code"] == "invalid_query"
        return str(response.get_json()["error_message"])

    for query in MALFORMED_EXPRESSIONS:
        message = invalid_query(query)
        assert message.startswith(f"Malformed requirements {query[:20]}")
        assert "resource_properties" in message
    unknown = ["gpus", "VCPUS", "metadata", "reservable", "trust_id", "__class__", "x y", "\u2603"]
    for name in unknown:
        assert name in invalid_query(json.dumps(["not", ["==", f"${name}", "1"]]))
    assert "did you mean vcpus?" in invalid_query('["==", "$vcpu", "4"]')
    for value in (5, True, {"==": None}, ["==", "vcpus", "4"]):
        message = rejected(story, host_reservation(hypervisor_properties=value))
        assert "hypervisor_properties" in message
    second = host_reservation(resource_properties='["==", "$rackk", "1"]')
    assert "(in reservation 1)" in rejected(story, host_reservation(), second)
    for specs, reason in [
        (
            {"trait:CUSTOM_GPU_HOTS": "forbidden"},
            'trait:CUSTOM_GPU_HOTS in "trait:CUSTOM_GPU_HOTS"',
        ),
        ({"resources:CUSTOM_FPGA": "1"}, 'resources:CUSTOM_FPGA in "resources:CUSTOM_FPGA"'),
        ({"capabilities:vcpu": ">= 1"}, 'vcpu in "capabilities:vcpu"; did you mean vcpus?'),
    ]:
        assert reason in rejected(story, host_reservation(resource_properties=specs))


def test_reads_instances_as_the_command_line_writes_them(make_story: MakeStory) -> None:
    story = make_story(manager__plugins=HOSTS_AND_INSTANCES)
    story.register(4)
    lease = story.reserve(reservations=[instances(2, affinity="true")])
    shown = lease["reservations"][0]
    assert shown.items() >= {"amount": 2, "vcpus": 4, "memory_mb": 1024, "disk_gb": 10}.items()
    assert shown["affinity"] is True
    known = {"flavor_id": shown["id"], "server_group_id": None, "aggregate_id": None}
    assert shown.items() >= known.items()
    for affinity in ("None", "none", "", None, "True", "false", False, True):
        assert status_of_request(story, instances(affinity=affinity)) == 201
    nothing = {"vcpus": 0, "memory_mb": 0}
    assert status_of_request(story, instances(**nothing, disk_gb=1)) == 201
    required = ("amount", "vcpus", "memory_mb", "disk_gb", "affinity", "resource_properties")
    for name, value in [
        *((name, value) for name in required[:2] for value in ("", "abc", -1, 1.5, None)),
        ("amount", 0),
        ("amount", 2**31),
        ("memory_mb", 2**40),
        ("affinity", "abc"),
        ("affinity", 2),
        ("resource_properties", "]"),
        *((name, MISSING) for name in required),
    ]:
        request = {key: part for key, part in instances(**{name: value}).items() if part != MISSING}
        assert rejected(story, request), (name, value)
    assert rejected(story, instances(**nothing, disk_gb=0))
