"""A calendar for benchmarks: hosts, with bookings that leave them free 45 % of the time.

Four hosts of five have consecutive bookings of the whole host. Each fifth host has bookings of
shares, with three rows each, which may overlap. A third of all hosts have the property ``gpu``. Ten
bookings belong to a lease, which has one reservation and two events. They are ten consecutive ones
in the order of their starts, mostly on different hosts, and they lie in the window of the lease.
"""

import random
import uuid
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import sqlalchemy as sa

from climate.core.lease.model import HOST
from climate.core.window import Window
from climate.db.engine.database import Database

# The inventory of each host, and the amounts of one unit.
INVENTORY = {"VCPU": 64, "MEMORY_MB": 262_144, "DISK_GB": 2_000}
UNIT = {"VCPU": 4, "MEMORY_MB": 8_192, "DISK_GB": 40}
# The maximum number of hosts in the case hotspot.
HOT = 1_000
_PER_LEASE = 10
# The shortest and the longest booking, in hours.
_SHORTEST, _LONGEST = 12, 60
_CHUNK = 5_000
_RESERVATION = "id lease_id position resource_type status params details created_at"

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Calendar:
    """``bookings`` of ``hosts``, from ``first`` on."""

    hosts: int
    bookings: int
    first: datetime

    @property
    def per_host(self) -> int:
        """Return the number of bookings of a host."""
        return max(1, self.bookings // self.hosts)

    @property
    def hours(self) -> int:
        """Return the length of the calendar; there are no bookings after it."""
        return 65 * self.per_host

    @property
    def hot(self) -> int:
        """Return how many hosts have the property ``hot``."""
        return min(HOT, self.hosts)

    def random_window(self, dice: random.Random) -> Window:
        """Return a random window of half a day to two and a half days."""
        start = self.first + timedelta(minutes=dice.randrange(self.hours * 57))
        return Window(start, start + timedelta(minutes=dice.randrange(12 * 60, 60 * 60)))

    def hot_window(self, round_: int) -> Window:
        """Return two days without bookings; each round has its own."""
        start = self.first + timedelta(hours=self.hours, days=300 + 10 * round_)
        return Window(start, start + timedelta(days=2))

    @property
    def full_window(self) -> Window:
        """Return two days on which all hosts are booked."""
        start = self.first + timedelta(hours=self.hours, days=200)
        return Window(start, start + timedelta(days=2))


def calendar(hosts: int, bookings: int) -> Calendar:
    """Return a calendar that begins tomorrow."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return Calendar(hosts, bookings, today + timedelta(days=1))


def load(database: Database, book: Calendar) -> None:
    """Bulk-load the calendar into the empty database, and update the planner's statistics."""
    with database.engine.connect() as connection, connection.begin():
        for statement in _UNCHECKED.get(database.dialect, ()):
            connection.exec_driver_sql(statement)
        with _indexed_later(connection, "allocations"):
            for table, columns, rows in _tables(book):
                _copy(connection, table, columns, rows)
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
    lease_ids = [str(uuid.uuid4()) for _ in range(-(-len(starts) // _PER_LEASE))]
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
    firsts, lasts = starts[::_PER_LEASE], [*starts[_PER_LEASE - 1 :: _PER_LEASE], starts[-1]]
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
        owner = lease_ids[bisect_left(starts, hour) // _PER_LEASE]
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


def _copy(connection: sa.Connection, table: str, columns: str, rows: Iterable[Row]) -> None:
    names = columns.split()
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
