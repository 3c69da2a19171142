"""Bulk-load a calendar into an empty database.

Columns and tables that the database lacks are left out, because it may have the schema of another
release.
"""

import random
import uuid
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

import sqlalchemy as sa

from benchmarks.calendar.book import INVENTORY, PER_LEASE, UNIT, Calendar
from climate.core.lease.model import HOST
from climate.db.engine.database import Database

# The shortest and the longest booking, in hours.
_SHORTEST, _LONGEST = 12, 60
_CHUNK = 5_000
_RESERVATION = "id lease_id position resource_type status params details created_at"

Row = tuple[Any, ...]


def load(database: Database, book: Calendar) -> None:
    """Bulk-load the calendar into the empty database, and update the planner's statistics."""
    with database.engine.connect() as connection, connection.begin():
        for statement in _UNCHECKED.get(database.dialect, ()):
            connection.exec_driver_sql(statement)
        with _indexed_later(connection, "allocations"):
            for table, columns, rows in _tables(book):
                _copy(connection, table, *known(columns.split(), rows, _columns(connection, table)))
        for statement in _CHECKED.get(database.dialect, ()):
            connection.exec_driver_sql(statement)
    with database.engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        for statement in _ANALYZE[database.dialect]:
            connection.exec_driver_sql(statement)


# Loading without checks: the generated references are correct.
_UNCHECKED = {
    "postgresql": (
        "SET LOCAL session_replication_role = replica",
        "SET LOCAL statement_timeout = 0",
        "SET LOCAL maintenance_work_mem = '256MB'",
    ),
    "mysql": ("SET foreign_key_checks = 0", "SET unique_checks = 0"),
    "sqlite": (),
}
_CHECKED = {"mysql": ("SET foreign_key_checks = 1", "SET unique_checks = 1")}
_LOADED = ("resources", "inventories", "resource_properties", "leases", "reservations")
_NAMES = ", ".join((*_LOADED, "allocations", "events"))
_ANALYZE = {
    "postgresql": ("SET statement_timeout = 0", "VACUUM ANALYZE", "CHECKPOINT"),
    "mysql": (f"ANALYZE TABLE {_NAMES}",),
    "sqlite": ("ANALYZE",),
}


@contextmanager
def _indexed_later(connection: sa.Connection, table: str) -> Iterator[None]:
    """Drop the table's indexes (PostgreSQL) and create them after the block, which is faster."""
    if connection.dialect.name != "postgresql":
        yield
        return
    indexes = connection.execute(_INDEXES, {"table": table}).all()
    for name, definition in indexes:
        connection.exec_driver_sql(
            f"ALTER TABLE {table} DROP CONSTRAINT {name}"
            if definition.startswith("ALTER")
            else f"DROP INDEX {name}"
        )
    yield
    for _, definition in indexes:
        connection.exec_driver_sql(definition)


_INDEXES = sa.text("""
    SELECT i.relname, coalesce(
        'ALTER TABLE ' || t.relname || ' ADD CONSTRAINT ' || c.conname || ' '
        || pg_get_constraintdef(c.oid),
        pg_get_indexdef(i.oid))
    FROM pg_class AS t
    JOIN pg_index AS x ON x.indrelid = t.oid AND NOT x.indisprimary
    JOIN pg_class AS i ON i.oid = x.indexrelid
    LEFT JOIN pg_constraint AS c ON c.conindid = i.oid AND c.conrelid = t.oid
    WHERE t.relname = :table
""")


