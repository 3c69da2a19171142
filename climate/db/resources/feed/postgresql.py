"""The booking feed on PostgreSQL, where numbers of transactions tell what a reader has not seen.

A change has the number of its transaction (``xid``). A position is the text of
``pg_current_snapshot()`` of the statement that read last: it says of each transaction whether it
was visible. So the next statement reads the changes of exactly those transactions that are visible
now and were not visible then. A transaction that commits late was not visible then, whatever its
number. Transactions from ``pg_snapshot_xmin`` of the position on are the only candidates, which an
index finds.

This needs an unbroken history. Each of these makes a position useless:

- Another timeline: a standby was promoted, or a backup was restored up to a point in time.
- Another table: a dump was restored.
- A lower next transaction number: an older copy of the files was restored.
- A crash of the server. PostgreSQL may use numbers of transactions that did not commit once more,
  so the position would hide the new ones. The server clears its statistics after a crash, so the
  time of their last reset changes (``src/backend/utils/activity/pgstat.c``).
- Age, because ``prune`` deletes changes. A position is valid for half of the time for which changes
  are kept. The other half is for transactions that were open for long before they committed.
"""

import sys
from array import array
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.matching.booked_hours.booking_change import (
    ResourceBookings,
    ResourceSpans,
    ResourceState,
)
from climate.db.engine.database import Database
from climate.db.engine.driver_statement import POSTGRESQL, convert
from climate.db.engine.servers import PG_TIMELINE
from climate.db.resources.feed import rows
from climate.db.resources.feed.port import KEPT, PRUNED, Changes, Position, Snapshot

_VALID = KEPT / 2
_HISTORY = (
    f"concat_ws('/', {PG_TIMELINE}, 'booking_changes'\\:\\:regclass\\:\\:oid,"
    " extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()))"
)
_POSITION = (
    f"pg_current_snapshot()\\:\\:text AS snapshot, {_HISTORY} AS history,"
    " statement_timestamp() AS read_at"
)
_NOW = sa.text(f"SELECT {_POSITION}")
_MARK = "CAST(:mark AS pg_snapshot)"


class _Row(NamedTuple):
    """The position of the query, and a change; all fields of the change are None if there is none.

    The fields are the columns of the query, and the last ones are columns of the table.
    """

    snapshot: str
    history: str
    read_at: datetime
    id: int | None
    resource_id: int
    project_id: str | None
    start_at: datetime | None
    busy_until: datetime | None
    is_shared: bool | None
    is_added: bool | None


# The last condition leaves out changes of a dump from a server with higher transaction numbers.
_SINCE = sa.text(
    f"""
    SELECT {_POSITION}, {", ".join(f"change.{name}" for name in _Row._fields[3:])}
    FROM (SELECT) AS one LEFT JOIN booking_changes AS change
        ON change.xid >= pg_snapshot_xmin({_MARK})\\:\\:text\\:\\:bigint
        AND NOT pg_visible_in_snapshot(change.xid\\:\\:text\\:\\:xid8, {_MARK})
        AND pg_visible_in_snapshot(
            change.xid\\:\\:text\\:\\:xid8, (SELECT pg_current_snapshot())
        )
    """  # noqa: S608 - only constants
)
_SINCE_AT_ONCE = convert(str(_SINCE.compile(dialect=POSTGRESQL)))
_PRUNE = sa.text(
    """
    DELETE FROM booking_changes
    WHERE id IN (SELECT id FROM booking_changes ORDER BY id LIMIT :most)
    AND (
        made_at < clock_timestamp() - :kept
        OR xid >= pg_snapshot_xmax(pg_current_snapshot())\\:\\:text\\:\\:bigint
    )
    """
).bindparams(sa.bindparam("kept", KEPT, sa.Interval), most=PRUNED)
# The time limits of connections are for short transactions.
_PATIENCE = sa.text(
    "SELECT set_config('statement_timeout', '10min', true),"
    " set_config('idle_in_transaction_session_timeout', '10min', true),"
    " set_config('cursor_tuple_fraction', '1', true)"
)
_HASH = "coalesce(nullif(('x' || substr(md5({0}), 1, 8))\\:\\:bit(32)\\:\\:int, 0), 1)"
# Times are sent as microseconds since 2000, so 30 years more make them microseconds since 1970.
_COLUMNS = """
    resource_id, is_shared,
    string_agg(timestamptz_send(start_at + interval '946684800 seconds'), ''),
    string_agg(timestamptz_send(busy_until + interval '946684800 seconds'), '')
"""
# A row for each resource: PostgreSQL sorts and packs faster than a client receives rows. The hash
# is ``owner_hash``, computed once for each project.
_OF_TYPES = sa.text(
    f"""
    WITH owners AS MATERIALIZED (
        SELECT project_id, coalesce(
            nullif(('x' || substr(md5(project_id), 1, 8))\\:\\:bit(32)\\:\\:int, 0), 1
        ) AS hash
        FROM (SELECT DISTINCT project_id FROM leases) AS projects
    )
    SELECT {_COLUMNS}, string_agg(int4send(owner), '')
    FROM (
        SELECT allocations.resource_id, resource_class IS NOT NULL AS is_shared,
            allocations.start_at, busy_until, coalesce(owners.hash, 0) AS owner
        FROM allocations
        LEFT JOIN reservations ON reservations.id = allocations.reservation_id
        LEFT JOIN leases ON leases.id = reservations.lease_id
        LEFT JOIN owners ON owners.project_id = leases.project_id
        WHERE busy_until > now()
        AND resource_id IN (SELECT id FROM resources WHERE type = ANY(:types))
        ORDER BY 1, 2, 3
    ) AS sorted
    GROUP BY resource_id, is_shared
    """  # noqa: S608 - only constants
)
# Whole bookings and shares have different indexes, which contain all that the query needs.
_OF_RESOURCES = sa.text(
    f"""
    SELECT {_COLUMNS}
    FROM (
        SELECT whole_id AS resource_id, false AS is_shared, start_at, busy_until FROM allocations
        WHERE whole_id = ANY(:ids) AND busy_until > now()
        UNION ALL
        SELECT resource_id, true, start_at, busy_until FROM allocations
        WHERE resource_class IS NOT NULL AND resource_id = ANY(:ids) AND busy_until > now()
        ORDER BY 1, 2, 3
    ) AS sorted
    GROUP BY resource_id, is_shared
    """  # noqa: S608 - only constants
)
_STREAMED = {"yield_per": 100}


