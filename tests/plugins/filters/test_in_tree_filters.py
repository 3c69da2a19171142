"""Nova's own filters, unchanged, on climate's hosts; skipped if the package nova is missing."""

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from climate.config.registry import Misconfigured
from climate.core.errors import InvalidInput
from climate.core.lease.model import Inventory, Resource
from climate.core.matching.query import Everything
from climate.core.matching.requirement import Layout, RequestedFlavor, Requirement
from climate.core.matching.selection import Candidate
from climate.plugins.filters.nova_screen import NovaScreen, load_screen
from tests.conftest import MakeStory
from tests.support.bodies import HOSTS_AND_INSTANCES, copy_hosts, instances

pytest.importorskip("nova", reason="the package nova is not installed")
# Nova and its libraries cause warnings that climate cannot avoid.
pytestmark = pytest.mark.filterwarnings("ignore")
_PACKAGE = "nova.scheduler.filters"
_GPU_ALIAS = """
[pci]
alias = {"vendor_id": "10de", "product_id": "1eb8", "name": "gpu", "device_type": "type-PCI"}
"""
_SHAPE = {"vcpus": 2, "ram": 2048, "disk": 10}
_NUMA_CELL = {
    "id": 0,
    "cpuset": [0, 1, 2, 3],
    "pcpuset": [0, 1, 2, 3],
    "memory": 8192,
    "cpu_usage": 0,
    "memory_usage": 0,
    "siblings": [{0, 1}, {2, 3}],
    "pinned_cpus": [],
    "mempages": [],
    "network_metadata": {"physnets": [], "tunneled": False},
    "socket": 0,
}


@pytest.fixture
def screen(tmp_path: Any) -> Any:
    """Return a maker of screens with one of Nova's filters, such as ``compute_filter.Name``."""

    def make(name: str, options: str = "") -> NovaScreen:
        path = tmp_path / "nova.conf"
        path.write_text(options)
        return load_screen([f"{_PACKAGE}.{name}"], [str(path)])

    return make


def host(
    id_: int,
    free: Mapping[str, int] | None = None,
    *,
    reservable: bool = True,
    **properties: str,
) -> Candidate:
    present = {
        "hypervisor_hostname": f"node-{id_}",
        "hypervisor_type": "QEMU",
        "hypervisor_version": "8002000",
        "vcpus": "16",
        "memory_mb": "65536",
        "local_gb": "1000",
        "cpu_info": '{"arch": "x86_64", "vendor": "Intel"}',
    }
    resource = Resource(
        id=id_,
        type="physical:host",
        external_id=f"host-{id_}",
        reservable=reservable,
        properties={**present, **properties},
        native=frozenset(present),
        created_at=datetime(2030, 1, 1, tzinfo=UTC),
        updated_at=None,
    )
    inventories = {
        "VCPU": Inventory(16, 0, 4.0),
        "MEMORY_MB": Inventory(65536, 512),
        "DISK_GB": Inventory(1000),
    }
    return Candidate(resource, free or {}, inventories)


def request(
    specs: Mapping[str, str] | None = None, project: str = "p1", **fields: Any
) -> Requirement:
    flavor = RequestedFlavor(name="m1", shape=_SHAPE, extra_specs=specs or {})
    amounts = {"VCPU": 2, "MEMORY_MB": 2048, "DISK_GB": 10}
    return Requirement(
        "physical:host",
        1,
        1,
        Everything(),
        amounts,
        **{"flavor": flavor, "project_id": project, **fields},
    )


def passing(screen: NovaScreen, requirement: Requirement, *hosts: Candidate) -> list[int]:
    return [each.resource.id for each in screen(hosts, requirement)]


def test_compute_filter_rejects_hosts_that_are_not_reservable(screen: Any) -> None:
    found = passing(
        screen("compute_filter.ComputeFilter"), request(), host(1), host(2, reservable=False)
    )
    assert found == [1]


def test_compute_capabilities_filter_reads_attributes_stats_and_cpu_info(screen: Any) -> None:
    specs = {
        "capabilities:cpu_info:vendor": "Intel",
        "capabilities:free_ram_mb": ">= 2048",
        "capabilities:rack": "7",
    }
    little = host(3, {"VCPU": 64, "MEMORY_MB": 1024, "DISK_GB": 1000}, rack="7")
    hosts = (host(1, rack="7"), host(2, rack="8"), little)
    name = "compute_capabilities_filter.ComputeCapabilitiesFilter"
    assert passing(screen(name), request(specs), *hosts) == [1]


def test_aggregate_instance_extra_specs_filter_reads_properties(screen: Any) -> None:
    specs = {"aggregate_instance_extra_specs:ssd": "true"}
    name = "aggregate_instance_extra_specs.AggregateInstanceExtraSpecsFilter"
    assert passing(screen(name), request(specs), host(1, ssd="true"), host(2)) == [1]


