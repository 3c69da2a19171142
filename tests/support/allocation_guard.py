"""The double-booking guard from outside: take it away, and look for what it forbids."""

from collections import defaultdict
from datetime import datetime
from itertools import combinations

import sqlalchemy as sa

from climate.db.engine import Database
from climate.db.tables import AllocationRow

Taken = tuple[int, datetime, datetime]

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
    """Take the guard out of the schema."""
    with database.engine.begin() as connection:
        for statement in _DROP[database.dialect]:
            connection.exec_driver_sql(statement)


def taken(database: Database) -> list[Taken]:
    """Return (resource id, start, end) of every allocation."""
    with database.read() as session:
        query = sa.select(
            AllocationRow.resource_id, AllocationRow.start_at, AllocationRow.busy_until
        )
        return [(row.resource_id, row.start_at, row.busy_until) for row in session.execute(query)]


def overlaps(database: Database) -> list[tuple[Taken, Taken]]:
    """Return every pair of allocations that share an instant of a resource, by brute force."""
    by_resource: dict[int, list[Taken]] = defaultdict(list)
    for one in taken(database):
        by_resource[one[0]].append(one)
    return [
        (one, other)
        for mine in by_resource.values()
        for one, other in combinations(mine, 2)
        if one[1] < other[2] and other[1] < one[2]
    ]
