"""Reservations with ``on_start: manual``: users start and stop them while the lease runs."""

from pathlib import Path
from typing import Any

import pytest

from climate.manager.audit.cloud import audit
from climate.manager.resources.inventory_sync import synchronise
from climate.plugins.networking.simulated import NETWORK
from tests.conftest import MakeStory
from tests.support.bodies import copy_hosts, effect_names
from tests.support.service import Story

PLUGINS = [
    "physical.host.plugin",
    "virtual.instance.plugin",
    "flavor.instance.plugin",
    "virtual.floatingip.plugin",
    "virtual.network.plugin",
    "virtual.volume.plugin",
    "virtual.stack.plugin",
]
SERVER = {"imageRef": "cirros"}
SIZES = {"amount": 2, "vcpus": 1, "memory_mb": 0, "disk_gb": 0, "affinity": None}
SEGMENT = {
    "network_type": "vlan",
    "physical_network": "physnet1",
    "segment_id": 100,
}
STACK = {
    "heat_template_version": "2016-10-14",
    "resources": {
        "web": {"type": "OS::Nova::Server", "properties": {"flavor": "m1.small"}},
        "address": {
            "type": "OS::Neutron::FloatingIP",
            "properties": {"floating_network": NETWORK},
        },
    },
}
# By type: parameters, and an effect of each start.
TYPES: dict[str, tuple[dict[str, Any], str]] = {
    "virtual:instance": ({**SIZES, "resource_properties": "", "server": SERVER}, "boot"),
    "flavor:instance": ({"flavor_id": "small", "amount": 1, "server": SERVER}, "boot"),
    "virtual:floatingip": ({"network_id": NETWORK, "amount": 1}, "create_floatingip"),
    "virtual:network": ({"network_name": "net"}, "create_network"),
    "virtual:volume": ({"volume_type": "silver", "amount": 2, "size": 10}, "create_volume"),
    "virtual:stack": ({"template": STACK}, "update_stack"),
}


@pytest.fixture
def story(make_story: MakeStory, hosts_template: Path, tmp_path: Path) -> Story:
    copy_hosts(hosts_template, tmp_path)
    story = make_story(manager__plugins=PLUGINS)
    for last in (2, 3):
        body = {"floating_network_id": NETWORK, "floating_ip_address": f"198.51.100.{last}"}
        story.ok("POST", "/v1/floatingips", body)
    silver = {"gigabytes": 100, "volumes": 10}
    story.ok(
        "POST",
        "/v2/resources",
        {"resource_type": "virtual:volume", "name": "silver", "properties": silver},
    )
    story.ok("POST", "/v1/networks", SEGMENT)
    return story


def create(story: Story, type_: str, **more: Any) -> dict[str, Any]:
    """Create a lease from 60 to 120 minutes from now, with one manual reservation."""
    params = {**TYPES[type_][0], "on_start": "manual", **more}
    body = story.asking(60, 120, reservations=[{"resource_type": type_, "params": params}])
    return dict(story.ok("POST", "/v2/leases", body))


def path(lease: dict[str, Any], verb: str) -> str:
    return f"/v2/leases/{lease['id']}/reservations/{lease['reservations'][0]['id']}/{verb}"


def send(story: Story, lease: dict[str, Any], verb: str) -> str:
    """Send a request that is accepted; return the run state."""
    answer = story.call("POST", path(lease, verb))
    assert answer.status_code == 202, answer.get_data(as_text=True)
    return str(answer.get_json()["run_state"])


def settle(story: Story) -> None:
    """Let a manager do what is due, and what waits some seconds for the cloud."""
    story.run()
    for _ in range(4):
        story.at(1 / 30)


def shown(story: Story, lease: dict[str, Any]) -> dict[str, Any]:
    return dict(story.ok("GET", f"/v2/leases/{lease['id']}")["reservations"][0])


def handed_over(story: Story, lease: dict[str, Any]) -> set[bool]:
    resources = story.ok("GET", f"/v2/leases/{lease['id']}/resources")["resources"]
    return {resource["handed_over"] for resource in resources}


def drifts(story: Story) -> list[str]:
    return [drift.description for drift in audit(story.runtime)]


def start_and_stop(story: Story, lease: dict[str, Any], effect: str) -> int:
    """Start the reservation, then stop it; return how many effects of this name the start had."""
    before = len(effect_names(story, effect))
    assert send(story, lease, "start") == "starting"
    assert send(story, lease, "start") == "starting"
    settle(story)
    assert send(story, lease, "start") == "started"
    created = len(effect_names(story, effect)) - before
    assert handed_over(story, lease) == {True}
    assert drifts(story) == []
    assert send(story, lease, "stop") == "stopping"
    assert story.problem(409, "POST", path(lease, "start"))["code"] == "reservation_stopping"
    settle(story)
    assert send(story, lease, "stop") == "stopped"
    assert drifts(story) == []
    return created


