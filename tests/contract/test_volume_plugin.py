"""The volume plugin keeps the contract, on the simulated cloud."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from marshmallow import ValidationError
from oslo_config.cfg import ConfigOpts

from climate import config
from climate.clock import SystemClock
from climate.core.errors import Conflict, InvalidInput
from climate.core.lease.model import Granted, Inventory, Reservation, Resource
from climate.core.matching.query import matches
from climate.plugins.base import Drift, ExpectedState, HeldReservation, NotYet, ResourcePlugin
from climate.plugins.hosts.simulated import SimulatedCloud
from climate.plugins.volumes.cloud import Quota, Volume
from climate.plugins.volumes.lifecycle import VolumeCreationFailed
from climate.plugins.volumes.plugin import VolumePlugin
from climate.plugins.volumes.simulated import SimulatedVolumes
from tests.contract.plugin import ASKER, Interrupted, PluginContract, lease, resources


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
def plugin(tmp_path: Path) -> VolumePlugin:
    conf: ConfigOpts = config.new()
    config.load(conf, "test", [])
    conf.set_override("journal", str(tmp_path / "cloud"), group="simulated")
    made = VolumePlugin(conf, contextlib.nullcontext, SystemClock())
    cloud(made).journal = FragileCloud(conf)
    return made


def cloud(plugin: ResourcePlugin) -> SimulatedVolumes:
    assert isinstance(plugin, VolumePlugin)
    assert isinstance(plugin.cloud, SimulatedVolumes)
    return plugin.cloud


def granted(plugin: ResourcePlugin, count: int = 2, size: int = 5) -> list[Granted]:
    """Return the type gold, with so many volumes of it."""
    [gold] = resources(plugin, 1)
    return [replace(gold, amounts={"DISK_GB": count * size, "VOLUMES": count})]


class PatientPlugin(VolumePlugin):
    """The plugin as a manager calls it: again, while it says that it needs more time."""

    def end(self, *arguments: Any) -> None:
        for _ in range(3):
            with contextlib.suppress(NotYet):
                return super().end(*arguments)
        return super().end(*arguments)


class TestVolumePlugin(PluginContract):
    example: ClassVar = {"volume_type": "gold", "amount": "2", "size": "5"}

    @pytest.fixture
    def plugin(self, plugin: VolumePlugin) -> VolumePlugin:
        plugin.__class__ = PatientPlugin
        return plugin

    def granted(self, plugin: ResourcePlugin, count: int) -> Sequence[Granted]:
        """Return each volume's part of the type by itself."""
        return granted(plugin, 1) * count

    def state(self, plugin: ResourcePlugin) -> Any:
        there = cloud(plugin)
        return [
            [
                room.name,
                room.is_over,
                there.users(room),
                sorted(
                    [one.size, one.status, one.reservation_id] for one in volumes(plugin, room.id)
                ),
                [there.quota(room, "lab").volumes, there.quota(room, "lab").gigabytes],
            ]
            for room in there.reserved_types()
        ]

    @contextlib.contextmanager
    def failing_after(self, plugin: ResourcePlugin, effects: int) -> Iterator[None]:
        world = cloud(plugin).journal
        assert isinstance(world, FragileCloud)
        world.left = effects
        yield
        world.left = None

    def use(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        for one in volumes(plugin, reservation.id):
            cloud(plugin).attach(one.id)

    def sabotage(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        for one in volumes(plugin, reservation.id):
            cloud(plugin).delete(one)
        for room in cloud(plugin).reserved_types():
            cloud(plugin).delete_reserved_type(room)


def volumes(plugin: ResourcePlugin, type_id: str) -> Sequence[Volume]:
    return cloud(plugin).volumes(type_id)


def reservation(plugin: VolumePlugin, **params: Any) -> Reservation:
    return TestVolumePlugin().reservation(plugin, **params)


def started(plugin: VolumePlugin, count: int = 2, **params: Any) -> Reservation:
    """Return a reservation that was started, as the manager would store it."""
    mine = reservation(plugin, **params)
    return replace(mine, details=plugin.start(lease(mine), mine, granted(plugin, count)))


def end(plugin: VolumePlugin, mine: Reservation, tries: int = 3) -> None:
    """End a reservation, as often as the plugin asks for."""
    for _ in range(tries):
        with contextlib.suppress(NotYet):
            plugin.end(lease(mine), mine, granted(plugin))
            return
    plugin.end(lease(mine), mine, granted(plugin))


# What is asked for.


def test_volumes_of_one_type_are_shares_of_it(plugin: VolumePlugin) -> None:
    asked = reservation(plugin, resource_properties='["==", "$tier", "1"]').params
    needs = plugin.requirement(asked)
    assert (needs.minimum, needs.maximum) == (2, 2)
    assert needs.amounts == {"DISK_GB": 5, "VOLUMES": 1}
    assert matches(needs.query, {"volume_type_id": "sim-gold", "tier": "1"})
    assert not matches(needs.query, {"volume_type_id": "sim-gold", "tier": "2"})
    assert not matches(needs.query, {"volume_type_id": "sim-silver", "tier": "1"})
    by_id = reservation(plugin, volume_type="sim-gold").params
    assert by_id["volume_type_id"] == asked["volume_type_id"] == "sim-gold"


@pytest.mark.parametrize(
    "params",
    [
        {"amount": 0},
        {"amount": 1_001},
        {"size": 0},
        {"size": "much"},
        {"size": None},
        {"volume_type": ""},
        {"volume_type": None},
        {"on_start": "later"},
        {"on_end": "forget"},
    ],
)
def test_what_cannot_be_is_refused(plugin: VolumePlugin, params: Mapping[str, Any]) -> None:
    with pytest.raises(ValidationError):
        reservation(plugin, **params)


def test_who_asks_for_images_at_the_end_is_told_what_to_do_instead(plugin: VolumePlugin) -> None:
    with pytest.raises(ValidationError, match="Use keep"):
        reservation(plugin, on_end="snapshot")


def test_a_type_that_there_is_not_is_refused(plugin: VolumePlugin) -> None:
    with pytest.raises(InvalidInput, match="Volume type bronze could not be found"):
        plugin.look_up({"volume_type": "bronze"}, ASKER)


def test_what_is_not_given_has_defaults(plugin: VolumePlugin) -> None:
    asked = {"volume_type": "gold", "size": 1, "on_start": None, "on_end": None}
    assert plugin.schema().load(asked) == {
        "volume_type": "gold",
        "volume_type_id": None,
        "amount": 1,
        "size": 1,
        "resource_properties": "",
        "on_start": "create",
        "on_end": "delete",
    }


# What happens at the start and at the end.


def test_the_volumes_are_there_and_there_can_be_no_more(plugin: VolumePlugin) -> None:
    mine = started(plugin)
    [room] = cloud(plugin).reserved_types()
    assert mine.details["reserved_type"] == room.name == f"reservation:{mine.id}"
    assert mine.details["volumes"] == sorted(one.id for one in volumes(plugin, room.id))
    assert [one.size for one in volumes(plugin, room.id)] == [5, 5]
    with pytest.raises(RuntimeError, match="has no quota for another volume"):
        cloud(plugin).make(room, "lab", 1)


def test_a_room_that_is_promised_is_filled_by_the_project(plugin: VolumePlugin) -> None:
    mine = started(plugin, on_start="nothing")
    [room] = cloud(plugin).reserved_types()
    assert volumes(plugin, room.id) == []
    cloud(plugin).make(room, "lab", 10)
    end(plugin, mine)
    assert cloud(plugin).reserved_types() == []
    assert volumes(plugin, room.id) == []


def test_a_reservation_that_grew_has_more_volumes(plugin: VolumePlugin) -> None:
    mine = started(plugin)
    more = replace(mine, params={**mine.params, "amount": 3})
    told = plugin.start(lease(more), more, granted(plugin, 3))
    assert set(mine.details["volumes"]) < set(told["volumes"])
    assert len(volumes(plugin, mine.id)) == 3


def test_a_volume_that_could_not_be_made_is_told_and_made_again(plugin: VolumePlugin) -> None:
    mine = started(plugin)
    broken = mine.details["volumes"][0]
    cloud(plugin).set_status(broken, "error")
    with pytest.raises(VolumeCreationFailed, match=broken):
        plugin.start(lease(mine), mine, granted(plugin))
    told = plugin.start(lease(mine), mine, granted(plugin))
    assert broken not in told["volumes"]
    assert len(told["volumes"]) == 2


def test_volumes_that_are_being_made_are_waited_for(plugin: VolumePlugin) -> None:
    mine = started(plugin)
    cloud(plugin).set_status(mine.details["volumes"][0], "creating")
    with pytest.raises(NotYet, match="is creating"):
        plugin.start(lease(mine), mine, granted(plugin))


def test_what_is_to_be_kept_is_of_the_type_that_it_was_reserved_of(plugin: VolumePlugin) -> None:
    mine = started(plugin, on_end="keep")
    cloud(plugin).attach(mine.details["volumes"][0])
    for _ in range(2):
        plugin.end(lease(mine), mine, granted(plugin))
        kept = volumes(plugin, "sim-gold")
        assert sorted(one.id for one in kept) == mine.details["volumes"]
        assert {one.reservation_id for one in kept} == {None}
        assert {one.is_attached for one in kept} == {True, False}
        assert cloud(plugin).reserved_types() == []


def test_what_its_owner_deletes_is_not_kept(plugin: VolumePlugin) -> None:
    mine = started(plugin, on_end="keep")
    first, second = mine.details["volumes"]
    cloud(plugin).set_status(first, "error_deleting")
    cloud(plugin).set_status(second, "awaiting-transfer")
    with pytest.raises(NotYet, match=f"volume {second} is awaiting-transfer"):
        end(plugin, mine)
    cloud(plugin).set_status(second, "available")
    end(plugin, mine)
    assert [one.id for one in volumes(plugin, "sim-gold")] == [second]


def test_a_volume_that_hangs_is_waited_for_and_then_dealt_with(
    plugin: VolumePlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = started(plugin)
    hanging, _ = mine.details["volumes"]
    cloud(plugin).set_status(hanging, "deleting")
    for _ in range(2):
        with pytest.raises(NotYet, match=f"{hanging} is deleting"):
            plugin.end(lease(mine), mine, granted(plugin))
    assert [one.id for one in volumes(plugin, mine.id)] == [hanging], "it strands no other"
    there = cloud(plugin).volumes
    monkeypatch.setattr(
        cloud(plugin), "volumes", lambda id_: [replace(one, is_stuck=True) for one in there(id_)]
    )
    end(plugin, mine)
    assert cloud(plugin).reserved_types() == []


def test_nobody_fills_a_room_that_is_over(plugin: VolumePlugin) -> None:
    mine = started(plugin)
    cloud(plugin).set_status(mine.details["volumes"][0], "deleting")
    with pytest.raises(NotYet):
        plugin.end(lease(mine), mine, granted(plugin))
    [room] = cloud(plugin).reserved_types()
    assert (room.is_over, cloud(plugin).users(room)) == (True, [])
    assert cloud(plugin).quota(room, "lab") == Quota(0, 0)


def test_a_type_that_fails_before_the_start_has_no_room(plugin: VolumePlugin) -> None:
    mine, [gold] = reservation(plugin), granted(plugin)
    plugin.start(lease(mine), mine, [replace(gold, reservable=False)])
    assert cloud(plugin).reserved_types() == []
    plugin.start(lease(mine), mine, [gold])
    assert len(cloud(plugin).reserved_types()) == 1


# What can be registered, and how much there is of it.


def test_a_type_for_all_cannot_be_registered(plugin: VolumePlugin) -> None:
    with pytest.raises(Conflict, match="standard cannot be reserved: it is public"):
        plugin.find(name="standard")


def registered(plugin: VolumePlugin, name: str, **own: str) -> Resource:
    """Return a type as it is registered, with what the operator says of it."""
    found = plugin.declared(plugin.find(name=name), own)
    [base] = granted(plugin)
    return replace(
        base,
        external_id=found.external_id,
        properties={**found.properties, **own},
        native=frozenset(found.properties),
    )


def test_the_operator_says_what_the_cloud_does_not(plugin: VolumePlugin) -> None:
    silver = plugin.find(name="silver")
    with pytest.raises(InvalidInput, match=r'capacity of volume type .* "gigabytes"'):
        plugin.declared(silver, {})
    said = plugin.declared(silver, {"gigabytes": "100", "volumes": "7"})
    assert said.inventories == {"DISK_GB": Inventory(100), "VOLUMES": Inventory(7)}
    gold = plugin.declared(plugin.find(name="gold"), {})
    assert gold.inventories == {
        "DISK_GB": Inventory(1000, max_unit=400),
        "VOLUMES": Inventory(1000),
    }


@pytest.mark.parametrize("said", ["0", "-1", "1.5", "many", "99999999999", "²"])
def test_what_is_no_number_is_refused(plugin: VolumePlugin, said: str) -> None:
    with pytest.raises(InvalidInput, match="gigabytes must be a whole number"):
        plugin.declared(plugin.find(name="silver"), {"gigabytes": said})


def test_a_look_counts_what_leases_left(plugin: VolumePlugin) -> None:
    silver = registered(plugin, "silver", gigabytes="100")
    gold = registered(plugin, "gold", volumes="9")
    mine = started(plugin)

    def left() -> dict[str, int]:
        [_, found] = plugin.refresh([silver, gold])
        return {name: one.reserved for name, one in found.inventories.items()}

    assert left() == {"DISK_GB": 0, "VOLUMES": 0}, "that is the reservation's"
    cloud(plugin).set_status(mine.details["volumes"][0], "deleting")
    with pytest.raises(NotYet):
        plugin.end(lease(mine), mine, granted(plugin))
    assert left() == {"DISK_GB": 5, "VOLUMES": 1}, "nobody has it any more, and it is there"
    cloud(plugin).set_status(mine.details["volumes"][0], "available")
    end(plugin, mine)
    assert left() == {"DISK_GB": 0, "VOLUMES": 0}
    end(plugin, started(plugin, on_end="keep"))
    assert left() == {"DISK_GB": 10, "VOLUMES": 2}
    [kept, _] = volumes(plugin, "sim-gold")
    cloud(plugin).delete(kept)
    assert left() == {"DISK_GB": 5, "VOLUMES": 1}


def test_a_look_tells_what_is_gone_or_open_to_others(plugin: VolumePlugin) -> None:
    gold = registered(plugin, "gold")
    gone = replace(gold, external_id="gone")
    public = replace(gold, external_id="sim-standard")
    unknown = replace(gold, external_id="sim-silver")
    found = {one.external_id: one for one in plugin.refresh([gold, gone, public, unknown])}
    assert found["sim-gold"].usable
    assert "gone" not in found
    assert not found["sim-standard"].usable
    assert (found["sim-silver"].usable, found["sim-silver"].complete) == (True, False)


# What an audit finds.


def audit(plugin: VolumePlugin, *running: Reservation) -> list[Drift]:
    given = granted(plugin)
    held = [HeldReservation(lease(one), one, given) for one in running]
    return list(plugin.audit(lambda: ExpectedState(given, held, ())))


def test_nothing_is_wrong_with_what_was_started(plugin: VolumePlugin) -> None:
    mine = started(plugin)
    assert audit(plugin, mine) == []
    end(plugin, mine)
    assert audit(plugin) == []


def test_what_a_reservation_lacks_is_handed_over_again(plugin: VolumePlugin) -> None:
    mine = started(plugin, on_start="nothing")
    [room] = cloud(plugin).reserved_types()
    cloud(plugin).set_quota(room, "lab", Quota(9, 10))
    cloud(plugin).open_reserved_type(room, "another project")
    users, quota = audit(plugin, mine)
    assert "is open to another project, not to lab alone" in users.description
    assert "has a quota of 9 volumes and 10 GiB, not 2 and 10" in quota.description
    assert users.lease_id == quota.lease_id == mine.lease_id
    plugin.start(lease(mine), mine, granted(plugin))
    assert audit(plugin, mine) == []
    cloud(plugin).delete_reserved_type(room)
    [difference] = audit(plugin, mine)
    assert "lacks its volume type" in difference.description
    assert difference.lease_id == mine.lease_id


def test_what_a_lease_left_behind_is_deleted_unless_there_are_volumes(plugin: VolumePlugin) -> None:
    mine = started(plugin)
    [difference] = audit(plugin)
    assert (
        f"reservation:{mine.id} is of no running reservation, and volumes" in difference.description
    )
    assert difference.repair is None
    for one in volumes(plugin, mine.id):
        cloud(plugin).delete(one)
    [difference] = audit(plugin)
    assert difference.reservation_id == mine.id
    assert difference.repair is not None
    difference.repair()
    assert cloud(plugin).reserved_types() == []
