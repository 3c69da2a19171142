"""What Placement says of hosts becomes properties, at few requests and without losing any."""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from keystoneauth1.exceptions import ConnectFailure

from climate.core.lease.model import Inventory
from climate.plugins.base import DiscoveredResource
from climate.plugins.hosts import placement_inventory
from climate.plugins.hosts.nova_services import NODES
from climate.plugins.hosts.placement_inventory import ProviderInventory


class Answer:
    def __init__(self, body: Any) -> None:
        self.json = lambda: body


def _inventory(total: int) -> dict[str, Any]:
    told = {"total": total, "reserved": 1, "allocation_ratio": 4.0, "max_unit": total}
    return {**told, "min_unit": 1, "step_size": 1}


class Placement:
    """Providers in memory, asked as an adapter asks the real one; remembers what it was asked."""

    def __init__(self) -> None:
        self.providers: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
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
        return next(id_ for id_, one in self.providers.items() if one["name"] == name)

    def change(self, name: str, **what: Any) -> None:
        one = self.providers[self.id_of(name)]
        one.update(what, generation=one["generation"] + 1)

    def get(self, path: str, params: dict[str, str]) -> Answer:
        if self.is_down:
            raise ConnectFailure("no route")
        _, id_, what = [*path.split("/")[1:], "", ""][:3]
        self.asked.append(what or "list")
        if id_:
            return Answer({what: self.providers[id_][what]})
        found = list(self.providers.values())
        if "name" in params:
            found = [one for one in found if one["name"] == params["name"]]
        if "in_tree" in params:
            found = [one for one in found if one["root_provider_uuid"] == params["in_tree"]]
        return Answer({"resource_providers": found})


@pytest.fixture
def placement() -> Iterator[Placement]:
    made = Placement()
    made.add("n1", ["HW_CPU_X86_AVX2", "COMPUTE_ACCELERATORS", "CUSTOM_A"], VCPU=16, CUSTOM_GPU=3)
    made.add("n1-gpu", ["CUSTOM_B"], root="n1", CUSTOM_GPU=2, CUSTOM_RESERVATION_X=2)
    made.add("n2", ["CUSTOM_A", "CUSTOM_" + "X" * 52], VCPU=16)
    return made


def host(name: str, *nodes: str) -> DiscoveredResource:
    properties = {"hypervisor_hostname": name, **({NODES: ",".join(nodes)} if nodes else {})}
    return DiscoveredResource(external_id=name, properties=properties)


def facts(placement: Placement, *hosts: DiscoveredResource, **options: Any) -> list[dict[str, str]]:
    made = ProviderInventory(placement, ["CUSTOM_*", "HW_*"], ["CUSTOM_*"])  # type: ignore[arg-type]
    return told(made, *hosts, **options)


def told(made: ProviderInventory, *hosts: DiscoveredResource) -> list[dict[str, str]]:
    found = made.describe(hosts, {one.external_id for one in hosts})
    assert all(one.complete for one in found)
    return [{name: value for name, value in one.properties.items() if ":" in name} for one in found]


N1 = {
    "trait:HW_CPU_X86_AVX2": "True",
    "trait:CUSTOM_A": "True",
    "trait:CUSTOM_B": "True",
    "resources:CUSTOM_GPU": "3",
}


class TestWhatAHostHas:
    @pytest.mark.parametrize("others", [(), ("n2",)])
    def test_is_what_its_tree_of_providers_has(
        self, placement: Placement, others: tuple[str, ...]
    ) -> None:
        assert facts(placement, host("n1"), *map(host, others))[0] == N1

    def test_is_nothing_more_if_placement_does_not_know_it(self, placement: Placement) -> None:
        assert facts(placement, host("n3")) == [{}]

    def test_leaves_out_names_that_no_property_can_have(self, placement: Placement) -> None:
        assert facts(placement, host("n2")) == [{"trait:CUSTOM_A": "True"}]

    def test_is_common_to_its_nodes_and_their_amounts_add_up(self, placement: Placement) -> None:
        whole = host("service", "n1", "n2")
        assert facts(placement, whole) == [{"trait:CUSTOM_A": "True", "resources:CUSTOM_GPU": "3"}]

    def test_is_not_told_if_nothing_is_wanted(self, placement: Placement) -> None:
        made = ProviderInventory(placement, [], [])  # type: ignore[arg-type]
        assert told(made, host("n1"), host("n2")) == [{}, {}]
        assert "traits" not in placement.asked

    def test_can_be_shared_but_for_what_reservations_bring(self, placement: Placement) -> None:
        [found] = ProviderInventory(placement, [], []).describe([host("n1")], ["n1"])  # type: ignore[arg-type]
        assert found.inventories == {
            "VCPU": Inventory(16, 1, 4.0, 16),
            "CUSTOM_GPU": Inventory(5, 2, 4.0, 3),
        }

    @pytest.mark.parametrize(
        "several",
        [
            host("service", "n1", "n2"),
            replace(host("n1"), external_id="service/n1"),
        ],
    )
    def test_cannot_be_shared_if_it_is_one_of_several_nodes_or_all_of_them(
        self, placement: Placement, several: DiscoveredResource
    ) -> None:
        made = ProviderInventory(placement, [], [])  # type: ignore[arg-type]
        [found] = made.describe([several], [several.external_id])
        assert (found.complete, found.inventories) == (True, {})


class TestALook:
    @pytest.fixture
    def made(self, placement: Placement) -> ProviderInventory:
        found = ProviderInventory(placement, ["CUSTOM_*", "HW_*"], ["CUSTOM_*"])  # type: ignore[arg-type]
        told(found, host("n1"), host("n2"))
        placement.asked.clear()
        return found

    def test_reads_again_only_what_has_changed(
        self, placement: Placement, made: ProviderInventory
    ) -> None:
        assert told(made, host("n1"), host("n2"))[0] == N1
        assert placement.asked == ["list"]
        placement.change("n2", traits=["CUSTOM_C"])
        assert told(made, host("n1"), host("n2"))[1] == {"trait:CUSTOM_C": "True"}
        assert placement.asked == ["list", "list", "traits", "inventories"]

    def test_sees_a_provider_that_came_or_went(
        self, placement: Placement, made: ProviderInventory
    ) -> None:
        placement.add("n2-gpu", root="n2", CUSTOM_GPU=9)
        assert told(made, host("n1"), host("n2"))[1]["resources:CUSTOM_GPU"] == "8"
        del placement.providers[placement.id_of("n2-gpu")]
        assert "resources:CUSTOM_GPU" not in told(made, host("n1"), host("n2"))[1]

    def test_leaves_others_hosts_alone(self, placement: Placement, made: ProviderInventory) -> None:
        placement.change("n2", traits=["CUSTOM_C"])
        first, second = made.describe([host("n1"), host("n2")], ["n1"])
        assert (first.complete, second.complete) == (True, False)
        assert placement.asked == ["list", "list"]

    def test_says_that_it_knows_nothing_new_when_placement_is_down(
        self, placement: Placement, made: ProviderInventory
    ) -> None:
        placement.is_down = True
        assert [one.complete for one in made.describe([host("n1")], ["n1"])] == [False]

    def test_reads_no_more_than_a_share_and_the_rest_next_time(
        self, placement: Placement, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(placement_inventory, "MOST_READ", 1)
        made = ProviderInventory(placement, ["CUSTOM_*", "HW_*"], [])  # type: ignore[arg-type]
        hosts, names = [host("n1"), host("n2")], ["n1", "n2"]
        assert [one.complete for one in made.describe(hosts, names)] == [True, False]
        assert [one.complete for one in made.describe(hosts, names)] == [True, True]
