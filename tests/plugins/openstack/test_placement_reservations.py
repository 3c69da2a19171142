"""Slots in Placement survive concurrent writes by others."""

from typing import Any

import pytest
from keystoneauth1.exceptions import Conflict

from climate.plugins.base import NotYet
from climate.plugins.openstack import placement_reservations
from climate.plugins.openstack.placement_reservations import PlacementSlots, reservation_class

MINE, THEIRS = "a1-b2", "c3-d4"


class Answer:
    def __init__(self, body: Any) -> None:
        self.json = lambda: body


class Placement:
    """One child provider; another writer precedes each of the first ``others`` writes."""

    def __init__(self, others: int) -> None:
        self.inventories: dict[str, Any] = {}
        self.generation = 0
        self.others = others
        self.made: list[dict[str, str]] = []
        self.in_use = False

    def get(self, path: str, params: dict[str, str]) -> Answer:
        if path.endswith("/inventories"):
            inventories = dict(self.inventories)
            return Answer(
                {"inventories": inventories, "resource_provider_generation": self.generation}
            )
        providers = [{"uuid": "child", **item} for item in self.made]
        wanted = params.get("name")
        return Answer({"resource_providers": [o for o in providers if wanted in {None, o["name"]}]})

    def post(self, _path: str, json: dict[str, str]) -> None:
        self.made.append(json)

    def put(self, _path: str, json: dict[str, Any]) -> None:
        if self.others:
            self.others -= 1
            self.generation += 1
            self.inventories[reservation_class(THEIRS)] = {"total": self.generation}
        if json["resource_provider_generation"] != self.generation:
            raise Conflict
        self.inventories = json["inventories"]
        self.generation += 1

    def delete(self, _path: str) -> None:
        if self.in_use:
            raise Conflict


def test_keeps_concurrent_changes_of_others() -> None:
    placement = Placement(others=2)
    PlacementSlots(placement).put("host", lambda: "root", MINE, 3)  # type: ignore[arg-type]
    assert placement.made == [{"name": "climate_host", "parent_provider_uuid": "root"}]
    totals = {name: item["total"] for name, item in placement.inventories.items()}
    assert totals == {reservation_class(MINE): 3, reservation_class(THEIRS): 2}
    assert PlacementSlots(placement).counts() == {"host": {MINE: 3, THEIRS: 2}}  # type: ignore[arg-type]


def test_gives_up_after_repeated_conflicts() -> None:
    slots = PlacementSlots(Placement(others=placement_reservations._RACES))  # type: ignore[arg-type]
    with pytest.raises(Conflict):
        slots.put("host", lambda: "root", MINE, 3)


def test_slots_in_use_are_not_removed() -> None:
    placement = Placement(others=0)
    slots = PlacementSlots(placement)  # type: ignore[arg-type]
    slots.put("host", lambda: "root", MINE, 3)
    placement.in_use = True
    with pytest.raises(NotYet, match=MINE):
        slots.clear("host", MINE)
