"""Traits and inventories of Placement become properties of hosts, with few requests."""

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from keystoneauth1.exceptions import ConnectFailure

from climate.core.lease.model import Inventory
from climate.plugins.base import DiscoveredResource
from climate.plugins.hosts import placement_inventory
from climate.plugins.hosts.nova_services import NODES
from climate.plugins.hosts.placement_inventory import ProviderInventory
from tests.support.cases import each_case


class Answer:
    def __init__(self, body: Any) -> None:
        self.json = lambda: body


def _inventory(total: int) -> dict[str, Any]:
    described = {"total": total, "reserved": 1, "allocation_ratio": 4.0, "max_unit": total}
    return {**described, "min_unit": 1, "step_size": 1}


class Placement:
    """Providers in memory behind an adapter; records the requests."""

    def __init__(self) -> None:
        self.providers: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.is_down = False

    def add(
        self, name: str, traits: Sequence[str] = (), root: str | None = None, **totals: int
    ) -> None:
        id_ = str(uuid.uuid5(uuid.NAMESPACE_DNS, name))
        self.providers[id_] = {
            "uuid": id_,
            "name": name,
            "generation": 0,
            "root_provider_uuid": self.id_of(root) if root else id_,
            "traits": list(traits),
            "inventories": {key: _inventory(n) for key, n in totals.items()},
        }

    def id_of(self, name: str) -> str:
        return next(id_ for id_, item in self.providers.items() if item["name"] == name)

    def change(self, name: str, **what: Any) -> None:
        item = self.providers[self.id_of(name)]
        item.update(what, generation=item["generation"] + 1)

    def get(self, path: str, params: dict[str, str]) -> Answer:
        if self.is_down:
            raise ConnectFailure("no route")
        _, id_, what = [*path.split("/")[1:], "", ""][:3]
        self.requests.append(what or "list")
        if id_:
            return Answer({what: self.providers[id_][what]})
        result = list(self.providers.values())
        if "name" in params:
            result = [item for item in result if item["name"] == params["name"]]
        if "in_tree" in params:
            result = [item for item in result if item["root_provider_uuid"] == params["in_tree"]]
        return Answer({"resource_providers": result})


@pytest.fixture
def placement() -> Placement:
    reader = Placement()
    reader.add("n1", ["HW_CPU_X86_AVX2", "COMPUTE_ACCELERATORS", "CUSTOM_A"], VCPU=16, CUSTOM_GPU=3)
    reader.add("n1-gpu", ["CUSTOM_B"], root="n1", CUSTOM_GPU=2, CUSTOM_RESERVATION_X=2)
    reader.add("n2", ["CUSTOM_A", "CUSTOM_" + "X" * 52], VCPU=16)
    return reader


def host(name: str, *nodes: str) -> DiscoveredResource:
    properties = {"hypervisor_hostname": name, **({NODES: ",".join(nodes)} if nodes else {})}
    return DiscoveredResource(external_id=name, properties=properties)


def facts(placement: Placement, *hosts: DiscoveredResource, **options: Any) -> list[dict[str, str]]:
    reader = ProviderInventory(placement, ["CUSTOM_*", "HW_*"], ["CUSTOM_*"])  # type: ignore[arg-type]
    return described(reader, *hosts, **options)


def described(reader: ProviderInventory, *hosts: DiscoveredResource) -> list[dict[str, str]]:
    result = reader.describe(hosts, {item.external_id for item in hosts})
    assert all(item.complete for item in result)
    return [
        {name: value for name, value in item.properties.items() if ":" in name} for item in result
    ]


N1 = {
    "trait:HW_CPU_X86_AVX2": "True",
    "trait:CUSTOM_A": "True",
    "trait:CUSTOM_B": "True",
    "resources:CUSTOM_GPU": "3",
}


