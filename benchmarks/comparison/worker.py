"""The process of a side: ``python -m benchmarks.comparison.worker SETUP``.

It loads its database, and writes a line when it is ready. Then it reads a turn from each line of
its input, runs it, and writes a line with the figures. At the end of the input it drops the
database. The source tree in which the process runs decides which climate it measures.
"""

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.admission import servers, tasks
from benchmarks.admission.bench import DIRECT, HTTP, Bench
from benchmarks.calendar.load import load
from benchmarks.clients import Outcome
from benchmarks.comparison.rounds import Figures
from benchmarks.comparison.setup import Setup, Turn
from benchmarks.databases.processor_time import Meter, backends
from benchmarks.databases.scratch import scratch
from benchmarks.lateness import cases, managers
from benchmarks.lateness.bench import Bench as LatenessBench
from climate.db.engine.database import Database


class Admission:
    """Turns of admission, in one database; servers of HTTP run until the end of ``running``."""

    def __init__(self, setup: Setup, database: Database, running: ExitStack) -> None:
        """Load the calendar; the floor needs none."""
        nodes = [setup.through] if setup.through else []
        self._bench = Bench(database, setup.book, setup.seconds, nodes, setup.rounds)
        self._setup, self._running = setup, running
        self._server: servers.Server | None = None
        tasks.ROWS.create(database.engine)
        if not setup.is_floor:
            load(database, setup.book)

    def run(self, turn: Turn) -> Figures:
        """Run a turn and return its figures."""
        database = Meter(backends(self._bench.database))
        if turn.case in HTTP:
            return self._over_http(turn, database)
        if self._setup.is_floor:
            outcome = self._bench.commit_rows(turn.clients, self._setup.seconds, [database])
        else:
            outcome = self._bench.ask(turn.case, turn.clients, turn.number, [database])
        _check(turn, outcome)
        return _figures(outcome, outcome.cpu, database)

    def _over_http(self, turn: Turn, database: Meter) -> Figures:
        if self._server is None:
            make = servers.bare if self._setup.is_floor else servers.api
            self._server = self._running.enter_context(self._bench.serving(make))
            self._bench.warm(self._server, turn.case, turn.clients)
        server = self._server
        process = Meter(lambda: [server.pid])
        meters = [database, process]
        outcome = self._bench.post(server, turn.case, turn.clients, turn.number, meters)
        if not self._setup.is_floor:
            _check(turn, outcome)
        return _figures(outcome, process.seconds, database)


def _check(turn: Turn, outcome: Outcome) -> None:
    if turn.case.endswith("full"):
        assert not outcome.admitted, "a host was free"


def _figures(outcome: Outcome, cpu: float | None, database: Meter) -> Figures:
    count = len(outcome.seconds)
    return {
        "per_second": outcome.per_second,
        "p50_ms": outcome.at(0.5),
        "p99_ms": outcome.at(0.99),
        "cpu_ms": _per(cpu, count),
        "database_cpu_ms": _per(database.seconds, count),
        "retries_pct": 100 * outcome.retries / count,
        "requests": count,
        "refused": outcome.refused,
        "gave_up": outcome.gave_up,
    }


def _per(seconds: float | None, count: int) -> float | None:
    return None if seconds is None else 1000 * seconds / count


class Lateness:
    """Turns of lateness, each with a new database."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup

    def run(self, turn: Turn) -> Figures:
        """Run a turn and return its figures; those of processor time are per lease."""
        given = self._setup
        with (
            scratch(given.url, anywhere=given.anywhere) as database,
            tempfile.TemporaryDirectory() as folder,
            self._bench(database, Path(folder)) as bench,
        ):
            meters = [Meter(lambda: bench.pids), Meter(backends(database))]
            if turn.case == "idle":
                load = (given.leases, given.seconds)
                found = cases.spread(bench, managers.as_shipped, *load, meters)
            else:
                manage = managers.barely if given.is_floor else managers.as_shipped
                found = cases.drain(bench, given.drain, 2, manage, meters=meters)
        count = found["n"]
        return {
            "per_second": found.get("events_per_second"),
            "p50_ms": found.get("p50_ms"),
            "p99_ms": found.get("p99_ms"),
            "cpu_ms": _per(meters[0].seconds, count),
            "database_cpu_ms": _per(meters[1].seconds, count),
            "retries_pct": 100 * found["twice"] / count,
        }

    def _bench(self, database: Database, folder: Path) -> Any:  # noqa: ANN401 - a context manager
        url = database.engine.url
        host, _, port = self._setup.through.rpartition(":")
        through = url.set(host=host, port=int(port)) if host else url
        direct, delayed = (u.render_as_string(hide_password=False) for u in (url, through))
        return LatenessBench.at(direct, folder, delayed)


@contextmanager
def _prepared(setup: Setup) -> Iterator[Any]:
    """Yield a function that runs a turn; load the calendar if there is one."""
    lateness = Lateness(setup)
    if not setup.hosts:
        yield lateness.run
        return
    with scratch(setup.url, anywhere=setup.anywhere) as database, ExitStack() as running:
        admission = Admission(setup, database, running)
        known = (*DIRECT, *HTTP)
        yield lambda turn: (admission if turn.case in known else lateness).run(turn)


def main() -> None:
    """Run turns until the end of the input."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # what climate or a server prints is no answer
        with _prepared(Setup.decoded(sys.argv[1])) as run:
            print(json.dumps("ready"), file=answers, flush=True)
            for line in sys.stdin:
                print(json.dumps(run(Turn(**json.loads(line)))), file=answers, flush=True)


if __name__ == "__main__":
    main()
