"""Leases of virtual:instance and flavor:instance on the simulated cloud."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from climate.core.errors import InvalidInput
from climate.db.resources import allocations
from climate.manager.audit import cloud as audit
from climate.manager.resources import inventory_sync as inventory
from climate.manager.resources import registry as resources
from climate.plugins.instances.plugin import InstancePlugin
from tests.conftest import MakeStory
from tests.support.bodies import (
    change_of,
    copy_hosts,
    effect_names,
    instances,
    put,
    status_of_request,
)
from tests.support.service import Story, host_reservation

PLUGINS = ["physical.host.plugin", "virtual.instance.plugin", "flavor.instance.plugin"]
SECRET = base64.b64encode(b"password: hunter2").decode()
SERVER = {"imageRef": "cirros", "user_data": SECRET}
ON_SIM_1 = '["==", "$hypervisor_hostname", "sim-1"]'
BOOTED = {"vcpus": 1, "disk_gb": 0, "on_start": "create", "server": SERVER}


@pytest.fixture
def story(make_story: MakeStory, hosts_template: Path, tmp_path: Path) -> Story:
    """Return a service with three hosts of 16 VCPU and one of 64 with two GPUs."""
    copy_hosts(hosts_template, tmp_path)
    return make_story(manager__plugins=PLUGINS)


def admitted(story: Story, *requests: tuple[bool, dict[str, Any]]) -> None:
    """Send requests in order and check which are admitted."""
    for number, (is_admitted, request) in enumerate(requests):
        assert status_of_request(story, request) == (201 if is_admitted else 409), number


def of_flavor(flavor: Any = "large", amount: Any = "1", **fields: Any) -> dict[str, Any]:
    """Return a request as the command line sends it."""
    known = {"flavor_id": flavor, "amount": amount, "affinity": "None"}
    return {"resource_type": "flavor:instance", **known, **fields}


def held(story: Story, lease: dict[str, Any]) -> dict[int, Any]:
    """Return the amounts that the lease's first reservation holds, by resource."""
    id_ = lease["reservations"][0]["id"]
    with story.runtime.database.read() as session:
        found = allocations.held(session, [id_])[id_]
        return {resource: allocation.amounts for resource, allocation in found.items()}


def test_extra_specs_select_hosts_and_amounts_of_other_classes(story: Story) -> None:
    gpu_host = {"trait:CUSTOM_GPU_HOST": "required"}
    double = {"resources:VCPU": "8", "trait:CUSTOM_GPU_HOST": "forbidden"}
    none = {"resources:CUSTOM_NONE": "1"}
    admitted(
        story,
        (True, instances(16, resource_properties=gpu_host)),
        (False, instances(1, resource_properties=gpu_host)),
        (True, instances(6, resource_properties=double)),
        (False, instances(1, resource_properties=double)),
    )
    assert status_of_request(story, instances(1, resource_properties=none)) == 409
    one_gpu = {"resources:CUSTOM_GPU": "1"}
    for is_admitted, amount in ((False, 3), (True, 2), (False, 1)):
        request = instances(amount, vcpus=1, resource_properties=one_gpu)
        expected = 201 if is_admitted else 409
        assert status_of_request(story, request, start=180, end=240) == expected
    request = instances(14, vcpus=1)
    assert status_of_request(story, request, start=180, end=240) == 201
    large = '[">=", "$vcpus", "64"]'
    for amount, expected in ((17, 409), (16, 201)):
        request = instances(amount, resource_properties=large)
        assert status_of_request(story, request, start=300, end=360) == expected


