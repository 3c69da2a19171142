"""A month of the whole service, in minutes: ``python -m benchmarks.month [--leases N] [--seed N]``.

Runs the API, the manager and the relay of ``climate-standalone`` with an SQLite database and a
simulated cloud that fails at times. A virtual clock jumps from one due time to the next, and all
code runs in one thread. So the same seed always has the same outcome. Users create leases of
hosts over HTTP, prolong them and cancel them.

Prints one JSON object. ``outcome`` is a hash of all answers, notifications and effects on the
cloud, in order and with their virtual times. ``--log FILE`` writes the hashed text to a file.
"""

import argparse
import hashlib
import itertools
import json
import logging
import random
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from oslo_config.cfg import ConfigOpts

from climate.cmd.simulator.world import World, ids_from
from climate.config import registry as config_registry
from climate.core.notifications.message import Notification
from climate.manager.audit.invariants import violations
from climate.plugins.hosts.simulated import SimulatedCloud

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
MONTH = timedelta(days=30)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
_FORMAT = "%Y-%m-%d %H:%M"
# Hosts for each thousand leases a month; with that many, few leases are rejected.
_HOSTS_PER_THOUSAND = 50


class Wish(NamedTuple):
    """A user's request: to create, prolong or cancel (``kind``) the lease ``number``."""

    at: datetime
    order: int
    kind: str
    number: int
    start: datetime
    end: datetime
    hosts: int


def wishes(count: int, rng: random.Random) -> list[Wish]:
    """Return the requests of a month, in order."""
    order = itertools.count()
    requests = []
    for number in range(count):
        at = BEGIN + MINUTE * rng.randrange(int(MONTH / MINUTE) - 4320)
        soon = at + MINUTE * rng.choice([0, 5, 60, 600, 1440])
        # Like real users: now, or from a full or half hour.
        start = soon if soon == at else soon + (BEGIN - soon) % (HOUR / 2)
        end = start + MINUTE * rng.choice([30, 60, 240, 480, 1440, 2880])
        request = Wish(at, next(order), "create", number, start, end, rng.choice([1, 1, 1, 2, 4]))
        requests.append(request)
        kind = rng.choice(["prolong", "cancel", *[""] * 8])
        if kind:
            later = at + (end - at) * rng.random()
            requests.append(request._replace(at=later, order=next(order), kind=kind))
    return sorted(requests)


class Journal:
    """The log of all effects, in order: hashed, and written to a file if one is given."""

    def __init__(self, file: TextIO | None) -> None:
        """Start an empty log."""
        self.counts: Counter[str] = Counter()
        self._hash = hashlib.sha256()
        self._file = file

    def note(self, at: datetime, what: str, **details: Any) -> None:
        """Add an entry with the time of the virtual clock."""
        self.counts[what] += 1
        line = json.dumps([at.isoformat(), what, details], sort_keys=True) + "\n"
        self._hash.update(line.encode())
        if self._file is not None:
            self._file.write(line)

    def digest(self) -> str:
        """Return the hash of all entries."""
        return self._hash.hexdigest()


class Month:
    """The users of the service on its virtual clock, and the log of what happens."""

    def __init__(self, conf: ConfigOpts, seed: int, journal: Journal) -> None:
        """Create the service."""
        self._world = World(conf, BEGIN, seed)
        self._world.listener = self._hear
        self.runtime = self._world.runtime
        self._journal = journal
        self._ids: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._done = 0

    def live(self, hosts: int, wished: list[Wish]) -> None:
        """Register hosts, and advance the clock until no event and no wish remains."""
        self._world.register(hosts)
        self._world.live(wished, self._ask, self._note_effects)

    def _hear(self, notification: Notification, payload: Mapping[str, Any]) -> None:
        """Log a notification of the relay."""
        told, lease = notification.event_type, self._numbers.get(notification.lease_id or "")
        status = payload.get("status")
        self._journal.note(notification.created_at, told, lease=lease, status=status)

    def _note_effects(self, _kinds: Collection[str]) -> None:
        """Log the effects of events on the cloud."""
        now = self._world.clock.now()
        for effect in self._effects():
            pool = effect.get("pool")
            self._journal.note(now, f"effect {effect['effect']}", host=effect.get("host"), of=pool)

    def _effects(self) -> list[dict[str, Any]]:
        cloud = self.runtime.plugins["physical:host"].cloud  # type: ignore[attr-defined]
        assert isinstance(cloud, SimulatedCloud)
        new = cloud.effects(self._done)
        self._done += len(new)
        return new

    def _ask(self, wish: Wish) -> bool:
        """Send a user's request over HTTP. No lease waits for capacity."""
        token = {"X-Auth-Token": f"user-{wish.number % 50}:project-{wish.number % 10}"}
        if wish.kind == "create":
            answer = self._world.http.post("/v1/leases", json=_body(wish), headers=token)
            if answer.status_code == 201:
                lease_id = answer.get_json()["lease"]["id"]
                self._ids[wish.number], self._numbers[lease_id] = lease_id, wish.number
        elif wish.number not in self._ids:
            return False
        else:
            path = f"/v1/leases/{self._ids[wish.number]}"
            end = {"end_date": f"{wish.end + HOUR:{_FORMAT}}"}
            method, body = ("PUT", end) if wish.kind == "prolong" else ("DELETE", None)
            answer = self._world.http.open(path, method=method, json=body, headers=token)
        what = f"{wish.kind} {answer.status_code}"
        self._journal.note(self._world.clock.now(), what, lease=wish.number)
        return False


