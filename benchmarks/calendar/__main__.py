"""How fast are calendars drawn? ``python -m benchmarks.calendar [--database URL] ...``.

Prints one JSON object a line for each case, on the calendar of ``benchmarks.admission``, in a month
in the middle of it:

* ``page``: the intervals of 200 rows, as ``/v2/calendar`` reads them.
* ``buckets``: the sums of 1,000 rows in buckets of two hours.
* ``groups``: all groups by a property, with the resources that are free now.
* ``availability``, ``instances``: the least free hosts, or instances, in each hour.
* ``types``, ``projects``, ``properties``: utilisation by hour.

``ratio_to_count`` compares the time with ``SELECT count(*) FROM allocations`` in the same run, so
that results of different machines are comparable. ``cpu_ms`` (PostgreSQL) is the processor time of
the server process. ``rows`` is the number of rows that the database returned.
"""

import argparse
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from statistics import median
from typing import Any

import psycopg
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.orm import Session

from benchmarks.calendar.book import UNIT, Calendar, calendar
from benchmarks.calendar.load import load
from benchmarks.databases.scratch import scratch
from benchmarks.options import some_of
from climate.core.lease.model import HOST
from climate.core.matching.calendar_rows import RowFilter
from climate.core.matching.query import Everything
from climate.core.matching.requirement import Requirement
from climate.core.window import Window
from climate.db.engine.database import Database
from climate.db.resources.occupancy import availability, bookings, rows, sums
from climate.db.tables.leases import AllocationRow

_HOUR = 3_600
_USED = re.compile(r"([0-9.]+) s user, ([0-9.]+) s system, [0-9.]+ s elapsed")
_ROWS = RowFilter(resource_type=HOST, query=Everything(), group_by="gpu")
Read = Callable[[Session, Window], Sequence[Any]]


def _ids(session: Session, limit: int) -> list[int]:
    return [row.id for row in rows.page(session, _ROWS, 0, limit)]


def _free(amounts: dict[str, int]) -> Read:
    wanted = Requirement(HOST, 1, 1, Everything(), amounts)
    return lambda session, month: availability.taken(session, [wanted], month, _HOUR, None).buckets


CASES: dict[str, Read] = {
    "page": lambda session, month: bookings.find(
        session, _ids(session, 200), month, "project", 20_001
    ),
    "buckets": lambda session, month: sums.of_resources(
        session, _ids(session, 1_000), month, 2 * _HOUR, "project"
    ),
    "groups": lambda session, month: rows.groups(session, _ROWS, month.start, 1_001),
    "availability": _free({}),
    "instances": _free(UNIT),
    "types": lambda session, month: sums.of_types(session, [HOST], month, _HOUR),
    "projects": lambda session, month: sums.of_projects(session, HOST, month, _HOUR),
    "properties": lambda session, month: sums.of_values(session, HOST, "gpu", month, _HOUR),
}


class ProcessorTime:
    """The processor time of PostgreSQL's server processes in seconds, from its own statistics."""

    def __init__(self, engine: sa.Engine) -> None:
        self.seconds = 0.0
        event.listen(engine, "connect", self._watch)

    def _watch(self, connection: psycopg.Connection[Any], _record: object) -> None:
        connection.add_notice_handler(self._add)
        with connection.cursor() as cursor:
            cursor.execute("SET client_min_messages = log")
            cursor.execute("SET log_statement_stats = on")
        connection.commit()

    def _add(self, notice: psycopg.errors.Diagnostic) -> None:
        used = _USED.search(notice.message_detail or "")
        if used is not None:
            self.seconds += float(used[1]) + float(used[2])


def _count(session: Session, _month: Window) -> Sequence[Any]:
    return session.execute(sa.select(sa.func.count()).select_from(AllocationRow)).all()


@contextmanager
def _timed(spent: list[float]) -> Iterator[None]:
    began = time.perf_counter()
    yield
    spent.append(time.perf_counter() - began)


def _run(database: Database, read: Read, month: Window, times: int) -> tuple[list[float], int]:
    """Return the seconds of each of ``times`` reads, after one that is not measured, and rows."""
    spent: list[float] = []
    count = 0
    for attempt in range(times + 1):
        with database.snapshot() as session:
            session.execute(sa.text("SELECT 1"))
            with _timed(spent):
                count = len(read(session, month))
        if not attempt:
            spent.clear()
    return spent, count


def _measure(
    database: Database, book: Calendar, cases: Sequence[str], times: int
) -> Iterator[dict[str, Any]]:
    month = _month(book)
    processor = ProcessorTime(database.engine) if database.dialect == "postgresql" else None
    database.dispose()  # connections from before are not watched
    for case in cases:
        before, _ = _run(database, _count, month, times)
        if processor is not None:
            processor.seconds = 0.0
        spent, count = _run(database, CASES[case], month, times)
        used = processor.seconds / (times + 1) if processor is not None else None
        after, _ = _run(database, _count, month, times)
        yield {
            "case": case,
            "database": database.dialect,
            "hosts": book.hosts,
            "bookings": book.bookings,
            "ms": round(1000 * median(spent), 1),
            "cpu_ms": None if used is None else round(1000 * used, 1),
            "ratio_to_count": round(median(spent) / median(before + after), 2),
            "rows": count,
        }


def _month(book: Calendar) -> Window:
    start: datetime = book.first + timedelta(hours=book.hours // 3)
    return Window(start, start + timedelta(days=28))


def main() -> None:
    """Run the cases of the command line, and print their figures."""
    parser = argparse.ArgumentParser("benchmarks.calendar", description=__doc__)
    parser.add_argument("--database", help="URL of a database on the server; default: SQLite")
    parser.add_argument("--anywhere", action="store_true", help="allow servers that are elsewhere")
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--bookings", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=5, help="how often each case runs")
    parser.add_argument("--cases", type=some_of(CASES), default=list(CASES))
    given = parser.parse_args()
    with scratch(given.database, anywhere=given.anywhere) as database:
        load(database, book := calendar(given.hosts, given.bookings))
        for figures in _measure(database, book, given.cases, given.times):
            print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
