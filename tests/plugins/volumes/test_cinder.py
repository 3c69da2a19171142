"""Capacity of Cinder's pools, and reserved volume types."""

from dataclasses import replace
from typing import Any

from climate.core.lease.model import Inventory
from climate.plugins.volumes.cinder import (
    capacity_of,
    parse_reserved_type,
    reserved_type_description,
)
from climate.plugins.volumes.cloud import ReservedType
from tests.support.cases import each_case

ROOM = ReservedType(id="1", reservation_id="2f", base_id="b")


def pool(total: Any, reserved: Any = 0, **more: Any) -> dict[str, Any]:
    return {"total_capacity_gb": total, "reserved_percentage": reserved, **more}


@each_case(
    "pools, expected",
    [
        ([pool(100)], Inventory(100, max_unit=100)),
        ([pool("100.9", 10)], Inventory(90, max_unit=90)),
        ([pool(100), pool(50, "20")], Inventory(140, max_unit=100)),
        (
            [pool(100, thin_provisioning_support=True, max_over_subscription_ratio="2.5")],
            Inventory(250, max_unit=250),
        ),
        (
            [pool(100, thin_provisioning_support=False, max_over_subscription_ratio="2.5")],
            Inventory(100, max_unit=100),
        ),
        ([], None),
        ([pool("infinite")], None),
        ([pool(float("inf"))], None),
        ([pool("unknown"), pool(100)], None),
        ([{}], None),
        (
            [pool(1, thin_provisioning_support=True, max_over_subscription_ratio="auto")],
            None,
        ),
    ],
)
def test_adds_up_the_capacity_of_pools(
    pools: list[dict[str, Any]], expected: Inventory | None
) -> None:
    assert capacity_of(pools) == expected


@each_case(
    "room",
    [ROOM, replace(ROOM, is_over=True), replace(ROOM, former_default="c", is_over=True)],
)
def test_identifies_a_reserved_volume_type_by_its_description(room: ReservedType) -> None:
    listed = {"id": "1", "name": room.name, "description": reserved_type_description(room)}
    assert parse_reserved_type(listed) == room


@each_case(
    "name, description",
    [
        (ROOM.name, None),
        (ROOM.name, "my own"),
        (ROOM.name, f"{reserved_type_description(ROOM)} and more"),
        ("gold", reserved_type_description(ROOM)),
        ("reservation:another", reserved_type_description(ROOM)),
    ],
)
def test_ignores_volume_types_of_others(name: str, description: str | None) -> None:
    assert parse_reserved_type({"id": "1", "name": name, "description": description}) is None
