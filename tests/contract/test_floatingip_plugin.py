"""The floating IP plugin keeps the contract, on the simulated cloud."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from marshmallow import ValidationError
from oslo_config.cfg import ConfigOpts

from climate import config
from climate.core.errors import Conflict, InvalidInput
from climate.core.lease.model import Reservation
from climate.core.matching.query import matches
from climate.plugins.base import Drift, ExpectedState, HeldReservation, ResourcePlugin
from climate.plugins.hosts.simulated import SimulatedCloud
from climate.plugins.networking.base import EndpointTaken
from climate.plugins.networking.floatingip import FloatingipPlugin
from climate.plugins.networking.simulated import NETWORK, SimulatedFloatingips
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
def plugin(tmp_path: Path) -> FloatingipPlugin:
    conf: ConfigOpts = config.new()
    config.load(conf, "test", [])
    conf.set_override("journal", str(tmp_path / "cloud"), group="simulated")
    made = FloatingipPlugin(conf, contextlib.nullcontext)
    cloud(made).journal = FragileCloud(conf)
    return made


def cloud(plugin: ResourcePlugin) -> SimulatedFloatingips:
    assert isinstance(plugin, FloatingipPlugin)
    assert isinstance(plugin.cloud, SimulatedFloatingips)
    return plugin.cloud


def fragile(plugin: ResourcePlugin) -> FragileCloud:
    made = cloud(plugin).journal
    assert isinstance(made, FragileCloud)
    return made


class TestFloatingipPlugin(PluginContract):
    example: ClassVar = {
        "network_id": NETWORK,
        "amount": "3",
        "required_floatingips": ["198.51.100.3", "198.51.100.2", "198.51.100.3"],
    }

    @pytest.fixture
    def plugin(self, plugin: FloatingipPlugin) -> FloatingipPlugin:
        return plugin

    def state(self, plugin: ResourcePlugin) -> Any:
        return sorted(
            [one.endpoint, one.project_id, one.reservation_id, one.is_marked, one.port_id]
            for one in cloud(plugin).occupants_by_id().values()
        )

    @contextlib.contextmanager
    def failing_after(self, plugin: ResourcePlugin, effects: int) -> Iterator[None]:
        fragile(plugin).left = effects
        yield
        fragile(plugin).left = None

    def use(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        for one in cloud(plugin).occupants([], reservation.id):
            cloud(plugin).use(one.id, "a port")

    def sabotage(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        for one in cloud(plugin).occupants([], reservation.id):
            cloud(plugin).delete(one)


def reservation(plugin: FloatingipPlugin, **params: Any) -> Reservation:
    return TestFloatingipPlugin().reservation(plugin, **params)


def started(plugin: FloatingipPlugin, count: int = 2, **params: Any) -> Reservation:
    """Return a reservation that was started, as the manager would store it."""
    mine = reservation(plugin, **params)
    return replace(mine, details=plugin.start(lease(mine), mine, resources(plugin, count)))


def addresses(plugin: FloatingipPlugin) -> list[str]:
    return sorted(one.endpoint for one in cloud(plugin).occupants_by_id().values())


# What is asked for.


def test_addresses_that_are_named_are_a_part_of_their_own(plugin: FloatingipPlugin) -> None:
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


@pytest.mark.parametrize(
    "params",
    [
        {"amount": 1},
        {"amount": 0},
        {"amount": ""},
        {"amount": 1_001},
        {"required_floatingips": ["198.51.100.256"]},
        {"required_floatingips": "198.51.100.2"},
        {"required_floatingips": ["2001:db8::1"]},
        {"network_id": ""},
        {"network_id": None},
        {"on_start": "later"},
        {"on_end": "snapshot"},
    ],
)
def test_what_cannot_be_is_refused(plugin: FloatingipPlugin, params: Mapping[str, Any]) -> None:
    with pytest.raises(ValidationError):
        reservation(plugin, **params)


def test_what_is_not_given_has_blazars_defaults(plugin: FloatingipPlugin) -> None:
    loaded = plugin.schema().load({"network_id": NETWORK, "required_floatingips": None})
    assert loaded == {
        "network_id": NETWORK,
        "amount": 1,
        "required_floatingips": [],
        "on_start": "create",
        "on_end": "delete",
    }


# What happens at the start and at the end.


def test_nothing_is_made_of_addresses_that_are_promised(plugin: FloatingipPlugin) -> None:
    mine = started(plugin, on_start="nothing")
    assert addresses(plugin) == []
    cloud(plugin).occupy("198.51.100.2", "lab")
    cloud(plugin).occupy("198.51.100.3", "another project")
    plugin.end(lease(mine), mine, resources(plugin, 2))
    assert addresses(plugin) == ["198.51.100.3"]


def test_what_is_to_be_kept_stays_and_is_nobody_elses(plugin: FloatingipPlugin) -> None:
    mine = started(plugin, on_end="keep")
    for _ in range(2):
        plugin.end(lease(mine), mine, resources(plugin, 2))
        found = cloud(plugin).occupants(["198.51.100.2", "198.51.100.3"])
        assert [one.reservation_id for one in found] == [None, None]
    another = reservation(plugin)
    with pytest.raises(
        EndpointTaken, match=r"198.51.100.2 is taken by floating IP .* of project lab"
    ):
        plugin.start(lease(another), another, resources(plugin, 1))
    plugin.end(lease(another), another, resources(plugin, 1))
    assert addresses(plugin) == ["198.51.100.2", "198.51.100.3"]


def test_an_address_that_is_taken_strands_no_other(plugin: FloatingipPlugin) -> None:
    cloud(plugin).occupy("198.51.100.2", "lab")
    mine = reservation(plugin)
    with pytest.raises(EndpointTaken):
        plugin.start(lease(mine), mine, resources(plugin, 2))
    assert [one.endpoint for one in cloud(plugin).occupants([], mine.id)] == ["198.51.100.3"]
    plugin.end(lease(mine), mine, resources(plugin, 2))
    assert addresses(plugin) == ["198.51.100.2"]


def test_what_lost_its_marks_is_still_known_by_its_id(plugin: FloatingipPlugin) -> None:
    mine = started(plugin)
    for id_ in mine.details["floatingips"].values():
        cloud(plugin).unmark(id_)
    again = plugin.start(lease(mine), mine, resources(plugin, 2))
    assert again == mine.details
    assert all(one.is_marked for one in cloud(plugin).occupants([], mine.id))
    cloud(plugin).unmark(mine.details["floatingips"]["198.51.100.2"])
    plugin.end(lease(mine), mine, resources(plugin, 2))
    assert addresses(plugin) == []


def test_what_is_no_more_its_own_is_taken_back(plugin: FloatingipPlugin) -> None:
    mine, given = started(plugin), resources(plugin, 3)
    plugin.start(lease(mine), mine, given[1:])
    assert addresses(plugin) == ["198.51.100.3", "198.51.100.4"]


def test_an_address_that_fails_joins_when_it_works(plugin: FloatingipPlugin) -> None:
    mine, (first, second) = reservation(plugin), resources(plugin, 2)
    plugin.start(lease(mine), mine, [first, replace(second, reservable=False)])
    assert addresses(plugin) == ["198.51.100.2"]
    told = plugin.start(lease(mine), mine, [replace(first, reservable=False), second])
    assert addresses(plugin) == sorted(told["floatingips"]) == ["198.51.100.2", "198.51.100.3"]


# What can be registered.


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("198.51.100.101", "in an allocation pool"),
        (f"{NETWORK}/198.51.100.254", "in an allocation pool"),
        (f"{NETWORK}/198.51.100.1", "the gateway"),
        (f"{NETWORK}/198.51.100.0", "the first or the last"),
        (f"{NETWORK}/203.0.113.1", "in no subnet"),
        (f"{NETWORK}/203.0.113", "Expected 4 octets"),
        ("another/198.51.100.2", "another is not an external network"),
    ],
)
def test_what_the_cloud_gives_to_others_cannot_be_registered(
    plugin: FloatingipPlugin, name: str, reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        plugin.find(name=name)


def test_what_is_taken_cannot_be_registered(plugin: FloatingipPlugin) -> None:
    cloud(plugin).occupy("198.51.100.2", "lab")
    with pytest.raises(Conflict, match=r"198.51.100.2 is taken by floating IP"):
        plugin.find(name=f"{NETWORK}/198.51.100.2")


def test_a_look_tells_what_somebody_else_has(plugin: FloatingipPlugin) -> None:
    registered = resources(plugin, 3)
    started(plugin, 1)
    cloud(plugin).occupy("198.51.100.3", "another project")
    moved = replace(registered[2], properties={"network_id": "one that is gone"})
    found = {one.external_id: one.usable for one in plugin.refresh([*registered[:2], moved])}
    assert found == {"198.51.100.2": True, "198.51.100.3": False}
    assert list(plugin.refresh([])) == []


# What an audit finds.


def audit(plugin: FloatingipPlugin, *running: Reservation, count: int = 2) -> list[Drift]:
    given = resources(plugin, count)
    held = [HeldReservation(lease(one), one, given[:2]) for one in running]
    return list(plugin.audit(lambda: ExpectedState(given, held, ())))


def test_nothing_is_wrong_with_what_was_started(plugin: FloatingipPlugin) -> None:
    mine = started(plugin)
    assert audit(plugin, mine) == []
    cloud(plugin).unmark(mine.details["floatingips"]["198.51.100.2"])
    assert audit(plugin, mine) == []
    plugin.end(lease(mine), mine, resources(plugin, 2))
    assert audit(plugin) == []


def test_a_floating_ip_that_is_missing_is_made_again(plugin: FloatingipPlugin) -> None:
    mine = started(plugin)
    cloud(plugin).delete(cloud(plugin).occupants(["198.51.100.3"])[0])
    [difference] = audit(plugin, mine)
    assert difference.description.endswith(f"of lease {mine.lease_id} lacks 198.51.100.3")
    assert difference.lease_id == mine.lease_id


def test_what_a_lease_left_behind_is_deleted(plugin: FloatingipPlugin) -> None:
    mine = started(plugin, 1)
    [difference] = audit(plugin)
    assert mine.id in difference.description
    assert difference.reservation_id == mine.id
    assert difference.repair is not None
    difference.repair()
    assert addresses(plugin) == []


def test_what_is_not_ours_is_told_and_left_alone(plugin: FloatingipPlugin) -> None:
    cloud(plugin).occupy("198.51.100.2", "another project")
    [difference] = audit(plugin)
    assert "198.51.100.2 can be reserved, and floating IP" in difference.description
    assert difference.repair is difference.lease_id is None
    cloud(plugin).occupy("198.51.100.50", "another project")
    assert len(audit(plugin)) == 1, "nobody asked about that one"


def test_what_was_made_of_a_promise_is_as_it_should_be(plugin: FloatingipPlugin) -> None:
    mine = started(plugin, on_start="nothing")
    assert audit(plugin, mine) == []
    cloud(plugin).occupy("198.51.100.2", "lab")
    assert audit(plugin, mine) == []
