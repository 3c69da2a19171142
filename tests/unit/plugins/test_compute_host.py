"""What Nova's list of hypervisors means as hosts that can be reserved."""

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from climate.plugins.base import DiscoveredResource
from climate.plugins.hosts.nova_services import (
    REST,
    Service,
    find_hosts,
    known_services,
    parse_capabilities,
)


def node(name: str, service: str, **told: Any) -> dict[str, Any]:
    """Return a hypervisor as Nova lists it."""
    return {
        "id": f"uuid-{name}",
        "hypervisor_hostname": name,
        "service": {"host": service},
        "hypervisor_type": "QEMU",
        "hypervisor_version": 1000,
        "cpu_info": {"arch": "x86_64"},
        "vcpus": 16,
        "memory_mb": 1024,
        "local_gb": 10,
        "state": "up",
        "status": "enabled",
        **told,
    }


def hosts(*nodes: dict[str, Any], alone: bool = True, **options: Any) -> list[DiscoveredResource]:
    services = {name: Service(zone) for name, zone in options.get("zones", {}).items()}
    return list(find_hosts(nodes, services, options.get("capabilities", {}), alone=alone))


class TestAServiceWithOneNode:
    def test_is_one_host_named_by_the_service(self) -> None:
        (host,) = hosts(node("n1.example.org", "n1"), zones={"n1": "az-1"})
        assert host.external_id == "n1"
        assert host.properties["hypervisor_hostname"] == "n1.example.org"
        assert host.properties["service_name"] == "n1"
        assert host.properties["availability_zone"] == "az-1"
        assert host.properties["vcpus"] == "16"
        assert json.loads(host.properties["cpu_info"]) == {"arch": "x86_64"}
        assert host.refusal is None

    @pytest.mark.parametrize(
        ("told", "usable"),
        [({}, True), ({"state": "down"}, False), ({"status": "disabled"}, False)],
    )
    def test_is_usable_if_up_and_enabled(self, told: dict[str, str], usable: bool) -> None:
        assert hosts(node("n1", "n1", **told))[0].usable is usable

    def test_is_usable_if_climate_disabled_it_itself(self) -> None:
        told = node("n1", "n1", status="disabled")
        told["service"]["disabled_reason"] = REST
        (host,) = hosts(told)
        assert (host.usable, host.disabled) == (True, False)
        (host,) = hosts({**told, "state": "down"})
        assert (host.usable, host.lost, host.disabled) == (False, True, False)

    def test_was_heard_of_when_its_service_was(self) -> None:
        moment = datetime(2026, 11, 22, 5, 24, 52, tzinfo=UTC)
        told = {"s": "2026-11-22T05:24:52.000000", "n1": None}
        listed = [SimpleNamespace(host=name, zone="", updated_at=at) for name, at in told.items()]
        heard = [
            one.heard_at
            for one in find_hosts(
                [node("b1", "s"), node("b2", "s"), node("n1", "n1")],
                known_services(listed, str),
                {},
                alone=True,
            )
        ]
        assert heard == [datetime(1970, 1, 1, tzinfo=UTC), moment, moment, moment]

    def test_has_what_the_configuration_says_of_its_node(self) -> None:
        (host,) = hosts(node("domain-c7", "vc"), capabilities={"domain-c7": {"ha": "True"}})
        assert host.properties["ha"] == "True"

    def test_has_an_empty_text_for_what_nova_does_not_tell(self) -> None:
        assert hosts(node("n1", "n1", cpu_info=None))[0].properties["cpu_info"] == ""

    def test_has_the_pieces_of_what_nova_says_of_its_cpus(self) -> None:
        told = {"arch": "x86_64", "features": ["avx2"], "topology": {"cores": 8}, "extra": 1}
        (host,) = hosts(node("n1", "n1", cpu_info=told))
        assert {name: host.properties[name] for name in host.properties if ":" in name} == {
            "cpu_info:arch": "x86_64",
            "cpu_info:features": '["avx2"]',
            "cpu_info:topology:cores": "8",
        }

    @pytest.mark.parametrize("told", [None, "x86_64", [], {"topology": None}])
    def test_has_no_pieces_of_what_has_none(self, told: Any) -> None:
        (host,) = hosts(node("n1", "n1", cpu_info=told))
        assert not [name for name in host.properties if ":" in name]


class TestAServiceWithSeveralNodes:
    NODES = (node("b2", "ironic", vcpus=8), node("b1", "ironic"), node("n1", "n1"))

    def test_is_a_host_as_a_whole_and_each_of_its_nodes_is_one(self) -> None:
        names = [host.external_id for host in hosts(*self.NODES)]
        assert names == ["ironic", "ironic/b2", "ironic/b1", "n1"]

    def test_adds_its_nodes_up(self) -> None:
        whole = hosts(*self.NODES)[0].properties
        assert (whole["vcpus"], whole["memory_mb"]) == ("24", "2048")
        assert whole["nodes"] == "b1,b2"
        assert whole["hypervisor_hostname"] == "ironic"
        assert whole["hypervisor_type"] == "QEMU"

    def test_has_no_say_on_what_its_nodes_differ_in(self) -> None:
        nodes = (node("b1", "s", hypervisor_type="a"), node("b2", "s", hypervisor_type="b"))
        assert hosts(*nodes)[0].properties["hypervisor_type"] == ""

    def test_has_the_capabilities_that_all_its_nodes_have(self) -> None:
        known = {"b1": {"ha": "True", "drs": "True"}, "b2": {"ha": "True", "drs": "False"}}
        whole = hosts(*self.NODES, capabilities=known)[0].properties
        assert whole["ha"] == "True"
        assert "drs" not in whole

    def test_works_only_if_all_its_nodes_do(self) -> None:
        nodes = (node("b1", "s"), node("b2", "s", state="down"))
        assert [host.usable for host in hosts(*nodes)] == [False, True, False]

    def test_says_why_a_node_cannot_be_had_alone_where_it_cannot(self) -> None:
        refusals = [host.refusal for host in hosts(*self.NODES, alone=False)]
        assert refusals[0] is refusals[3] is None
        assert "b2 is one of 2 nodes of the compute service ironic" in str(refusals[1])


class TestCapabilities:
    def test_are_read_line_by_line(self) -> None:
        lines = ["domain-c7: ha=True, drs=False", "", "n1:rack=r1=left"]
        assert parse_capabilities(lines) == {
            "domain-c7": {"ha": "True", "drs": "False"},
            "n1": {"rack": "r1=left"},
        }

    @pytest.mark.parametrize("line", ["domain-c7", "domain-c7:", ": ha=True", "n1: ha", "n1: =x"])
    def test_of_another_form_are_refused_with_the_line(self, line: str) -> None:
        with pytest.raises(ValueError, match="does not have the form"):
            parse_capabilities([line])
