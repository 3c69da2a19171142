"""How far those are who get hosts ready: what a lease still lacks, and what is at which state."""

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.model import LEAVING
from climate.core.provisioning.preparation import OPEN, PreparationState
from climate.db.preparations import HOST, SAME, bookings
from climate.db.tables.leases import AllocationRow, LeaseRow, ReservationRow, ResourceRow
from climate.db.tables.provisioning import PreparationRow


def unready(session: Session, lease_id: str) -> set[int]:
    """Return the ids of the hosts of a lease that nobody has said to be ready for it.

    What was removed from it while somebody was at its start counts no more.
    """
    ready = sa.exists().where(
        *SAME,
        PreparationRow.over_at.is_(None),
        PreparationRow.progress == PreparationState.READY.value,
    )
    query = (
        bookings(AllocationRow.resource_id, ReservationRow.details)
        .join(ResourceRow, ResourceRow.id == AllocationRow.resource_id)
        .where(LeaseRow.id == lease_id, ResourceRow.type == HOST, ~ready)
    )
    return {id_ for id_, details in session.execute(query) if LEAVING not in details}


def counts(session: Session, most: int) -> dict[str, int]:
    """Return how many preparations are not over, by state; ``most`` of them are looked at."""
    open_ = sa.select(PreparationRow.progress).where(PreparationRow.over_at.is_(None))
    found = open_.limit(most).subquery()
    query = sa.select(found.c.progress, sa.func.count()).group_by(found.c.progress)
    return dict(iter(session.execute(query)))


def next_expiry(session: Session, now: datetime) -> datetime | None:
    """Return when the next claim ends unless it is kept; None if there is none."""
    column = PreparationRow.claimed_until
    return session.scalar(
        sa.select(sa.func.min(column, type_=column.type)).where(
            PreparationRow.over_at.is_(None),
            PreparationRow.progress.in_([one.value for one in OPEN]),
            column > now,
        )
    )