class TestProperties:
    @each_case("others", [(), ("n2",)])
    def test_come_from_the_hosts_tree_of_providers(
        self, placement: Placement, others: tuple[str, ...]
    ) -> None:
        assert facts(placement, host("n1"), *map(host, others))[0] == N1

    def test_are_empty_for_a_host_unknown_to_placement(self, placement: Placement) -> None:
        assert facts(placement, host("n3")) == [{}]

    def test_omit_names_that_are_too_long(self, placement: Placement) -> None:
        assert facts(placement, host("n2")) == [{"trait:CUSTOM_A": "True"}]

    def test_of_several_nodes_are_common_traits_and_added_amounts(
        self, placement: Placement
    ) -> None:
        whole = host("service", "n1", "n2")
        assert facts(placement, whole) == [{"trait:CUSTOM_A": "True", "resources:CUSTOM_GPU": "3"}]

    def test_of_bare_metal_include_what_nova_reserves_during_its_use(
        self, placement: Placement
    ) -> None:
        placement.add("b1", CUSTOM_METAL=1, CUSTOM_CLIMATE_NODE=1)
        assert facts(placement, host("b1")) == [{"resources:CUSTOM_METAL": "1"}]

    def test_are_not_requested_if_none_are_configured(self, placement: Placement) -> None:
        reader = ProviderInventory(placement, [], [])  # type: ignore[arg-type]
        assert described(reader, host("n1"), host("n2")) == [{}, {}]
        assert "traits" not in placement.requests

    def test_shares_exclude_the_inventories_of_reservations(self, placement: Placement) -> None:
        [result] = ProviderInventory(placement, [], []).describe([host("n1")], ["n1"])  # type: ignore[arg-type]
        assert result.inventories == {
            "VCPU": Inventory(16, 1, 4.0, 16),
            "CUSTOM_GPU": Inventory(5, 2, 4.0, 3),
        }

    def test_a_server_can_have_devices_of_several_providers(self, placement: Placement) -> None:
        reader = ProviderInventory(placement, [], [], ["CUSTOM_GPU"])  # type: ignore[arg-type]
        [result] = reader.describe([host("n1")], ["n1"])
        assert result.inventories["CUSTOM_GPU"] == Inventory(5, 2, 4.0, None)

    @each_case(
        "several",
        [
            host("service", "n1", "n2"),
            replace(host("n1"), external_id="service/n1"),
        ],
    )
    def test_a_host_of_several_nodes_has_no_shares(
        self, placement: Placement, several: DiscoveredResource
    ) -> None:
        reader = ProviderInventory(placement, [], [])  # type: ignore[arg-type]
        [result] = reader.describe([several], [several.external_id])
        assert (result.complete, result.inventories) == (True, {})


class TestInventory:
    @pytest.fixture
    def reader(self, placement: Placement) -> ProviderInventory:
        result = ProviderInventory(placement, ["CUSTOM_*", "HW_*"], ["CUSTOM_*"])  # type: ignore[arg-type]
        described(result, host("n1"), host("n2"))
        placement.requests.clear()
        return result

    def test_reads_only_providers_that_changed(
        self, placement: Placement, reader: ProviderInventory
    ) -> None:
        assert described(reader, host("n1"), host("n2"))[0] == N1
        assert placement.requests == ["list"]
        placement.change("n2", traits=["CUSTOM_C"])
        assert described(reader, host("n1"), host("n2"))[1] == {"trait:CUSTOM_C": "True"}
        assert placement.requests == ["list", "list", "traits", "inventories"]

    def test_notices_new_and_removed_providers(
        self, placement: Placement, reader: ProviderInventory
    ) -> None:
        placement.add("n2-gpu", root="n2", CUSTOM_GPU=9)
        assert described(reader, host("n1"), host("n2"))[1]["resources:CUSTOM_GPU"] == "8"
        del placement.providers[placement.id_of("n2-gpu")]
        assert "resources:CUSTOM_GPU" not in described(reader, host("n1"), host("n2"))[1]

    def test_skips_hosts_that_were_not_requested(
        self, placement: Placement, reader: ProviderInventory
    ) -> None:
        placement.change("n2", traits=["CUSTOM_C"])
        first, second = reader.describe([host("n1"), host("n2")], ["n1"])
        assert (first.complete, second.complete) == (True, False)
        assert placement.requests == ["list", "list"]

    def test_is_incomplete_when_placement_is_down(
        self, placement: Placement, reader: ProviderInventory
    ) -> None:
        placement.is_down = True
        assert [item.complete for item in reader.describe([host("n1")], ["n1"])] == [False]

    def test_reads_a_bounded_number_of_providers_per_run(
        self, placement: Placement, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(placement_inventory, "MOST_READ", 1)
        reader = ProviderInventory(placement, ["CUSTOM_*", "HW_*"], [])  # type: ignore[arg-type]
        hosts, names = [host("n1"), host("n2")], ["n1", "n2"]
        assert [item.complete for item in reader.describe(hosts, names)] == [True, False]
        assert [item.complete for item in reader.describe(hosts, names)] == [True, True]
