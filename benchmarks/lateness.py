"""How late do leases start? ``python -m benchmarks.lateness [--database URL] [--leases N]``.

Prints one JSON object a line: ``idle`` is a manager as shipped (timer, wake-up hints, poll as a
net, relay), ``poll`` its dispatcher reduced to looking every 10 s, both in this run, one after
the other. Lateness is the moment the plugin's start is called, less the moment it was due, of
``n`` leases spread over ``--seconds``; milliseconds.

The database must be empty or none of ours: by default it is a temporary SQLite file.
"""

import argparse
import json
import logging
import math
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from climate import config, service
from climate.core.lease import Lease, Reservation, Resource
from climate.core.query import Everything
from climate.core.requirement import Requirement
from climate.db import schema
from climate.manager import leases
from climate.manager.dispatcher import Dispatcher, owner_name
from climate.manager.drafts import LeaseRequest, Owner
from climate.manager.relay import Relay
from climate.manager.requests import ReservationRequest
from climate.manager.runtime import Runtime
from climate.notifications.emit import LogEmitter
from climate.plugins.base import Found, RequestSchema, ResourcePlugin

_POLL = 10.0
# The first lease is due when all have been made: this long per lease, on a slow machine.
_AHEAD = 0.05


class Stopwatch(ResourcePlugin):
    """A resource type that needs nothing and notes when each lease was started."""

    resource_type: ClassVar[str] = "benchmark:stopwatch"
    schema: ClassVar[type[RequestSchema]] = RequestSchema
    native_properties: ClassVar[frozenset[str]] = frozenset()

    def __init__(self) -> None:
        """Start with no times."""
        self.late: list[float] = []

    def requirement(self, params: Mapping[str, Any]) -> Requirement:  # noqa: ARG002
        """Nothing is needed."""
        return Requirement(self.resource_type, 0, 0, Everything())

    def start(
        self,
        lease: Lease,
        reservation: Reservation,  # noqa: ARG002
        resources: Sequence[Resource],  # noqa: ARG002
    ) -> Mapping[str, Any]:
        """Note how late it is, in seconds."""
        self.late.append((datetime.now(UTC) - lease.window.start).total_seconds())
        return {}

    def end(self, lease: Lease, reservation: Reservation, resources: Sequence[Resource]) -> None:
        """Do nothing."""

    def find(self, *, name: str | None = None, external_number: str | None = None) -> Found:
        """There is nothing to find."""
        raise NotImplementedError

    def inventory(self) -> Iterable[Found]:
        """There is nothing."""
        return ()


def main() -> None:
    """Measure both cases and print them."""
    parser = argparse.ArgumentParser("benchmarks.lateness", description=__doc__)
    parser.add_argument("--database", metavar="URL", help="an empty database of any kind")
    parser.add_argument("--leases", type=int, default=100, help="leases per case")
    parser.add_argument("--seconds", type=float, default=30.0, help="over which they start")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = given.database or f"sqlite:///{Path(folder) / 'lateness.sqlite'}"
        for case, manage in (("idle", _as_shipped), ("poll", _by_polling)):
            print(json.dumps(_measure(case, url, given.leases, given.seconds, manage)), flush=True)


def _measure(
    case: str,
    url: str,
    count: int,
    seconds: float,
    manage: Callable[[Runtime, threading.Event], None],
) -> dict[str, Any]:
    watch = Stopwatch()
    runtime = _runtime(url, watch)
    stopping = threading.Event()
    manager = threading.Thread(target=manage, args=(runtime, stopping))
    service.settle()
    manager.start()
    _make_leases(runtime, count, seconds)
    deadline = time.monotonic() + _AHEAD * count + seconds + 3 * _POLL
    while len(watch.late) < count and time.monotonic() < deadline:
        time.sleep(0.1)
    stopping.set()
    manager.join()
    runtime.wakeup.close()
    runtime.close()
    assert len(watch.late) == count, f"{len(watch.late)} of {count} leases were started"
    return {"case": case, "database": runtime.database.dialect, **_figures(watch.late)}


def _runtime(url: str, watch: Stopwatch) -> Runtime:
    conf = config.new()
    config.load(conf, "benchmarks.lateness", [])
    logging.getLogger("climate").setLevel(logging.WARNING)
    conf.set_override("connection", url, group="database")
    runtime = service.make_runtime(conf)
    schema.upgrade(runtime.database)
    settings = replace(runtime.settings, before_start_leads=(), before_end_lead=None)
    return replace(runtime, plugins={watch.resource_type: watch}, settings=settings)


def _make_leases(runtime: Runtime, count: int, seconds: float) -> None:
    first = datetime.now(UTC) + timedelta(seconds=_AHEAD * count)
    asked = ReservationRequest(resource_type=Stopwatch.resource_type, params={})
    for number in range(count):
        start = first + timedelta(seconds=seconds * number / count)
        request = LeaseRequest(
            name=f"lease-{number}",
            start=start,
            end=start + timedelta(days=1),
            reservations=(asked,),
        )
        leases.create(runtime, Owner(user_id="user", project_id="project"), request)


def _as_shipped(runtime: Runtime, stopping: threading.Event) -> None:
    owner = owner_name()
    manager = service.Manager(Dispatcher(runtime, owner), Relay(runtime, LogEmitter(), owner))
    manager.start()
    stopping.wait()
    manager.stop()


def _by_polling(runtime: Runtime, stopping: threading.Event) -> None:
    dispatcher = Dispatcher(runtime, owner_name())
    while not stopping.wait(_POLL):
        dispatcher.run_due()


def _figures(late: Sequence[float]) -> dict[str, float | int]:
    ordered = sorted(late)

    def at(share: float) -> float:
        return round(ordered[math.ceil(len(ordered) * share) - 1] * 1000, 1)

    return {"n": len(ordered), "p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1.0)}


if __name__ == "__main__":
    main()