def _body(wish: Wish) -> dict[str, Any]:
    reservation = {
        "resource_type": "physical:host",
        "min": wish.hosts,
        "max": wish.hosts,
        "hypervisor_properties": "",
        "resource_properties": "",
    }
    return {
        "name": f"lease-{wish.number}",
        "start_date": f"{wish.start:{_FORMAT}}",
        "end_date": f"{wish.end:{_FORMAT}}",
        "reservations": [reservation],
    }


def _ids(rng: random.Random) -> Callable[[], str]:
    return lambda: str(uuid.UUID(int=rng.getrandbits(128), version=4))


def configuration(folder: str, hosts: int, seed: int) -> ConfigOpts:
    """Return the configuration of ``climate-standalone``, with a cloud that fails at times."""
    conf = config_registry.new()
    config_registry.load(conf, "benchmarks.month", [])
    logging.getLogger("climate").setLevel(logging.CRITICAL)
    for name, value, group in (
        ("connection", f"sqlite:///{folder}/month.sqlite", "database"),
        ("hosts", hosts, "simulated"),
        ("failure_rate", 0.01, "simulated"),
        ("seed", seed, "simulated"),
        ("before_start_leads", [600], "manager"),
        ("self_audit_interval", 86400.0, "manager"),
        ("delete_wait", 0.0, "api"),
        ("project_leases", -1, "limits"),
    ):
        conf.set_override(name, value, group=group)
    return conf


def run(count: int, seed: int, file: TextIO | None = None) -> dict[str, Any]:
    """Simulate a month with ``leases`` leases; return its figures."""
    began, rng = time.monotonic(), random.Random(seed)
    hosts = max(4, count * _HOSTS_PER_THOUSAND // 1000)
    journal = Journal(file)
    # On a file system in memory if possible: a month has 100,000 commits.
    shared = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - only the parent of a temporary folder
    with tempfile.TemporaryDirectory(dir=shared) as folder, ids_from(_ids(rng)):
        month = Month(configuration(folder, hosts, seed), seed, journal)
        month.live(hosts, wishes(count, rng))
        wrong = list(violations(month.runtime.store))
        assert wrong == [], wrong
        month.runtime.close()
    asked = {what: n for what, n in sorted(journal.counts.items()) if not what.startswith("effect")}
    return {
        "leases": count,
        "hosts": hosts,
        "seed": seed,
        "outcome": journal.digest(),
        "counts": asked,
        "seconds": round(time.monotonic() - began, 1),
    }


def main() -> None:
    """Simulate a month and print its figures."""
    parser = argparse.ArgumentParser("benchmarks.month", description=__doc__)
    parser.add_argument("--leases", type=int, default=10_000, help="that are asked for")
    parser.add_argument("--seed", type=int, default=1, help="of all that is left to chance")
    parser.add_argument("--log", type=Path, help="file for what is hashed, a line for each")
    given = parser.parse_args()
    if given.log is None:
        print(json.dumps(run(given.leases, given.seed)))
    else:
        with given.log.open("w") as file:
            print(json.dumps(run(given.leases, given.seed, file)))


if __name__ == "__main__":
    main()
