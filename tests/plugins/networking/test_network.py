"""The network plug-in on the simulated cloud."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from marshmallow import ValidationError

from climate.config import registry as config_registry
from climate.core.errors import Conflict, NotFound
from climate.core.lease.model import Reservation
from climate.core.matching.query import matches
from climate.plugins.base import ResourcePlugin
from climate.plugins.networking.addressing import Segment
from climate.plugins.networking.network import NetworkPlugin
from climate.plugins.networking.simulated import SimulatedNetworks
from tests.plugins.contract import PluginContract, lease, resources
from tests.plugins.fragile import FragileCloud
from tests.support.cases import each_case

FIRST = "vlan:sim:101"


@pytest.fixture
def plugin(tmp_path: Path) -> NetworkPlugin:
    conf = config_registry.new()
    config_registry.load(conf, "test", [])
    conf.set_override("journal", str(tmp_path / "cloud"), group="simulated")
    created = NetworkPlugin(conf, contextlib.nullcontext)
    cloud(created).journal = FragileCloud(conf)
    return created


def cloud(plugin: ResourcePlugin) -> SimulatedNetworks:
    assert isinstance(plugin, NetworkPlugin)
    assert isinstance(plugin.cloud, SimulatedNetworks)
    return plugin.cloud


class TestNetworkPlugin(PluginContract):
    example: ClassVar = {
        "network_name": "mine",
        "network_properties": ["==", "$network_type", "vlan"],
        "resource_properties": '["==", "$speed", "10"]',
    }

    @pytest.fixture
    def plugin(self, plugin: NetworkPlugin) -> NetworkPlugin:
        return plugin

    def state(self, plugin: ResourcePlugin) -> Any:
        return sorted(
            [item.endpoint, item.project_id, item.reservation_id, item.is_marked, item.port_id]
            for item in cloud(plugin).occupants_by_id().values()
        )

    @contextlib.contextmanager
    def failing_after(self, plugin: ResourcePlugin, effects: int) -> Iterator[None]:
        cloud(plugin).journal.left = effects  # type: ignore[attr-defined]
        yield
        cloud(plugin).journal.left = None  # type: ignore[attr-defined]

    def use(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        for item in cloud(plugin).occupants([], reservation.id):
            cloud(plugin).use(item.id, "a port")

    def sabotage(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        for item in cloud(plugin).occupants([], reservation.id):
            cloud(plugin).delete(item)


def reservation(plugin: NetworkPlugin, **params: Any) -> Reservation:
    return TestNetworkPlugin().reservation(plugin, **params)


def test_a_segment_matches_both_expressions(plugin: NetworkPlugin) -> None:
    needs = plugin.requirement(reservation(plugin).params)
    assert (needs.minimum, needs.maximum) == (1, 1)
    assert matches(needs.query, {"network_type": "vlan", "speed": "10"})
    assert not matches(needs.query, {"network_type": "vxlan", "speed": "10"})
    assert not matches(needs.query, {"network_type": "vlan", "speed": "1"})


@each_case("params", [{"network_name": ""}, {"network_name": None}, {"on_end": "x"}])
def test_rejects_invalid_params(plugin: NetworkPlugin, params: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        reservation(plugin, **params)


@each_case(
    "text", ["vlan:sim:1", "vlan:a:b:4094", "vxlan::16777215", "geneve::1", "gre::4294967295"]
)
def test_parses_segments(text: str) -> None:
    assert str(Segment.parse(text)) == text


@each_case(
    "text",
    [
        "",
        "vlan",
        "vlan::1",
        "vlan:sim:",
        "vlan:sim:0",
        "vlan:sim:4095",
        "vlan:sim:x",
        "flat:sim:1",
        "vxlan:sim:1",
        "vxlan::16777216",
        "vlan:sim:-1",
        f"gre::{10**40}",
    ],
)
def test_rejects_the_registration_of_an_invalid_segment(plugin: NetworkPlugin, text: str) -> None:
    with pytest.raises(NotFound):
        plugin.find(name=text)


def test_a_segment_in_use_can_be_neither_registered_nor_used(plugin: NetworkPlugin) -> None:
    cloud(plugin).occupy(FIRST, "somebody")
    with pytest.raises(Conflict, match=rf"{FIRST} is taken by network .* of project somebody"):
        plugin.find(name=FIRST)
    usable = {item.external_id: item.usable for item in plugin.refresh(resources(plugin, 2))}
    assert usable == {FIRST: False, "vlan:sim:102": True}


def test_a_network_can_be_left_to_the_project_or_kept(plugin: NetworkPlugin) -> None:
    promised, granted = reservation(plugin, on_start="nothing"), resources(plugin, 1)
    assert plugin.start(lease(promised), promised, granted) == {}
    assert cloud(plugin).occupants_by_id() == {}
    kept = reservation(plugin, on_end="keep")
    kept = replace(kept, details=plugin.start(lease(kept), kept, granted))
    plugin.end(lease(kept), kept, granted)
    [network] = cloud(plugin).occupants_by_id().values()
    assert {FIRST: network.id} == kept.details["networks"]
    assert network.reservation_id is None
