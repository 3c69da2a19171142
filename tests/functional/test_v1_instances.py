"""Reservations of virtual:instance: room on hosts that others use, too."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from climate.db.resources import allocations
from climate.manager import audit, inventory, resources
from tests.service import Story, host_reservation

MakeStory = Callable[..., Story]
PLUGINS = ["physical.host.plugin", "virtual.instance.plugin"]
MISSING = object()


@pytest.fixture
def story(make_story: MakeStory, hosts_template: Path, tmp_path: Path) -> Story:
    """Return a service that reserves hosts (three of 16 VCPU, one of 64) and instances."""
    shutil.copy(hosts_template, tmp_path / "climate.sqlite")
    shutil.copy(hosts_template.parent / "cloud", tmp_path / "cloud")
    return make_story(manager__plugins=PLUGINS)


def instances(amount: Any = 1, vcpus: Any = 4, **fields: Any) -> dict[str, Any]:
    """Return a request for instances as the command line sends it."""
    return {
        "resource_type": "virtual:instance",
        "amount": amount,
        "vcpus": vcpus,
        "memory_mb": 1024,
        "disk_gb": 10,
        "affinity": "None",
        "resource_properties": "",
        **fields,
    }


def ask(story: Story, *reservations: dict[str, Any], start: float = 60, end: float = 120) -> int:
    """Ask for a lease and return the status of the answer."""
    body = story.lease_body(start, end, reservations=list(reservations))
    return story.call("POST", "/v1/leases", body).status_code


def test_a_reservation_shows_what_was_asked_for(story: Story) -> None:
    lease = story.reserve(reservations=[instances(2, affinity="true")])
    shown = lease["reservations"][0]
    assert shown.items() >= {"amount": 2, "vcpus": 4, "memory_mb": 1024, "disk_gb": 10}.items()
    assert shown["affinity"] is True
    known = {"flavor_id": shown["id"], "server_group_id": None, "aggregate_id": None}
    assert shown.items() >= known.items()


def test_extra_specs_say_on_which_hosts_and_how_much_of_what_else(story: Story) -> None:
    large = {"trait:CUSTOM_GPU_HOST": "required"}
    assert ask(story, instances(16, resource_properties=large)) == 201
    assert ask(story, instances(1, resource_properties=large)) == 409
    double = {"resources:VCPU": "8", "trait:CUSTOM_GPU_HOST": "forbidden"}
    assert ask(story, instances(6, resource_properties=double)) == 201
    assert ask(story, instances(1, resource_properties=double)) == 409
    assert ask(story, instances(1, resource_properties={"resources:CUSTOM_NONE": "1"})) == 409


def test_extra_specs_ask_for_shares_of_other_classes_too(story: Story) -> None:
    gpu = {"resources:CUSTOM_GPU": "1"}
    assert ask(story, instances(3, vcpus=1, resource_properties=gpu)) == 409
    assert ask(story, instances(2, vcpus=1, resource_properties=gpu)) == 201
    assert ask(story, instances(1, vcpus=1, resource_properties=gpu)) == 409
    assert ask(story, instances(14, vcpus=1)) == 201


def test_a_host_is_shared_until_it_is_full(story: Story) -> None:
    there = 3 * (16 // 4) + 64 // 4
    for _ in range(there):
        assert ask(story, instances()) == 201
    assert ask(story, instances()) == 409
    assert ask(story, instances(), start=120, end=180) == 201


def test_leases_that_follow_each_other_are_not_added_up(story: Story) -> None:
    for hour in range(1, 5):
        assert ask(story, instances(28), start=60 * hour, end=60 * hour + 60) == 201
    assert ask(story, instances(1), start=60, end=300) == 409


def test_together_is_on_one_host_and_apart_on_as_many_as_there_are(story: Story) -> None:
    assert ask(story, instances(17, affinity=True)) == 409
    assert ask(story, instances(5, affinity=False)) == 409
    assert ask(story, instances(16, affinity=True)) == 201
    assert ask(story, instances(4, affinity=False)) == 409
    assert ask(story, instances(3, affinity=False)) == 201


def test_whole_hosts_and_instances_keep_off_each_other(story: Story) -> None:
    assert ask(story, instances(2, affinity=False)) == 201
    assert ask(story, host_reservation(3, 3)) == 409
    assert ask(story, host_reservation(2, 2)) == 201
    assert ask(story, instances(3, affinity=False)) == 409


def test_one_lease_may_have_both(story: Story) -> None:
    assert ask(story, host_reservation(3, 3), instances(2, affinity=False)) == 409
    assert ask(story, host_reservation(3, 3), instances(4, affinity=True)) == 201


def test_instances_are_only_where_the_properties_are(story: Story) -> None:
    large = '[">=", "$vcpus", "64"]'
    assert ask(story, instances(17, resource_properties=large)) == 409
    assert ask(story, instances(16, resource_properties=large)) == 201


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in ("amount", "vcpus") for value in ("", "abc", -1, 1.5, None)),
        ("amount", 0),
        ("amount", 2**31),
        ("memory_mb", 2**40),
        ("affinity", "abc"),
        ("affinity", 2),
        ("resource_properties", "]"),
        *((name, MISSING) for name in ("amount", "vcpus", "memory_mb", "disk_gb", "affinity")),
        ("resource_properties", MISSING),
    ],
)
def test_what_makes_no_sense_is_refused(story: Story, name: str, value: object) -> None:
    request = instances(**{name: value})
    if value is MISSING:
        del request[name]
    body = story.lease_body(reservations=[request])
    assert story.refused(400, "POST", "/v1/leases", body)


def test_an_instance_of_nothing_is_refused(story: Story) -> None:
    assert ask(story, instances(vcpus=0, memory_mb=0, disk_gb=0)) == 400
    assert ask(story, instances(vcpus=0, memory_mb=0, disk_gb=1)) == 201


@pytest.mark.parametrize("word", ["None", "none", "", None, "True", "false", False, True])
def test_affinity_is_read_as_clients_write_it(story: Story, word: object) -> None:
    assert ask(story, instances(affinity=word)) == 201


def test_more_is_to_be_had_where_there_is_room(story: Story) -> None:
    lease = story.reserve(reservations=[instances(20)])
    mine = lease["reservations"][0]["id"]
    more = {"reservations": [{"id": mine, "amount": 28}]}
    story.ok("PUT", f"/v1/leases/{lease['id']}", more)
    too_much = {"reservations": [{"id": mine, "amount": 29}]}
    story.refused(409, "PUT", f"/v1/leases/{lease['id']}", too_much)
    assert story.lease(lease["id"])["reservations"][0]["amount"] == 28


def test_a_full_cloud_can_be_divided_otherwise(story: Story) -> None:
    """What the lease has itself does not count against it, and it may move before its start."""
    lease = story.reserve(reservations=[instances(28)])
    mine = lease["reservations"][0]["id"]
    change = {"reservations": [{"id": mine, "amount": 7, "vcpus": 16}]}
    story.ok("PUT", f"/v1/leases/{lease['id']}", change)
    assert ask(story, instances(1)) == 409


def test_what_is_in_use_gets_more_but_stays_as_large_as_it_is(story: Story) -> None:
    lease = story.reserve(0, 120, reservations=[instances(2)])
    story.run()
    mine = lease["reservations"][0]["id"]
    double = {"resources:VCPU": "8"}
    for news in ({"vcpus": 2}, {"vcpus": 8}, {"affinity": True}, {"resource_properties": double}):
        change = {"reservations": [{"id": mine, **news}]}
        sentence = story.refused(409, "PUT", f"/v1/leases/{lease['id']}", change)
        assert "neither its size nor its affinity can change" in sentence
    more = {"reservations": [{"id": mine, "amount": 3, "vcpus": 4}]}
    story.ok("PUT", f"/v1/leases/{lease['id']}", more)
    assert story.lease(lease["id"])["status"] == "ACTIVE"


def test_it_starts_and_ends_like_any_other(story: Story) -> None:
    here = instances(2, resource_properties='["==", "$hypervisor_hostname", "sim-1"]')
    lease = story.reserve(reservations=[here])
    story.at(60)
    running = story.lease(lease["id"])
    assert running["status"] == "ACTIVE"
    assert running["reservations"][0]["flavor_id"] == lease["reservations"][0]["id"]
    slots = [one for one in story.cloud.effects() if one["effect"] == "set_slots"]
    assert [(one["host"], one["count"]) for one in slots] == [("sim-1", "2")]
    assert [one.description for one in audit.audit(story.runtime)] == []
    story.at(60)
    assert story.lease(lease["id"])["status"] == "TERMINATED"
    done = [one["effect"] for one in story.cloud.effects()]
    assert done[2:] == ["close_slots", "clear_host", "delete_slots"]
    assert [one.description for one in audit.audit(story.runtime)] == []


def test_two_that_share_a_host_do_not_wait_for_each_other(story: Story) -> None:
    here = instances(2, resource_properties='["==", "$hypervisor_hostname", "sim-1"]')
    first = story.reserve(60, 240, reservations=[here])
    second = story.reserve(120, 180, reservations=[here])
    story.at(60)
    story.at(60)
    assert story.lease(first["id"])["status"] == "ACTIVE"
    assert story.lease(second["id"])["status"] == "ACTIVE"


def test_operators_see_who_shares_a_host(story: Story) -> None:
    there = instances(2, resource_properties='["==", "$hypervisor_hostname", "sim-1"]')
    lease = story.reserve(reservations=[there])
    found = story.ok("GET", "/v1/os-hosts/allocations")["allocations"]
    shown = {one["resource_id"]: [r["lease_id"] for r in one["reservations"]] for one in found}
    assert shown == {"1": [lease["id"]], "2": [], "3": [], "4": []}


def test_a_host_that_fails_is_replaced_with_all_that_was_on_it(story: Story) -> None:
    lease = story.reserve(30, 90, reservations=[instances(3, affinity=True)])
    resource = next(iter(_held(story, lease)))
    _fail(story, resource)
    found = _held(story, lease)
    assert resource not in found
    assert sum(amounts["VCPU"] for amounts in found.values()) == 12
    assert len(found) == 1


def _held(story: Story, lease: dict[str, Any]) -> dict[int, Any]:
    mine = lease["reservations"][0]["id"]
    with story.runtime.database.read() as session:
        return {id_: one.amounts for id_, one in allocations.held(session, [mine])[mine].items()}


def _fail(story: Story, resource_id: int) -> None:
    story.cloud.fail_host(resources.get(story.runtime, "physical:host", resource_id).external_id)
    inventory.synchronise(story.runtime)


def test_what_instances_asked_for_of_a_host_stays(story: Story) -> None:
    host = story.ok("GET", "/v1/os-hosts")["hosts"][0]
    path = f"/v1/os-hosts/{host['id']}"
    story.ok("PUT", path, {"rack": "r1"})
    asked = ["and", ["==", "$rack", "r1"], [">", "$vcpus", 0]]
    assert ask(story, instances(resource_properties=asked)) == 201
    story.ok("PUT", path, {"floor": "3"})
    story.refused(409, "PUT", path, {"rack": "r2"})


def test_what_was_lost_is_had_where_there_was_some_already(story: Story) -> None:
    """The hosts are the same but for the lost one; how much of them is handed over is not."""
    small, large = (["==", "$hypervisor_hostname", name] for name in ("sim-1", "sim-4"))
    other = story.reserve(30, 90, reservations=[instances(14, resource_properties=large)])
    either = ["or", small, large]
    lease = story.reserve(30, 90, reservations=[instances(6, resource_properties=either)])
    assert [one["VCPU"] for one in _held(story, lease).values()] == [16, 8]
    story.ok("DELETE", f"/v1/leases/{other['id']}")
    story.at(30)
    story.cloud.fail_host("sim-1")
    inventory.synchronise(story.runtime, inventory.synchronise(story.runtime))
    story.at(0)
    done = [one for one in story.cloud.effects() if one["effect"] in {"set_slots", "clear_host"}]
    assert [(one["effect"], one["host"], one.get("count")) for one in done[2:]] == [
        ("set_slots", "sim-4", "6"),
        ("clear_host", "sim-1", None),
    ]
    assert story.lease(lease["id"])["degraded"] is False