def test_a_host_is_shared_until_it_is_full_at_any_moment(story: Story) -> None:
    capacity = 3 * (16 // 4) + 64 // 4
    for _ in range(capacity):
        assert status_of_request(story, instances()) == 201
    assert status_of_request(story, instances()) == 409
    for hour in range(2, 5):
        request = instances(capacity)
        assert status_of_request(story, request, start=60 * hour, end=60 * hour + 60) == 201
    assert status_of_request(story, instances(), start=60, end=300) == 409


def test_affinity_places_instances_on_one_host_or_on_different_ones(story: Story) -> None:
    admitted(
        story,
        (False, instances(17, affinity=True)),
        (False, instances(5, affinity=False)),
        (True, instances(16, affinity=True)),
        (False, instances(4, affinity=False)),
        (True, instances(3, affinity=False)),
    )


def test_whole_hosts_and_instances_never_share_a_host(story: Story) -> None:
    admitted(
        story,
        (True, instances(2, affinity=False)),
        (False, host_reservation(3, 3)),
        (True, host_reservation(2, 2)),
        (False, instances(3, affinity=False)),
    )
    hosts = host_reservation(3, 3)
    for apart, expected in (
        (instances(2, affinity=False), 409),
        (instances(4, affinity=True), 201),
    ):
        assert status_of_request(story, hosts, apart, start=180, end=240) == expected


def test_a_pending_reservation_grows_as_far_as_there_is_room(story: Story) -> None:
    lease = story.reserve(reservations=[instances(20)])
    put(story, lease, reservations=change_of(lease, amount=28))
    path = f"/v1/leases/{lease['id']}"
    story.refused(409, "PUT", path, {"reservations": change_of(lease, amount=29)})
    assert story.lease(lease["id"])["reservations"][0]["amount"] == 28
    # Its own allocations do not count, and it may move before its start.
    put(story, lease, reservations=change_of(lease, amount=7, vcpus=16))
    assert status_of_request(story, instances(1)) == 409


def test_an_active_reservation_grows_and_keeps_its_size(story: Story) -> None:
    lease = story.reserve(0, 120, reservations=[instances(2)])
    story.run()
    path = f"/v1/leases/{lease['id']}"
    double = {"resources:VCPU": "8"}
    for fields in ({"vcpus": 2}, {"vcpus": 8}, {"affinity": True}, {"resource_properties": double}):
        message = story.refused(409, "PUT", path, {"reservations": change_of(lease, **fields)})
        assert "neither its size nor its affinity can change" in message
    put(story, lease, reservations=change_of(lease, amount=3, vcpus=4))
    assert story.lease(lease["id"])["status"] == "ACTIVE"


def test_slots_open_at_the_start_and_close_at_the_end_beside_other_leases(story: Story) -> None:
    here = instances(2, resource_properties=ON_SIM_1)
    lease = story.reserve(reservations=[here])
    story.at(60)
    running = story.lease(lease["id"])
    assert running["status"] == "ACTIVE"
    assert running["reservations"][0]["flavor_id"] == lease["reservations"][0]["id"]
    slots = [effect for effect in story.cloud.effects() if effect["effect"] == "set_slots"]
    assert [(effect["host"], effect["count"]) for effect in slots] == [("sim-1", "2")]
    assert audit.audit(story.runtime) == []
    found = story.ok("GET", "/v1/os-hosts/allocations")["allocations"]
    shown = {host["resource_id"]: [r["lease_id"] for r in host["reservations"]] for host in found}
    assert shown == {"1": [lease["id"]], "2": [], "3": [], "4": []}
    story.at(60)
    assert story.lease(lease["id"])["status"] == "TERMINATED"
    assert effect_names(story)[2:] == ["close_slots", "clear_host", "delete_slots"]
    assert audit.audit(story.runtime) == []
    first = story.reserve(0, 240, reservations=[here])
    second = story.reserve(60, 180, reservations=[here])
    for _ in range(2):
        story.at(60)
    statuses = [story.lease(item["id"])["status"] for item in (first, second)]
    assert statuses == ["ACTIVE", "ACTIVE"]


def test_instances_on_a_failed_host_move_together(story: Story) -> None:
    lease = story.reserve(30, 90, reservations=[instances(3, affinity=True)])
    (resource,) = held(story, lease)
    failed = resources.get(story.runtime, "physical:host", resource).external_id
    story.cloud.fail_host(failed)
    inventory.synchronise(story.runtime)
    (amounts,) = held(story, lease).values()
    assert resource not in held(story, lease)
    assert amounts["VCPU"] == 12


def test_lost_instances_may_move_to_a_host_of_the_same_lease(story: Story) -> None:
    """Its hosts are then the same but for the lost one; the amounts on them are not."""
    small, large = (["==", "$hypervisor_hostname", name] for name in ("sim-1", "sim-4"))
    other = story.reserve(30, 90, reservations=[instances(14, resource_properties=large)])
    either = instances(6, resource_properties=["or", small, large])
    lease = story.reserve(30, 90, reservations=[either])
    assert [amounts["VCPU"] for amounts in held(story, lease).values()] == [16, 8]
    story.ok("DELETE", f"/v1/leases/{other['id']}")
    story.at(30)
    story.cloud.fail_host("sim-1")
    inventory.synchronise(story.runtime, inventory.synchronise(story.runtime))
    story.at(0)
    done = [
        effect
        for effect in story.cloud.effects()
        if effect["effect"] in {"set_slots", "clear_host"}
    ]
    assert [(item["effect"], item["host"], item.get("count")) for item in done[2:]] == [
        ("set_slots", "sim-4", "6"),
        ("clear_host", "sim-1", None),
    ]
    assert story.lease(lease["id"])["degraded"] is False


def test_a_capability_that_instances_require_cannot_change(story: Story) -> None:
    story.ok("PUT", "/v1/os-hosts/1", {"rack": "r1"})
    query = ["and", ["==", "$rack", "r1"], [">", "$vcpus", 0]]
    assert status_of_request(story, instances(resource_properties=query)) == 201
    story.ok("PUT", "/v1/os-hosts/1", {"floor": "3"})
    story.refused(409, "PUT", "/v1/os-hosts/1", {"rack": "r2"})


# Servers that climate boots.


def test_boots_servers_once_more_after_growth_and_hides_their_user_data(story: Story) -> None:
    lease = story.reserve(reservations=[instances(2, **BOOTED)])
    story.at(60)

    def booted() -> list[str]:
        done = story.cloud.effects()
        return [effect["server"] for effect in done if effect["effect"] == "boot"]

    (reservation,) = story.lease(lease["id"])["reservations"]
    assert reservation["servers"] == booted() == [f"{reservation['id']}-{n}" for n in (1, 2)]
    shown = [story.lease(lease["id"]), story.ok("GET", f"/v2/leases/{lease['id']}")]
    published = story.ok("GET", "/v2/notifications")
    assert reservation["server"]["imageRef"] == "cirros"
    assert SECRET not in json.dumps([shown, published])
    assert "cirros" not in json.dumps(published)
    put(story, lease, reservations=change_of(lease, amount=3))
    story.run()
    (reservation,) = story.lease(lease["id"])["reservations"]
    assert reservation["servers"] == booted() == [f"{reservation['id']}-{n}" for n in (1, 2, 3)]


def test_boots_servers_when_a_running_reservation_asks_for_them(story: Story) -> None:
    size = {key: value for key, value in BOOTED.items() if key not in {"on_start", "server"}}
    lease = story.reserve(0, 120, reservations=[instances(2, **size)])
    story.run()
    put(story, lease, reservations=change_of(lease, on_start="create", server=SERVER))
    assert story.run() == 1
    (reservation,) = story.lease(lease["id"])["reservations"]
    assert reservation["servers"] == [f"{reservation['id']}-{n}" for n in (1, 2)]
    put(story, lease, reservations=change_of(lease, on_start="nothing", server=None))
    assert story.run() == 0


def test_a_change_is_refused_if_the_requester_cannot_use_its_image(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = story.reserve(reservations=[instances(1, **BOOTED)])

    def refuse(image_id: str, _requester: object) -> None:
        raise InvalidInput(f"Image {image_id} could not be found")

    plugin = story.runtime.plugins["virtual:instance"]
    assert isinstance(plugin, InstancePlugin)
    monkeypatch.setattr(plugin.cloud, "check_image", refuse)
    other = {"reservations": change_of(lease, server={**SERVER, "imageRef": "other"})}
    path = f"/v1/leases/{lease['id']}"
    assert "other could not be found" in story.refused(400, "PUT", path, other)
    # An image that stays the same is not looked up: it may have been deleted meanwhile.
    [reservation] = put(story, lease, reservations=change_of(lease, amount=2))["reservations"]
    assert (reservation["amount"], reservation["server"]["imageRef"]) == (2, "cirros")


def test_takes_snapshots_before_anything_is_deleted(story: Story) -> None:
    story.reserve(reservations=[instances(2, **BOOTED, on_end="snapshot")])
    for _ in range(2):
        story.at(60)
    effects = effect_names(story)
    assert effects.count("keep_image") == 2
    last = max(number for number, name in enumerate(effects) if name == "keep_image")
    assert {"clear_host", "delete_slots"}.isdisjoint(effects[:last])
    body = story.lease_body(reservations=[instances(on_end="keep")])
    assert "Use snapshot" in story.refused(400, "POST", "/v1/leases", body)
    body = story.lease_body(reservations=[instances(on_start="create")])
    assert "imageRef" in story.refused(400, "POST", "/v1/leases", body)


# Instances of a flavor that the cloud has.


def test_the_flavor_determines_size_hosts_and_amounts(story: Story) -> None:
    capacity = 3 * (16 // 4) + 1000 // 91
    for request, expected in [
        *((of_flavor(amount=capacity + 1), 409), (of_flavor(amount=capacity), 201)),
        (of_flavor(), 409),
    ]:
        assert status_of_request(story, request) == expected
    for amount, expected in ((3, 409), (2, 201), (1, 409)):  # two GPUs
        request = of_flavor("gpu", amount)
        assert status_of_request(story, request, start=180, end=240) == expected
    size = instances(6, vcpus=16, memory_mb=0, disk_gb=0)
    for amount, expected in ((17, 409), (16, 201)):
        requests = (size, of_flavor("small", amount))
        assert status_of_request(story, *requests, start=300, end=360) == expected
    query = 'resource_type=flavor:instance&params={"flavor_id":"large"}&end=2031-01-01T00:00:00Z'
    assert story.ok("GET", f"/v2/availability?{query}")["steps"]


def test_a_user_cannot_change_what_the_flavor_determines(story: Story) -> None:
    forged = {"vcpus": 1, "disk_gb": 1, "resource_properties": '{"extra_specs": {}}'}
    lease = story.reserve(reservations=[of_flavor(amount=2, **forged)])
    (shown,) = lease["reservations"]
    known = {"amount": 2, "vcpus": 4, "memory_mb": 8192, "disk_gb": 91, "flavor_id": shown["id"]}
    assert shown.items() >= known.items()
    assert json.loads(shown["resource_properties"])["id"] == "large"
    path = f"/v1/leases/{lease['id']}"
    for name, value in (*forged.items(), ("flavor_id", "small")):
        story.refused(409, "PUT", path, {"reservations": change_of(lease, **{name: value})})
    put(story, lease, reservations=change_of(lease, amount=3))
    story.at(60)
    (shown,) = story.lease(lease["id"])["reservations"]
    assert (shown["status"], shown["flavor_id"]) == ("active", shown["id"])
    assert audit.audit(story.runtime) == []
    story.at(60)
    assert story.lease(lease["id"])["status"] == "TERMINATED"
    assert audit.audit(story.runtime) == []


def test_rejects_malformed_requests_for_a_flavor(story: Story) -> None:
    for request, expected in [
        (of_flavor("no such flavor"), 400),
        (of_flavor(""), 400),
        (of_flavor(amount=""), 400),
        (of_flavor(amount=0), 400),
        (of_flavor(affinity="true"), 409),
        ({"resource_type": "flavor:instance", "amount": 1}, 400),
    ]:
        assert status_of_request(story, request) == expected


def test_ready_port_requires_networks_that_the_operator_lists(
    story: Story, make_story: MakeStory
) -> None:
    requested = {**instances(1, **BOOTED), "ready_port": 22}
    body = story.lease_body(reservations=[requested])
    assert "check_networks" in story.refused(400, "POST", "/v1/leases", body)
    networks = {"creation__check_networks": ["203.0.113.0/24"]}
    listed = make_story(manager__plugins=PLUGINS, **networks)
    [reservation] = listed.reserve(reservations=[requested])["reservations"]
    assert reservation["ready_port"] == 22


def test_a_change_adds_a_ready_port_only_if_it_can_be_checked_and_null_removes_what_is_there(
    story: Story,
) -> None:
    lease = story.reserve(reservations=[{**instances(1, **BOOTED), "ready_text": "login:"}])
    path = f"/v1/leases/{lease['id']}"
    added = {"reservations": change_of(lease, ready_port=22)}
    assert "check_networks" in story.refused(400, "PUT", path, added)
    change = {"on_start": "nothing", "server": None, "ready_text": None, "ready_port": None}
    changed = put(story, lease, reservations=change_of(lease, **change))
    assert not {"ready_text", "ready_port"} & set(changed["reservations"][0])