def _tables(book: Calendar) -> Iterator[tuple[str, str, Iterable[Row]]]:
    hosts = range(1, book.hosts + 1)
    starts = sorted(hour for _, hour, _ in _spans(book))
    lease_ids = [str(uuid.uuid4()) for _ in range(-(-len(starts) // PER_LEASE))]
    now = book.first - timedelta(days=1)
    yield (
        "resources",
        "id type external_id reservable created_at",
        ((n, HOST, f"host-{n}", True, now) for n in hosts),
    )
    yield (
        "resource_properties",
        "resource_id name value number native",
        (row for n in hosts for row in _properties(n, book.hot)),
    )
    yield (
        "inventories",
        "resource_id resource_class total reserved allocation_ratio",
        ((n, name, total, 0, 1.0) for n in hosts for name, total in INVENTORY.items()),
    )
    yield (
        "properties",
        "id resource_type name private created_at",
        ((str(uuid.uuid4()), HOST, name, False, now) for name in ("gpu", "hot")),
    )
    yield from _leases(book, lease_ids, starts, now)
    yield (
        "allocations",
        "resource_id reservation_id start_at busy_until resource_class amount",
        _allocations(book, lease_ids, starts),
    )


def _leases(
    book: Calendar, ids: Sequence[str], starts: Sequence[float], now: datetime
) -> Iterator[tuple[str, str, Iterable[Row]]]:
    firsts, lasts = starts[::PER_LEASE], [*starts[PER_LEASE - 1 :: PER_LEASE], starts[-1]]
    windows = [
        (id_, _minute(book, first), _minute(book, last + _LONGEST))
        for id_, first, last in zip(ids, firsts, lasts, strict=False)
    ]
    yield (
        "leases",
        "id name user_id project_id start_at end_at status degraded notices created_at",
        (
            (id_, "lease", "user", "project", start, end, "PENDING", False, "[]", now)
            for id_, start, end in windows
        ),
    )
    yield (
        "reservations",
        f"{_RESERVATION} missing_resources resources_changed",
        ((id_, id_, 0, HOST, "pending", "{}", "{}", now, False, False) for id_ in ids),
    )
    yield (
        "events",
        "id lease_id kind rank due_at run_at status attempt created_at",
        (
            (str(uuid.uuid4()), id_, kind, rank, due, due, "UNDONE", 0, now)
            for id_, start, end in windows
            for kind, rank, due in (("start_lease", 1, start), ("end_lease", 0, end))
        ),
    )


def _properties(host: int, hot: int) -> Iterator[Row]:
    yield (host, "vcpus", "64", 64.0, True)
    yield (host, "gpu", "yes" if host % 3 == 0 else "no", None, False)
    if host <= hot:
        yield (host, "hot", "yes", None, False)


def _allocations(
    book: Calendar, lease_ids: Sequence[str], starts: Sequence[float]
) -> Iterator[Row]:
    for host, hour, length in _spans(book):
        owner = lease_ids[bisect_left(starts, hour) // PER_LEASE]
        start, end = _minute(book, hour), _minute(book, hour + length)
        for name, amount in UNIT.items() if _is_shared(host) else ((None, None),):
            yield (host, owner, start, end, name, amount)
    full = book.full_window
    for host in range(1, book.hosts + 1):
        yield (host, None, full.start, full.end, None, None)


def _spans(book: Calendar) -> Iterator[tuple[int, float, float]]:
    """Yield the host, the first hour and the hours of each booking, always the same ones."""
    dice = random.Random(book.hosts)
    for host in range(1, book.hosts + 1):
        hour = 0.0
        for _ in range(book.per_host):
            length = dice.uniform(_SHORTEST, _LONGEST)
            shared = _is_shared(host)
            hour = dice.uniform(0, book.hours - length) if shared else hour + dice.uniform(0, 58)
            yield host, hour, length
            hour += length + 0.1


def _is_shared(host: int) -> bool:
    return host % 5 == 0


def _minute(book: Calendar, hour: float) -> datetime:
    return book.first + timedelta(minutes=round(hour * 60))


def known(
    names: Sequence[str], rows: Iterable[Row], columns: Collection[str]
) -> tuple[Sequence[str], Iterable[Row]]:
    """Return names and rows without the values that have no column."""
    if set(names) <= set(columns):
        return names, rows
    places = [place for place, name in enumerate(names) if name in columns]
    return [names[place] for place in places], (tuple(row[n] for n in places) for row in rows)


def _columns(connection: sa.Connection, table: str) -> set[str]:
    """Return the columns of a table, none if it does not exist."""
    inspector = sa.inspect(connection)
    if not inspector.has_table(table):
        return set()
    return {column["name"] for column in inspector.get_columns(table)}


def _copy(connection: sa.Connection, table: str, names: Sequence[str], rows: Iterable[Row]) -> None:
    if not names:
        return
    quoted = ", ".join(connection.dialect.identifier_preparer.quote(name) for name in names)
    raw: Any = connection.connection.dbapi_connection
    cursor = raw.cursor()
    if connection.dialect.name == "postgresql":
        with cursor.copy(f"COPY {table} ({quoted}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        return
    mark = "?" if connection.dialect.name == "sqlite" else "%s"
    insert = f"INSERT INTO {table} ({quoted}) VALUES ({', '.join([mark] * len(names))})"  # noqa: S608
    remaining = iter(rows)
    while chunk := list(islice(remaining, _CHUNK)):
        cursor.executemany(insert, [[_plain(value) for value in row] for row in chunk])


def _plain(value: Any) -> Any:  # noqa: ANN401 - a cell
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
    return value
