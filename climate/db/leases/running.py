"""Statements on leases that run: find those with reservations that the cloud may have changed."""

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.model import STACK_ID
from climate.db.engine.types import any_of
from climate.db.tables.leases import LeaseRow, ReservationRow


def running_with(
    session: Session, resource_types: Collection[str], stack_ids: Collection[str] | None = None
) -> list[str]:
    """Return the ids of the ACTIVE leases that have a reservation of one of these types.

    If ``stack_ids`` is given, a lease also needs one of these stacks.
    """
    conditions = [
        ReservationRow.lease_id == LeaseRow.id,
        ReservationRow.resource_type.in_(resource_types),
    ]
    if stack_ids is not None:
        conditions.append(any_of(ReservationRow.details[STACK_ID].as_string(), stack_ids))
    has_one = sa.select(ReservationRow.id).where(*conditions).exists()
    query = sa.select(LeaseRow.id).where(LeaseRow.status == LeaseStatus.ACTIVE.value, has_one)
    return list(session.scalars(query))
