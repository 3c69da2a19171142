"""The same hosts and bookings, as rows of climate's database and of Blazar's.

On even days every second host is booked, on odd days the others, ten days each. So there is half
of all hosts to be had at any time, for whatever does not last beyond midnight.
"""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import sqlalchemy as sa

from climate.core.window import Window

HOST = "physical:host"
PER_HOST = 10
_PER_LEASE = 10
_DAY = timedelta(days=1)
_SLOT = timedelta(hours=4)
_SLOTS = 2 * PER_HOST * (_DAY // _SLOT)

Rows = dict[str, list[dict[str, Any]]]
Make = Callable[["Book"], Rows]


@dataclass(frozen=True, slots=True)
class Booking:
    """One lease with its only reservation, on some hosts by number."""

    id: str
    window: Window
    hosts: range


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
                yield Booking(str(uuid.uuid4()), window, hosts)


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
    made, leases = {"created_at": datetime.now(UTC)}, list(book.leases())
    flags = {"missing_resources": False, "resources_changed": False}
    return {
        "resources": [
            {"id": n + 1, "type": HOST, "external_id": name, "reservable": True, **made}
            for n, name in enumerate(_names(book))
        ],
        "resource_properties": [
            {"resource_id": n + 1, "name": name, "value": text, "number": number, "native": True}
            for n, host in enumerate(_names(book))
            for name, text, number in (("hypervisor_hostname", host, None), ("vcpus", "16", 16.0))
        ],
        "leases": [
            {
                "id": one.id,
                "name": one.id,
                "user_id": "user",
                "project_id": "project",
                "start_at": one.window.start,
                "end_at": one.window.end,
                "status": "PENDING",
                "degraded": False,
                "notices": [],
                **made,
            }
            for one in leases
        ],
        "reservations": [
            {
                "id": one.id,
                "lease_id": one.id,
                "position": 0,
                "resource_type": HOST,
                "status": "pending",
                "params": {},
                "details": {},
                **flags,
                **made,
            }
            for one in leases
        ],
        "events": [
            {
                "id": str(uuid.uuid4()),
                "lease_id": one.id,
                "kind": kind,
                "rank": rank,
                "due_at": due,
                "run_at": due,
                "status": "UNDONE",
                "attempt": 0,
                **made,
            }
            for one in leases
            for kind, rank, due in (
                ("start_lease", 1, one.window.start),
                ("end_lease", 0, one.window.end),
            )
        ],
        "allocations": [
            {
                "resource_id": n + 1,
                "reservation_id": one.id,
                "start_at": one.window.start,
                "busy_until": one.window.end,
            }
            for one in leases
            for n in one.hosts
        ],
    }


def of_blazar(book: Book) -> Rows:
    """Return rows by table, for Blazar: what it would have made itself."""
    leases, ids = list(book.leases()), [str(uuid.uuid4()) for _ in range(book.hosts)]
    return {
        "computehosts": [
            {
                "id": id_,
                "vcpus": 16,
                "cpu_info": "{}",
                "memory_mb": 65536,
                "local_gb": 1000,
                "hypervisor_type": "fake",
                "hypervisor_version": 1000,
                "trust_id": "",
                "hypervisor_hostname": name,
                "service_name": name,
                "availability_zone": "nova",
                "reservable": True,
            }
            for id_, name in zip(ids, _names(book), strict=True)
        ],
        "leases": [
            {
                "id": one.id,
                "name": one.id,
                "user_id": "user",
                "project_id": "project",
                "start_date": _naive(one.window.start),
                "end_date": _naive(one.window.end),
                "trust_id": "",
                "status": "PENDING",
                "degraded": False,
            }
            for one in leases
        ],
        "reservations": [
            {
                "id": one.id,
                "lease_id": one.id,
                "resource_id": one.id,
                "resource_type": HOST,
                "status": "pending",
                "missing_resources": False,
                "resources_changed": False,
            }
            for one in leases
        ],
        "computehost_reservations": [
            {
                "id": one.id,
                "reservation_id": one.id,
                "aggregate_id": 0,
                "resource_properties": "",
                "hypervisor_properties": "",
                "count_range": f"{len(one.hosts)}-{len(one.hosts)}",
                "before_end": "default",
            }
            for one in leases
        ],
        "events": [
            {
                "id": str(uuid.uuid4()),
                "lease_id": one.id,
                "event_type": kind,
                "time": _naive(due),
                "status": "UNDONE",
            }
            for one in leases
            for kind, due in (("start_lease", one.window.start), ("end_lease", one.window.end))
        ],
        "computehost_allocations": [
            {
                "id": str(uuid.uuid4()),
                "compute_host_id": ids[n],
                "reservation_id": one.id,
            }
            for one in leases
            for n in one.hosts
        ],
    }


# Bookings that begin before the one before them on the same host is over.
_DOUBLE = """
    SELECT count(*) FROM (
        SELECT begin, lag(until) OVER (PARTITION BY host ORDER BY begin, until) AS before_it
        FROM ({bookings}) AS bookings
    ) AS found
    WHERE begin < before_it
"""
DOUBLE_IN_CLIMATE = sa.text(
    _DOUBLE.format(
        bookings="SELECT resource_id AS host, start_at AS begin, busy_until AS until"
        " FROM allocations"
    )
)
DOUBLE_IN_BLAZAR = sa.text(
    _DOUBLE.format(
        bookings="SELECT compute_host_id AS host, start_date AS begin, end_date AS until"
        " FROM computehost_allocations AS a"
        " JOIN reservations AS r ON r.id = a.reservation_id"
        " JOIN leases AS l ON l.id = r.lease_id"
    )
)


def _names(book: Book) -> list[str]:
    return [f"benchmark-{n:05}" for n in range(book.hosts)]


def _naive(moment: datetime) -> datetime:
    return moment.replace(tzinfo=None)
