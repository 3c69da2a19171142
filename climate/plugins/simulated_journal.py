"""The journal of a simulated cloud: every effect on it, in order, with failures and delays.

With ``[simulated] journal`` it is a file with one JSON object per line. Several processes share
it, and it outlives them. Without it the journal is in memory. All simulated drivers write to it;
the state of the simulated hosts follows from it.
"""

import fcntl
import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from oslo_config.cfg import ConfigOpts

from climate.plugins import fencing

# What climate does about hosts, not about leases.
_REGISTRATION = {"enroll", "withdraw", "rest", "rouse"}


class SimulatedFailure(RuntimeError):
    """The failure that ``[simulated] failure_rate`` asked for."""


class Journal:
    """Append effects as ``[simulated]`` says: after ``delay``, failing at ``failure_rate``."""

    def __init__(self, conf: ConfigOpts) -> None:
        """Read the settings; the journal file is created with its first entry."""
        settings = conf.simulated
        self._delay: float = settings.delay
        self._failure_rate: float = settings.failure_rate
        self._random = random.Random(settings.seed)  # noqa: S311 - repeatable, not secret
        self._state = CloudState(Path(settings.journal) if settings.journal else None)

    def present(self) -> AbstractContextManager["CloudState"]:
        """Lock the state of the cloud, with the effects of all processes, and return it."""
        return self._state.present()

    def append(self, entry: dict[str, Any]) -> None:
        """Append an effect without delay or random failure; raises Fenced, SimulatedFailure."""
        self._state.append(entry)

    def effects(self, past: int = 0) -> list[dict[str, Any]]:
        """Return what leases and users did to this cloud, in order, ``past`` the first so many."""
        with self.present() as world:
            return world.effects[past:]

    def act(self, name: str, **details: str) -> None:
        """Take as long as told, fail as often as told, and else write the effect down."""
        if self._delay:
            time.sleep(self._delay)
        if self._random.random() < self._failure_rate:
            raise SimulatedFailure(f"simulated failure of {name} {details}")
        self.append({"effect": name, **details})


class CloudState:
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
    def present(self) -> Iterator["CloudState"]:
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
                fencing.check()
                if self._is_called_for(entry):
                    self._apply(entry)
                return
            with self._path.open("a", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                self._catch_up(self._path)
                fencing.check()
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
