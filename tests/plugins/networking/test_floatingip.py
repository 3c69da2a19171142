"""The floating IP plug-in on the simulated cloud."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from marshmallow import ValidationError
from oslo_config.cfg import ConfigOpts

from climate.core.errors import Conflict, InvalidInput, Ipv6NotSupported
from climate.core.lease.model import Reservation
from climate.core.matching.query import matches
from climate.plugins.base import Drift, ExpectedState, HeldReservation, ResourcePlugin
from climate.plugins.networking.base import EndpointTaken
from climate.plugins.networking.floatingip import FloatingipPlugin
from climate.plugins.networking.simulated import NETWORK, SimulatedFloatingips
from tests.plugins.contract import lease, resources
from tests.plugins.fragile import make_plugin
from tests.plugins.networking.contract import EndpointContract
from tests.support.cases import each_case


@pytest.fixture
def plugin(conf: ConfigOpts) -> FloatingipPlugin:
    plugin: FloatingipPlugin = make_plugin(FloatingipPlugin, conf)
    return plugin


def cloud(plugin: ResourcePlugin) -> SimulatedFloatingips:
    assert isinstance(plugin, FloatingipPlugin)
    assert isinstance(plugin.cloud, SimulatedFloatingips)
    return plugin.cloud


class TestFloatingipPlugin(EndpointContract):
    example: ClassVar = {
        "network_id": NETWORK,
        "amount": "3",
        "required_floatingips": ["198.51.100.3", "198.51.100.2", "198.51.100.3"],
    }


def reservation(plugin: FloatingipPlugin, **params: Any) -> Reservation:
    return TestFloatingipPlugin().reservation(plugin, **params)


def started(plugin: FloatingipPlugin, count: int = 2, **params: Any) -> Reservation:
    """Return a started reservation as the manager stores it."""
    held = reservation(plugin, **params)
    return replace(held, details=plugin.start(lease(held), held, resources(plugin, count)))


def addresses(plugin: FloatingipPlugin) -> list[str]:
    return sorted(item.endpoint for item in cloud(plugin).occupants_by_id().values())


# Requests.


def test_required_addresses_are_a_separate_part_of_the_requirement(
    plugin: FloatingipPlugin,
) -> None:
    required, others = plugin.requirement(reservation(plugin).params).parts
    assert (required.minimum, required.maximum) == (2, 2)
    assert (others.minimum, others.maximum) == (1, 1)
    named = {"network_id": NETWORK, "address": "198.51.100.2"}
    unnamed = {"network_id": NETWORK, "address": "198.51.100.4"}
    assert matches(required.query, named)
    assert matches(others.query, unnamed)
    assert not matches(required.query, unnamed)
    assert not matches(others.query, named)
    assert not matches(others.query, {**unnamed, "network_id": "another"})


@each_case(
    "params",
    [
        {"amount": 1},
        {"amount": 0},
        {"amount": ""},
        {"amount": 1_001},
        {"required_floatingips": ["198.51.100.256"]},
        {"required_floatingips": "198.51.100.2"},
        {"required_floatingips": ["198.51.100.002"]},
        {"network_id": ""},
        {"network_id": None},
        {"on_start": "later"},
        {"on_end": "snapshot"},
    ],
)
def test_rejects_invalid_params(plugin: FloatingipPlugin, params: Mapping[str, Any]) -> None:
    with pytest.raises(ValidationError):
        reservation(plugin, **params)


@each_case("text", ["2001:DB8::1", "2001:db8:0:0::1", "2001:0db8::0001"])
def test_refuses_ipv6_addresses_however_they_are_written(
    plugin: FloatingipPlugin, text: str
) -> None:
    for refused in (
        lambda: reservation(plugin, required_floatingips=[text]),
        lambda: plugin.find(name=f"another/{text}"),
        lambda: plugin.find(name=text),
    ):
        with pytest.raises(Ipv6NotSupported, match=r"^2001:db8::1 is an IPv6 address"):
            refused()
    for malformed in (f"[{text}]", f"{text}/64"):
        with pytest.raises(InvalidInput, match="not an IPv4 address"):
            plugin.find(name=malformed)


def test_fills_in_blazars_defaults(plugin: FloatingipPlugin) -> None:
    loaded = plugin.schema().load({"network_id": NETWORK, "required_floatingips": None})
    assert loaded == {
        "network_id": NETWORK,
        "amount": 1,
        "required_floatingips": [],
        "on_start": "create",
        "on_end": "delete",
    }


# Start and end.


def test_without_on_start_the_project_creates_the_floating_ips(plugin: FloatingipPlugin) -> None:
    held = started(plugin, on_start="nothing")
    assert addresses(plugin) == []
    cloud(plugin).occupy("198.51.100.2", "lab")
    cloud(plugin).occupy("198.51.100.3", "another project")
    plugin.end(lease(held), held, resources(plugin, 2))
    assert addresses(plugin) == ["198.51.100.3"]


def test_a_kept_floating_ip_blocks_its_address(plugin: FloatingipPlugin) -> None:
    held = started(plugin, on_end="keep")
    for _ in range(2):
        plugin.end(lease(held), held, resources(plugin, 2))
        result = cloud(plugin).occupants(["198.51.100.2", "198.51.100.3"])
        assert [item.reservation_id for item in result] == [None, None]
    another = reservation(plugin)
    with pytest.raises(
        EndpointTaken, match=r"198.51.100.2 is taken by floating IP .* of project lab"
    ):
        plugin.start(lease(another), another, resources(plugin, 1))
    plugin.end(lease(another), another, resources(plugin, 1))
    assert addresses(plugin) == ["198.51.100.2", "198.51.100.3"]


def test_an_occupied_address_does_not_stop_the_others(plugin: FloatingipPlugin) -> None:
    cloud(plugin).occupy("198.51.100.2", "lab")
    held = reservation(plugin)
    with pytest.raises(EndpointTaken):
        plugin.start(lease(held), held, resources(plugin, 2))
    assert [item.endpoint for item in cloud(plugin).occupants([], held.id)] == ["198.51.100.3"]
    plugin.end(lease(held), held, resources(plugin, 2))
    assert addresses(plugin) == ["198.51.100.2"]


def test_identifies_a_floating_ip_without_tags_by_its_id(plugin: FloatingipPlugin) -> None:
    held = started(plugin)
    for id_ in held.details["floatingips"].values():
        cloud(plugin).unmark(id_)
    again = plugin.start(lease(held), held, resources(plugin, 2))
    assert again == held.details
    assert all(item.is_marked for item in cloud(plugin).occupants([], held.id))
    cloud(plugin).unmark(held.details["floatingips"]["198.51.100.2"])
    plugin.end(lease(held), held, resources(plugin, 2))
    assert addresses(plugin) == []


def test_removes_the_floating_ip_of_a_removed_address(plugin: FloatingipPlugin) -> None:
    held, granted = started(plugin), resources(plugin, 3)
    plugin.start(lease(held), held, granted[1:])
    assert addresses(plugin) == ["198.51.100.3", "198.51.100.4"]


def test_a_failed_address_is_added_when_it_recovers(plugin: FloatingipPlugin) -> None:
    held, (first, second) = reservation(plugin), resources(plugin, 2)
    plugin.start(lease(held), held, [first, replace(second, reservable=False)])
    assert addresses(plugin) == ["198.51.100.2"]
    details = plugin.start(lease(held), held, [replace(first, reservable=False), second])
    assert addresses(plugin) == sorted(details["floatingips"]) == ["198.51.100.2", "198.51.100.3"]


# Registration and inventory.


@each_case(
    "name, reason",
    [
        ("198.51.100.101", "in an allocation pool"),
        (f"{NETWORK}/198.51.100.254", "in an allocation pool"),
        (f"{NETWORK}/198.51.100.1", "the gateway"),
        (f"{NETWORK}/198.51.100.0", "the first or the last"),
        (f"{NETWORK}/203.0.113.1", "in no subnet"),
        (f"{NETWORK}/203.0.113", "'203.0.113' is not an IPv4 address"),
        ("203.0.113", "send an address such as 203.0.113.7"),
        ("another/198.51.100.2", "another is not an external network"),
    ],
)
def test_rejects_the_registration_of_an_address_that_neutron_assigns(
    plugin: FloatingipPlugin, name: str, reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        plugin.find(name=name)


def test_rejects_the_registration_of_an_occupied_address(plugin: FloatingipPlugin) -> None:
    cloud(plugin).occupy("198.51.100.2", "lab")
    with pytest.raises(Conflict, match=r"198.51.100.2 is taken by floating IP"):
        plugin.find(name=f"{NETWORK}/198.51.100.2")


def test_an_inventory_reports_addresses_occupied_by_others(plugin: FloatingipPlugin) -> None:
    registered = resources(plugin, 3)
    started(plugin, 1)
    cloud(plugin).occupy("198.51.100.3", "another project")
    moved = replace(registered[2], properties={"network_id": "one that is gone"})
    result = {item.external_id: item.usable for item in plugin.refresh([*registered[:2], moved])}
    assert result == {"198.51.100.2": True, "198.51.100.3": False}
    assert list(plugin.refresh([])) == []


# Audit.


def audit(plugin: FloatingipPlugin, *running: Reservation, count: int = 2) -> list[Drift]:
    granted = resources(plugin, count)
    held = [HeldReservation(lease(item), item, granted[:2]) for item in running]
    return list(plugin.audit(lambda: ExpectedState(granted, held, ())))


def test_the_audit_finds_no_drift_after_start_and_end(plugin: FloatingipPlugin) -> None:
    held = started(plugin)
    assert audit(plugin, held) == []
    cloud(plugin).unmark(held.details["floatingips"]["198.51.100.2"])
    assert audit(plugin, held) == []
    plugin.end(lease(held), held, resources(plugin, 2))
    assert audit(plugin) == []


def test_the_audit_reports_a_missing_floating_ip(plugin: FloatingipPlugin) -> None:
    held = started(plugin)
    cloud(plugin).delete(cloud(plugin).occupants(["198.51.100.3"])[0])
    [difference] = audit(plugin, held)
    assert difference.description.endswith(f"of lease {held.lease_id} lacks 198.51.100.3")
    assert difference.lease_id == held.lease_id


def test_the_audit_deletes_a_stale_floating_ip(plugin: FloatingipPlugin) -> None:
    held = started(plugin, 1)
    [difference] = audit(plugin)
    assert held.id in difference.description
    assert difference.reservation_id == held.id
    assert difference.repair is not None
    difference.repair()
    assert addresses(plugin) == []


def test_the_audit_reports_a_foreign_floating_ip_without_a_repair(plugin: FloatingipPlugin) -> None:
    cloud(plugin).occupy("198.51.100.2", "another project")
    [difference] = audit(plugin)
    assert "198.51.100.2 can be reserved, and floating IP" in difference.description
    assert (difference.repair, difference.lease_id) == (None, None)
    cloud(plugin).occupy("198.51.100.50", "another project")
    assert len(audit(plugin)) == 1, "an address that is not registered does not matter"


def test_the_audit_accepts_floating_ips_that_the_project_created(plugin: FloatingipPlugin) -> None:
    held = started(plugin, on_start="nothing")
    assert audit(plugin, held) == []
    cloud(plugin).occupy("198.51.100.2", "lab")
    assert audit(plugin, held) == []
