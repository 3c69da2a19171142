"""The journal of the simulated cloud: all changes of the cloud ("effects") in order.

All simulated drivers append their effects to the journal and compute their state from it. If
``[simulated] journal`` is set, the journal is a file with one JSON object per line. Several
processes can share the file, and it persists when they end. Otherwise each driver has its own
journal in memory. Do not rename effects: recorded logs and tests contain the names.
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

# The effects of registering hosts and of disabling their services. They do not belong to leases.
_REGISTRATION = {"enroll", "withdraw", "rest", "rouse"}


class SimulatedFailure(RuntimeError):
    """Raised if a call of the simulated cloud fails.

    Failures are random (``failure_rate``), or due to a request that a real cloud would reject, too.
    """


class Journal:
    """Records all changes of the simulated cloud in order.

    A change takes time and may fail at random, as the section ``[simulated]`` configures.
    """

    def __init__(self, conf: ConfigOpts) -> None:
        """Read the settings. The first ``append`` creates the journal file."""
        settings = conf.simulated
        self._delay: float = settings.delay
        self._failure_rate: float = settings.failure_rate
        self._random = random.Random(settings.seed)  # noqa: S311 - repeatable, not secret
        self._state = CloudState(Path(settings.journal) if settings.journal else None)

    def locked(self) -> AbstractContextManager["CloudState"]:
        """Return a context manager that yields the current state of the cloud, locked."""
        return self._state.locked()

    def append(self, entry: dict[str, Any]) -> None:
        """Record the change ``entry`` of the cloud, without delay or random failure.

        Raises Fenced if the thread's fencing token is not valid, and SimulatedFailure if the change
        is impossible.
        """
        self._state.append(entry)

    def effects(self, past: int = 0) -> list[dict[str, Any]]:
        """Return the recorded changes in order; ``past`` is the number of changes to skip.

        Changes that register hosts or disable their services are left out, and not counted.
        """
        with self.locked() as state:
            return state.effects[past:]

    def act(self, name: str, **details: str) -> None:
        """Simulate a slow change: wait for ``delay`` seconds, then record the change ``name``.

        With the probability ``failure_rate``, raise SimulatedFailure and record nothing. Also
        raises the errors of ``append``.
        """
        if self._delay:
            time.sleep(self._delay)
        if self._random.random() < self._failure_rate:
            raise SimulatedFailure(f"simulated failure of {name} {details}")
        self.append({"effect": name, **details})


class CloudState:
    """The present state of the simulated cloud, computed from the changes in its journal."""

    def __init__(self, path: Path | None) -> None:
        self.effects: list[dict[str, Any]] = []
        self.pools: dict[str, set[str]] = {}
        self.holder: dict[str, str] = {}
        self.owner: dict[str, str] = {}
        self.servers: dict[str, set[str]] = {}
        self.down: set[str] = set()
        self.enrolled: set[str] = set()
        self.disabled: set[str] = set()
        self._path = path
        self._offset = 0
        self._lock = threading.Lock()

    @contextmanager
    def locked(self) -> Iterator["CloudState"]:
        """Context manager: read new changes of other processes from the file; yield this object.

        Meanwhile, other threads of this process cannot use the object.
        """
        with self._lock:
            if self._path is not None and self._path.exists():
                self._catch_up(self._path)
            yield self

    def append(self, entry: dict[str, Any]) -> None:
        """Record the change ``entry``, unless the present state already includes it.

        A lock on the file prevents concurrent processes from mixing their lines. Raises Fenced if
        the thread's fencing token is not valid, and SimulatedFailure if the change is impossible.
        """
        with self._lock:
            if self._path is None:
                fencing.check()
                if self._changes_state(entry):
                    self._apply(entry)
                return
            with self._path.open("a", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                self._catch_up(self._path)
                fencing.check()
                if self._changes_state(entry):
                    file.write(json.dumps(entry) + "\n")

    def _changes_state(self, entry: dict[str, Any]) -> bool:
        """Return whether the change ``entry`` would change the present state.

        Raises SimulatedFailure if the change is impossible.
        """
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
                hosts = self.enrolled if effect in {"enroll", "withdraw"} else self.disabled
                return (host in hosts) is (effect in {"withdraw", "rouse"})
        return True

    def _catch_up(self, path: Path) -> None:
        with path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if line.endswith(b"\n"):
                    self._apply(json.loads(line))
                    self._offset += len(line)

    def _add(self, entry: dict[str, Any]) -> None:
        if entry["effect"] not in _REGISTRATION:
            self.effects.append(entry)

    def _apply(self, entry: dict[str, Any]) -> None:  # noqa: C901 - one case for each effect
        """Apply one recorded change to the state."""
        self._add(entry)
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
                self.disabled.add(entry["host"])
            case "rouse":
                self.disabled.discard(entry["host"])
            case "fail_host":
                self.down.add(entry["host"])
            case "mend_host":
                self.down.discard(entry["host"])
