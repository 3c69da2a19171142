"""What the hosts of the simulated cloud are. Pure."""

import json
from collections.abc import Collection

from climate.core.extra_specs import PRESENT, RESOURCES, TRAIT
from climate.core.lease import Inventory
from climate.plugins.base import Found


def host(number: int, down: Collection[str]) -> Found:
    """Return host ``number``: every fourth is large, and has GPUs."""
    name = f"sim-{number}"
    vcpus = 64 if number % 4 == 0 else 16
    traits = ["HW_CPU_X86_AVX2", *(["CUSTOM_GPU_HOST"] if number % 4 == 0 else [])]
    return Found(
        external_id=name,
        usable=name not in down,
        lost=name in down,
        inventories={
            "VCPU": Inventory(vcpus),
            "MEMORY_MB": Inventory(vcpus * 4096),
            "DISK_GB": Inventory(1000),
            **({"CUSTOM_GPU": Inventory(2)} if number % 4 == 0 else {}),
        },
        properties={
            "id": str(number),
            "hypervisor_hostname": name,
            "service_name": name,
            "hypervisor_type": "simulated",
            "hypervisor_version": "1000",
            "vcpus": str(vcpus),
            "memory_mb": str(vcpus * 4096),
            "local_gb": "1000",
            "cpu_info": json.dumps({"arch": "x86_64", "topology": {"cores": vcpus}}),
            "availability_zone": "sim",
            **{f"{TRAIT}{trait}": PRESENT for trait in traits},
            **({f"{RESOURCES}CUSTOM_GPU": "2"} if number % 4 == 0 else {}),
        },
    )
