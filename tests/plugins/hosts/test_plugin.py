"""The host plug-in on the simulated cloud."""

import contextlib
from typing import Any, ClassVar

import pytest
from oslo_config.cfg import ConfigOpts

from climate.core.errors import Conflict
from climate.core.lease.model import Reservation
from climate.plugins.base import ResourcePlugin
from climate.plugins.hosts.plugin import HostPlugin
from climate.plugins.hosts.simulated import SimulatedCloud
from tests.plugins.contract import lease, resources
from tests.plugins.fragile import FragileCloud, SimulatedContract


class TestHostPlugin(SimulatedContract):
    example: ClassVar = {
        "min": "1",
        "max": 3,
        "hypervisor_properties": '[">=", "$vcpus", "16"]',
        "resource_properties": ["or", ["==", "$gpu", "True"], ["not", ["==", "$rack", "r1"]]],
        "before_end": "snapshot",
    }

    @pytest.fixture
    def plugin(self, conf: ConfigOpts) -> HostPlugin:
        created = HostPlugin(conf, contextlib.nullcontext)
        created.cloud = FragileCloud(conf)
        return created

    def state(self, plugin: ResourcePlugin) -> Any:
        with cloud(plugin).locked() as world:
            return {
                "pools": {pool: sorted(hosts) for pool, hosts in sorted(world.pools.items())},
                "servers": {host: sorted(ids) for host, ids in sorted(world.servers.items())},
            }

    def use(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        for host in cloud(plugin).pool_hosts(reservation.id):
            for number in range(2):
                cloud(plugin).boot_server(host, f"{reservation.id}-{number}")

    def sabotage(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        for host in cloud(plugin).pool_hosts(reservation.id):
            cloud(plugin).delete_servers(reservation.id, host)
            cloud(plugin).remove_host(reservation.id, host)
        cloud(plugin).delete_pool(reservation.id)


def cloud(plugin: ResourcePlugin) -> SimulatedCloud:
    assert isinstance(plugin, HostPlugin)
    assert isinstance(plugin.cloud, SimulatedCloud)
    return plugin.cloud


@pytest.fixture
def plugin(conf: ConfigOpts) -> HostPlugin:
    return HostPlugin(conf, contextlib.nullcontext)


def reservation(plugin: HostPlugin, **params: Any) -> Reservation:
    return TestHostPlugin().reservation(plugin, **params)


def snapshots(plugin: HostPlugin) -> list[str]:
    return [done["server"] for done in cloud(plugin).effects() if done["effect"] == "snapshot"]


@pytest.mark.parametrize(
    ("configured", "requested", "kept"),
    [
        ("", "snapshot", ["vm"]),
        ("", "default", []),
        ("", "", []),
        ("snapshot", "default", ["vm"]),
        ("snapshot", None, ["vm"]),
        ("snapshot", "", []),
    ],
)
def test_keeps_servers_as_images_if_requested(
    conf: ConfigOpts, configured: str, requested: str | None, kept: list[str]
) -> None:
    conf.set_override("before_end", configured, group="physical:host")
    plugin = HostPlugin(conf, contextlib.nullcontext)
    held, granted = reservation(plugin, before_end=requested), resources(plugin, 1)
    plugin.start(lease(held), held, granted)
    cloud(plugin).boot_server(granted[0].external_id, "vm")
    plugin.before_end(lease(held), held, granted)
    assert snapshots(plugin) == kept


def test_deletes_servers_before_it_releases_the_host(plugin: HostPlugin) -> None:
    held, granted = reservation(plugin), resources(plugin, 1)
    plugin.start(lease(held), held, granted)
    cloud(plugin).boot_server(granted[0].external_id, "vm")
    plugin.end(lease(held), held, granted)
    done = [effect["effect"] for effect in cloud(plugin).effects()]
    assert done[-3:] == ["delete_servers", "remove_host", "delete_pool"]


def test_releases_a_host_that_the_lease_no_longer_holds(plugin: HostPlugin) -> None:
    held, granted = reservation(plugin), resources(plugin, 2)
    plugin.start(lease(held), held, granted)
    cloud(plugin).boot_server(granted[1].external_id, "vm")
    plugin.end(lease(held), held, granted[:1])
    assert cloud(plugin).pool_hosts(held.id) == []
    assert cloud(plugin).servers(granted[1].external_id) == []


def test_rejects_a_host_of_another_pool(plugin: HostPlugin) -> None:
    held, theirs, granted = reservation(plugin), reservation(plugin), resources(plugin, 1)
    plugin.start(lease(theirs), theirs, granted)
    with pytest.raises(RuntimeError, match="still in pool"):
        plugin.start(lease(held), held, granted)
    assert cloud(plugin).pool_hosts(theirs.id) == ["sim-1"]


def test_finds_a_host_by_name_or_number(plugin: HostPlugin) -> None:
    assert plugin.find(name="sim-2") == plugin.find(external_number="2")


def test_rejects_the_registration_of_a_host_with_servers(plugin: HostPlugin) -> None:
    cloud(plugin).boot_server("sim-2", "vm")
    with pytest.raises(Conflict, match="vm"):
        plugin.find(name="sim-2")
