"""The schema's guard against double booking: remove it, and search for overlaps."""

from collections import defaultdict
from datetime import datetime
from itertools import combinations

import sqlalchemy as sa

from climate.db.engine.database import Database
from climate.db.tables.leases import AllocationRow

Booking = tuple[int, datetime, datetime]

_DROP = {
    "sqlite": [
        "DROP TRIGGER allocations_no_overlap_insert",
        "DROP TRIGGER allocations_no_overlap_update",
    ],
    "postgresql": ["ALTER TABLE allocations DROP CONSTRAINT allocations_no_overlap"],
    "mysql": [
        "ALTER TABLE allocations DROP INDEX allocations_no_overlap",
        "ALTER TABLE allocations DROP PERIOD FOR busy",
    ],
}


def drop(database: Database) -> None:
    with database.engine.begin() as connection:
        for statement in _DROP[database.dialect]:
            connection.exec_driver_sql(statement)


def bookings(database: Database) -> list[Booking]:
    """Return (resource id, start, end) of every allocation."""
    with database.read() as session:
        query = sa.select(
            AllocationRow.resource_id, AllocationRow.start_at, AllocationRow.busy_until
        )
        return [(row.resource_id, row.start_at, row.busy_until) for row in session.execute(query)]


def overlaps(database: Database) -> list[tuple[Booking, Booking]]:
    """Return every pair of allocations that overlap on a resource, by brute force."""
    by_resource: dict[int, list[Booking]] = defaultdict(list)
    for booking in bookings(database):
        by_resource[booking[0]].append(booking)
    return [
        (first, second)
        for of_resource in by_resource.values()
        for first, second in combinations(of_resource, 2)
        if first[1] < second[2] and second[1] < first[2]
    ]