def test_aggregate_multi_tenancy_isolation_reads_the_project(screen: Any) -> None:
    name = "aggregate_multitenancy_isolation.AggregateMultiTenancyIsolation"
    isolated = screen(name)
    hosts = (host(1, filter_tenant_id="p1"), host(2, filter_tenant_id="p2,p3"), host(3))
    assert passing(isolated, request(), *hosts) == [1, 3]
    assert passing(isolated, request(project="p3"), *hosts) == [2, 3]


def test_aggregate_type_affinity_filter_reads_the_name_of_the_flavor(screen: Any) -> None:
    name = "type_filter.AggregateTypeAffinityFilter"
    hosts = (host(1, instance_type="m1,m2"), host(2, instance_type="m3"), host(3))
    assert passing(screen(name), request(), *hosts) == [1, 3]


@pytest.mark.parametrize(
    "name",
    [
        "image_props_filter.ImagePropertiesFilter",
        "aggregate_image_properties_isolation.AggregateImagePropertiesIsolation",
        "json_filter.JsonFilter",
        "all_hosts_filter.AllHostsFilter",
        "metrics_filter.MetricsFilter",
    ],
)
def test_filters_of_data_that_climate_does_not_have_accept_all_hosts(
    screen: Any, name: str
) -> None:
    assert passing(screen(name), request(), host(1), host(2, hw_machine_type="q35")) == [1, 2]


def test_image_properties_filter_reads_the_default_architecture(screen: Any) -> None:
    options = "[filter_scheduler]\nimage_properties_default_architecture = aarch64\n"
    arm = host(2, cpu_info='{"arch": "aarch64"}')
    listed = host(3, supported_instances='[["aarch64", "kvm", "hvm"]]')
    name = "image_props_filter.ImagePropertiesFilter"
    assert passing(screen(name, options), request(), host(1), arm, listed) == [2, 3]


@pytest.mark.parametrize(
    ("name", "option", "key"),
    [
        ("io_ops_filter.IoOpsFilter", "max_io_ops_per_host", "num_io_ops"),
        ("num_instances_filter.NumInstancesFilter", "max_instances_per_host", "num_instances"),
    ],
)
def test_limits_of_a_host_come_from_the_files_of_nova(
    screen: Any, name: str, option: str, key: str
) -> None:
    limited = screen(name, f"[filter_scheduler]\n{option} = 3\n")
    few: dict[str, Any] = {key: "2"}
    many: dict[str, Any] = {key: "3"}
    assert passing(limited, request(), host(1, **few), host(2, **many)) == [1]


def test_aggregates_override_the_limits_of_a_host(screen: Any) -> None:
    limited = screen("num_instances_filter.AggregateNumInstancesFilter")
    hosts = (
        host(1, num_instances="9", max_instances_per_host="10"),
        host(2, num_instances="9", max_instances_per_host="5"),
    )
    assert passing(limited, request(), *hosts) == [1]


def test_isolated_hosts_filter_reads_the_image(screen: Any) -> None:
    image = "70ad1ab7-c51d-40e2-a67c-5e8d4d5a0a43"
    options = f"[filter_scheduler]\nisolated_hosts = host-2\nisolated_images = {image}\n"
    isolated = screen("isolated_hosts_filter.IsolatedHostsFilter", options)
    assert passing(isolated, request(), host(1), host(2)) == [1]
    flavor = RequestedFlavor(name="m1", shape=_SHAPE, image=image)
    assert passing(isolated, request(flavor=flavor), host(1), host(2)) == [2]


@pytest.mark.parametrize("layout", list(Layout))
@pytest.mark.parametrize("name", ["ServerGroupAffinityFilter", "ServerGroupAntiAffinityFilter"])
def test_group_filters_leave_the_layout_to_climate(screen: Any, name: str, layout: Layout) -> None:
    grouped = screen(f"affinity_filter.{name}")
    assert passing(grouped, request(layout=layout), host(1), host(2)) == [1, 2]


def test_numa_topology_filter_reads_the_topology_of_a_host(screen: Any) -> None:
    specs = {"hw:cpu_policy": "dedicated", "hw:numa_nodes": "1"}
    name = "numa_topology_filter.NUMATopologyFilter"
    small = numa({**_NUMA_CELL, "memory": 1024})
    hosts = (host(1, numa_topology=numa(_NUMA_CELL)), host(2), host(3, numa_topology=small))
    assert passing(screen(name), request(specs), *hosts) == [1]


