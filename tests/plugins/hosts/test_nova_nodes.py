"""How climate closes a single node in Placement, and which units a reservation's flavor requests.

The inventories have the shape in which Placement 16 reports nodes of Nova 34 and Ironic 39.
"""

from typing import Any

import pytest

from climate.core.errors import Conflict
from climate.plugins.hosts.nova_nodes import (
    NODE_CLASS,
    base_class,
    closing_amounts,
    contradict,
    flavor_specs,
    is_unavailable,
)
from tests.support.cases import each_case

METAL = "CUSTOM_BAREMETAL_SMALL"


def record(total: int, reserved: int = 0) -> dict[str, Any]:
    shared = {"min_unit": 1, "max_unit": total, "step_size": 1, "allocation_ratio": 1.0}
    return {"total": total, "reserved": reserved, **shared}


HYPERVISOR = {"VCPU": record(16), "MEMORY_MB": record(65536, 512), "CUSTOM_GPU": record(2)}
BARE_METAL = {METAL: record(1), NODE_CLASS: record(1)}
IN_USE = {**BARE_METAL, METAL: record(1, 1)}


@each_case("inventories, amounts", [(HYPERVISOR, {"MEMORY_MB": 65024}), (BARE_METAL, {METAL: 1})])
def test_a_node_is_closed_by_its_memory_or_its_class(
    inventories: dict[str, Any], amounts: dict[str, int]
) -> None:
    assert closing_amounts("s/n", inventories) == amounts


@each_case(
    "inventories, reason",
    [({NODE_CLASS: record(1)}, "neither MEMORY_MB"), (IN_USE, f"all of its {METAL} is reserved")],
)
def test_a_node_cannot_be_closed(inventories: dict[str, Any], reason: str) -> None:
    with pytest.raises(Conflict, match=reason):
        closing_amounts("s/n", inventories)


@each_case("inventories, base", [(HYPERVISOR, "VCPU"), (BARE_METAL, NODE_CLASS)])
def test_a_flavor_requests_one_unit_of_the_node_and_one_of_the_reservation(
    inventories: dict[str, Any], base: str
) -> None:
    specs = flavor_specs("ab-c", base_class("s/n", inventories))
    nothing = {f"resources:{name}": "0" for name in ("VCPU", "MEMORY_MB", "DISK_GB")}
    units = {f"resources:{base}": "1", "resources:CUSTOM_RESERVATION_AB_C": "1"}
    assert specs == nothing | units


def test_one_flavor_cannot_serve_a_node_of_ironic_and_another_node() -> None:
    metal, other = flavor_specs("a", NODE_CLASS), flavor_specs("a", "VCPU")
    assert contradict(metal, other)
    assert contradict(other, metal)
    assert not contradict({}, metal)
    assert not contradict({**metal, "hw:set_by": "an operator"}, metal)


def test_a_node_of_ironic_needs_the_file_of_nova_compute() -> None:
    with pytest.raises(Conflict, match="provider_config_location"):
        base_class("s/n", {METAL: record(1)})


@each_case("inventories, expected", [(HYPERVISOR, False), (BARE_METAL, False), (IN_USE, True)])
def test_only_a_node_of_ironic_becomes_unavailable(
    inventories: dict[str, Any], expected: bool
) -> None:
    assert is_unavailable(inventories) is expected
