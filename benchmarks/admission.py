"""How fast are leases admitted? ``python -m benchmarks.admission [--database URL] ...``.

Prints one JSON object a line for each calendar, number of clients and case:

* ``spread``: one to three hosts in random windows of a calendar in which hosts are free 45 % of
  the time. Half of the requests require a property that a third of the hosts have.
* ``http``: the same over HTTP; ``ratio_to_bare`` compares it with a Flask and marshmallow POST
  that commits one row, on the same server in the same run. ``memory_mib`` is the memory of the
  API's process at the end.
* ``instance``: the same, but shares of the hosts.
* ``hotspot``: all clients request one of the same (up to 1,000) hosts for the same window, until
  no host is ``free``.
* ``full``: a host in a window in which no host is free.

The same number of clients commits rows before and after each case; ``ratio_to_raw`` is relative to
that rate, so that results of different machines are comparable. ``double`` counts double bookings,
with a window function over the rows. Clients are processes that call the use case directly; no
manager runs.

The benchmark creates a database beside the database of URL, and drops it at the end. With
``--nodes``, the first client uses the first of these nodes of a cluster, the second the second, and
so on; ``http`` uses the node of URL.
"""

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from benchmarks import servers, tasks
from benchmarks.calendar import Calendar, calendar, load
from benchmarks.checks import count_double, count_handed_out, latest
from benchmarks.clients import Limit, Outcome, run
from benchmarks.options import names, numbers, some_of
from benchmarks.scratch import scratch
from climate.db.engine.database import Database
from climate.db.tables.leases import AllocationRow

CASES = ("spread", "http", "instance", "hotspot", "full")
# The case ends when all hosts are booked; this limit is far above the time that it needs.
_HOTSPOT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Bench:
    """A loaded calendar, the seconds of each case, and the nodes through which clients write."""

    database: Database
    book: Calendar
    seconds: float
    nodes: Sequence[str] = ()

    @property
    def url(self) -> str:
        """Return the URL of the database, with its password."""
        return self.database.engine.url.render_as_string(hide_password=False)

    @property
    def urls(self) -> list[str]:
        """Return the URL of the database through each node."""
        url = self.database.engine.url
        servers = [node.rpartition(":") for node in self.nodes]
        through = [url.set(host=host, port=int(port)) for host, _, port in servers] or [url]
        return [each.render_as_string(hide_password=False) for each in through]

    def raw(self, clients: int) -> float:
        """Return the rows that the clients commit per second."""
        limit = Limit(max(0.5, self.seconds / 5))
        return run(tasks.commit_rows, clients, limit, self.urls).per_second

    def measure(self, case: str, clients: int, seed: int) -> dict[str, Any]:
        """Run one case and return its figures."""
        before, raw = latest(self.database), self.raw(clients)
        http_figures: dict[str, Any] = {}
        if case == "http":
            outcome, http_figures = self._over_http(clients, seed)
        else:
            limit = self._limit(case, clients)
            outcome = run(tasks.ask, clients, limit, self.urls, case, self.book, seed)
        raw = (raw + self.raw(clients)) / 2
        start = self.book.hot_window(0).start if case == "hotspot" else None
        handed_out = count_handed_out(self.database, before, start)
        return {
            "case": case,
            "database": self.database.dialect,
            "nodes": max(1, len(self.nodes)),
            "hosts": self.book.hosts,
            "bookings": self.book.bookings,
            "clients": clients,
            "per_second": round(outcome.per_second, 1),
            "ratio_to_raw": round(outcome.per_second / raw, 3),
            **http_figures,
            "p50_ms": round(outcome.at(0.5), 2),
            "p99_ms": round(outcome.at(0.99), 2),
            "cpu_ms": round(outcome.cpu_ms, 2),
            "double": count_double(self.database, before),
            "retries_pct": _percent(outcome.retries, len(outcome.seconds)),
            "handed_out": handed_out,
            "free": self.book.hot - handed_out if case == "hotspot" else None,
            "requests": len(outcome.seconds),
            "refused": outcome.refused,
            "gave_up": outcome.gave_up,
        }

    def _limit(self, case: str, clients: int) -> Limit:
        if case == "hotspot":
            return Limit(_HOTSPOT_SECONDS)
        # Bounds the number of leases, so that the calendar hardly fills up.
        most = math.inf if case == "full" else max(50, self.book.bookings / 20 / clients)
        return Limit(self.seconds, most)

    def _over_http(self, clients: int, seed: int) -> tuple[Outcome, dict[str, Any]]:
        limit = self._limit("http", clients)
        arguments = ("/v1/leases", self.book, seed)
        bare = []
        with (
            servers.serving(servers.bare, self.url) as plain,
            servers.serving(servers.api, self.url) as real,
        ):
            for server in (plain, real):  # warm-up: caches and prepared statements
                run(tasks.post, clients, Limit(1.0, 30), server.port, *arguments)
            bare.append(run(tasks.post, clients, limit, plain.port, *arguments).per_second)
            outcome = run(tasks.post, clients, limit, real.port, *arguments)
            bare.append(run(tasks.post, clients, limit, plain.port, *arguments).per_second)
            memory = real.memory_mib
        ratio = outcome.per_second / (sum(bare) / 2)
        return outcome, {"ratio_to_bare": round(ratio, 3), "memory_mib": memory}


def main() -> None:
    """Run the cases of the command line, and print their figures."""
    given = _parser().parse_args()
    for hosts, bookings in zip(given.hosts, given.bookings, strict=True):
        with scratch(given.database, anywhere=given.anywhere) as database:
            tasks.ROWS.create(database.engine)
            load(database, book := calendar(hosts, bookings))
            bench = Bench(database, book, given.seconds, given.nodes)
            for figures in _cases(bench, given):
                print(json.dumps(figures), flush=True)


def _cases(bench: Bench, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for round_, clients in enumerate(given.clients):
        for case in given.cases:
            if case == "hotspot" and round_:
                _clear(bench)
            yield bench.measure(case, clients, round_ + 1)


def _clear(bench: Bench) -> None:
    """Remove the bookings of the case hotspot."""
    bookings = AllocationRow.start_at == bench.book.hot_window(0).start
    bench.database.write(lambda session: session.execute(sa.delete(AllocationRow).where(bookings)))


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 2)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "benchmarks.admission",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--database", metavar="URL", help="of a server; else an SQLite file")
    parser.add_argument(
        "--nodes", type=names, default=[], help="HOST:PORT of cluster nodes, for clients in turn"
    )
    parser.add_argument("--hosts", type=numbers, default=[100], help="of each calendar")
    parser.add_argument("--bookings", type=numbers, default=[10_000], help="in each calendar")
    parser.add_argument("--clients", type=numbers, default=[1, 16], help="processes that ask")
    parser.add_argument("--cases", type=some_of(CASES), default=CASES, help=f"of {','.join(CASES)}")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each case at most")
    parser.add_argument("--anywhere", action="store_true", help="load even a server elsewhere")
    return parser


if __name__ == "__main__":
    main()
