"""Hosts from Nova's list of hypervisors and compute services."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from climate.core.provisioning.cleaning import NodeState, Report
from climate.plugins.base import DiscoveredResource
from climate.plugins.hosts.ironic_nodes import with_facts
from climate.plugins.hosts.nova_services import (
    REST,
    Service,
    find_hosts,
    known_services,
    parse_capabilities,
)
from tests.support.cases import each_case


def node(name: str, service: str, **values: Any) -> dict[str, Any]:
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
        **values,
    }


def hosts(*nodes: Mapping[str, Any], **options: Any) -> list[DiscoveredResource]:
    services = {name: Service(zone) for name, zone in options.get("zones", {}).items()}
    return list(find_hosts(nodes, services, options.get("capabilities", {})))


class TestServiceWithOneNode:
    def test_is_one_host_named_by_the_service(self) -> None:
        (host,) = hosts(node("n1.example.org", "n1"), zones={"n1": "az-1"})
        assert host.external_id == "n1"
        assert host.properties["hypervisor_hostname"] == "n1.example.org"
        assert host.properties["service_name"] == "n1"
        assert host.properties["availability_zone"] == "az-1"
        assert host.properties["vcpus"] == "16"
        assert json.loads(host.properties["cpu_info"]) == {"arch": "x86_64"}

    @each_case(
        "values, usable", [({}, True), ({"state": "down"}, False), ({"status": "disabled"}, False)]
    )
    def test_is_usable_if_up_and_enabled(self, values: dict[str, str], usable: bool) -> None:
        assert hosts(node("n1", "n1", **values))[0].usable is usable

    def test_a_node_of_ironic_has_its_sizes_and_is_not_usable_in_maintenance(self) -> None:
        sizes = {"cpus": "8", "memory_mb": 4096, "local_gb": "much"}
        known = {"n1": {"uuid": "n1", "maintenance": True, "properties": sizes}}
        nova = node("n1", "s", hypervisor_type="ironic", vcpus=0, memory_mb=0, local_gb=0)
        (host,) = hosts(with_facts(nova, known))
        assert [host.properties[name] for name in ("vcpus", "memory_mb", "local_gb")] == [
            "8",
            "4096",
            "0",
        ]
        assert (host.usable, host.lost) == (False, False)
        (host,) = hosts(with_facts(nova, {}))
        assert (host.usable, host.properties["vcpus"]) == (True, "0")

    @each_case(
        "state, known",
        [
            ("available", NodeState.AVAILABLE),
            ("clean wait", NodeState.CLEANING),
            ("active", NodeState.IN_USE),
            ("clean failed", NodeState.FAILED),
        ],
    )
    def test_a_node_of_ironic_has_its_class_and_its_state(
        self, state: str, known: NodeState
    ) -> None:
        since = "2030-01-15T12:00:00+00:00"
        facts = {"uuid": "n1", "provision_state": state, "provision_updated_at": since}
        nova = node("n1", "s", hypervisor_type="ironic")
        (host,) = hosts(with_facts(nova, {"n1": {**facts, "resource_class": "baremetal.small"}}))
        assert host.properties["resource_class"] == "baremetal.small"
        assert host.provision == Report(known, datetime(2030, 1, 15, 12, tzinfo=UTC))
        (host,) = hosts(with_facts(nova, {}))
        assert (host.provision, host.properties.get("resource_class")) == (None, None)

    def test_is_usable_if_climate_disabled_it(self) -> None:
        values = node("n1", "n1", status="disabled")
        values["service"]["disabled_reason"] = REST
        (host,) = hosts(values)
        assert (host.usable, host.disabled) == (True, False)
        (host,) = hosts({**values, "state": "down"})
        assert (host.usable, host.lost, host.disabled) == (False, True, False)

    def test_has_the_heartbeat_of_its_service(self) -> None:
        moment = datetime(2026, 11, 22, 5, 24, 52, tzinfo=UTC)
        values = {"s": "2026-11-22T05:24:52.000000", "n1": None}
        listed = [SimpleNamespace(host=name, zone="", updated_at=at) for name, at in values.items()]
        heard = [
            item.heard_at
            for item in find_hosts(
                [node("b1", "s"), node("b2", "s"), node("n1", "n1")],
                known_services(listed, str),
                {},
            )
        ]
        assert heard == [datetime(1970, 1, 1, tzinfo=UTC), moment, moment, moment]

    def test_has_the_configured_capabilities_of_its_node(self) -> None:
        (host,) = hosts(node("domain-c7", "vc"), capabilities={"domain-c7": {"ha": "True"}})
        assert host.properties["ha"] == "True"

    def test_has_an_empty_text_for_a_missing_value(self) -> None:
        assert hosts(node("n1", "n1", cpu_info=None))[0].properties["cpu_info"] == ""

    def test_has_the_parts_of_the_cpu_info(self) -> None:
        values = {"arch": "x86_64", "features": ["avx2"], "topology": {"cores": 8}, "extra": 1}
        (host,) = hosts(node("n1", "n1", cpu_info=values))
        assert {name: host.properties[name] for name in host.properties if ":" in name} == {
            "cpu_info:arch": "x86_64",
            "cpu_info:features": '["avx2"]',
            "cpu_info:topology:cores": "8",
        }

    @each_case("values", [None, "x86_64", [], {"topology": None}])
    def test_has_no_parts_of_other_cpu_info(self, values: Any) -> None:
        (host,) = hosts(node("n1", "n1", cpu_info=values))
        assert not [name for name in host.properties if ":" in name]


class TestServiceWithSeveralNodes:
    NODES = (node("b2", "ironic", vcpus=8), node("b1", "ironic"), node("n1", "n1"))

    def test_is_a_host_and_each_of_its_nodes_is_one(self) -> None:
        names = [host.external_id for host in hosts(*self.NODES)]
        assert names == ["ironic", "ironic/b2", "ironic/b1", "n1"]

    def test_adds_its_nodes_up(self) -> None:
        whole = hosts(*self.NODES)[0].properties
        assert (whole["vcpus"], whole["memory_mb"]) == ("24", "2048")
        assert whole["nodes"] == "b1,b2"
        assert whole["hypervisor_hostname"] == "ironic"
        assert whole["hypervisor_type"] == "QEMU"

    def test_has_an_empty_text_where_its_nodes_differ(self) -> None:
        nodes = (node("b1", "s", hypervisor_type="a"), node("b2", "s", hypervisor_type="b"))
        assert hosts(*nodes)[0].properties["hypervisor_type"] == ""

    def test_has_the_capabilities_common_to_its_nodes(self) -> None:
        known = {"b1": {"ha": "True", "drs": "True"}, "b2": {"ha": "True", "drs": "False"}}
        whole = hosts(*self.NODES, capabilities=known)[0].properties
        assert whole["ha"] == "True"
        assert "drs" not in whole

    def test_is_usable_only_if_all_its_nodes_are(self) -> None:
        nodes = (node("b1", "s"), node("b2", "s", state="down"))
        assert [host.usable for host in hosts(*nodes)] == [False, True, False]


class TestCapabilities:
    def test_are_parsed_line_by_line(self) -> None:
        lines = ["domain-c7: ha=True, drs=False", "", "n1:rack=r1=left"]
        assert parse_capabilities(lines) == {
            "domain-c7": {"ha": "True", "drs": "False"},
            "n1": {"rack": "r1=left"},
        }

    @each_case("line", ["domain-c7", "domain-c7:", ": ha=True", "n1: ha", "n1: =x"])
    def test_rejects_an_invalid_line(self, line: str) -> None:
        with pytest.raises(ValueError, match="does not have the form"):
            parse_capabilities([line])
