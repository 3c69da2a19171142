"""Compare with a previous release: ``python -m benchmarks.comparison --against REF ...``.

Each case runs in rounds. In a round, three sides take turns in a random order:

* ``this``: this checkout;
* ``previous``: climate at the git reference REF, with the benchmarks and the packages of now;
* ``floor``: the least work of such a case: single rows are committed (``spread``, ``names``,
  ``instance``, ``hotspot``, ``full``); Flask and marshmallow validate a POST and commit one row
  (``http``, ``http-full``); due events are claimed and stored as done (``drain``). ``idle`` has
  none.

``spread`` to ``http-full`` are the cases of ``benchmarks.admission``, ``idle`` and ``drain`` those
of ``benchmarks.lateness``. ``this`` and ``previous`` have their own databases with the same
calendar, and get the same requests.

Prints one JSON object a line for each case and number of clients: of each figure the median, the
quartiles and the extremes over the rounds, for each side, and of the ratios of ``this`` to the
others in the same round. ``per_second`` is of all clients, ``retries_pct`` counts repeated
transactions (``drain``: repeated starts). ``cpu_ms`` is the processor time per request of the
processes in which climate runs: clients, the API's process, or managers. ``database_cpu_ms`` is
that of the server processes (PostgreSQL on this machine). ``round_trip_ms`` is the median time of
``SELECT 1``, with the delay.

``python -m benchmarks.comparison.table FILE`` makes a Markdown table of such lines. Progress goes
to the standard error stream.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from statistics import median
from typing import Any

import sqlalchemy as sa

from benchmarks.admission.bench import DIRECT, HTTP
from benchmarks.calendar.book import calendar
from benchmarks.comparison.rounds import Round, orders, ratios, summary
from benchmarks.comparison.setup import Setup, Turn
from benchmarks.comparison.sides import Side, working
from benchmarks.comparison.trees import ROOT, checked_out, describe
from benchmarks.databases.delay_proxy import delayed
from benchmarks.options import numbers, some_of

ADMISSION = (*DIRECT, *HTTP)
LATENESS = ("drain", "idle")
CASES = (*ADMISSION, *LATENESS)
NO_FLOOR = ("idle",)


def main() -> None:
    """Run the cases of the command line, and print their figures."""
    given = _parser().parse_args()
    with _through(given) as through, _sides(given, _setup(given, through)) as sides:
        about = _about(given, through)
        turns = count(1)
        for case in given.cases:
            for clients in given.clients if case in ADMISSION else [None]:
                found = _measure(sides, case, clients, turns, given)
                print(json.dumps({**about, **found}), flush=True)


@contextmanager
def _through(given: argparse.Namespace) -> Iterator[str]:
    """Yield HOST:PORT of a proxy that delays, "" without a delay."""
    if not given.delay_ms:
        yield ""
        return
    with delayed(given.database, given.delay_ms) as [through]:
        yield through


def _setup(given: argparse.Namespace, through: str) -> Setup:
    has_calendar = bool(set(given.cases) & set(ADMISSION))
    return Setup(
        url=given.database,
        through=through,
        anywhere=given.anywhere,
        is_floor=False,
        hosts=given.hosts if has_calendar else 0,
        bookings=given.bookings,
        first=calendar(0, 0).first.isoformat(),
        rounds=given.rounds,
        seconds=given.seconds,
        leases=given.leases,
        drain=given.drain,
    )


@contextmanager
def _sides(given: argparse.Namespace, setup: Setup) -> Iterator[Mapping[str, Side]]:
    """Run the sides; they load their databases at the same time."""
    with ExitStack() as running:
        sides = {"this": running.enter_context(working("this", ROOT, setup))}
        if given.against:
            tree = checked_out(given.against, own_benchmarks=given.own_benchmarks)
            folder = running.enter_context(tree)
            sides["previous"] = running.enter_context(working("previous", folder, setup))
        floor = replace(setup, is_floor=True)
        sides["floor"] = running.enter_context(working("floor", ROOT, floor))
        for side in sides.values():
            side.wait()
        _say("loaded")
        yield sides


def _measure(
    sides: Mapping[str, Side],
    case: str,
    clients: int | None,
    turns: Iterator[int],
    given: argparse.Namespace,
) -> dict[str, Any]:
    names = [name for name in sides if name != "floor" or case not in NO_FLOOR]
    rounds = [
        _round(sides, order, Turn(case, clients or 1, next(turns)))
        for order in orders(names, given.rounds, given.seed)
    ]
    others = [name for name in names if name != "this"]
    return {
        "case": case,
        "clients": clients,
        "sides": summary(rounds),
        **{f"ratio_to_{other}": ratios(rounds, "this", other) for other in others},
    }


def _round(sides: Mapping[str, Side], order: Sequence[str], turn: Turn) -> Round:
    found = {}
    for name in order:
        found[name] = sides[name].run(turn)
        _say(f"{turn.case} {turn.clients} {name}: {json.dumps(found[name])}")
    return {name: found[name] for name in sides if name in found}


def _about(given: argparse.Namespace, through: str) -> dict[str, Any]:
    dialect, milliseconds = _server(given.database, through)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "this": describe(""),
        "previous": describe(given.against) if given.against else None,
        "database": dialect,
        "hosts": given.hosts,
        "bookings": given.bookings,
        "drain": given.drain,
        "rounds": given.rounds,
        "delay_ms": given.delay_ms,
        "round_trip_ms": milliseconds,
    }


def _server(url: str | None, through: str) -> tuple[str, float | None]:
    """Return the kind and version of the server, and the median round trip in milliseconds."""
    if url is None:
        return "SQLite", None
    host, _, port = through.rpartition(":")
    to = sa.make_url(url).set(host=host, port=int(port)) if through else sa.make_url(url)
    engine, spent = sa.create_engine(to), []
    with engine.connect() as connection:
        for _ in range(50):
            began = time.perf_counter()
            connection.scalar(sa.text("SELECT 1"))
            spent.append(1000 * (time.perf_counter() - began))
        version = connection.scalar(sa.text("SELECT version()"))
    engine.dispose()
    is_mariadb = to.get_backend_name() == "mysql"
    return f"MariaDB {version}" if is_mariadb else version.split(" (")[0], round(median(spent), 2)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "benchmarks.comparison",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--against", metavar="REF", help="the previous release; without it, only the floor")
    add("--own-benchmarks", action="store_true", help="REF runs the benchmarks that it has")
    add("--database", metavar="URL", help="of a server; else SQLite files")
    add("--delay-ms", type=float, default=0.0, help="to the database and back, each way")
    add("--hosts", type=int, default=1_000)
    add("--bookings", type=int, default=100_000)
    add("--clients", type=numbers, default=[1], help="processes, of the cases of admission")
    add("--cases", type=some_of(CASES), default=CASES, help=f"of {','.join(CASES)}")
    add("--rounds", type=int, default=7)
    add("--seconds", type=float, default=3.0, help="of each turn at most")
    add("--leases", type=int, default=50, help="that start in a turn of idle")
    add("--drain", type=int, default=5_000, help="overdue leases")
    add("--seed", type=int, default=1, help="of the order of turns")
    add("--anywhere", action="store_true", help="load even a server elsewhere")
    return parser


if __name__ == "__main__":
    main()
