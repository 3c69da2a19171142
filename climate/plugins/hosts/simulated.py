"""Simulated hosts and their driver (HostCloud), for demonstrations and tests.

The section ``[simulated]`` configures the delay and the failure rate of calls, and the seed of
random failures. The driver computes its state from its journal, see
``climate.plugins.simulated_journal``.
"""

import json
from collections.abc import Collection, Mapping, Sequence

from oslo_config.cfg import ConfigOpts

from climate.core.errors import Conflict
from climate.core.lease.model import Inventory
from climate.core.matching.extra_specs import PRESENT, RESOURCES, TRAIT
from climate.plugins.base import DiscoveredResource
from climate.plugins.hosts.audit import Pool
from climate.plugins.simulated_journal import Journal, SimulatedFailure


def host(number: int, down: Collection[str]) -> DiscoveredResource:
    """Return the simulated host with this number; every fourth host is large and has GPUs.

    ``down`` are the names of all hosts that have failed.
    """
    name = f"sim-{number}"
    vcpus = 64 if number % 4 == 0 else 16
    traits = ["HW_CPU_X86_AVX2", *(["CUSTOM_GPU_HOST"] if number % 4 == 0 else [])]
    return DiscoveredResource(
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


class SimulatedCloud(Journal):
    """A HostCloud with ``[simulated] hosts`` hosts, named sim-1, sim-2 and so on."""

    properties: frozenset[str] = frozenset()
    matches_openly = True

    def __init__(self, conf: ConfigOpts) -> None:
        super().__init__(conf)
        self._count: int = conf.simulated.hosts

    def hosts(self) -> list[DiscoveredResource]:
        with self.locked() as state:
            down = state.down | state.disabled
            return [host(number, down) for number in range(1, self._count + 1)]

    def load_properties(self, hosts: Sequence[DiscoveredResource]) -> Sequence[DiscoveredResource]:
        return hosts

    def servers(self, host: str) -> Sequence[str]:
        with self.locked() as state:
            return sorted(state.servers.get(host, ()))

    def enroll(self, host: str) -> None:
        self.append({"effect": "enroll", "host": host})

    def withdraw(self, host: str) -> None:
        self.append({"effect": "withdraw", "host": host})
        self.enable_service(host)

    def disable_service(self, host: str) -> None:
        """Disable the service of a free host; ``hosts`` then reports the host as ``lost``."""
        with self.locked() as state:
            is_free = host in state.enrolled and host not in state.holder
            is_disabled = host in state.disabled
        if not (is_free or is_disabled):
            raise Conflict(f"{host} is not among the free hosts")
        self.append({"effect": "rest", "host": host})
        if servers := self.servers(host):
            raise Conflict(f"servers {', '.join(servers)} are on {host}")

    def enable_service(self, host: str) -> None:
        self.append({"effect": "rouse", "host": host})

    def close_pool(self, pool: str) -> None:
        """Do nothing, because in this cloud only ``boot_server`` starts servers."""

    def ensure_pool(self, pool: str, project_id: str, *, is_first: bool = False) -> None:
        with self.locked() as state:
            exists = pool in state.pools
        if not exists:
            first = {"first": "true"} if is_first else {}
            self.act("ensure_pool", pool=pool, project=project_id, **first)

    def pool_hosts(self, pool: str) -> Sequence[str]:
        with self.locked() as state:
            return sorted(state.pools.get(pool, ()))

    def pools(self) -> Mapping[str, Pool]:
        with self.locked() as state:
            return {
                name: Pool(state.owner.get(name), tuple(sorted(hosts)))
                for name, hosts in state.pools.items()
            }

    def free_hosts(self) -> Sequence[str]:
        with self.locked() as state:
            return sorted(state.enrolled - state.holder.keys())

    def add_host(self, pool: str, host: str) -> None:
        with self.locked() as state:
            holder = state.holder.get(host)
        if holder not in {None, pool}:
            raise SimulatedFailure(f"{host} is still in pool {holder}")
        if holder is None:
            self.act("add_host", pool=pool, host=host)

    def remove_host(self, pool: str, host: str) -> None:
        if host in self.pool_hosts(pool):
            self.act("remove_host", pool=pool, host=host)

    def delete_pool(self, pool: str) -> None:
        with self.locked() as state:
            hosts = state.pools.get(pool)
        if hosts:
            raise SimulatedFailure(f"pool {pool} still has {', '.join(sorted(hosts))}")
        if hosts is not None:
            self.act("delete_pool", pool=pool)

    def boot_server(self, host: str, server: str) -> None:
        """Start a server on a host, as a user would do."""
        self.act("boot_server", host=host, server=server)

    def fail_host(self, host: str) -> None:
        """Simulate the failure of a host: ``hosts`` reports it as lost."""
        self.act("fail_host", host=host)

    def mend_host(self, host: str) -> None:
        """End the simulated failure of a host."""
        self.act("mend_host", host=host)

    def delete_servers(self, pool: str, host: str) -> None:
        if self.servers(host) and host in self.pool_hosts(pool):
            self.act("delete_servers", host=host)

    def snapshot_servers(self, host: str, occasion: str) -> None:
        for server in self.servers(host):
            image = {"host": host, "server": server, "occasion": occasion}
            with self.locked() as state:
                is_saved = {"effect": "snapshot", **image} in state.effects
            if not is_saved:
                self.act("snapshot", **image)