def test_pci_passthrough_filter_compares_the_alias_with_the_pools(screen: Any) -> None:
    devices = screen("pci_passthrough_filter.PciPassthroughFilter", _GPU_ALIAS)
    hosts = (host(1), host(2, pci_device_pools=pools(1)), host(3, pci_device_pools=pools(2)))
    assert passing(devices, request({"pci_passthrough:alias": "gpu:2"}), *hosts) == [3]
    assert passing(devices, request(), *hosts) == [1, 2, 3]


def test_a_malformed_property_of_one_host_does_not_affect_others(screen: Any) -> None:
    devices = screen("pci_passthrough_filter.PciPassthroughFilter", _GPU_ALIAS)
    broken = [
        host(1, pci_device_pools="[{]"),
        host(2, pci_device_pools="7", numa_topology='{"cells": 1}'),
        host(3, pci_device_pools='[{"count": "x"}]', num_instances="many"),
    ]
    requested = request({"pci_passthrough:alias": "gpu:1"})
    assert passing(devices, requested, *broken, host(4, pci_device_pools=pools(1))) == [4]


def test_a_missing_file_of_nova_prevents_the_start() -> None:
    with pytest.raises(Misconfigured, match="nova_config_files: Failed to find"):
        load_screen([f"{_PACKAGE}.all_hosts_filter.AllHostsFilter"], ["/no/such/nova.conf"])


def test_an_unknown_pci_alias_is_invalid_input(screen: Any) -> None:
    devices = screen("pci_passthrough_filter.PciPassthroughFilter")
    with pytest.raises(InvalidInput, match="Nova rejects the extra specs of the flavor"):
        devices([host(1)], request({"pci_passthrough:alias": "fpga:1"}))


def test_filters_of_an_operator_run_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    filters: Any = import_module(_PACKAGE)

    class RackFilter(filters.BaseHostFilter):  # type: ignore[misc]
        """Reads the metadata of aggregates."""

        def host_passes(self, host_state: Any, spec_obj: Any) -> bool:
            wanted = spec_obj.flavor.extra_specs.get("example:rack")
            return any(each.metadata.get("rack") == wanted for each in host_state.aggregates)

    class AlternatingFilter(filters.BaseHostFilter):  # type: ignore[misc]
        """Keeps state: rejects what it accepted in the previous call."""

        run_filter_once_per_request = True

        def __init__(self) -> None:
            self.previous: set[str] = set()

        def filter_all(self, filter_obj_list: Any, spec_obj: Any) -> Any:
            accepted = [each for each in filter_obj_list if each.host not in self.previous][:1]
            self.previous = {each.host for each in accepted}
            return accepted

    module = ModuleType("site_filters")
    module.__dict__.update(RackFilter=RackFilter, AlternatingFilter=AlternatingFilter)
    monkeypatch.setitem(sys.modules, "site_filters", module)
    screen = load_screen(["site_filters.RackFilter", "site_filters.AlternatingFilter"], [])
    hosts = (host(1, rack="a"), host(2, rack="b"), host(3, rack="a"))
    requested = request({"example:rack": "a"})
    assert [passing(screen, requested, *hosts) for _ in range(3)] == [[1], [3], [1]]


def test_a_lease_gets_hosts_that_nova_s_filters_accept(
    make_story: MakeStory, hosts_template: Path, tmp_path: Path
) -> None:
    copy_hosts(hosts_template, tmp_path)
    names = [
        "compute_filter.ComputeFilter",
        "compute_capabilities_filter.ComputeCapabilitiesFilter",
        "aggregate_multitenancy_isolation.AggregateMultiTenancyIsolation",
    ]
    story = make_story(
        manager__plugins=HOSTS_AND_INSTANCES,
        selection__nova_filters=[f"{_PACKAGE}.{name}" for name in names],
    )
    for id_ in (1, 2, 3):
        story.ok("PUT", f"/v1/os-hosts/{id_}", {"filter_tenant_id": "other"})
    lease = story.reserve(reservations=[instances(3)])
    assert set(story.hosts_of(lease["id"])) == {"4"}
    story.refused(409, "POST", "/v1/leases", story.lease_body(reservations=[instances(200)]))


def numa(*cells: Mapping[str, Any]) -> str:
    """Return a NUMA topology in the form in which Nova stores it."""
    objects: Any = import_module("nova.objects")
    objects.register_all()
    made = [
        objects.NUMACell(
            **{
                **cell,
                "cpuset": set(cell["cpuset"]),
                "pcpuset": set(cell["pcpuset"]),
                "pinned_cpus": set(),
                "network_metadata": objects.NetworkMetadata(physnets=set(), tunneled=False),
            }
        )
        for cell in cells
    ]
    return str(objects.NUMATopology(cells=made)._to_json())


def pools(count: int) -> str:
    pool = {"vendor_id": "10de", "product_id": "1eb8", "count": count, "numa_node": None}
    return json.dumps([{**pool, "dev_type": "type-PCI"}])
