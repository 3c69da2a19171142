"""Simulated hosts and their cloud driver, for demos, tests and simulations.

The driver behaves like a slow and fallible cloud, the same way each time for the same seed. Its
state is the journal of effects (``climate.plugins.simulated_journal``).
"""

import json
from collections.abc import Collection, Mapping, Sequence

from oslo_config.cfg import ConfigOpts

from climate.core.errors import Conflict
from climate.core.lease.model import Inventory
from climate.core.matching.extra_specs import PRESENT, RESOURCES, TRAIT
from climate.plugins.base import Found
from climate.plugins.hosts.audit import Pool
from climate.plugins.simulated_journal import Journal, SimulatedFailure


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


class SimulatedCloud(Journal):
    """``[simulated] hosts`` hosts named sim-1, sim-2, ... (see HostCloud for the methods)."""

    properties: frozenset[str] = frozenset()

    def __init__(self, conf: ConfigOpts) -> None:
        """Read the settings; the journal file is created with its first entry."""
        super().__init__(conf)
        self._count: int = conf.simulated.hosts

    def hosts(self) -> list[Found]:
        """Return all hosts, each with its properties."""
        with self.present() as world:
            down = world.down | world.resting
            return [host(number, down) for number in range(1, self._count + 1)]

    def described(self, hosts: Sequence[Found]) -> Sequence[Found]:
        """Return them as they are: all is known at once."""
        return hosts

    def servers(self, host: str) -> Sequence[str]:
        """Return the servers that tests put on a host."""
        with self.present() as world:
            return sorted(world.servers.get(host, ()))

    def enroll(self, host: str) -> None:
        """Put a host among the free ones."""
        self.append({"effect": "enroll", "host": host})

    def withdraw(self, host: str) -> None:
        """Take a host from the free ones."""
        self.append({"effect": "withdraw", "host": host})
        self.rouse(host)

    def rest(self, host: str) -> None:
        """Take a free host out of service, which is without power from then on."""
        with self.present() as world:
            is_free = host in world.enrolled and host not in world.holder
            is_resting = host in world.resting
        if not (is_free or is_resting):
            raise Conflict(f"{host} is not among the free hosts")
        self.append({"effect": "rest", "host": host})
        if servers := self.servers(host):
            raise Conflict(f"servers {', '.join(servers)} are on {host}")

    def rouse(self, host: str) -> None:
        """Take a host back into service."""
        self.append({"effect": "rouse", "host": host})

    def close_pool(self, pool: str) -> None:
        """Do nothing: nobody else uses this cloud."""

    def ensure_pool(self, pool: str, project_id: str) -> None:
        """Make the pool, unless it is there."""
        with self.present() as world:
            exists = pool in world.pools
        if not exists:
            self.act("ensure_pool", pool=pool, project=project_id)

    def pool_hosts(self, pool: str) -> Sequence[str]:
        """Return the hosts in the pool."""
        with self.present() as world:
            return sorted(world.pools.get(pool, ()))

    def pools(self) -> Mapping[str, Pool]:
        """Return all pools."""
        with self.present() as world:
            return {
                name: Pool(world.owner.get(name), tuple(sorted(hosts)))
                for name, hosts in world.pools.items()
            }

    def free_hosts(self) -> Sequence[str]:
        """Return the registered hosts that are in no pool."""
        with self.present() as world:
            return sorted(world.enrolled - world.holder.keys())

    def add_host(self, pool: str, host: str) -> None:
        """Move a host into the pool; fails if another pool has it, as Nova would."""
        with self.present() as world:
            holder = world.holder.get(host)
        if holder not in {None, pool}:
            raise SimulatedFailure(f"{host} is still in pool {holder}")
        if holder is None:
            self.act("add_host", pool=pool, host=host)

    def remove_host(self, pool: str, host: str) -> None:
        """Move a host out of the pool."""
        if host in self.pool_hosts(pool):
            self.act("remove_host", pool=pool, host=host)

    def delete_pool(self, pool: str) -> None:
        """Remove the pool, if it is there; fails while hosts are in it, as Nova would."""
        with self.present() as world:
            hosts = world.pools.get(pool)
        if hosts:
            raise SimulatedFailure(f"pool {pool} still has {', '.join(sorted(hosts))}")
        if hosts is not None:
            self.act("delete_pool", pool=pool)

    def boot_server(self, host: str, server: str) -> None:
        """Put a server on a host: what a user of the cloud would do."""
        self.act("boot_server", host=host, server=server)

    def fail_host(self, host: str) -> None:
        """Let a host fail: what happens to any cloud."""
        self.act("fail_host", host=host)

    def mend_host(self, host: str) -> None:
        """Let a host work again."""
        self.act("mend_host", host=host)

    def delete_servers(self, pool: str, host: str) -> None:
        """Delete all servers on the host, if the pool has it."""
        if self.servers(host) and host in self.pool_hosts(pool):
            self.act("delete_servers", host=host)

    def snapshot_servers(self, host: str, occasion: str) -> None:
        """Pretend to keep images of the servers, unless they were kept on this occasion."""
        for server in self.servers(host):
            image = {"host": host, "server": server, "occasion": occasion}
            with self.present() as world:
                is_kept = {"effect": "snapshot", **image} in world.effects
            if not is_kept:
                self.act("snapshot", **image)