@pytest.mark.parametrize("type_", TYPES)
def test_a_reservation_of_each_type_is_created_and_deleted_on_request(
    story: Story, type_: str
) -> None:
    lease, effect = create(story, type_), TYPES[type_][1]
    prepared = effect_names(story)
    story.at(60)
    settle(story)
    reservation = shown(story, lease)
    assert (reservation["status"], reservation["run_state"]) == ("active", "stopped")
    assert effect_names(story) == prepared, "nothing is created at the start of the lease"
    assert drifts(story) == []
    assert handed_over(story, lease) == {False}
    first, second = (start_and_stop(story, lease, effect) for _ in range(2))
    assert first == second > 0
    types = [each for each in story.event_types(lease["id"]) if each.startswith("reservation.")]
    assert types == ["reservation.started", "reservation.stopped"] * 2
    send(story, lease, "start")
    settle(story)
    story.at(60)
    settle(story)
    assert shown(story, lease)["status"] == "deleted"
    assert drifts(story) == []


def test_rejects_requests_outside_the_lease_and_for_other_reservations(story: Story) -> None:
    lease = create(story, "virtual:volume")
    assert story.problem(409, "POST", path(lease, "start"))["code"] == "lease_not_running"
    host = story.ok("POST", "/v2/leases", story.asking())
    made = create(story, "virtual:floatingip", on_start="create")
    story.clock.advance(3600)
    assert story.problem(409, "POST", path(lease, "start"))["code"] == "lease_busy"
    settle(story)
    for other in (host, made):
        for verb in ("start", "stop"):
            assert story.problem(409, "POST", path(other, verb))["code"] == "not_manual"
    unknown = f"/v2/leases/{lease['id']}/reservations/unknown/start"
    assert story.problem(404, "POST", unknown)["code"] == "not_found"
    story.at(60)
    settle(story)
    assert story.problem(409, "POST", path(lease, "start"))["code"] == "lease_not_running"


def test_on_start_takes_effect_at_once_if_it_changes_while_the_lease_runs(story: Story) -> None:
    lease = create(story, "virtual:volume", on_start="nothing")
    story.at(60)
    settle(story)

    def change(on_start: str) -> dict[str, Any]:
        id_ = lease["reservations"][0]["id"]
        body = {"reservations": [{"id": id_, "params": {"on_start": on_start}}]}
        story.ok("PATCH", f"/v2/leases/{lease['id']}", body)
        settle(story)
        return shown(story, lease)

    volumes = effect_names(story, "create_volume")
    assert volumes == []
    assert len(change("create")["details"]["volumes"]) == 2
    manual = change("manual")
    assert (manual["run_state"], len(manual["details"]["volumes"])) == ("started", 2)
    send(story, lease, "stop")
    settle(story)
    assert "volumes" not in shown(story, lease)["details"]
    assert len(change("create")["details"]["volumes"]) == 2


def test_a_stop_during_the_start_follows_it(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = create(story, "virtual:volume")
    story.at(60)
    settle(story)
    plugin, states = story.runtime.plugins["virtual:volume"], []
    genuine = plugin.start

    def start(*given: Any) -> Any:
        details = genuine(*given)
        states.append(send(story, lease, "stop"))
        return details

    send(story, lease, "start")
    with monkeypatch.context() as patch:
        patch.setattr(plugin, "start", start)
        story.run()
    settle(story)
    assert states == ["stopping"]
    assert shown(story, lease)["run_state"] == "stopped"
    assert len(effect_names(story, "create_volume")) == 2
    assert drifts(story) == []


def test_a_start_that_fails_can_be_repeated_or_stopped(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease, other, third = (create(story, "virtual:volume") for _ in range(3))
    story.at(60)
    settle(story)
    plugin = story.runtime.plugins["virtual:volume"]

    def fail(*_given: Any) -> Any:
        raise RuntimeError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(plugin, "start", fail)
        for each in (lease, other, third):
            send(story, each, "start")
        for _ in range(20):
            story.at(1 / 2)
    assert shown(story, lease)["run_state"] == "starting"
    assert story.ok("GET", f"/v2/leases/{lease['id']}")["degraded"]
    assert send(story, lease, "start") == "starting"
    assert send(story, other, "stop") == "stopping"
    synchronise(story.runtime)  # adds an event for the third, as for any change that failed
    settle(story)
    assert shown(story, third)["run_state"] == "started"
    assert shown(story, lease)["run_state"] == "started"
    assert shown(story, other)["run_state"] == "stopped"
    assert not story.ok("GET", f"/v2/leases/{lease['id']}")["degraded"]


def test_policy_protects_the_requests(story: Story) -> None:
    lease = create(story, "virtual:volume")
    strangers = {"alice:other:member": 404, "bob:admin:reader": 403}
    for token, status in strangers.items():
        for verb in ("start", "stop"):
            answer = story.call("POST", path(lease, verb), token=token)
            assert answer.status_code == status, (token, verb)
