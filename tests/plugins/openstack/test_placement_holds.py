"""A hold leaves exactly the room of a reservation, whatever Placement allows one consumer."""

import math
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from climate.plugins.openstack.placement_holds import parts

LIMITS = {"reserved": 0, "min_unit": 1, "max_unit": 100, "step_size": 1, "allocation_ratio": 1.0}


def inventory(total: int, **fields: Any) -> dict[str, Any]:
    return {**LIMITS, "total": total, "max_unit": total, **fields}


def test_holds_all_but_the_room_of_each_class() -> None:
    inventories = {"VCPU": inventory(8), "MEMORY_MB": inventory(1024, reserved=24)}
    assert parts(inventories, {"VCPU": 3, "MEMORY_MB": 600}) == [{"VCPU": 5, "MEMORY_MB": 400}]
    assert parts(inventories, {"VCPU": 8}) == [{"MEMORY_MB": 1000}]
    assert parts({"VCPU": inventory(8)}, {"VCPU": 8}) == []


def test_holds_more_than_one_consumer_can_have() -> None:
    inventories = {"VCPU": inventory(4, allocation_ratio=2.5), "DISK_GB": inventory(1)}
    assert parts(inventories, {"VCPU": 1}) == [{"DISK_GB": 1, "VCPU": 4}, {"VCPU": 4}, {"VCPU": 1}]


@given(
    total=st.integers(1, 200),
    ratio=st.sampled_from([0.5, 1.0, 1.5, 16.0]),
    most=st.integers(8, 200),  # a smaller unit needs more consumers than a hold can have
    step=st.integers(1, 5),
    room=st.integers(0, 300),
)
def test_what_is_held_and_the_room_fill_the_host(
    total: int, ratio: float, most: int, step: int, room: int
) -> None:
    record = inventory(total, allocation_ratio=ratio, max_unit=max(most, step), step_size=step)
    consumers = parts({"VCPU": record}, {"VCPU": room})
    held = sum((Counter(amounts) for amounts in consumers), Counter())["VCPU"]
    free = math.floor(total * ratio) - held
    assert room <= free < room + step or held == 0
    assert all(
        amount <= record["max_unit"] and amount % step == 0
        for amounts in consumers
        for amount in amounts.values()
    )
