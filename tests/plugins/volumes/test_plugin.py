"""The volume plug-in on the simulated cloud."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from marshmallow import ValidationError
from oslo_config.cfg import ConfigOpts

from climate.clock import SystemClock
from climate.core.errors import Conflict, InvalidInput
from climate.core.lease.model import Granted, Inventory, Reservation, Resource
from climate.core.matching.query import matches
from climate.plugins.base import Drift, ExpectedState, HeldReservation, NotYet, ResourcePlugin
from climate.plugins.volumes.cloud import Quota, Volume
from climate.plugins.volumes.lifecycle import VolumeCreationFailed
from climate.plugins.volumes.plugin import VolumePlugin
from climate.plugins.volumes.simulated import SimulatedVolumes
from tests.plugins.contract import ASKER, lease, resources
from tests.plugins.fragile import SimulatedContract, make_plugin
from tests.support.cases import each_case


@pytest.fixture
def plugin(conf: ConfigOpts) -> VolumePlugin:
    plugin: VolumePlugin = make_plugin(VolumePlugin, conf, SystemClock())
    return plugin


def cloud(plugin: ResourcePlugin) -> SimulatedVolumes:
    assert isinstance(plugin, VolumePlugin)
    assert isinstance(plugin.cloud, SimulatedVolumes)
    return plugin.cloud


def granted(plugin: ResourcePlugin, count: int = 2, size: int = 5) -> list[Granted]:
    """Return ``count`` volumes of the type gold, as granted."""
    [gold] = resources(plugin, 1)
    return [replace(gold, amounts={"DISK_GB": count * size, "VOLUMES": count})]


class PatientPlugin(VolumePlugin):
    """The plug-in as a manager calls it: again while it raises NotYet."""

    def end(self, *arguments: Any) -> None:
        for _ in range(3):
            with contextlib.suppress(NotYet):
                return super().end(*arguments)
        return super().end(*arguments)


class TestVolumePlugin(SimulatedContract):
    example: ClassVar = {"volume_type": "gold", "amount": "2", "size": "5"}

    @pytest.fixture
    def plugin(self, plugin: VolumePlugin) -> VolumePlugin:
        plugin.__class__ = PatientPlugin
        return plugin

    def granted(self, plugin: ResourcePlugin, count: int) -> Sequence[Granted]:
        """Return each volume's share of the type as a separate grant."""
        return granted(plugin, 1) * count

    def state(self, plugin: ResourcePlugin) -> Any:
        listed = cloud(plugin)
        return [
            [
                room.name,
                room.is_over,
                listed.users(room),
                sorted(
                    [item.size, item.status, item.reservation_id]
                    for item in volumes(plugin, room.id)
                ),
                [listed.quota(room, "lab").volumes, listed.quota(room, "lab").gigabytes],
            ]
            for room in listed.reserved_types()
        ]

    def use(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        for item in volumes(plugin, reservation.id):
            cloud(plugin).set_status(item.id, "in-use")

    def sabotage(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        for item in volumes(plugin, reservation.id):
            cloud(plugin).delete(item)
        for room in cloud(plugin).reserved_types():
            cloud(plugin).delete_reserved_type(room)


def volumes(plugin: ResourcePlugin, type_id: str) -> Sequence[Volume]:
    return cloud(plugin).volumes(type_id)


def reservation(plugin: VolumePlugin, **params: Any) -> Reservation:
    return TestVolumePlugin().reservation(plugin, **params)


def started(plugin: VolumePlugin, count: int = 2, **params: Any) -> Reservation:
    """Return a started reservation as the manager stores it."""
    held = reservation(plugin, **params)
    return replace(held, details=plugin.start(lease(held), held, granted(plugin, count)))


def end(plugin: VolumePlugin, held: Reservation, tries: int = 3) -> None:
    for _ in range(tries):
        with contextlib.suppress(NotYet):
            plugin.end(lease(held), held, granted(plugin))
            return
    plugin.end(lease(held), held, granted(plugin))


# Requests.


def test_volumes_are_shares_of_their_type(plugin: VolumePlugin) -> None:
    params = reservation(plugin, resource_properties='["==", "$tier", "1"]').params
    needs = plugin.requirement(params)
    assert (needs.minimum, needs.maximum) == (2, 2)
    assert needs.amounts == {"DISK_GB": 5, "VOLUMES": 1}
    assert matches(needs.query, {"volume_type_id": "sim-gold", "tier": "1"})
    assert not matches(needs.query, {"volume_type_id": "sim-gold", "tier": "2"})
    assert not matches(needs.query, {"volume_type_id": "sim-silver", "tier": "1"})
    by_id = reservation(plugin, volume_type="sim-gold").params
    assert by_id["volume_type_id"] == params["volume_type_id"] == "sim-gold"


@each_case(
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
def test_rejects_invalid_params(plugin: VolumePlugin, params: Mapping[str, Any]) -> None:
    with pytest.raises(ValidationError):
        reservation(plugin, **params)


def test_rejects_a_snapshot_at_the_end_and_suggests_keep(plugin: VolumePlugin) -> None:
    with pytest.raises(ValidationError, match="Use keep"):
        reservation(plugin, on_end="snapshot")


def test_rejects_an_unknown_volume_type(plugin: VolumePlugin) -> None:
    with pytest.raises(InvalidInput, match="Volume type bronze could not be found"):
        plugin.look_up({"volume_type": "bronze"}, ASKER)


def test_fills_in_defaults(plugin: VolumePlugin) -> None:
    params = {"volume_type": "gold", "size": 1, "on_start": None, "on_end": None}
    assert plugin.schema().load(params) == {
        "volume_type": "gold",
        "volume_type_id": None,
        "amount": 1,
        "size": 1,
        "resource_properties": "",
        "on_start": "create",
        "on_end": "delete",
        "match": "targeted",
    }


# Start and end.


def test_a_start_creates_the_volumes_and_forbids_more(plugin: VolumePlugin) -> None:
    held = started(plugin)
    [room] = cloud(plugin).reserved_types()
    assert held.details["reserved_type"] == room.name == f"reservation:{held.id}"
    assert held.details["volumes"] == sorted(item.id for item in volumes(plugin, room.id))
    assert [item.size for item in volumes(plugin, room.id)] == [5, 5]
    with pytest.raises(RuntimeError, match="has no quota for another volume"):
        cloud(plugin).make(room, "lab", 1)


def test_without_on_start_the_project_creates_the_volumes(plugin: VolumePlugin) -> None:
    held = started(plugin, on_start="nothing")
    [room] = cloud(plugin).reserved_types()
    assert volumes(plugin, room.id) == []
    cloud(plugin).make(room, "lab", 10)
    end(plugin, held)
    assert cloud(plugin).reserved_types() == []
    assert volumes(plugin, room.id) == []


def test_a_larger_reservation_gets_more_volumes(plugin: VolumePlugin) -> None:
    held = started(plugin)
    more = replace(held, params={**held.params, "amount": 3})
    details = plugin.start(lease(more), more, granted(plugin, 3))
    assert set(held.details["volumes"]) < set(details["volumes"])
    assert len(volumes(plugin, held.id)) == 3


def test_reports_and_replaces_a_volume_in_error(plugin: VolumePlugin) -> None:
    held = started(plugin)
    broken = held.details["volumes"][0]
    cloud(plugin).set_status(broken, "error")
    with pytest.raises(VolumeCreationFailed, match=broken):
        plugin.start(lease(held), held, granted(plugin))
    details = plugin.start(lease(held), held, granted(plugin))
    assert broken not in details["volumes"]
    assert len(details["volumes"]) == 2


def test_waits_for_volumes_that_are_being_created(plugin: VolumePlugin) -> None:
    held = started(plugin)
    cloud(plugin).set_status(held.details["volumes"][0], "creating")
    with pytest.raises(NotYet, match="is creating"):
        plugin.start(lease(held), held, granted(plugin))


def test_kept_volumes_return_to_the_base_type(plugin: VolumePlugin) -> None:
    held = started(plugin, on_end="keep")
    cloud(plugin).set_status(held.details["volumes"][0], "in-use")
    for _ in range(2):
        plugin.end(lease(held), held, granted(plugin))
        kept = volumes(plugin, "sim-gold")
        assert sorted(item.id for item in kept) == held.details["volumes"]
        assert {item.reservation_id for item in kept} == {None}
        assert {item.is_attached for item in kept} == {True, False}
        assert cloud(plugin).reserved_types() == []


def test_does_not_keep_a_volume_that_its_owner_deletes(plugin: VolumePlugin) -> None:
    held = started(plugin, on_end="keep")
    first, second = held.details["volumes"]
    cloud(plugin).set_status(first, "error_deleting")
    cloud(plugin).set_status(second, "awaiting-transfer")
    with pytest.raises(NotYet, match=f"volume {second} is awaiting-transfer"):
        end(plugin, held)
    cloud(plugin).set_status(second, "available")
    end(plugin, held)
    assert [item.id for item in volumes(plugin, "sim-gold")] == [second]


def test_waits_for_a_hanging_volume_and_then_deletes_it(
    plugin: VolumePlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = started(plugin)
    hanging, _ = held.details["volumes"]
    cloud(plugin).set_status(hanging, "deleting")
    for _ in range(2):
        with pytest.raises(NotYet, match=f"{hanging} is deleting"):
            plugin.end(lease(held), held, granted(plugin))
    assert [item.id for item in volumes(plugin, held.id)] == [hanging], "it strands no other"
    listed = cloud(plugin).volumes
    monkeypatch.setattr(
        cloud(plugin), "volumes", lambda id_: [replace(item, is_stuck=True) for item in listed(id_)]
    )
    end(plugin, held)
    assert cloud(plugin).reserved_types() == []


def test_no_volume_can_be_created_after_the_end_began(plugin: VolumePlugin) -> None:
    held = started(plugin)
    cloud(plugin).set_status(held.details["volumes"][0], "deleting")
    with pytest.raises(NotYet):
        plugin.end(lease(held), held, granted(plugin))
    [room] = cloud(plugin).reserved_types()
    assert (room.is_over, cloud(plugin).users(room)) == (True, [])
    assert cloud(plugin).quota(room, "lab") == Quota(0, 0)


def test_a_failed_type_is_handed_over_when_it_recovers(plugin: VolumePlugin) -> None:
    held, [gold] = reservation(plugin), granted(plugin)
    plugin.start(lease(held), held, [replace(gold, reservable=False)])
    assert cloud(plugin).reserved_types() == []
    plugin.start(lease(held), held, [gold])
    assert len(cloud(plugin).reserved_types()) == 1


# Registration and inventory.


def test_rejects_the_registration_of_a_public_type(plugin: VolumePlugin) -> None:
    with pytest.raises(Conflict, match="standard cannot be reserved: it is public"):
        plugin.find(name="standard")


def registered(plugin: VolumePlugin, name: str, **own: str) -> Resource:
    """Return a registered type with the properties that the operator declares."""
    result = plugin.declared(plugin.find(name=name), own)
    [base] = granted(plugin)
    return replace(
        base,
        external_id=result.external_id,
        properties={**result.properties, **own},
        native=frozenset(result.properties),
    )


def test_the_operator_declares_the_capacity_that_the_cloud_does_not_report(
    plugin: VolumePlugin,
) -> None:
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


@each_case("said", ["0", "-1", "1.5", "many", "99999999999", "²"])
def test_rejects_a_capacity_that_is_no_whole_number(plugin: VolumePlugin, said: str) -> None:
    with pytest.raises(InvalidInput, match="gigabytes must be a whole number"):
        plugin.declared(plugin.find(name="silver"), {"gigabytes": said})


def test_an_inventory_counts_the_volumes_that_leases_left(plugin: VolumePlugin) -> None:
    silver = registered(plugin, "silver", gigabytes="100")
    gold = registered(plugin, "gold", volumes="9")
    held = started(plugin)

    def left() -> dict[str, int]:
        [_, result] = plugin.refresh([silver, gold])
        return {name: item.reserved for name, item in result.inventories.items()}

    assert left() == {"DISK_GB": 0, "VOLUMES": 0}, "that is the reservation's"
    cloud(plugin).set_status(held.details["volumes"][0], "deleting")
    with pytest.raises(NotYet):
        plugin.end(lease(held), held, granted(plugin))
    assert left() == {"DISK_GB": 5, "VOLUMES": 1}, "nobody has it any more, and it is there"
    cloud(plugin).set_status(held.details["volumes"][0], "available")
    end(plugin, held)
    assert left() == {"DISK_GB": 0, "VOLUMES": 0}
    end(plugin, started(plugin, on_end="keep"))
    assert left() == {"DISK_GB": 10, "VOLUMES": 2}
    [kept, _] = volumes(plugin, "sim-gold")
    cloud(plugin).delete(kept)
    assert left() == {"DISK_GB": 5, "VOLUMES": 1}


def test_an_inventory_reports_types_that_are_gone_or_public(plugin: VolumePlugin) -> None:
    gold = registered(plugin, "gold")
    gone = replace(gold, external_id="gone")
    public = replace(gold, external_id="sim-standard")
    unknown = replace(gold, external_id="sim-silver")
    result = {item.external_id: item for item in plugin.refresh([gold, gone, public, unknown])}
    assert result["sim-gold"].usable
    assert "gone" not in result
    assert not result["sim-standard"].usable
    assert (result["sim-silver"].usable, result["sim-silver"].complete) == (True, False)


# Audit.


def audit(plugin: VolumePlugin, *running: Reservation) -> list[Drift]:
    whole = granted(plugin)
    held = [HeldReservation(lease(item), item, whole) for item in running]
    return list(plugin.audit(lambda: ExpectedState(whole, held, ())))


def test_the_audit_finds_no_drift_after_start_and_end(plugin: VolumePlugin) -> None:
    held = started(plugin)
    assert audit(plugin, held) == []
    end(plugin, held)
    assert audit(plugin) == []


def test_the_audit_reports_drift_that_a_start_repairs(plugin: VolumePlugin) -> None:
    held = started(plugin, on_start="nothing")
    [room] = cloud(plugin).reserved_types()
    cloud(plugin).set_quota(room, "lab", Quota(9, 10))
    cloud(plugin).open_reserved_type(room, "another project")
    users, quota = audit(plugin, held)
    assert "is open to another project, not to lab alone" in users.description
    assert "has a quota of 9 volumes and 10 GiB, not 2 and 10" in quota.description
    assert users.lease_id == quota.lease_id == held.lease_id
    plugin.start(lease(held), held, granted(plugin))
    assert audit(plugin, held) == []
    cloud(plugin).delete_reserved_type(room)
    [difference] = audit(plugin, held)
    assert "lacks its volume type" in difference.description
    assert difference.lease_id == held.lease_id


def test_the_audit_deletes_a_stale_type_unless_it_has_volumes(plugin: VolumePlugin) -> None:
    held = started(plugin)
    [difference] = audit(plugin)
    assert (
        f"reservation:{held.id} is of no running reservation, and volumes" in difference.description
    )
    assert difference.repair is None
    for item in volumes(plugin, held.id):
        cloud(plugin).delete(item)
    [difference] = audit(plugin)
    assert difference.reservation_id == held.id
    assert difference.repair is not None
    difference.repair()
    assert cloud(plugin).reserved_types() == []
