"""The instance and flavor plug-ins on the simulated cloud."""

import contextlib
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from oslo_config.cfg import ConfigOpts

from climate.core.lease.model import Reservation
from climate.plugins.base import Drift, ExpectedState, HeldReservation, ResourcePlugin
from climate.plugins.hosts.plugin import HostPlugin
from climate.plugins.instances.flavor_plugin import FlavorPlugin
from climate.plugins.instances.plugin import InstancePlugin
from climate.plugins.instances.simulated import SimulatedInstances
from tests.plugins.contract import Interrupted, ParamsContract, lease, resources
from tests.plugins.fragile import SimulatedContract
from tests.plugins.instances.contract import SlotContract


class FragileInstances(SimulatedInstances):
    """A simulated cloud that fails after ``left`` changes."""

    left: int | None = None

    def _act(self, effect: str, reservation_id: str, **details: str) -> None:
        if self.left == 0:
            raise Interrupted(effect)
        if self.left is not None:
            self.left -= 1
        super()._act(effect, reservation_id, **details)


@pytest.fixture
def hosts(conf: ConfigOpts) -> HostPlugin:
    return HostPlugin(conf, contextlib.nullcontext)


class InstanceContract(SimulatedContract, SlotContract):
    """The contract on the simulated cloud."""

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
        created = InstancePlugin(conf, contextlib.nullcontext)
        created.cloud = FragileInstances(conf)
        return created

    def state(self, plugin: ResourcePlugin) -> Any:
        return {
            id_: [sorted(item.projects), dict(sorted(item.hosts.items()))]
            for id_, item in cloud(plugin).slots().items()
        }

    def use(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        """Users do not boot servers in the simulated cloud."""

    def sabotage(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        cloud(plugin).delete_slots(reservation.id)


class TestInstancePlugin(InstanceContract):
    def test_each_host_has_the_slots_that_were_allocated_on_it(
        self, plugin: ResourcePlugin
    ) -> None:
        reservation = self.reservation(plugin)
        details = plugin.start(lease(reservation), reservation, self.granted(plugin, 3))
        assert cloud(plugin).slots()[reservation.id].hosts == {"sim-1": 1, "sim-2": 2, "sim-3": 3}
        assert details["flavor_id"] == reservation.id

    def test_a_failed_host_keeps_its_slots_and_a_removed_host_loses_them(
        self, plugin: ResourcePlugin
    ) -> None:
        reservation, (first, second, third) = self.reservation(plugin), self.granted(plugin, 3)
        plugin.start(lease(reservation), reservation, [first, second])
        plugin.start(lease(reservation), reservation, [replace(second, reservable=False), third])
        assert cloud(plugin).slots()[reservation.id].hosts == {"sim-2": 2, "sim-3": 3}

    def test_the_audit_reports_missing_and_stale_slots(self, plugin: ResourcePlugin) -> None:
        reservation, left, granted = (
            *(self.reservation(plugin) for _ in "ab"),
            self.granted(plugin, 2),
        )
        for item in (reservation, left):
            plugin.start(lease(item), item, granted)
        expected = ExpectedState(
            (), (HeldReservation(lease(reservation), reservation, granted),), ()
        )
        [stale] = plugin.audit(lambda: expected)
        assert (stale.reservation_id, stale.lease_id) == (left.id, None)
        assert stale.repair is not None
        stale.repair()
        assert list(plugin.audit(lambda: expected)) == []
        cloud(plugin).clear_host(reservation.id, "sim-2")
        cloud(plugin).set_slots(reservation.id, "sim-4", 1)
        cloud(plugin).close_slots(reservation.id)
        drifts: list[Drift] = list(plugin.audit(lambda: expected))
        assert [item.description.partition(reservation.lease_id)[2] for item in drifts] == [
            " is open to no project, not to lab alone",
            " has 0 slots on sim-2, not 2",
            " has slots on sim-4, which is not its own",
        ]
        assert {item.lease_id for item in drifts} == {reservation.lease_id}
        assert list(plugin.audit(lambda: ExpectedState((), (), (reservation.id,)))) == []


def cloud(plugin: ResourcePlugin) -> FragileInstances:
    assert isinstance(plugin, InstancePlugin)
    assert isinstance(plugin.cloud, FragileInstances)
    return plugin.cloud


class TestInstancePluginWithServers(InstanceContract):
    """Interruptions never boot a server twice, or keep an image twice."""

    example: ClassVar = {
        **InstanceContract.example,
        "on_start": "create",
        "on_end": "snapshot",
        "server": {"imageRef": "cirros", "networks": [{"uuid": "1"}], "metadata": {"a": "b"}},
    }

    def state(self, plugin: ResourcePlugin) -> Any:
        slots = cloud(plugin).slots()
        return super().state(plugin), {id_: cloud(plugin).slot_servers(id_) for id_ in slots}

    def test_the_audit_reports_stale_servers_without_a_repair(self, plugin: ResourcePlugin) -> None:
        left = self.reservation(plugin)
        plugin.start(lease(left), left, self.granted(plugin, 2))
        [stale] = plugin.audit(lambda: ExpectedState((), (), ()))
        assert f"{left.id}-6" in stale.description
        assert stale.repair is None

    def test_existing_servers_stay_when_the_reservation_grows(self, plugin: ResourcePlugin) -> None:
        reservation, granted = self.reservation(plugin), self.granted(plugin, 3)
        details = plugin.start(lease(reservation), reservation, granted)
        assert len(details["servers"]) == 6
        more = replace(reservation, details=details, params={**reservation.params, "amount": 7})
        again = plugin.start(lease(more), more, granted)
        assert again["servers"][:6] == details["servers"]
        assert len(again["servers"]) == 7


class TestFlavorPlugin(ParamsContract):
    """Its start and end are those of the instance plug-in."""

    example: ClassVar = {"flavor_id": "gpu", "amount": "6", "affinity": "None"}
    taken: ClassVar = HostPlugin.resource_type

    @pytest.fixture
    def plugin(self, conf: ConfigOpts) -> FlavorPlugin:
        plugin = FlavorPlugin(conf, contextlib.nullcontext)
        plugin.cloud = FragileInstances(conf)
        return plugin

    def test_start_and_end_leave_no_trace(self, plugin: FlavorPlugin, hosts: HostPlugin) -> None:
        amounts = {"VCPU": 4, "MEMORY_MB": 8192, "DISK_GB": 80, "CUSTOM_GPU": 1}
        reservation = self.reservation(plugin)
        granted = [replace(host, amounts=amounts) for host in resources(hosts, 2)]
        plugin.start(lease(reservation), reservation, granted)
        assert cloud(plugin).slots()[reservation.id].hosts == {"sim-1": 1, "sim-2": 1}
        plugin.end(lease(reservation), reservation, granted)
        assert cloud(plugin).slots() == {}
