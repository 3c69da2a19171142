"""Statements on the history: records of leases that had started and were then removed.

A manager moves a lease to the history some time after the lease has ended. The function
``ended_before`` finds the leases to move.
"""

from collections.abc import Collection
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.history import PastLease
from climate.core.lease.lifecycle import EventStatus, LeaseStatus, ReservationStatus
from climate.db.tables.bulk import values
from climate.db.tables.leases import EventRow, LeaseRow, PastLeaseRow, ReservationRow

_OPEN = [EventStatus.UNDONE.value, EventStatus.IN_PROGRESS.value]
_FIELDS = (
    "id name user_id project_id degraded start_at end_at started_at ended_at created_at"
    " reservations"
)


def ended_before(
    session: Session, before: datetime, limit: int, among: Collection[str] | None = None
) -> list[str]:
    """Return the sorted ids of up to ``limit`` leases that ended before the time ``before``.

    The leases are TERMINATED, have no open event, and have released all their resources. If
    ``among`` is set, only leases with these ids are considered.
    """
    unreleased = sa.exists().where(
        ReservationRow.lease_id == LeaseRow.id,
        ReservationRow.status != ReservationStatus.DELETED.value,
    )
    has_open_event = sa.exists().where(EventRow.lease_id == LeaseRow.id, EventRow.status.in_(_OPEN))
    query = (
        sa.select(LeaseRow.id)
        # The bound on the start uses an index.
        .where(LeaseRow.start_at < before, LeaseRow.end_at < before)
        # The lease may have ended later than planned.
        .where(sa.func.coalesce(LeaseRow.updated_at, LeaseRow.end_at) < before)
        .where(LeaseRow.status == LeaseStatus.TERMINATED.value)
        .where(~unreleased.correlate(LeaseRow), ~has_open_event.correlate(LeaseRow))
        .order_by(LeaseRow.start_at)
        .limit(limit)
    )
    if among is not None:
        query = query.where(LeaseRow.id.in_(among))
    return sorted(session.scalars(query))


def store(session: Session, lease: PastLease) -> None:
    """Store a lease in the history; the caller must delete the lease in the same transaction."""
    row = {**values(lease, _FIELDS), "status": lease.status.value}
    session.execute(sa.insert(PastLeaseRow).values(**row))


def is_old(session: Session, before: datetime) -> bool:
    """Return whether the history has a lease that ended before ``before``."""
    old = sa.select(PastLeaseRow.id).where(PastLeaseRow.ended_at < before)
    return session.scalar(old.limit(1)) is not None


def forget(session: Session, before: datetime, limit: int) -> int:
    """Delete from the history up to ``limit`` leases that ended before the time ``before``.

    The oldest are deleted first. Returns how many were deleted.
    """
    old = sa.select(PastLeaseRow.id).where(PastLeaseRow.ended_at < before)
    ids = session.scalars(old.order_by(PastLeaseRow.ended_at).limit(limit)).all()
    if ids:
        session.execute(sa.delete(PastLeaseRow).where(PastLeaseRow.id.in_(ids)))
    return len(ids)
