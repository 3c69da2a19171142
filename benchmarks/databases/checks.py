"""Checks of the stored bookings: their number, and double bookings."""

from datetime import datetime

import sqlalchemy as sa

from benchmarks.calendar.book import UNIT
from climate.db.engine.database import Database
from climate.db.tables.leases import AllocationRow

# Double bookings of all resources with new allocations: overlapping bookings of a whole resource, a
# share that overlaps such a booking, and shares beyond the capacity.
_WHOLES = sa.text("""
    SELECT count(*) FROM (
        SELECT start_at, lag(busy_until) OVER (PARTITION BY whole_id ORDER BY start_at) AS before_it
        FROM allocations
        WHERE whole_id IN (SELECT resource_id FROM allocations WHERE id > :since)
    ) AS found
    WHERE start_at < before_it
""")
_MIXED = sa.text("""
    SELECT count(*) FROM allocations AS share
    JOIN allocations AS whole ON whole.whole_id = share.resource_id
        AND whole.start_at < share.busy_until AND share.start_at < whole.busy_until
    WHERE share.resource_class IS NOT NULL
    AND share.resource_id IN (SELECT resource_id FROM allocations WHERE id > :since)
""")
_SHARES = sa.text("""
    WITH mine AS (
        SELECT * FROM allocations WHERE resource_class IS NOT NULL
        AND resource_id IN (SELECT resource_id FROM allocations WHERE id > :since)
    ), steps AS (
        SELECT resource_id, resource_class, start_at AS moment, amount AS delta FROM mine
        UNION ALL
        SELECT resource_id, resource_class, busy_until, -amount FROM mine
    ), levels AS (
        SELECT resource_id, resource_class, sum(delta) OVER (
            PARTITION BY resource_id, resource_class ORDER BY moment, delta ROWS UNBOUNDED PRECEDING
        ) AS taken FROM steps
    )
    SELECT count(*) FROM levels JOIN inventories ON inventories.resource_id = levels.resource_id
        AND inventories.resource_class = levels.resource_class
    WHERE taken > (total - reserved) * allocation_ratio
""")


def latest(database: Database) -> int:
    """Return the id of the last allocation."""
    with database.read() as session:
        return session.scalar(sa.text("SELECT coalesce(max(id), 0) FROM allocations")) or 0


def count_handed_out(database: Database, since: int, start: datetime | None = None) -> int:
    """Return how many hosts or instances were booked since allocation ``since``.

    With ``start``, only what starts then.
    """
    unit = UNIT["VCPU"]
    query = sa.select(sa.func.sum(sa.func.coalesce(AllocationRow.amount, unit))).where(
        AllocationRow.id > since,
        sa.func.coalesce(AllocationRow.resource_class, "VCPU") == "VCPU",
        sa.true() if start is None else AllocationRow.start_at == start,
    )
    with database.read() as session:
        return int(session.scalar(query) or 0) // unit


def count_double(database: Database, since: int) -> int:
    """Return the number of double bookings on resources booked after allocation ``since``."""
    with database.read() as session:
        return sum(
            session.scalar(query, {"since": since}) or 0 for query in (_WHOLES, _MIXED, _SHARES)
        )
