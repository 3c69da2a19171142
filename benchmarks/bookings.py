"""The same hosts and bookings in climate's database and in Blazar's, as rows.

On even days every second host is booked, on odd days the others, ten days each. So there is half
of all hosts to be had at any time, for whatever does not last beyond midnight.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import sqlalchemy as sa

from climate.core.lease.model import HOST
from climate.core.window import Window
from climate.db.engine.database import Database
from climate.db.tables.leases import Base

PER_HOST = 10
_PER_LEASE = 10
_DAY = timedelta(days=1)
_SLOT = timedelta(hours=4)
_SLOTS = 2 * PER_HOST * (_DAY // _SLOT)

Rows = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Booking:
    """One lease with its only reservation, on some hosts by number."""

    id: str
    window: Window
    hosts: range

    @property
    def between(self) -> tuple[datetime, datetime]:
        """Return when it starts and ends."""
        return self.window.start, self.window.end


@dataclass(frozen=True, slots=True)
class Book:
    """``PER_HOST`` bookings of each of ``hosts``, from midnight ``first`` on."""

    hosts: int
    first: datetime

    @property
    def bookings(self) -> int:
        """Return how many there are of all hosts."""
        return PER_HOST * self.hosts

    @property
    def room(self) -> int:
        """Return for how many requests for a slot there is a host."""
        return _SLOTS * (self.hosts // 2)

    def slot(self, number: int) -> Window:
        """Return four hours in which half of the hosts have no booking; they come round again."""
        start = self.first + number % _SLOTS * _SLOT
        return Window(start, start + _SLOT)

    def leases(self) -> Iterator[Booking]:
        """Yield all bookings, as leases of ten hosts."""
        for day in range(2 * PER_HOST):
            window = Window(self.first + day * _DAY, self.first + (day + 1) * _DAY)
            for begin in range(day % 2, self.hosts, 2 * _PER_LEASE):
                hosts = range(begin, min(begin + 2 * _PER_LEASE, self.hosts), 2)
                yield Booking(_new_id(), window, hosts)


def book(hosts: int) -> Book:
    """Return a book that begins at midnight, not the next one."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return Book(hosts, today + 2 * _DAY)


@dataclass(frozen=True, slots=True)
class Slots:
    """Which slots each of ``clients`` asks for: others than the next one, or all the same."""

    book: Book
    first: int
    clients: int
    same: bool = False

    def of(self, client: int) -> Iterator[Window]:
        """Yield windows without end."""
        begin = self.first if self.same else self.first + client
        return (self.book.slot(number) for number in count(begin, self.clients))


def of_climate(book: Book) -> Rows:
    """Return rows by table, for climate."""
    now, leases = datetime.now(UTC), list(book.leases())
    names = list(enumerate(_names(book), 1))
    return {
        "resources": _rows(
            "id type external_id reservable created_at",
            ((n, HOST, name, True, now) for n, name in names),
        ),
        "resource_properties": _rows(
            "resource_id name value native",
            ((n, "hypervisor_hostname", name, True) for n, name in names),
        ),
        "leases": _rows(
            "id name user_id project_id start_at end_at status degraded notices created_at",
            ((i.id, *_OWNED, *i.between, "PENDING", False, [], now) for i in leases),
        ),
        "reservations": _rows(
            "id lease_id position resource_type status params details"
            " missing_resources resources_changed created_at",
            ((i.id, i.id, 0, HOST, "pending", {}, {}, False, False, now) for i in leases),
        ),
        "events": _rows(
            "id lease_id kind rank due_at run_at status attempt created_at",
            (
                (_new_id(), i.id, kind, rank, due, due, "UNDONE", 0, now)
                for i in leases
                for kind, rank, due in zip(_EVENTS, (1, 0), i.between, strict=True)
            ),
        ),
        "allocations": _rows(
            "resource_id reservation_id start_at busy_until",
            ((n + 1, i.id, *i.between) for i in leases for n in i.hosts),
        ),
    }


