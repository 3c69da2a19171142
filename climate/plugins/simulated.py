"""A cloud of made-up hosts: for demos, tests and simulations, never for use.

It behaves like a slow and fallible cloud, the same way each time for the same seed. What was
done to it is a journal of effects; with ``[simulated] journal`` that is a file, one JSON object
a line, which several processes share and which outlives them. A real driver replaces this
module, not the plugin above it.
"""

import fcntl
import json
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oslo_config.cfg import ConfigOpts

from climate.core.errors import Conflict
from climate.plugins import fence, simulated_hosts
from climate.plugins.base import Found
from climate.plugins.host_audit import Pool

# What climate does about hosts, not about leases.
_REGISTRATION = {"enroll", "withdraw", "rest", "rouse"}


class SimulatedFailure(RuntimeError):
    """The failure that ``[simulated] failure_rate`` asked for."""


class SimulatedCloud:
    """``[simulated] hosts`` hosts named sim-1, sim-2, ... (see HostCloud for the methods)."""

    properties: frozenset[str] = frozenset()

    def __init__(self, conf: ConfigOpts) -> None:
        """Read the settings; the journal file is made when first written."""
        settings = conf.simulated
        self._count: int = settings.hosts
        self._delay: float = settings.delay
        self._failure_rate: float = settings.failure_rate
        self._random = random.Random(settings.seed)  # noqa: S311 - repeatable, not secret
        self._world = _World(Path(settings.journal) if settings.journal else None)

    def hosts(self) -> list[Found]:
        """Return all hosts, each with its properties."""
        with self._world.present() as world:
            down = world.down | world.resting
            return [simulated_hosts.host(number, down) for number in range(1, self._count + 1)]

    def described(self, hosts: Sequence[Found]) -> Sequence[Found]:
        """Return them as they are: all is known at once."""
        return hosts

    def servers(self, host: str) -> Sequence[str]:
        """Return the servers that tests put on a host."""
        with self._world.present() as world:
            return sorted(world.servers.get(host, ()))

    def enroll(self, host: str) -> None:
        """Put a host among the free ones."""
        self._world.append({"effect": "enroll", "host": host})

    def withdraw(self, host: str) -> None:
        """Take a host from the free ones."""
        self._world.append({"effect": "withdraw", "host": host})
        self.rouse(host)

    def rest(self, host: str) -> None:
        """Take a free host out of service, which is without power from then on."""
        with self._world.present() as world:
            is_free = host in world.enrolled and host not in world.holder
            is_resting = host in world.resting
        if not (is_free or is_resting):
            raise Conflict(f"{host} is not among the free hosts")
        self._world.append({"effect": "rest", "host": host})
        if servers := self.servers(host):
            raise Conflict(f"servers {', '.join(servers)} are on {host}")

    def rouse(self, host: str) -> None:
        """Take a host back into service."""
        self._world.append({"effect": "rouse", "host": host})

    def close_pool(self, pool: str) -> None:
        """Do nothing: nobody else uses this cloud."""

    def ensure_pool(self, pool: str, project_id: str) -> None:
        """Make the pool, unless it is there."""
        with self._world.present() as world:
            exists = pool in world.pools
        if not exists:
            self.act("ensure_pool", pool=pool, project=project_id)

    def pool_hosts(self, pool: str) -> Sequence[str]:
        """Return the hosts in the pool."""
        with self._world.present() as world:
            return sorted(world.pools.get(pool, ()))

    def pools(self) -> Mapping[str, Pool]:
        """Return all pools."""
        with self._world.present() as world:
            return {
                name: Pool(world.owner.get(name), tuple(sorted(hosts)))
                for name, hosts in world.pools.items()
            }

    def free_hosts(self) -> Sequence[str]:
        """Return the registered hosts that are in no pool."""
        with self._world.present() as world:
            return sorted(world.enrolled - world.holder.keys())

    def add_host(self, pool: str, host: str) -> None:
        """Move a host into the pool; fails if another pool has it, as Nova would."""
        with self._world.present() as world:
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
        with self._world.present() as world:
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
            with self._world.present() as world:
                is_kept = {"effect": "snapshot", **image} in world.effects
            if not is_kept:
                self.act("snapshot", **image)

    def effects(self, past: int = 0) -> list[dict[str, Any]]:
        """Return what leases and users did to this cloud, in order, ``past`` the first so many."""
        with self._world.present() as world:
            return world.effects[past:]

    def act(self, name: str, **details: str) -> None:
        """Take as long as told, fail as often as told, and else write the effect down."""
        if self._delay:
            time.sleep(self._delay)
        if self._random.random() < self._failure_rate:
            raise SimulatedFailure(f"simulated failure of {name} {details}")
        self._world.append({"effect": name, **details})


