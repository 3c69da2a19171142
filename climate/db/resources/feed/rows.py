"""Conversion of rows to the objects of the feed, and statements that are the same everywhere."""

from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.matching.booked_hours.booking_change import (
    UNKNOWN_OWNER,
    BookingChange,
    ResourceBookings,
    ResourceSpans,
    ResourceState,
    owner_hash,
)
from climate.db.engine.types import any_of, chunks
from climate.db.resources.feed.port import Changes, Position
from climate.db.resources.resources import complete
from climate.db.tables.booking_changes import BookingChangeRow
from climate.db.tables.leases import ALLOCATIONS, LEASES, RESERVATIONS, RESOURCES, columns

CHANGES = BookingChangeRow.metadata.tables[BookingChangeRow.__tablename__]
#: What ``to_changes`` needs of each row.
CHANGE_COLUMNS = columns(
    CHANGES, "id resource_id project_id start_at busy_until is_shared is_added made_at"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_IS_SHARED = ALLOCATIONS.c.resource_class.is_not(None)
_SPANS = sa.select(
    ALLOCATIONS.c.resource_id,
    _IS_SHARED.label("is_shared"),
    ALLOCATIONS.c.start_at,
    ALLOCATIONS.c.busy_until,
).order_by(ALLOCATIONS.c.resource_id, "is_shared", ALLOCATIONS.c.start_at)
_BOOKINGS = (
    _SPANS.add_columns(LEASES.c.project_id)
    .outerjoin(RESERVATIONS, RESERVATIONS.c.id == ALLOCATIONS.c.reservation_id)
    .outerjoin(LEASES, LEASES.c.id == RESERVATIONS.c.lease_id)
)
_STREAMED = {"yield_per": 1000}
_cached_hash = lru_cache(maxsize=10_000)(owner_hash)


def to_microseconds(moment: datetime) -> int:
    """Return the microseconds from 1970 to an aware time."""
    delta = moment - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def to_changes(position: Position, rows: Sequence[Any]) -> Changes:
    """Return the Changes that rows of the table contain; ``position`` is the new position.

    The rows are in no order, and no column has that of the commits. So additions come first.
    """
    changes = [_change(row) for row in rows if row.start_at is not None]
    return Changes(
        position,
        sorted(changes, key=lambda change: not change.is_added),
        {row.resource_id for row in rows if row.start_at is None},
    )


def _change(row: Any) -> BookingChange:  # noqa: ANN401 - a plain row
    return BookingChange(
        row.resource_id,
        to_microseconds(row.start_at),
        to_microseconds(row.busy_until),
        bool(row.is_shared),
        _owner(row.project_id),
        bool(row.is_added),
    )


def _owner(project_id: str | None) -> int:
    return UNKNOWN_OWNER if project_id is None else _cached_hash(project_id)


def resource_states(session: Session, ids: Collection[int]) -> list[ResourceState]:
    """Return the states of these resources; ids without a resource are left out."""
    return _states(session, [any_of(RESOURCES.c.id, part) for part in chunks(list(ids))])


def states_of_types(session: Session, types: Collection[str]) -> list[ResourceState]:
    """Return the states of all resources of these types."""
    return _states(session, [RESOURCES.c.type.in_(types)])


def _states(session: Session, conditions: Iterable[Any]) -> list[ResourceState]:
    rows = [
        row
        for condition in conditions
        for row in session.execute(sa.select(RESOURCES).where(condition))
    ]
    return [
        ResourceState(item.id, item.type, item.reservable, item.properties)
        for item in complete(session, rows)
    ]


def bookings(
    session: Session, condition: sa.ColumnElement[Any], now: datetime
) -> Iterator[ResourceBookings]:
    """Yield the bookings of the resources that meet a condition, from a stream of rows.

    ``condition`` is about the columns of the table of allocations. Bookings that are over at
    ``now`` are left out.
    """
    query = _BOOKINGS.where(condition, ALLOCATIONS.c.busy_until > now)
    rows = session.execute(query, execution_options=_STREAMED)
    for (resource_id, is_shared), group in groupby(rows, itemgetter(0, 1)):
        starts, ends, owners = array("q"), array("q"), array("i")
        for _, _, start, end, project_id in group:
            starts.append(to_microseconds(start))
            ends.append(to_microseconds(end))
            owners.append(_owner(project_id))
        yield ResourceBookings(resource_id, bool(is_shared), starts, ends, owners)


def spans(session: Session, ids: Collection[int], now: datetime) -> Iterator[ResourceSpans]:
    """Yield the times of the bookings of these resources that are not over at ``now``."""
    is_given = any_of(ALLOCATIONS.c.resource_id, ids)
    read = session.execute(_SPANS.where(is_given, ALLOCATIONS.c.busy_until > now))
    for (resource_id, is_shared), group in groupby(read, itemgetter(0, 1)):
        starts, ends = array("q"), array("q")
        for _, _, start, end in group:
            starts.append(to_microseconds(start))
            ends.append(to_microseconds(end))
        yield ResourceSpans(resource_id, bool(is_shared), starts, ends)


def of_types(types: Collection[str]) -> sa.ColumnElement[Any]:
    """Return the condition that an allocation is of a resource of one of these types."""
    matching = sa.select(RESOURCES.c.id).where(RESOURCES.c.type.in_(types))
    return ALLOCATIONS.c.resource_id.in_(matching)
