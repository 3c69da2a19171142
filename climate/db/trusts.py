"""The trusts of leases, by which managers act for their users."""

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.lifecycle import LeaseStatus
from climate.db.tables.leases import LeaseRow


def of_leases(session: Session, until: datetime) -> list[tuple[str, str]]:
    """Return (id, trust id) of the leases with a trust that are there or start before ``until``."""
    query = sa.select(LeaseRow.id, LeaseRow.trust_id).where(
        LeaseRow.trust_id.is_not(None),
        LeaseRow.start_at < until,
        LeaseRow.status != LeaseStatus.CREATING.value,
    )
    return [(id_, trust_id) for id_, trust_id in session.execute(query) if trust_id]


def all_ids(session: Session) -> set[str]:
    """Return the trusts of all leases, also of those that are only held."""
    query = sa.select(LeaseRow.trust_id).where(LeaseRow.trust_id.is_not(None))
    return {trust_id for trust_id in session.scalars(query) if trust_id}


def store(session: Session, lease_id: str, trust_id: str | None) -> None:
    """Store by which trust the lease's user is acted for; that it had been lost is over."""
    session.execute(
        sa.update(LeaseRow)
        .where(LeaseRow.id == lease_id)
        .values(trust_id=trust_id, trust_lost=None)
    )
