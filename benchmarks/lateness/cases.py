"""The cases: store leases, run managers, and return the figures."""

import math
import time
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any

from benchmarks.databases.processor_time import Meter
from benchmarks.lateness import stopwatch
from benchmarks.lateness.bench import Bench
from benchmarks.lateness.managers import as_shipped

# Seconds between the start of the managers and the first due time.
_WARM = 3.0
# Seconds to store a lease, at most.
_WRITTEN = 0.001
# How long a backlog is overdue.
_DOWN = timedelta(minutes=2)
# How long before its start ``behind`` stores a lease.
_SOON = timedelta(seconds=0.5)


def spread(
    bench: Bench,
    manage: Callable[..., None],
    count: int,
    seconds: float,
    meters: Collection[Meter] = (),
) -> dict[str, Any]:
    """Start ``count`` leases over ``seconds`` with one manager.

    An unmeasured lease is started before, as the first one also prepares the manager's statements.
    """
    bench.prepare(1, manage)
    bench.begin()
    stopwatch.add_leases(bench.runtime, [bench.runtime.clock.now()])
    bench.until(bench.is_done)
    _begin(meters)
    first = bench.runtime.clock.now() + timedelta(seconds=_WARM)
    starts = [first + timedelta(seconds=seconds * number / count) for number in range(count)]
    measured = stopwatch.add_leases(bench.runtime, starts)
    bench.until(bench.is_done)
    _end(meters)
    return _figures(bench, count, measured)


def burst(bench: Bench, count: int) -> dict[str, Any]:
    """Start all leases in the same second with three managers."""
    bench.prepare(3, as_shipped)
    bench.begin()
    # Late enough that all leases are stored before they are due.
    due = bench.runtime.clock.now() + timedelta(seconds=_WARM + count * _WRITTEN)
    stopwatch.add_leases(bench.runtime, [due] * count)
    bench.until(bench.is_done)
    return {**_figures(bench, count), "managers": 3}


def drain(
    bench: Bench,
    count: int,
    managers: int,
    manage: Callable[..., None] = as_shipped,
    *,
    kill: bool = False,
    meters: Collection[Meter] = (),
) -> dict[str, Any]:
    """Start leases that are overdue when the managers start."""
    # Due when all leases are stored, so that no lease gets a notification about late events.
    due = bench.runtime.clock.now() + timedelta(seconds=count * _WRITTEN)
    stopwatch.add_leases(bench.runtime, [due] * count)
    bench.until(lambda: bench.runtime.clock.now() > due)
    options = {"claim_timeout": 2.0, "looks": True} if kill else {}
    bench.prepare(managers, manage, **options)
    _begin(meters)
    began = time.monotonic()
    bench.begin()
    if kill:
        bench.until(lambda: bench.left() < count * 0.7)
        bench.managers[0].kill()
    bench.until(bench.is_done)
    seconds = time.monotonic() - began
    _end(meters)
    return {
        "n": count,
        "managers": managers,
        "seconds": round(seconds, 1),
        "events_per_second": round(count / seconds),
        "twice": bench.twice(),
        "effects_twice": stopwatch.effects_twice(bench.folder),
    }


def behind(bench: Bench, count: int) -> dict[str, Any]:
    """Start leases of another project while ``count`` leases are overdue."""
    stopwatch.add_leases(bench.runtime, [bench.runtime.clock.now() - _DOWN] * count)
    bench.prepare(2, as_shipped)
    bench.begin()
    mine: list[str] = []
    while not (mine and bench.is_done()):
        soon = bench.runtime.clock.now() + _SOON
        mine += stopwatch.ask(bench.runtime, [soon], "another")
        bench.runtime.wakeup.hint()
        time.sleep(1)
    return {"behind": count, **_figures(bench, len(mine), mine)}


def _begin(meters: Collection[Meter]) -> None:
    for meter in meters:
        meter.begin()


def _end(meters: Collection[Meter]) -> None:
    for meter in meters:
        meter.end()


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
