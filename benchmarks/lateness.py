"""How late do leases start? ``python -m benchmarks.lateness [CASE ...] [--database URL]``.

Prints one JSON object a line for each case, all in one run, one after the other:

- ``idle``: one manager as shipped (timer, hints, poll as a net), leases spread over ``--seconds``;
- ``burst``: three managers, all starts due in the same second;
- ``drain``: two managers, all starts overdue; how long until all are finished;
- ``floor``: the same rows with two processes without climate's logic: they claim due events in one
  transaction, and store them as done, with a notification, in another;
- ``kill``: as ``drain`` with three managers and claims of two seconds; one manager is killed;
- ``behind``: as ``drain``, two minutes overdue, while a lease of another project starts each
  second; how late are those?
- ``poll``: as ``idle``, with a manager that only polls every 10 s.

Lateness is the time from the due time to the call of the plug-in's start, in milliseconds. The
plug-in only records it; in ``kill`` it checks first whether the lease was started, as plug-ins do.
``ratio_to_floor`` of a ``drain`` is its events per event of the following ``floor``. ``twice`` is
the number of events with more than one attempt, ``effects_twice`` the number of leases that were
handed over twice.

The database must have no tables of climate, or empty tables. By default it is a temporary SQLite
file.
"""

import argparse
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from benchmarks import stopwatch
from climate.cmd import launch
from climate.core.lease.lifecycle import OPEN_EVENT, EventStatus, LeaseStatus, ReservationStatus
from climate.core.lease.schedule import START
from climate.db.engine import schema
from climate.db.engine.types import any_of
from climate.db.events.ordering import IN_PROGRESS, due
from climate.db.notifications import outbox
from climate.db.tables.leases import EVENTS, LEASES, RESERVATIONS, EventRow
from climate.manager.events.dispatcher import Dispatcher, owner_name
from climate.manager.events.queue import LARGEST_BATCH
from climate.manager.process.runtime import Runtime

_POLL = 10.0
# Seconds between the start of the managers and the first due time.
_WARM = 3.0
# Seconds to store a lease, at most.
_WRITTEN = 0.001
# Seconds between two progress queries, which also load the database.
_PAUSE = 0.5
# How long a backlog is overdue.
_DOWN = timedelta(minutes=2)
# Seconds; the longest wait.
_PATIENCE = 1800.0
_SPAWN = get_context("spawn")
_OPEN = (EventRow.kind == START, EventRow.status.in_([one.value for one in OPEN_EVENT]))


