"""The network plugin keeps the contract on a real Neutron, even if a call is interrupted."""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from oslo_config.cfg import ConfigOpts

from climate.config import registry as config_registry
from climate.core.errors import BackendUnavailable
from climate.core.lease.model import Reservation
from climate.plugins.base import ResourcePlugin
from climate.plugins.networking.addressing import Segment
from climate.plugins.networking.network import NetworkPlugin
from climate.plugins.networking.neutron_networks import NeutronNetworks
from tests.openstack import settings
from tests.openstack.accounts import Account
from tests.openstack.test_floatingip_plugin import FragileNeutron
from tests.plugins.contract import PluginContract, lease, resources
from tests.support import servers
from tests.support.process import write_config

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300)]

# Segments of these tests only.
NUMBERS = range(3901, 3905)


class OurNetworks(NeutronNetworks):
    """The networks on the tests' own segments."""

    def __init__(self, conf: ConfigOpts) -> None:
        super().__init__(conf)
        self.neutron: FragileNeutron = FragileNeutron(conf, "networks")

    def segments(self) -> Iterable[Segment]:
        return (
            Segment(network_type="vxlan", physical_network="", number=number) for number in NUMBERS
        )

    def networks(self) -> list[dict[str, Any]]:
        return self.neutron.find(**{"provider:segmentation_id": list(NUMBERS)})

    def clear(self) -> None:
        for item in self.occupants([str(segment) for segment in self.segments()]):
            self.delete(item)


def ours(plugin: ResourcePlugin) -> OurNetworks:
    assert isinstance(plugin, NetworkPlugin)
    assert isinstance(plugin.cloud, OurNetworks)
    return plugin.cloud


class TestNetworkPluginOnNeutron(PluginContract):
    example: ClassVar = {"network_name": "mine", "network_description": "for the tests"}

    @pytest.fixture
    def plugin(self, administrator: Account, tmp_path: Path) -> Iterator[NetworkPlugin]:
        options = settings.options(administrator, "blazar")
        path = write_config(tmp_path / "climate.conf", **options)
        conf = config_registry.new()
        config_registry.load(conf, "test", ["--config-file", str(path)])
        made = NetworkPlugin(conf, contextlib.nullcontext)
        made.cloud = cloud = OurNetworks(conf)
        cloud.clear()
        mine = self.reservation(made)
        try:
            cloud.create(lease(mine), mine, resources(made, 1)[0])
        except BackendUnavailable as error:
            servers.absent("openstack", f"this cloud has no such networks: {error.message}")
        cloud.clear()
        self.routers: list[str] = []
        yield made
        cloud.clear()
        for router in self.routers:
            cloud.neutron.send("DELETE", f"routers/{router}")

    def state(self, plugin: ResourcePlugin) -> Any:
        return sorted(
            [
                item["provider:segmentation_id"],
                item["project_id"],
                item["name"],
                item["description"],
                sorted(item["tags"]),
                len(item["subnets"]),
            ]
            for item in ours(plugin).networks()
        )

    @contextlib.contextmanager
    def failing_after(self, plugin: ResourcePlugin, effects: int) -> Iterator[None]:
        ours(plugin).neutron.left = effects
        yield
        ours(plugin).neutron.left = None

    def use(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        """Give the first network a subnet, a router and a port."""
        send = ours(plugin).neutron.send
        for network in ours(plugin).occupants([], reservation.id)[:1]:
            project = {"project_id": network.project_id}
            wanted = {"network_id": network.id, "ip_version": 4, "cidr": "10.98.0.0/24", **project}
            subnet = send("POST", "subnets", {"subnet": wanted}).json()["subnet"]["id"]
            router = send("POST", "routers", {"router": project}).json()["router"]["id"]
            self.routers.append(router)
            send("PUT", f"routers/{router}/add_router_interface", {"subnet_id": subnet})
            send("POST", "ports", {"port": {"network_id": network.id, **project}})

    def sabotage(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        for item in ours(plugin).occupants([], reservation.id):
            ours(plugin).delete(item)

    def test_a_kept_network_has_no_tag_of_its_reservation(self, plugin: NetworkPlugin) -> None:
        mine, given = self.reservation(plugin, on_end="keep"), resources(plugin, 1)
        plugin.start(lease(mine), mine, given)
        plugin.end(lease(mine), mine, given)
        assert self.state(plugin) == [[NUMBERS[0], "lab", "mine", "for the tests", [], 0]]

    def test_ignores_segments_of_another_type_with_the_same_numbers(
        self, plugin: NetworkPlugin
    ) -> None:
        mine = self.reservation(plugin)
        plugin.start(lease(mine), mine, resources(plugin, 1))
        assert len(ours(plugin).occupants([f"vxlan::{NUMBERS[0]}"])) == 1
        assert ours(plugin).occupants([f"vlan:physnet1:{NUMBERS[0]}"]) == []