def of_blazar(book: Book) -> Rows:
    """Return rows by table, for Blazar: what it would have made itself."""
    leases, ids = list(book.leases()), [_new_id() for _ in range(book.hosts)]
    return {
        "computehosts": _rows(
            "id hypervisor_hostname service_name vcpus memory_mb local_gb cpu_info"
            " hypervisor_type hypervisor_version trust_id availability_zone reservable",
            (
                (id_, name, name, 16, 65536, 1000, "{}", "fake", 1000, "", "nova", True)
                for id_, name in zip(ids, _names(book), strict=True)
            ),
        ),
        "leases": _rows(
            "id name user_id project_id start_date end_date status degraded trust_id",
            # It does not let two leases have the same name.
            ((i.id, i.id, *_OWNED[1:], *i.between, "PENDING", False, "") for i in leases),
        ),
        "reservations": _rows(
            "id lease_id resource_id resource_type status missing_resources resources_changed",
            ((i.id, i.id, i.id, HOST, "pending", False, False) for i in leases),
        ),
        "computehost_reservations": _rows(
            "id reservation_id aggregate_id resource_properties hypervisor_properties"
            " count_range before_end",
            ((i.id, i.id, 0, "", "", f"{len(i.hosts)}-{len(i.hosts)}", "default") for i in leases),
        ),
        "events": _rows(
            "id lease_id event_type time status",
            (
                (_new_id(), i.id, kind, due, "UNDONE")
                for i in leases
                for kind, due in zip(_EVENTS, i.between, strict=True)
            ),
        ),
        "computehost_allocations": _rows(
            "id compute_host_id reservation_id",
            ((_new_id(), ids[n], i.id) for i in leases for n in i.hosts),
        ),
    }


_NO_BOOK = Book(0, datetime.now(UTC))
_HOSTS = {"computehosts", "resources", "resource_properties"}
_OWNED = ("lease", "user", "project")
_EVENTS = ("start_lease", "end_lease")


def _rows(columns: str, values: Iterable[tuple[Any, ...]]) -> list[dict[str, Any]]:
    names = columns.split()
    return [dict(zip(names, row, strict=True)) for row in values]


def _new_id() -> str:
    return str(uuid.uuid4())


@dataclass(frozen=True, slots=True)
class Store:
    """A service's database, seen from behind its back.

    ``tables`` are those that a book is in, with those first that others refer to. ``held`` selects
    host, begin and end of all that is booked.
    """

    engine: sa.Engine
    tables: Sequence[sa.Table]
    rows: Callable[[Book], Rows]
    held: str

    def fill(self, book: Book) -> None:
        """Insert the hosts and bookings of ``book``."""
        rows = self.rows(book)
        with self.engine.begin() as connection:
            for table in self.tables:
                connection.execute(table.insert(), rows[table.name])

    def clear(self, *, hosts: bool) -> set[str]:
        """Remove all leases, hosts too if asked to; return the ids of their reservations."""
        with self.engine.begin() as connection:
            made = set(connection.scalars(sa.text("SELECT id FROM reservations")))
            for table in reversed(self.tables):
                if hosts or table.name not in _HOSTS:
                    connection.execute(table.delete())
        return made

    def is_empty(self) -> bool:
        """Tell whether there are neither hosts nor leases."""
        with self.engine.connect() as connection:
            return not any(connection.execute(table.select()).first() for table in self.tables)

    def count_double(self) -> int:
        """Return how many bookings begin before the one before them on the same host is over."""
        query = f"""
            SELECT count(*) FROM (
                SELECT begin, lag(until) OVER (PARTITION BY host ORDER BY begin, until) AS before_it
                FROM ({self.held}) AS held
            ) AS found
            WHERE begin < before_it
        """  # noqa: S608 - ours
        with self.engine.connect() as connection:
            return int(connection.scalar(sa.text(query)) or 0)


def climate_store(database: Database) -> Store:
    """Return climate's."""
    names = of_climate(_NO_BOOK)
    tables = [table for table in Base.metadata.sorted_tables if table.name in names]
    held = "SELECT resource_id AS host, start_at AS begin, busy_until AS until FROM allocations"
    return Store(database.engine, tables, of_climate, held)


@contextmanager
def blazar_store(url: str) -> Iterator[Store]:
    """Yield Blazar's, connected meanwhile."""
    engine, found = sa.create_engine(url), sa.MetaData()
    held = """
        SELECT compute_host_id AS host, start_date AS begin, end_date AS until
        FROM computehost_allocations AS a
        JOIN reservations AS r ON r.id = a.reservation_id
        JOIN leases AS l ON l.id = r.lease_id
    """
    try:
        found.reflect(engine, only=list(of_blazar(_NO_BOOK)))
        yield Store(engine, found.sorted_tables, of_blazar, held)
    finally:
        engine.dispose()


def _names(book: Book) -> list[str]:
    return [f"benchmark-{n:05}" for n in range(book.hosts)]