class PostgresqlFeed:
    """The booking feed on PostgreSQL; see BookingFeed."""

    def snapshot(self, session: Session, types: Collection[str]) -> Snapshot:
        """Implement BookingFeed.snapshot."""
        session.execute(_PATIENCE)
        now = session.execute(_NOW).one()
        return Snapshot(
            _position(now),
            now.read_at,
            rows.states_of_types(session, types),
            _stream(session, types),
        )

    def changes_since(self, session: Session, position: Position) -> Changes:
        """Implement BookingFeed.changes_since."""
        return _changes(position, session.execute(_SINCE, {"mark": position.mark}).all())

    def latest_changes(self, database: Database, position: Position) -> Changes:
        """Implement BookingFeed.latest_changes."""
        read = database.query_at_once(_SINCE_AT_ONCE, {"mark": position.mark})
        return _changes(position, [_Row(*row) for row in read])

    def resource_states(self, session: Session, ids: Collection[int]) -> list[ResourceState]:
        """Implement BookingFeed.resource_states."""
        return rows.resource_states(session, ids)

    def spans_of(self, session: Session, ids: Collection[int]) -> list[ResourceSpans]:
        """Implement BookingFeed.spans_of."""
        packed = session.execute(_OF_RESOURCES, {"ids": list(ids)})
        return [
            ResourceSpans(resource_id, is_shared, _integers("q", starts), _integers("q", ends))
            for resource_id, is_shared, starts, ends in packed
        ]

    def number(self, session: Session) -> int:  # noqa: ARG002 - only MariaDB needs it
        """Implement BookingFeed.number: do nothing, because each change has its transaction."""
        return 0

    def prune(self, session: Session) -> int:
        """Implement BookingFeed.prune."""
        result: Any = session.execute(_PRUNE)
        return int(result.rowcount)


def _changes(before: Position, read: Sequence[Any]) -> Changes:
    after = _position(read[0])
    if _is_lost(before, after):
        return Changes(after, is_lost=True)
    return rows.to_changes(after, [row for row in read if row.id is not None])


def _position(row: Any) -> Position:  # noqa: ANN401 - a plain row
    return Position(row.snapshot, row.history, read_at=row.read_at)


def _is_lost(before: Position, after: Position) -> bool:
    """Return whether changes between two positions may be missing."""
    age = timedelta.max
    if before.read_at is not None and after.read_at is not None:
        age = after.read_at - before.read_at
    is_back = _next_transaction(after) < _next_transaction(before)
    return after.history != before.history or is_back or age > _VALID


def _next_transaction(position: Position) -> int:
    """Return the lowest number of a transaction that had not begun: ``xmax`` of a snapshot."""
    return int(position.mark.split(":")[1])


def _stream(session: Session, types: Collection[str]) -> Iterator[ResourceBookings]:
    """Yield the bookings of rows that contain big-endian integers."""
    packed = session.execute(_OF_TYPES, {"types": list(types)}, execution_options=_STREAMED)
    for resource_id, is_shared, *texts in packed:
        starts, ends, owners = map(_integers, "qqi", texts)
        yield ResourceBookings(resource_id, is_shared, starts, ends, owners)


def _integers(code: str, text: bytes) -> "array[int]":
    integers = array(code)
    integers.frombytes(text)
    if sys.byteorder == "little":
        integers.byteswap()
    return integers
