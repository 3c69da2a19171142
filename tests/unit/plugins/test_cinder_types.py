"""What Cinder's types and pools say."""

from typing import Any

import pytest

from climate.core.lease.model import Inventory
from climate.plugins.volumes.cinder import (
    capacity_of,
    parse_reserved_type,
    reserved_type_description,
)
from climate.plugins.volumes.cloud import ReservedType

ROOM = ReservedType(id="1", reservation_id="2f", base_id="b")


def pool(total: Any, reserved: Any = 0, **more: Any) -> dict[str, Any]:
    return {"total_capacity_gb": total, "reserved_percentage": reserved, **more}


@pytest.mark.parametrize(
    ("pools", "expected"),
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
def test_how_much_pools_have(pools: list[dict[str, Any]], expected: Inventory | None) -> None:
    assert capacity_of(pools) == expected


@pytest.mark.parametrize("is_over", [False, True])
def test_a_room_is_known_by_its_description(is_over: bool) -> None:
    found = {
        "id": "1",
        "name": ROOM.name,
        "description": reserved_type_description(ROOM, is_over=is_over),
    }
    room = parse_reserved_type(found)
    assert room is not None
    assert (room.id, room.reservation_id, room.base_id) == ("1", "2f", "b")
    assert room.is_over is is_over


@pytest.mark.parametrize(
    ("name", "description"),
    [
        (ROOM.name, None),
        (ROOM.name, "my own"),
        (ROOM.name, f"{reserved_type_description(ROOM)} and more"),
        ("gold", reserved_type_description(ROOM)),
        ("reservation:another", reserved_type_description(ROOM)),
    ],
)
def test_what_others_made_is_no_room(name: str, description: str | None) -> None:
    assert parse_reserved_type({"id": "1", "name": name, "description": description}) is None
