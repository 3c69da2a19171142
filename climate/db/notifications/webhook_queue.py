"""Webhook subscriptions as a queue: managers claim subscriptions, deliver, and store the results.

A claim reserves a subscription for one manager, so that no other manager delivers its
notifications. A claim has an owner (the manager) and an expiry. When a manager stores a result, it
names itself as the owner. The result is stored only if the row still has this owner. If it has not,
another manager has claimed the subscription, or a user has changed the subscription.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.notifications.subscription import Subscription
from climate.db.notifications.subscriptions import ACTIVE, matching, of
from climate.db.tables.notifications import DeadLetterRow, SubscriptionRow


def is_any(session: Session, now: datetime) -> bool:
    """Return whether a manager can claim any subscription now.

    A manager can claim a subscription that is due, is not claimed, and has something to deliver: a
    notification that may match its filter, or a dead letter (failed delivery) that is marked for
    redelivery.
    """
    return session.scalar(_IS_ANY, {"now": now}) is not None


def claim(
    session: Session, owner: str, now: datetime, until: datetime, free: tuple[int, int]
) -> list[tuple[str, bool]]:
    """Claim due subscriptions for the manager ``owner`` until ``until``.

    A subscription is *slow* if its receiver was slow or failed last time. At most ``free[0]``
    subscriptions are claimed, at most ``free[1]`` of them slow. Returns the id of each claimed
    subscription, and whether it is slow. Slow ones come last; both groups are sorted by due time.
    """
    claims: list[tuple[str, bool]] = []
    for slow in (False, True):
        limit = free[0] - len(claims)
        limit = min(limit, free[1]) if slow else limit
        query = (
            sa.select(SubscriptionRow.id)
            .where(*_claimable(now), SubscriptionRow.slow.is_(slow))
            .order_by(SubscriptionRow.due_at, SubscriptionRow.id)
            .limit(max(0, limit))
            .with_for_update(skip_locked=True)
        )
        claims += [(id_, slow) for id_ in session.scalars(query)]
    if claims:
        claimed = SubscriptionRow.id.in_([id_ for id_, _ in claims])
        statement = sa.update(SubscriptionRow).where(claimed)
        session.execute(statement.values(owner=owner, claimed_until=until))
    return claims


def _claimable(now: datetime | sa.BindParameter[Any]) -> list[sa.ColumnElement[bool]]:
    """Return the SQL conditions for a subscription that a manager can claim at ``now``.

    The subscription is active, due and unclaimed, and has something to deliver (see ``is_any``).
    """
    letter = sa.exists().where(
        DeadLetterRow.subscription_id == SubscriptionRow.id, DeadLetterRow.wanted.is_(True)
    )
    return [
        SubscriptionRow.status == ACTIVE,
        SubscriptionRow.due_at <= now,
        sa.or_(SubscriptionRow.owner.is_(None), SubscriptionRow.claimed_until < now),
        sa.or_(matching(SubscriptionRow.done_seq), letter.correlate(SubscriptionRow)),
    ]


def find_mine(
    session: Session, subscription_id: str, owner: str
) -> tuple[Subscription, str] | None:
    """Return a subscription that the manager ``owner`` has claimed, and its stored secret.

    None if ``owner`` has lost the claim, or if the subscription is no longer active.
    """
    row = session.scalar(sa.select(SubscriptionRow).where(*_mine(subscription_id, owner)))
    return None if row is None else (of(row), row.secret)


def note(session: Session, subscription_id: str, owner: str, values: Mapping[str, Any]) -> bool:
    """Store values of a claimed subscription, such as its progress; return whether they are stored.

    ``values`` contains the new values by column name. Returns False, and stores nothing, if the
    manager ``owner`` has lost the claim. To release the claim, set the column ``owner`` to None.
    """
    claimed = sa.update(SubscriptionRow).where(*_mine(subscription_id, owner))
    result = session.execute(claimed.values(**values))
    return bool(result.rowcount)  # type: ignore[attr-defined]


def release(session: Session, owner: str, ids: Collection[str]) -> None:
    """Release the claims on these subscriptions, because their manager ``owner`` stops."""
    claimed = (SubscriptionRow.id.in_(ids), SubscriptionRow.owner == owner)
    released = {"owner": None, "claimed_until": None}
    session.execute(sa.update(SubscriptionRow).where(*claimed).values(**released))


def _mine(id_: str, owner: str) -> tuple[sa.ColumnElement[bool], ...]:
    """Return the SQL conditions that ``owner`` has the claim, and the subscription is active."""
    row = SubscriptionRow
    return row.id == id_, row.owner == owner, row.status == ACTIVE


# Built once: it runs with each new notification.
_IS_ANY = (
    sa.select(SubscriptionRow.id)
    .where(*_claimable(sa.bindparam("now", type_=SubscriptionRow.due_at.type)))
    .limit(1)
)
