"""The instance plugin keeps the contract, on the simulated cloud."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from oslo_config.cfg import ConfigOpts

from climate import config
from climate.core.errors import Conflict
from climate.core.lease.model import Granted, Reservation
from climate.plugins.base import Drift, ExpectedState, HeldReservation, ResourcePlugin
from climate.plugins.hosts.plugin import HostPlugin
from climate.plugins.instances.flavor_plugin import FlavorPlugin
from climate.plugins.instances.plugin import InstancePlugin
from climate.plugins.instances.simulated import SimulatedInstances
from tests.contract.plugin import Interrupted, PluginContract, lease, resources


class FragileInstances(SimulatedInstances):
    """A simulated cloud that can be told when to fail."""

    left: int | None = None

    def _act(self, effect: str, reservation_id: str, **details: str) -> None:
        if self.left == 0:
            raise Interrupted(effect)
        if self.left is not None:
            self.left -= 1
        super()._act(effect, reservation_id, **details)


@pytest.fixture
def conf(tmp_path: Path) -> ConfigOpts:
    made = config.new()
    config.load(made, "test", [])
    made.set_override("journal", str(tmp_path / "cloud"), group="simulated")
    return made


@pytest.fixture
def hosts(conf: ConfigOpts) -> HostPlugin:
    return HostPlugin(conf, contextlib.nullcontext)


class SlotContract(PluginContract):
    """The contract of plugins whose reservations are slots on hosts."""

    #: What one unit of the example takes.
    amounts: ClassVar[dict[str, int]]
    taken: ClassVar = HostPlugin.resource_type

    def granted(self, plugin: ResourcePlugin, count: int) -> Sequence[Granted]:
        found = resources(self.hosts, count)
        shares = ({name: n * one.id for name, n in self.amounts.items()} for one in found)
        return tuple(replace(one, amounts=mine) for one, mine in zip(found, shares, strict=True))

    @pytest.fixture(autouse=True)
    def _hosts(self, hosts: HostPlugin) -> None:
        self.hosts = hosts

    def test_all_that_there_is_can_be_found(self, plugin: ResourcePlugin) -> None:
        """Nothing of this type is registered; hosts are."""
        assert list(plugin.inventory()) == []

    def test_what_is_not_there_is_not_found(self, plugin: ResourcePlugin) -> None:
        with pytest.raises(Conflict, match="register hosts"):
            plugin.find(name="no such thing")


class TestInstancePlugin(SlotContract):
    example: ClassVar = {
        "amount": "6",
        "vcpus": 2,
        "memory_mb": "1024",
        "disk_gb": 0,
        "affinity": "None",
        "resource_properties": {"resources:CUSTOM_GPU": "1", "trait:CUSTOM_GPU_HOST": "required"},
    }
    amounts: ClassVar = {"VCPU": 2, "MEMORY_MB": 1024, "CUSTOM_GPU": 1}

    @pytest.fixture
    def plugin(self, conf: ConfigOpts) -> InstancePlugin:
        made = InstancePlugin(conf, contextlib.nullcontext)
        made.cloud = FragileInstances(conf)
        return made

    def state(self, plugin: ResourcePlugin) -> Any:
        return {
            id_: [sorted(one.projects), dict(sorted(one.hosts.items()))]
            for id_, one in cloud(plugin).slots().items()
        }

    @contextlib.contextmanager
    def failing_after(self, plugin: ResourcePlugin, effects: int) -> Iterator[None]:
        cloud(plugin).left = effects
        yield
        cloud(plugin).left = None

    def use(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        """Nobody boots in the simulated cloud."""

    def sabotage(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        cloud(plugin).delete_slots(reservation.id)

    def test_each_host_has_as_many_slots_as_were_taken_of_it(self, plugin: ResourcePlugin) -> None:
        mine = self.reservation(plugin)
        told = plugin.start(lease(mine), mine, self.granted(plugin, 3))
        assert cloud(plugin).slots()[mine.id].hosts == {"sim-1": 1, "sim-2": 2, "sim-3": 3}
        assert told["flavor_id"] == mine.id

    def test_a_host_that_fails_keeps_its_slots_and_one_that_is_not_its_own_does_not(
        self, plugin: ResourcePlugin
    ) -> None:
        mine, (first, second, third) = self.reservation(plugin), self.granted(plugin, 3)
        plugin.start(lease(mine), mine, [first, second])
        plugin.start(lease(mine), mine, [replace(second, reservable=False), third])
        assert cloud(plugin).slots()[mine.id].hosts == {"sim-2": 2, "sim-3": 3}

    def test_the_audit_knows_what_is_missing_and_what_is_left(self, plugin: ResourcePlugin) -> None:
        mine, left, given = *(self.reservation(plugin) for _ in "ab"), self.granted(plugin, 2)
        for one in (mine, left):
            plugin.start(lease(one), one, given)
        expected = ExpectedState((), (HeldReservation(lease(mine), mine, given),), ())
        [stale] = plugin.audit(lambda: expected)
        assert (stale.reservation_id, stale.lease_id) == (left.id, None)
        stale.repair()
        assert list(plugin.audit(lambda: expected)) == []
        cloud(plugin).clear_host(mine.id, "sim-2")
        cloud(plugin).set_slots(mine.id, "sim-4", 1)
        cloud(plugin).close_slots(mine.id)
        found: list[Drift] = list(plugin.audit(lambda: expected))
        assert [one.description.partition(mine.lease_id)[2] for one in found] == [
            " is open to no project, not to lab alone",
            " has 0 slots on sim-2, not 2",
            " has slots on sim-4, which is not its own",
        ]
        assert {one.lease_id for one in found} == {mine.lease_id}
        assert list(plugin.audit(lambda: ExpectedState((), (), (mine.id,)))) == []


def cloud(plugin: ResourcePlugin) -> FragileInstances:
    assert isinstance(plugin, InstancePlugin)
    assert isinstance(plugin.cloud, FragileInstances)
    return plugin.cloud


class TestInstancePluginWithServers(TestInstancePlugin):
    """Servers are booted once each, and images kept once, whatever is interrupted."""

    example: ClassVar = {
        **TestInstancePlugin.example,
        "on_start": "create",
        "on_end": "snapshot",
        "server": {"imageRef": "cirros", "networks": [{"uuid": "1"}], "metadata": {"a": "b"}},
    }

    def state(self, plugin: ResourcePlugin) -> Any:
        there = cloud(plugin).slots()
        return super().state(plugin), {id_: cloud(plugin).slot_servers(id_) for id_ in there}

    def test_the_audit_knows_what_is_missing_and_what_is_left(self, plugin: ResourcePlugin) -> None:
        left = self.reservation(plugin)
        plugin.start(lease(left), left, self.granted(plugin, 2))
        [stale] = plugin.audit(lambda: ExpectedState((), (), ()))
        assert f"{left.id}-6" in stale.description
        assert stale.repair is None

    def test_servers_that_are_there_are_left_alone(self, plugin: ResourcePlugin) -> None:
        mine, given = self.reservation(plugin), self.granted(plugin, 3)
        told = plugin.start(lease(mine), mine, given)
        assert len(told["servers"]) == 6
        more = replace(mine, details=told, params={**mine.params, "amount": 7})
        again = plugin.start(lease(more), more, given)
        assert again["servers"][:6] == told["servers"]
        assert len(again["servers"]) == 7


class TestFlavorPlugin(TestInstancePlugin):
    """Instances of a flavor are handed over and taken back as others are."""

    example: ClassVar = {"flavor_id": "gpu", "amount": "6", "affinity": "None"}
    amounts: ClassVar = {"VCPU": 4, "MEMORY_MB": 8192, "DISK_GB": 80, "CUSTOM_GPU": 1}

    @pytest.fixture
    def plugin(self, conf: ConfigOpts) -> FlavorPlugin:
        made = FlavorPlugin(conf, contextlib.nullcontext)
        made.cloud = FragileInstances(conf)
        return made
