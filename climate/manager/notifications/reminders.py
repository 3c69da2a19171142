"""Reminders of subscribers: a pass writes those that have become due, each exactly once.

Several managers run passes. A pass locks the row of a subscription, so that two passes never write
the same reminder. The row stores up to which moment reminders are written.
"""

from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.orm import Session

from climate.core.errors import NotFound
from climate.core.notifications.subscriber_reminder import Reminders, due
from climate.core.notifications.subscription import Subscription, SubscriptionStatus
from climate.db.leases import leases
from climate.db.notifications import reminders, subscriptions
from climate.manager.notifications import lease_messages
from climate.manager.process.periodic_task import logged
from climate.manager.process.runtime import Store

# A pass without reminders stores its progress only this often, to save transactions.
_STALE = timedelta(minutes=1)


def remind(store: Store) -> int:
    """Write the reminders of subscribers that are due; return how many.

    If those of one subscription cannot be written, the next pass tries again.
    """
    now = store.clock.now()
    with store.database.read() as session:
        called_for = [
            subscription.id
            for subscription in reminders.subscribers(session)
            if _is_called_for(session, subscription, now)
        ]
    written = 0
    for id_ in called_for:
        with logged(f"cannot write the reminders of subscription {id_}"):
            written += store.database.write(partial(_remind, id_, now))
    return written


def _is_called_for(session: Session, subscription: Subscription, now: datetime) -> bool:
    found = _due(session, subscription, now)
    is_stale = _since(subscription) + _STALE < now
    return bool(found.lease_ids) or is_stale


def _remind(subscription_id: str, now: datetime, session: Session) -> int:
    try:
        subscription = subscriptions.get(session, subscription_id, lock=True)
    except NotFound:  # deleted just now
        return 0
    found = _due(session, subscription, now)
    is_done = found.through <= _since(subscription)  # by another manager
    if is_done or not _wants_any(subscription):
        return 0
    stored = leases.find_some(session, found.lease_ids)
    pending = [stored[id_] for id_ in found.lease_ids if id_ in stored]
    lease_messages.remind(session, pending, subscription_id, now)
    reminders.note(session, subscription_id, found.through)
    return len(pending)


def _wants_any(subscription: Subscription) -> bool:
    """Return whether the subscription, which a user may have changed just now, wants reminders."""
    is_active = subscription.status is SubscriptionStatus.ACTIVE
    return is_active and subscription.is_confirmed and bool(subscription.before_start_leads)


def _due(session: Session, subscription: Subscription, now: datetime) -> Reminders:
    since = _since(subscription)
    upcoming = reminders.upcoming(session, subscription, since, now)
    return due(upcoming, subscription.before_start_leads, since, now)


def _since(subscription: Subscription) -> datetime:
    """Return since when the subscription wants reminders that are not written yet."""
    return max(
        subscription.reminded_through or subscription.created_at,
        subscription.confirmed_at or subscription.created_at,
    )
