"""The host plugin keeps the contract, on the simulated cloud."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from oslo_config.cfg import ConfigOpts

from climate import config
from climate.core.errors import Conflict
from climate.core.lease.model import Reservation
from climate.plugins.base import ResourcePlugin
from climate.plugins.hosts.plugin import HostPlugin
from climate.plugins.hosts.simulated import SimulatedCloud
from tests.contract.plugin import Interrupted, PluginContract, lease, resources


class FragileCloud(SimulatedCloud):
    """A simulated cloud that can be told when to fail."""

    left: int | None = None

    def act(self, name: str, **details: str) -> None:
        if self.left == 0:
            raise Interrupted(name)
        if self.left is not None:
            self.left -= 1
        super().act(name, **details)


@pytest.fixture
def conf(tmp_path: Path) -> ConfigOpts:
    made = config.new()
    config.load(made, "test", [])
    made.set_override("journal", str(tmp_path / "cloud"), group="simulated")
    return made


class TestHostPlugin(PluginContract):
    example: ClassVar = {
        "min": "1",
        "max": 3,
        "hypervisor_properties": '[">=", "$vcpus", "16"]',
        "resource_properties": ["or", ["==", "$gpu", "True"], ["not", ["==", "$rack", "r1"]]],
        "before_end": "snapshot",
    }

    @pytest.fixture
    def plugin(self, conf: ConfigOpts) -> HostPlugin:
        made = HostPlugin(conf, contextlib.nullcontext)
        made.cloud = FragileCloud(conf)
        return made

    def state(self, plugin: ResourcePlugin) -> Any:
        with cloud(plugin).locked() as world:
            return {
                "pools": {pool: sorted(hosts) for pool, hosts in sorted(world.pools.items())},
                "servers": {host: sorted(ids) for host, ids in sorted(world.servers.items())},
            }

    @contextlib.contextmanager
    def failing_after(self, plugin: ResourcePlugin, effects: int) -> Iterator[None]:
        cloud(plugin).left = effects
        yield
        cloud(plugin).left = None

    def use(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        for host in cloud(plugin).pool_hosts(reservation.id):
            for number in range(2):
                cloud(plugin).boot_server(host, f"{reservation.id}-{number}")

    def sabotage(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        for host in cloud(plugin).pool_hosts(reservation.id):
            cloud(plugin).delete_servers(reservation.id, host)
            cloud(plugin).remove_host(reservation.id, host)
        cloud(plugin).delete_pool(reservation.id)


def cloud(plugin: ResourcePlugin) -> FragileCloud:
    assert isinstance(plugin, HostPlugin)
    assert isinstance(plugin.cloud, FragileCloud)
    return plugin.cloud


@pytest.fixture
def plugin(conf: ConfigOpts) -> HostPlugin:
    return HostPlugin(conf, contextlib.nullcontext)


def reservation(plugin: HostPlugin, **params: Any) -> Reservation:
    return TestHostPlugin().reservation(plugin, **params)


def snapshots(plugin: HostPlugin) -> list[str]:
    return [done["server"] for done in plugin.cloud.effects() if done["effect"] == "snapshot"]


@pytest.mark.parametrize(
    ("configured", "asked", "kept"),
    [
        ("", "snapshot", ["vm"]),
        ("", "default", []),
        ("", "", []),
        ("snapshot", "default", ["vm"]),
        ("snapshot", None, ["vm"]),
        ("snapshot", "", []),
    ],
)
def test_servers_are_kept_as_images_if_that_was_asked_for(
    conf: ConfigOpts, configured: str, asked: str | None, kept: list[str]
) -> None:
    conf.set_override("before_end", configured, group="physical:host")
    plugin = HostPlugin(conf, contextlib.nullcontext)
    mine, given = reservation(plugin, before_end=asked), resources(plugin, 1)
    plugin.start(lease(mine), mine, given)
    plugin.cloud.boot_server(given[0].external_id, "vm")
    plugin.before_end(lease(mine), mine, given)
    assert snapshots(plugin) == kept


def test_servers_of_users_are_deleted_before_the_host_is_given_back(plugin: HostPlugin) -> None:
    mine, given = reservation(plugin), resources(plugin, 1)
    plugin.start(lease(mine), mine, given)
    plugin.cloud.boot_server(given[0].external_id, "vm")
    plugin.end(lease(mine), mine, given)
    done = [effect["effect"] for effect in plugin.cloud.effects()]
    assert done[-3:] == ["delete_servers", "remove_host", "delete_pool"]


def test_a_host_that_the_lease_holds_no_more_is_given_back_as_well(plugin: HostPlugin) -> None:
    mine, given = reservation(plugin), resources(plugin, 2)
    plugin.start(lease(mine), mine, given)
    plugin.cloud.boot_server(given[1].external_id, "vm")
    plugin.end(lease(mine), mine, given[:1])
    assert plugin.cloud.pool_hosts(mine.id) == []
    assert plugin.cloud.servers(given[1].external_id) == []


def test_a_host_of_another_pool_is_not_taken(plugin: HostPlugin) -> None:
    mine, theirs, given = reservation(plugin), reservation(plugin), resources(plugin, 1)
    plugin.start(lease(theirs), theirs, given)
    with pytest.raises(RuntimeError, match="still in pool"):
        plugin.start(lease(mine), mine, given)
    assert plugin.cloud.pool_hosts(theirs.id) == ["sim-1"]


def test_a_host_is_found_by_name_or_number(plugin: HostPlugin) -> None:
    assert plugin.find(name="sim-2") == plugin.find(external_number="2")


def test_a_host_with_servers_cannot_be_registered(plugin: HostPlugin) -> None:
    plugin.cloud.boot_server("sim-2", "vm")
    with pytest.raises(Conflict, match="vm"):
        plugin.find(name="sim-2")
