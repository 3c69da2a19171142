"""Devices: leases of instances and hosts book the devices that their extra specs request."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from climate.manager.audit import cloud as audit
from climate.manager.resources import inventory_sync as inventory
from tests.conftest import MakeStory
from tests.support.bodies import change_of, copy_hosts, instances
from tests.support.service import Story, host_reservation

PLUGINS = ["physical.host.plugin", "virtual.instance.plugin", "flavor.instance.plugin"]
COUNTED: Mapping[str, Any] = {
    "nova__pci_aliases": {"gpu": "CUSTOM_GPU", "a100": "CUSTOM_GPU", "nic": "CUSTOM_NIC"},
    "nova__device_profiles": {"gpu": {"CUSTOM_GPU": 1}, "fpga": {"FPGA": 1}},
}
ALIAS, PROFILE = "pci_passthrough:alias", "accel:device_profile"


@pytest.fixture
def uncounted(make_story: MakeStory, hosts_template: Path, tmp_path: Path) -> Story:
    """Return a service that counts no devices; its host sim-4 has two GPUs."""
    copy_hosts(hosts_template, tmp_path)
    return make_story(manager__plugins=PLUGINS)


@pytest.fixture
def story(uncounted: Story, make_story: MakeStory) -> Story:
    """Return a service that counts GPUs, NICs and FPGAs; its host sim-4 has two GPUs."""
    return make_story(manager__plugins=PLUGINS, **COUNTED)


def with_gpu(amount: int = 1) -> dict[str, Any]:
    """Return a request for instances of the simulated flavor with the alias ``gpu:1``."""
    return {"resource_type": "flavor:instance", "flavor_id": "pci", "amount": amount}


def of_profile(amount: int = 1) -> dict[str, Any]:
    """Return a request for instances of the simulated flavor with the device profile ``gpu``."""
    return {**with_gpu(amount), "flavor_id": "accel"}


def request(story: Story, *reservations: dict[str, Any], start: float = 60) -> Any:
    body = story.lease_body(start, start + 60, reservations=list(reservations))
    return story.call("POST", "/v1/leases", body)


def set_devices(story: Story, host: int, number: str, name: str = "CUSTOM_GPU") -> None:
    story.ok("PUT", f"/v1/os-hosts/{host}", {f"resources:{name}": number})
    inventory.synchronise(story.runtime)


def test_two_leases_never_have_the_same_device(story: Story) -> None:
    assert request(story, with_gpu(3)).status_code == 409
    lease = story.reserve(reservations=[with_gpu()])
    assert request(story, with_gpu(2)).status_code == 409
    assert request(story, with_gpu(), with_gpu()).status_code == 409
    assert request(story, with_gpu()).status_code == 201
    assert request(story, with_gpu()).status_code == 409
    assert request(story, with_gpu(2), start=120).status_code == 201
    path = f"/v1/leases/{lease['id']}"
    story.refused(409, "PUT", path, {"reservations": change_of(lease, amount=2)})
    assert story.hosts_of(lease["id"]) == ["4"]


def test_an_alias_and_a_profile_share_the_devices_of_their_class(story: Story) -> None:
    assert request(story, of_profile(2), with_gpu()).status_code == 409
    assert request(story, of_profile(), with_gpu()).status_code == 201
    assert [request(story, each).status_code for each in (of_profile(), with_gpu())] == [409, 409]
    assert request(story, of_profile(2), start=120).status_code == 201


def test_a_class_that_only_a_profile_names_is_declared_and_booked(story: Story) -> None:
    fpga = instances(match="open", resource_properties={PROFILE: "fpga"})
    assert request(story, fpga).status_code == 409
    set_devices(story, 2, "1", "FPGA")
    lease = story.reserve(reservations=[fpga])
    assert story.hosts_of(lease["id"]) == ["2"]
    whole = host_reservation(1, 1, resource_properties={PROFILE: "fpga"})
    assert request(story, whole).status_code == 409
    assert request(story, whole, start=120).status_code == 201


def test_an_operator_declares_the_devices_of_a_host(story: Story) -> None:
    path = "/v1/os-hosts/1"
    assert "resources:CUSTOM_GPU must be a whole number" in story.refused(
        400, "PUT", path, {"resources:CUSTOM_GPU": "two"}
    )
    set_devices(story, 1, "1")
    assert request(story, with_gpu(4)).status_code == 409
    lease = story.reserve(reservations=[with_gpu(3)])
    assert sorted(story.hosts_of(lease["id"])) == ["1", "4"]
    story.at(60)
    assert story.lease(lease["id"])["status"] == "ACTIVE"
    assert audit.audit(story.runtime) == []


def test_devices_of_a_failed_host_come_from_another_host(story: Story) -> None:
    set_devices(story, 2, "2")
    lease = story.reserve(30, 90, reservations=[with_gpu(2)])
    (before,) = story.hosts_of(lease["id"])
    story.cloud.fail_host(f"sim-{before}")
    inventory.synchronise(story.runtime)
    assert story.hosts_of(lease["id"]) == [{"4": "2", "2": "4"}[before]]
    assert request(story, with_gpu()).status_code == 409


def test_a_whole_host_has_the_devices_that_its_extra_specs_request(story: Story) -> None:
    specs = {ALIAS: "gpu:1", PROFILE: "gpu"}
    lease = story.reserve(reservations=[host_reservation(1, 1, resource_properties=specs)])
    assert story.hosts_of(lease["id"]) == ["4"]
    assert request(story, with_gpu()).status_code == 409
    for more in ({ALIAS: "gpu:2,a100:1"}, {ALIAS: "gpu:2", PROFILE: "gpu"}):
        assert request(story, host_reservation(1, 1, resource_properties=more)).status_code == 409


def test_devices_that_climate_does_not_count_are_refused(story: Story) -> None:
    aliases = [(ALIAS, value) for value in ("fpga:1", "gpu:1,fpga:1", "gpu:one", "gpu")]
    for key, value in (*aliases, (PROFILE, "other")):
        answer = request(story, host_reservation(1, 1, resource_properties={key: value}))
        assert (answer.status_code, value) == (400, value)
        assert "the operator counts no such devices" in answer.text


def test_users_do_not_grant_devices_to_their_servers(story: Story) -> None:
    classes = ({f"resources:{name}": "1"} for name in ("CUSTOM_GPU", "FPGA"))
    for specs in ({ALIAS: "gpu:1"}, {PROFILE: "gpu"}, *classes):
        answer = request(story, instances(resource_properties=specs))
        assert answer.status_code == 400
        assert "reserve instances of a flavor with these devices" in answer.text
    openly = instances(2, match="open", resource_properties={ALIAS: "gpu:1"})
    lease = story.reserve(reservations=[openly])
    assert story.hosts_of(lease["id"]) == ["4"]


def test_the_flavor_that_climate_creates_has_no_devices(story: Story) -> None:
    plugin: Any = story.runtime.plugins["virtual:instance"]
    # With a filter of Nova, or from before the count, a reservation can have such specs.
    specs = {f"resources:{name}": "1" for name in ("CUSTOM_GPU", "FPGA", "CUSTOM_OTHER")}
    amounts = plugin.size(instances(resource_properties=specs)).amounts
    assert amounts == {"VCPU": 4, "MEMORY_MB": 1024, "DISK_GB": 10, "CUSTOM_OTHER": 1}


def test_a_lease_from_before_the_count_keeps_its_hosts(
    uncounted: Story, make_story: MakeStory
) -> None:
    first = uncounted.reserve(0, 120, reservations=[with_gpu(2)])
    second = uncounted.reserve(0, 120, reservations=[with_gpu()])
    uncounted.at(0)
    hosts = uncounted.hosts_of(first["id"])
    counted = make_story(manager__plugins=PLUGINS, **COUNTED)
    assert audit.audit(counted.runtime) == []
    inventory.synchronise(counted.runtime)
    assert counted.hosts_of(first["id"]) == hosts
    assert counted.lease(second["id"])["status"] == "ACTIVE"
    path = f"/v1/leases/{first['id']}"
    longer = {"end_date": counted.date(180)}
    answers = [counted.call("PUT", f"/v1/leases/{each['id']}", longer) for each in (first, second)]
    assert 409 in {answer.status_code for answer in answers}
    counted.at(10)
    counted.ok("PUT", path, {"end_date": "now"})
    counted.run()
    assert counted.lease(first["id"])["status"] == "TERMINATED"
