"""The network plug-in on the simulated cloud."""

from dataclasses import replace
from typing import Any, ClassVar

import pytest
from marshmallow import ValidationError
from oslo_config.cfg import ConfigOpts

from climate.core.errors import Conflict, NotFound
from climate.core.lease.model import Reservation
from climate.core.matching.query import matches
from climate.plugins.base import ResourcePlugin
from climate.plugins.networking.addressing import Segment
from climate.plugins.networking.network import NetworkPlugin
from climate.plugins.networking.simulated import SimulatedNetworks
from tests.plugins.contract import lease, resources
from tests.plugins.fragile import make_plugin
from tests.plugins.networking.contract import EndpointContract
from tests.support.cases import each_case

FIRST = "vlan:sim:101"


@pytest.fixture
def plugin(conf: ConfigOpts) -> NetworkPlugin:
    plugin: NetworkPlugin = make_plugin(NetworkPlugin, conf)
    return plugin


def cloud(plugin: ResourcePlugin) -> SimulatedNetworks:
    assert isinstance(plugin, NetworkPlugin)
    assert isinstance(plugin.cloud, SimulatedNetworks)
    return plugin.cloud


class TestNetworkPlugin(EndpointContract):
    example: ClassVar = {
        "network_name": "mine",
        "network_properties": ["==", "$network_type", "vlan"],
        "resource_properties": '["==", "$speed", "10"]',
    }


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
