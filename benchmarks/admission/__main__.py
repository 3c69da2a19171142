"""How fast are leases admitted? ``python -m benchmarks.admission [--database URL] ...``.

Prints one JSON object a line for each calendar, number of clients and case:

* ``spread``: one to three hosts in random windows of a calendar in which hosts are free 45 % of
  the time. Half of the requests require a property that a third of the hosts have.
* ``names``: a host, as in ``spread``; each request has a text in its property expression that no
  request had before, such as the name of a host.
* ``http``: ``spread`` over HTTP; ``ratio_to_bare`` compares it with a Flask and marshmallow POST
  that commits one row, on the same server in the same run. ``memory_mib`` is the memory of the
  API's process at the end.
* ``http-full``: the case ``full`` over HTTP.
* ``instance``: as ``spread``, but shares of the hosts.
* ``hotspot``: all clients request one of the same (up to 1,000) hosts for the same window, until
  no host is ``free``.
* ``full``: a host in a window in which no host is free.
* ``mixed``: 1,000 requests of ``full`` and 50 of ``spread`` per second arrive at random times. The
  time of a request counts from its arrival. ``ratio_to_raw`` means nothing here.

The same number of clients commits rows before and after each case; ``ratio_to_raw`` is relative to
that rate, so that results of different machines are comparable. ``double`` counts double bookings,
with a window function over the rows. ``cpu_ms`` is the processor time of a client per request, and
``database_cpu_ms`` that of the server's processes (only PostgreSQL on this machine). Clients are
processes that call the use case directly; no manager runs. With ``--processes``, the clients are
threads of this number of processes, as in a WSGI server; the HTTP cases ignore it.

With ``--delay-ms``, clients reach the database through a proxy that delays each direction.

The benchmark creates a database beside the database of URL, and drops it at the end. With
``--nodes``, the first client uses the first of these nodes of a cluster, the second the second, and
so on; ``http`` uses the first.
"""

import argparse
import json
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

from benchmarks.admission import servers, tasks
from benchmarks.admission.bench import DIRECT, HTTP, Bench
from benchmarks.calendar.book import calendar
from benchmarks.calendar.load import load
from benchmarks.clients import Outcome
from benchmarks.databases.checks import count_double, count_handed_out, latest
from benchmarks.databases.delay_proxy import delayed
from benchmarks.databases.processor_time import Meter, backends
from benchmarks.databases.scratch import scratch
from benchmarks.options import names, numbers, some_of

CASES = (*DIRECT, "mixed", *HTTP)


def measure(bench: Bench, case: str, clients: int, turn: int) -> dict[str, Any]:
    """Run one case and return its figures."""
    before, raw = latest(bench.database), _raw(bench, clients)
    outcome, http_figures = (_over_http if case in HTTP else _direct)(bench, case, clients, turn)
    raw = (raw + _raw(bench, clients)) / 2
    start = bench.book.hot_window(turn).start if case == "hotspot" else None
    handed_out = count_handed_out(bench.database, before, start)
    return {
        "case": case,
        "database": bench.database.dialect,
        "nodes": max(1, len(bench.nodes)),
        "hosts": bench.book.hosts,
        "bookings": bench.book.bookings,
        "clients": clients,
        "processes": clients if case in HTTP else min(bench.processes or clients, clients),
        "per_second": round(outcome.per_second, 1),
        "ratio_to_raw": round(outcome.per_second / raw, 3),
        "p50_ms": round(outcome.at(0.5), 2),
        "p99_ms": round(outcome.at(0.99), 2),
        "cpu_ms": round(outcome.cpu_ms, 2),
        **http_figures,
        "double": count_double(bench.database, before),
        "retries_pct": _percent(outcome.retries, len(outcome.seconds)),
        "handed_out": handed_out,
        "free": bench.book.hot - handed_out if case == "hotspot" else None,
        "requests": len(outcome.seconds),
        "refused": outcome.refused,
        "gave_up": outcome.gave_up,
    }


def _raw(bench: Bench, clients: int) -> float:
    """Return the rows that the clients commit per second."""
    return bench.commit_rows(clients, max(0.5, bench.seconds / 5)).per_second


def _direct(bench: Bench, case: str, clients: int, turn: int) -> tuple[Outcome, dict[str, Any]]:
    meter = Meter(backends(bench.database))
    outcome = bench.ask(case, clients, turn, [meter])
    return outcome, _processor_time(meter, outcome)


def _over_http(bench: Bench, case: str, clients: int, turn: int) -> tuple[Outcome, dict[str, Any]]:
    bare, meter = [], Meter(backends(bench.database))
    with bench.serving(servers.bare) as plain, bench.serving(servers.api) as real:
        for server in (plain, real):
            bench.warm(server, case, clients)
        bare.append(bench.post(plain, case, clients, turn).per_second)
        outcome = bench.post(real, case, clients, turn, [meter])
        bare.append(bench.post(plain, case, clients, turn).per_second)
        memory = real.memory_mib
    ratio = round(outcome.per_second / (sum(bare) / 2), 3)
    figures = {"ratio_to_bare": ratio, "memory_mib": memory}
    return outcome, figures | _processor_time(meter, outcome)


def _processor_time(meter: Meter, outcome: Outcome) -> dict[str, Any]:
    used = meter.seconds
    return {"database_cpu_ms": used and round(1000 * used / len(outcome.seconds), 2)}


def main() -> None:
    """Run the cases of the command line, and print their figures."""
    given = _parser().parse_args()
    for hosts, bookings in zip(given.hosts, given.bookings, strict=True):
        with scratch(given.database, anywhere=given.anywhere) as database:
            tasks.ROWS.create(database.engine)
            load(database, book := calendar(hosts, bookings))
            with _nodes(given) as nodes:
                bench = Bench(database, book, given.seconds, nodes, processes=given.processes)
                for figures in _cases(bench, given):
                    print(json.dumps({**figures, "delay_ms": given.delay_ms}), flush=True)


def _nodes(given: argparse.Namespace) -> Any:  # noqa: ANN401 - a context manager
    return delayed(given.database, given.delay_ms) if given.delay_ms else nullcontext(given.nodes)


def _cases(bench: Bench, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for turn, clients in enumerate(given.clients, 1):
        for case in given.cases:
            yield measure(bench, case, clients, turn)


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
    parser.add_argument("--clients", type=numbers, default=[1, 16], help="that ask at once")
    parser.add_argument("--processes", type=int, default=0, help="0: each client has its own")
    parser.add_argument("--cases", type=some_of(CASES), default=CASES, help=f"of {','.join(CASES)}")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each case at most")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="to the database, each way")
    parser.add_argument("--anywhere", action="store_true", help="load even a server elsewhere")
    return parser


if __name__ == "__main__":
    main()