def main() -> None:
    """Measure the cases and print them."""
    parser = argparse.ArgumentParser("benchmarks.lateness", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", default=[], help="all by default")
    parser.add_argument("--database", metavar="URL", help="an empty database of any kind")
    parser.add_argument("--leases", type=int, default=100, help="leases of idle and poll")
    parser.add_argument("--seconds", type=float, default=30.0, help="over which they start")
    parser.add_argument("--burst", type=int, default=1000, help="starts in the same second")
    parser.add_argument("--drain", type=int, default=5000, help="starts that are overdue")
    given = parser.parse_args()
    cases: dict[str, Callable[[Bench], dict[str, Any]]] = {
        "idle": lambda bench: _spread(bench, _as_shipped, given.leases, given.seconds),
        "burst": lambda bench: _burst(bench, given.burst),
        "drain": lambda bench: _drain(bench, given.drain, 2),
        "floor": lambda bench: _drain(bench, given.drain, 2, _barely),
        "kill": lambda bench: _drain(bench, given.drain, 3, kill=True),
        "behind": lambda bench: _behind(bench, given.drain),
        "poll": lambda bench: _spread(bench, _by_polling, given.leases, given.seconds),
    }
    rates: dict[str, float] = {}
    for case in given.cases or cases:
        with tempfile.TemporaryDirectory() as folder:
            url = given.database or f"sqlite:///{Path(folder) / 'lateness.sqlite'}"
            with Bench.at(url, Path(folder)) as bench:
                found = {"case": case, "database": bench.runtime.database.dialect}
                found |= cases[case](bench)
            rates[case] = found.get("events_per_second", 0.0)
            if case == "floor" and "drain" in rates:
                found["ratio_to_floor"] = round(rates["drain"] / rates["floor"], 2)
            print(json.dumps(found), flush=True)


class Bench:
    """A database, and the processes of its managers."""

    def __init__(self, runtime: Runtime, url: str, folder: Path) -> None:
        self.runtime = runtime
        self.folder = folder
        self._url = url
        self.managers: list[BaseProcess] = []

    @classmethod
    @contextmanager
    def at(cls, url: str, folder: Path) -> Iterator["Bench"]:
        """Create the schema; at the end, remove all events and end the managers."""
        bench = cls(stopwatch.make_runtime(url, folder), url, folder)
        schema.upgrade(bench.runtime.database)
        try:
            yield bench
        finally:
            for manager in bench.managers:
                manager.kill()
                manager.join()
            stopwatch.forget(bench.runtime)
            bench.runtime.close()

    def start(self, count: int, manage: Callable[..., None], **options: Any) -> None:
        """Start ``count`` managers, and wait until they are ready."""
        for _ in range(count):
            manager = _SPAWN.Process(
                target=manage, args=(self._url, self.folder, options), daemon=True
            )
            manager.start()
            self.managers.append(manager)
        self.until(lambda: len(list(self.folder.glob("*.ready"))) >= count)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition."""
        deadline = time.monotonic() + _PATIENCE
        while not condition():
            assert time.monotonic() < deadline, "it takes too long"
            time.sleep(_PAUSE)

    def left(self) -> int:
        """Return the number of unfinished starts."""
        with self.runtime.database.read() as session:
            return session.scalar(sa.select(sa.func.count()).where(*_OPEN)) or 0

    def is_done(self) -> bool:
        """Return whether all starts are finished; cheaper than ``left``, as it runs often."""
        with self.runtime.database.read() as session:
            return session.scalar(sa.select(EventRow.id).where(*_OPEN).limit(1)) is None

    def twice(self) -> int:
        """Return how many starts were attempted more than once."""
        more = sa.select(sa.func.count()).where(EventRow.kind == START, EventRow.attempt > 1)
        with self.runtime.database.read() as session:
            return session.scalar(more) or 0


def _as_shipped(url: str, folder: Path, options: dict[str, Any]) -> None:
    """Run a manager until this process is killed."""
    runtime = stopwatch.make_runtime(url, folder, **options)
    launch.settle()
    stopwatch.make_manager(runtime).start()
    _say_ready(folder)
    while True:
        time.sleep(60)


def _by_polling(url: str, folder: Path, _options: dict[str, Any]) -> None:
    """Poll every 10 s, until this process is killed."""
    runtime = stopwatch.make_runtime(url, folder)
    dispatcher = Dispatcher(runtime, owner_name())
    _say_ready(folder)
    while True:
        time.sleep(_POLL)
        dispatcher.run_due()


def _barely(url: str, folder: Path, _options: dict[str, Any]) -> None:
    """Process events with the least work that a queue needs, until this process is killed."""
    database = stopwatch.make_runtime(url, folder).database
    _say_ready(folder)
    while True:
        if claimed := database.write(_claim_some):
            database.write(partial(_finish_some, claimed=claimed))
        else:
            time.sleep(_PAUSE)


def _claim_some(session: Session) -> Sequence[sa.Row[Any]]:
    of, now = EVENTS.c, datetime.now(UTC)
    first = sa.select(of.id, of.lease_id).where(*due(sa.literal(now, of.run_at.type)))
    first = first.order_by(of.run_at, of.rank, of.id).limit(LARGEST_BATCH)
    rows = session.execute(first.with_for_update(skip_locked=True)).all()
    claimed = {"status": IN_PROGRESS, "owner": "me", "attempt": 1, "claimed_until": now}
    mine = any_of(of.id, [row.id for row in rows])
    session.execute(sa.update(EVENTS).where(mine).values(claimed))
    return rows


def _finish_some(session: Session, claimed: Sequence[sa.Row[Any]]) -> None:
    leases, now = [row.lease_id for row in claimed], datetime.now(UTC)
    done = {"status": EventStatus.DONE.value, "owner": None, "claimed_until": None}
    for table, column, values in (
        (EVENTS, EVENTS.c.id, done),
        (LEASES, LEASES.c.id, {"status": LeaseStatus.ACTIVE.value}),
        (RESERVATIONS, RESERVATIONS.c.lease_id, {"status": ReservationStatus.ACTIVE.value}),
    ):
        mine = [row.id for row in claimed] if table is EVENTS else leases
        session.execute(sa.update(table).where(any_of(column, mine)).values(values))
    told = (("lease.event.start_lease", {"lease_id": id_, "project_id": ""}) for id_ in leases)
    outbox.write_all(session, told, now)


def _say_ready(folder: Path) -> None:
    (folder / f"{os.getpid()}.ready").touch()


def _spread(
    bench: Bench, manage: Callable[..., None], count: int, seconds: float
) -> dict[str, Any]:
    bench.start(1, manage)
    first = bench.runtime.clock.now() + timedelta(seconds=_WARM)
    spread = [first + timedelta(seconds=seconds * number / count) for number in range(count)]
    stopwatch.add_leases(bench.runtime, spread)
    bench.until(bench.is_done)
    return _figures(bench, count)


def _burst(bench: Bench, count: int) -> dict[str, Any]:
    bench.start(3, _as_shipped)
    # Late enough that all leases are stored before they are due.
    due = bench.runtime.clock.now() + timedelta(seconds=_WARM + count * _WRITTEN)
    stopwatch.add_leases(bench.runtime, [due] * count)
    bench.until(bench.is_done)
    return {**_figures(bench, count), "managers": 3}


def _drain(
    bench: Bench,
    count: int,
    managers: int,
    manage: Callable[..., None] = _as_shipped,
    *,
    kill: bool = False,
) -> dict[str, Any]:
    # Due when all leases are stored, so that no lease gets a notification about late events.
    due = bench.runtime.clock.now() + timedelta(seconds=count * _WRITTEN)
    stopwatch.add_leases(bench.runtime, [due] * count)
    bench.until(lambda: bench.runtime.clock.now() > due)
    options = {"claim_timeout": 2.0, "looks": True} if kill else {}
    bench.start(managers, manage, **options)
    began, left = time.monotonic(), bench.left()
    if kill:
        bench.until(lambda: bench.left() < count * 0.7)
        bench.managers[0].kill()
    bench.until(bench.is_done)
    seconds = time.monotonic() - began
    return {
        "n": left,
        "managers": managers,
        "seconds": round(seconds, 1),
        "events_per_second": round(left / seconds),
        "twice": bench.twice(),
        "effects_twice": stopwatch.effects_twice(bench.folder),
    }


def _behind(bench: Bench, count: int) -> dict[str, Any]:
    stopwatch.add_leases(bench.runtime, [bench.runtime.clock.now() - _DOWN] * count)
    bench.start(2, _as_shipped)
    mine: list[str] = []
    while not (mine and bench.is_done()):
        soon = bench.runtime.clock.now() + timedelta(seconds=_PAUSE)
        mine += stopwatch.ask(bench.runtime, [soon], "another")
        bench.runtime.wakeup.hint()
        time.sleep(1)
    return {"behind": count, **_figures(bench, len(mine), mine)}


def _figures(bench: Bench, count: int, of: Collection[str] | None = None) -> dict[str, float | int]:
    late = stopwatch.late(bench.folder)
    ordered = sorted(late.values() if of is None else [late[id_] for id_ in of])
    assert len(ordered) == count, f"{len(ordered)} of {count} leases were started"

    def at(share: float) -> float:
        return round(ordered[math.ceil(len(ordered) * share) - 1] * 1000, 1)

    return {
        "n": len(ordered),
        "p50_ms": at(0.5),
        "p99_ms": at(0.99),
        "max_ms": at(1.0),
        "twice": bench.twice(),
    }


if __name__ == "__main__":
    main()
