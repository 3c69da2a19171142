"""The same hosts and bookings in climate's database and in Blazar's, as rows.

Every host has ten bookings of one day: half of the hosts on even days, the others on odd days. So
half of all hosts are free at any time, for leases that do not last beyond midnight.
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
    """One lease with its only reservation; ``hosts`` are numbers."""

    id: str
    window: Window
    hosts: range

    @property
    def between(self) -> tuple[datetime, datetime]:
        """Return the start and the end."""
        return self.window.start, self.window.end


@dataclass(frozen=True, slots=True)
class Book:
    """``PER_HOST`` bookings of each host, from midnight ``first`` on."""

    hosts: int
    first: datetime

    @property
    def bookings(self) -> int:
        """Return the number of bookings of all hosts."""
        return PER_HOST * self.hosts

    @property
    def room(self) -> int:
        """Return how many requests for a slot can succeed."""
        return _SLOTS * (self.hosts // 2)

    def slot(self, number: int) -> Window:
        """Return four hours in which half of the hosts are free; slots repeat after ``_SLOTS``."""
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
    """Return a book that begins at the midnight after the next."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return Book(hosts, today + 2 * _DAY)


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots that each client requests: different slots, or the same for all."""

    book: Book
    first: int
    clients: int
    same: bool = False

    def of(self, client: int) -> Iterator[Window]:
        """Return an endless iterator of the windows of a client."""
        begin = self.first if self.same else self.first + client
        return (self.book.slot(number) for number in count(begin, self.clients))


def of_climate(book: Book) -> Rows:
    """Return the rows of climate's tables."""
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
    """Return the rows of Blazar's tables, as Blazar itself writes them."""
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
            # Names of leases are unique in Blazar.
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
    """Direct access to a service's database.

    ``tables`` are the tables of a book, referenced tables first. ``held`` selects host, begin and
    end of all bookings.
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
        """Remove all leases, and with ``hosts`` also the hosts; return the ids of reservations."""
        with self.engine.begin() as connection:
            reservations = set(connection.scalars(sa.text("SELECT id FROM reservations")))
            for table in reversed(self.tables):
                if hosts or table.name not in _HOSTS:
                    connection.execute(table.delete())
        return reservations

    def is_empty(self) -> bool:
        """Return whether there are no hosts and no leases."""
        with self.engine.connect() as connection:
            return not any(connection.execute(table.select()).first() for table in self.tables)

    def count_double(self) -> int:
        """Return how many bookings begin before the previous booking of the host ends."""
        query = f"""
            SELECT count(*) FROM (
                SELECT begin, lag(until) OVER (PARTITION BY host ORDER BY begin, until) AS before_it
                FROM ({self.held}) AS held
            ) AS found
            WHERE begin < before_it
        """  # noqa: S608 - constant SQL
        with self.engine.connect() as connection:
            return int(connection.scalar(sa.text(query)) or 0)


def climate_store(database: Database) -> Store:
    """Return climate's store."""
    names = of_climate(_NO_BOOK)
    tables = [table for table in Base.metadata.sorted_tables if table.name in names]
    held = "SELECT resource_id AS host, start_at AS begin, busy_until AS until FROM allocations"
    return Store(database.engine, tables, of_climate, held)


@contextmanager
def blazar_store(url: str) -> Iterator[Store]:
    """Connect to Blazar's database during the block."""
    engine, metadata = sa.create_engine(url), sa.MetaData()
    held = """
        SELECT compute_host_id AS host, start_date AS begin, end_date AS until
        FROM computehost_allocations AS a
        JOIN reservations AS r ON r.id = a.reservation_id
        JOIN leases AS l ON l.id = r.lease_id
    """
    try:
        metadata.reflect(engine, only=list(of_blazar(_NO_BOOK)))
        yield Store(engine, metadata.sorted_tables, of_blazar, held)
    finally:
        engine.dispose()


def _names(book: Book) -> list[str]:
    return [f"benchmark-{n:05}" for n in range(book.hosts)]
