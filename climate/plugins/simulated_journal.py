"""The journal of the simulated cloud: all effects in order, with configurable failures and delays.

With ``[simulated] journal`` it is a file with one JSON object per line, which several processes
share and which outlives them. Otherwise it is in memory. All simulated drivers write to the
journal and derive their state from it. The names of effects do not change: recorded logs and
tests contain them.
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

# The effects that register or power hosts. They do not belong to leases.
_REGISTRATION = {"enroll", "withdraw", "rest", "rouse"}


class SimulatedFailure(RuntimeError):
    """A failure of the simulated cloud: random (``failure_rate``), or one that Nova has too."""


class Journal:
    """The effects on the simulated cloud, with the delays and failures of ``[simulated]``."""

    def __init__(self, conf: ConfigOpts) -> None:
        """Read the settings; the journal file is created with its first entry."""
        settings = conf.simulated
        self._delay: float = settings.delay
        self._failure_rate: float = settings.failure_rate
        self._random = random.Random(settings.seed)  # noqa: S311 - repeatable, not secret
        self._state = CloudState(Path(settings.journal) if settings.journal else None)

    def locked(self) -> AbstractContextManager["CloudState"]:
        """Lock the state of the cloud, with the effects of all processes, and return it."""
        return self._state.locked()

    def append(self, entry: dict[str, Any]) -> None:
        """Append an effect without delay or random failure. Raises Fenced, SimulatedFailure."""
        self._state.append(entry)

    def effects(self, past: int = 0) -> list[dict[str, Any]]:
        """Return the effects of leases and users in order, without the first ``past``."""
        with self.locked() as state:
            return state.effects[past:]

    def act(self, name: str, **details: str) -> None:
        """Append an effect after ``delay``, or fail at ``failure_rate``. Raises Fenced."""
        if self._delay:
            time.sleep(self._delay)
        if self._random.random() < self._failure_rate:
            raise SimulatedFailure(f"simulated failure of {name} {details}")
        self.append({"effect": name, **details})


class CloudState:
    """The state that results from the effects, in memory or read from the journal file."""

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
        """Read the effects of other processes, and keep other threads out."""
        with self._lock:
            if self._path is not None and self._path.exists():
                self._catch_up(self._path)
            yield self

    def append(self, entry: dict[str, Any]) -> None:
        """Add an effect, unless it changes nothing. Raises Fenced, SimulatedFailure.

        The file lock lets concurrent processes write whole lines.
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
        """Tell whether an effect changes anything. Raises SimulatedFailure if it is impossible."""
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
        """Fold one effect into the state."""
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