class _World:
    """What the effects so far add up to; in memory, or caught up from a file."""

    def __init__(self, path: Path | None) -> None:
        self.effects: list[dict[str, Any]] = []
        self.pools: dict[str, set[str]] = {}
        self.holder: dict[str, str] = {}
        self.owner: dict[str, str] = {}
        self.servers: dict[str, set[str]] = {}
        self.down: set[str] = set()
        self.enrolled: set[str] = set()
        self.resting: set[str] = set()
        self._path = path
        self._offset = 0
        self._lock = threading.Lock()

    @contextmanager
    def present(self) -> Iterator["_World"]:
        """Hold the world still, with all that other processes did to it."""
        with self._lock:
            if self._path is not None and self._path.exists():
                self._catch_up(self._path)
            yield self

    def append(self, entry: dict[str, Any]) -> None:
        """Add an effect, unless somebody had it meanwhile: as in a cloud, the moment counts.

        Raises Fenced, SimulatedFailure. In a file a line is written whole, whoever else writes.
        """
        with self._lock:
            if self._path is None:
                fence.check()
                if self._is_called_for(entry):
                    self._apply(entry)
                return
            with self._path.open("a", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                self._catch_up(self._path)
                fence.check()
                if self._is_called_for(entry):
                    file.write(json.dumps(entry) + "\n")

    def _is_called_for(self, entry: dict[str, Any]) -> bool:
        """Tell whether an effect would change anything; raises SimulatedFailure if it cannot."""
        pool, host = str(entry.get("pool")), str(entry.get("host"))
        match entry["effect"]:
            case "ensure_pool" | "delete_pool":
                return (pool in self.pools) is (entry["effect"] == "delete_pool")
            case "add_host":
                if pool not in self.pools or self.holder.get(host, pool) != pool:
                    raise SimulatedFailure(f"{host} cannot be moved to pool {pool} any more")
                return host not in self.holder
            case "remove_host":
                return self.holder.get(host) == pool
            case "snapshot":
                return entry not in self.effects
            case "enroll" | "withdraw" | "rest" | "rouse" as effect:
                there = self.enrolled if effect in {"enroll", "withdraw"} else self.resting
                return (host in there) is (effect in {"withdraw", "rouse"})
        return True

    def _catch_up(self, path: Path) -> None:
        with path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if line.endswith(b"\n"):
                    self._apply(json.loads(line))
                    self._offset += len(line)

    def _note(self, entry: dict[str, Any]) -> None:
        if entry["effect"] not in _REGISTRATION:
            self.effects.append(entry)

    def _apply(self, entry: dict[str, Any]) -> None:  # noqa: C901 - one line for each effect
        """Fold one effect into the state."""
        self._note(entry)
        match entry["effect"]:
            case "ensure_pool":
                self.pools.setdefault(entry["pool"], set())
                self.owner[entry["pool"]] = entry["project"]
            case "add_host":
                self.pools.setdefault(entry["pool"], set()).add(entry["host"])
                self.holder[entry["host"]] = entry["pool"]
            case "remove_host":
                self.pools.get(entry["pool"], set()).discard(entry["host"])
                self.holder.pop(entry["host"], None)
            case "delete_pool":
                self.pools.pop(entry["pool"], None)
            case "boot_server":
                self.servers.setdefault(entry["host"], set()).add(entry["server"])
            case "delete_servers":
                self.servers.pop(entry["host"], None)
            case "enroll":
                self.enrolled.add(entry["host"])
            case "withdraw":
                self.enrolled.discard(entry["host"])
            case "rest":
                self.resting.add(entry["host"])
            case "rouse":
                self.resting.discard(entry["host"])
            case "fail_host":
                self.down.add(entry["host"])
            case "mend_host":
                self.down.discard(entry["host"])
