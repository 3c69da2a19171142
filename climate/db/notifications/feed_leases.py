"""Queries for the contents of calendar feeds: leases of a project, leases on a resource, one lease.

A feed of a project or resource shows the time from ``PAST`` before the present to ``AHEAD`` after
it, and at most ``MOST_ENTRIES`` leases. A held lease (not confirmed yet) is not shown, nor
is a lease in the wait list before it has a booking.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.lifecycle import LeaseStatus, ReservationStatus
from climate.core.notifications.feed import AHEAD, MOST_ENTRIES, PAST, ListedLease
from climate.core.window import Window
from climate.db.engine.types import any_of
from climate.db.tables.leases import (
    LEASES,
    RESERVATIONS,
    AllocationRow,
    LeaseRow,
    ReservationRow,
    ResourceRow,
    columns,
)

_COLUMNS = columns(
    LEASES,
    "id name status start_at end_at version created_at updated_at started_at start_delayed_at",
)
# Not held leases (not confirmed yet), and not waiting leases, whose dates are not known.
_IS_SHOWN = LEASES.c.status.not_in([LeaseStatus.CREATING.value, LeaseStatus.WAITING.value])
# Names of resources in an entry.
_MOST_NAMES = 50


def of_project(session: Session, project_id: str, now: datetime) -> list[ListedLease]:
    """Return the leases of a project for its calendar feed. Executes at most three statements."""
    return _near(session, now, LEASES.c.project_id == project_id)


def of_resource(
    session: Session, resource_id: int, project_id: str | None, now: datetime
) -> list[ListedLease]:
    """Return the leases that have booked a resource, for its calendar feed.

    If ``project_id`` is set, only leases of that project are included (None: all projects).
    """
    holds = (
        sa.select(AllocationRow.reservation_id)
        .join(ReservationRow, ReservationRow.id == AllocationRow.reservation_id)
        .where(*_on(resource_id, now))
        .with_only_columns(ReservationRow.lease_id)
    )
    conditions: list[sa.ColumnElement[bool]] = [LEASES.c.id.in_(holds)]
    if project_id is not None:
        conditions.append(LEASES.c.project_id == project_id)
    return _near(session, now, *conditions)


def of_lease(session: Session, lease_id: str, project_id: str | None) -> list[ListedLease]:
    """Return a list with one lease and the names of its resources, for its calendar feed.

    The list is empty if the lease does not exist or does not belong to the project (None: any
    project).
    """
    query = sa.select(*_COLUMNS).where(LEASES.c.id == lease_id, _IS_SHOWN)
    if project_id is not None:
        query = query.where(LEASES.c.project_id == project_id)
    named = (
        sa.select(ResourceRow.external_id)
        .join(AllocationRow, AllocationRow.resource_id == ResourceRow.id)
        .join(ReservationRow, ReservationRow.id == AllocationRow.reservation_id)
        .where(ReservationRow.lease_id == lease_id)
        .distinct()
        .order_by(ResourceRow.external_id)
        .limit(_MOST_NAMES + 1)
    )
    leases = _listed(session, session.execute(query).all())
    names = list(session.scalars(named)) if leases else []
    if len(names) > _MOST_NAMES:
        names[_MOST_NAMES:] = ["..."]
    return [replace(lease, resources=tuple(names)) for lease in leases]


def taken(
    session: Session, resource_id: int, project_id: str, now: datetime
) -> list[tuple[Window, bool]]:
    """Return the bookings of a resource that a project's feed shows only as occupied.

    Such entries say only when the resource is occupied, and not by which lease. They are bookings
    by other projects, bookings of held (unconfirmed) leases, and the cleaning after deleted leases.
    Each item contains the occupied window, and whether the booking is for a share of
    the resource. The items are sorted by start. The result has at most ``MOST_ENTRIES`` items. If
    there are more bookings, those that are over at ``now`` are left out first.
    """
    is_own = sa.and_(LeaseRow.project_id == project_id, _IS_SHOWN)
    start, end = AllocationRow.start_at, AllocationRow.busy_until
    query = (
        sa.select(start, end, AllocationRow.resource_class.is_(None))
        .outerjoin(ReservationRow, ReservationRow.id == AllocationRow.reservation_id)
        .outerjoin(LeaseRow, LeaseRow.id == ReservationRow.lease_id)
        .where(*_on(resource_id, now), sa.or_(LeaseRow.id.is_(None), ~is_own))
    )
    later = query.where(end > now).order_by(start, AllocationRow.id)
    rows = list(session.execute(later.limit(MOST_ENTRIES)).all())
    room = MOST_ENTRIES - len(rows)
    if room:
        earlier = query.where(end <= now).order_by(end.desc(), AllocationRow.id)
        rows += session.execute(earlier.limit(room)).all()
    bookings = [(Window(start_at, busy_until), not whole) for start_at, busy_until, whole in rows]
    return sorted(bookings, key=lambda booking: booking[0].start)


def _on(resource_id: int, now: datetime) -> list[sa.ColumnElement[bool]]:
    """Return the SQL conditions for the allocations of a resource that a feed may show.

    The conditions select bookings of the whole resource or of a share, between ``PAST`` before
    ``now`` and ``AHEAD`` after it. Whole bookings and shares have separate conditions, because the
    database finds each kind with an index of its own.
    """
    is_share = AllocationRow.resource_class.is_not(None)
    return [
        sa.or_(
            AllocationRow.whole_id == resource_id,
            sa.and_(is_share, AllocationRow.resource_id == resource_id),
        ),
        AllocationRow.busy_until > now - PAST,
        AllocationRow.start_at < now + AHEAD,
    ]


def _near(
    session: Session, now: datetime, *conditions: sa.ColumnElement[bool]
) -> list[ListedLease]:
    """Return up to ``MOST_ENTRIES`` leases for a feed that meet all SQL conditions.

    Leases that end after ``now`` and start within ``AHEAD`` come first, sorted by start. If there
    are fewer than ``MOST_ENTRIES``, leases that ended within ``PAST`` before ``now`` follow, the
    latest end first.
    """
    query = sa.select(*_COLUMNS).where(*conditions, _IS_SHOWN)
    end, start, id_ = LEASES.c.end_at, LEASES.c.start_at, LEASES.c.id
    later = query.where(end > now, start < now + AHEAD).order_by(start, id_)
    rows = list(session.execute(later.limit(MOST_ENTRIES)).all())
    room = MOST_ENTRIES - len(rows)
    if room:
        earlier = query.where(end <= now, end > now - PAST).order_by(end.desc(), id_)
        rows += session.execute(earlier.limit(room)).all()
    return _listed(session, rows)


def _listed(session: Session, rows: Sequence[Any]) -> list[ListedLease]:
    """Convert rows with the columns ``_COLUMNS`` to leases, and add their resource types."""
    types: dict[str, set[str]] = defaultdict(set)
    if rows:
        of_leases = any_of(RESERVATIONS.c.lease_id, [row.id for row in rows])
        stays = RESERVATIONS.c.status != ReservationStatus.DELETED.value
        query = sa.select(RESERVATIONS.c.lease_id, RESERVATIONS.c.resource_type)
        for lease_id, type_ in session.execute(query.where(of_leases, stays).distinct()):
            types[lease_id].add(type_)
    return [
        ListedLease(
            id=row.id,
            name=row.name,
            status=LeaseStatus(row.status),
            window=Window(row.start_at, row.end_at),
            version=row.version,
            created_at=row.created_at,
            updated_at=row.updated_at,
            started_at=row.started_at,
            start_delayed_at=row.start_delayed_at,
            resource_types=tuple(sorted(types[row.id])),
        )
        for row in rows
    ]
