"""Queries for reminders of subscribers: who wants them, and of which leases."""

from collections.abc import Iterable
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.lifecycle import LeaseStatus
from climate.core.notifications.subscriber_reminder import Upcoming
from climate.core.notifications.subscription import Subscription
from climate.db.notifications.subscriptions import ACTIVE, of
from climate.db.tables.leases import LeaseRow, ReservationRow
from climate.db.tables.notifications import SubscriptionRow


def subscribers(session: Session) -> list[Subscription]:
    """Return the active subscriptions, with a confirmed receiver, that want reminders."""
    row = SubscriptionRow
    query = sa.select(row).where(row.before_start_leads.is_not(None), row.status == ACTIVE)
    return [each for each in map(of, session.scalars(query)) if each.is_confirmed]


def upcoming(
    session: Session, subscription: Subscription, since: datetime, now: datetime
) -> Iterable[Upcoming]:
    """Return the leases of which reminders of the subscription are due after ``since``.

    They are pending, start after ``now``, and match the project, lease and resource type of the
    subscription.
    """
    wanted, row = subscription.wanted, LeaseRow
    windows = (
        sa.and_(row.start_at > since + delay, row.start_at <= now + delay)
        for delay in (timedelta(seconds=lead) for lead in subscription.before_start_leads)
    )
    query = sa.select(row.id, row.created_at, row.start_at).where(
        sa.or_(sa.false(), *windows), row.start_at > now, row.status == LeaseStatus.PENDING.value
    )
    if wanted.project_id is not None:
        query = query.where(row.project_id == wanted.project_id)
    if wanted.lease_id is not None:
        query = query.where(row.id == wanted.lease_id)
    if wanted.resource_type is not None:
        of_type = ReservationRow.resource_type == wanted.resource_type
        query = query.where(sa.exists().where(ReservationRow.lease_id == row.id, of_type))
    return (Upcoming(*found) for found in session.execute(query))


def note(session: Session, subscription_id: str, through: datetime) -> None:
    """Store that all reminders of a subscription due up to ``through`` are written."""
    changed = sa.update(SubscriptionRow).where(SubscriptionRow.id == subscription_id)
    session.execute(changed.values(reminded_through=through))
