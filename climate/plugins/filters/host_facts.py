"""The values of Nova's ``HostState``, computed from climate's data about a host. Pure.

climate knows the properties of a host, its inventories, and how much of them is free while the
lease lasts. Nova's scheduler works with the use at the present instead.
"""

import json
import logging
from collections.abc import Mapping
from typing import Any

from climate.core.matching.selection import Candidate

LOG = logging.getLogger(__name__)
# Properties with JSON in the form that nova-compute reports. An operator or an agent sets them.
NUMA_TOPOLOGY = "numa_topology"
PCI_POOLS = "pci_device_pools"
SUPPORTED_INSTANCES = "supported_instances"
_JSON = (NUMA_TOPOLOGY, PCI_POOLS, SUPPORTED_INSTANCES)
_MIB = 1024


def attributes(candidate: Candidate) -> dict[str, Any]:
    """Return the attributes of ``HostState`` that are plain values; sizes in MiB and GiB.

    As in Nova, the part of an inventory that is reserved for the host counts as used.
    """
    properties = candidate.resource.properties
    memory, disk = _used(candidate, "MEMORY_MB"), _used(candidate, "DISK_GB")
    total_memory, total_disk = (
        _total(candidate, "memory_mb", "MEMORY_MB"),
        _total(candidate, "local_gb", "DISK_GB"),
    )
    return {
        "total_usable_ram_mb": total_memory,
        "free_ram_mb": total_memory - memory,
        "total_usable_disk_gb": total_disk,
        "free_disk_mb": (total_disk - disk) * _MIB,
        "disk_mb_used": disk * _MIB,
        "vcpus_total": _total(candidate, "vcpus", "VCPU"),
        "vcpus_used": _used(candidate, "VCPU") + _used(candidate, "PCPU"),
        "num_instances": number(properties, "num_instances"),
        "num_io_ops": number(properties, "num_io_ops"),
        "failed_builds": number(properties, "failed_builds"),
        "host_ip": properties.get("host_ip"),
        "hypervisor_type": properties.get("hypervisor_type"),
        "hypervisor_version": number(properties, "hypervisor_version"),
        "hypervisor_hostname": properties.get("hypervisor_hostname"),
        "cpu_info": properties.get("cpu_info"),
        "ram_allocation_ratio": _ratio(candidate, "MEMORY_MB"),
        "cpu_allocation_ratio": _ratio(candidate, "VCPU"),
        "disk_allocation_ratio": _ratio(candidate, "DISK_GB"),
        "stats": dict(properties),
        "supported_instances": supported_instances(properties),
    }


def aggregate_metadata(candidate: Candidate) -> dict[str, str]:
    """Return the metadata of the one aggregate of a host: its properties, without those in JSON."""
    properties = candidate.resource.properties
    return {name: value for name, value in properties.items() if name not in _JSON}


def supported_instances(properties: Mapping[str, str]) -> list[list[str]]:
    """Return what servers a host can run: triples of architecture, hypervisor and VM mode.

    Without the property ``supported_instances``, the host runs fully virtualised servers of its own
    architecture.
    """
    given = decoded(properties, SUPPORTED_INSTANCES)
    if isinstance(given, list):
        return given
    architecture = properties.get("cpu_info:arch") or _architecture(properties)
    hypervisor = properties.get("hypervisor_type", "").lower()
    if not architecture or not hypervisor:
        return []
    # nova-compute reports the type QEMU for KVM, too.
    names = ("kvm", "qemu") if hypervisor in ("kvm", "qemu") else (hypervisor,)
    return [[architecture, name, "hvm"] for name in names]


def decoded(properties: Mapping[str, str], name: str) -> Any:  # noqa: ANN401 - JSON
    """Return the value of a property that has JSON; None if it is missing or malformed."""
    text = properties.get(name)
    if not text:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        LOG.warning("the property %s of a host is not JSON: %.80s", name, text)
        return None


def number(properties: Mapping[str, str], name: str) -> int:
    """Return the value of a property as an integer; 0 if it is missing or no number."""
    try:
        return int(float(properties.get(name, 0)))
    except (ValueError, OverflowError):
        return 0


def _architecture(properties: Mapping[str, str]) -> str:
    info = decoded(properties, "cpu_info")
    return str(info.get("arch") or "") if isinstance(info, dict) else ""


def _total(candidate: Candidate, name: str, resource_class: str) -> int:
    inventory = candidate.inventories.get(resource_class)
    return number(candidate.resource.properties, name) or (inventory.total if inventory else 0)


def _used(candidate: Candidate, resource_class: str) -> int:
    """Return how much of a resource class is not free at some time during the lease."""
    inventory = candidate.inventories.get(resource_class)
    if inventory is None:
        return 0
    booked = inventory.capacity - candidate.free.get(resource_class, inventory.capacity)
    return inventory.reserved + booked


def _ratio(candidate: Candidate, resource_class: str) -> float:
    inventory = candidate.inventories.get(resource_class)
    return inventory.allocation_ratio if inventory else 1.0
