"""Subscriptions as a queue: managers claim subscriptions, deliver, and store the results.

A claim reserves a subscription for one manager, so that no other manager delivers its
notifications. A claim has an owner (the manager) and an expiry. When a manager stores a result, it
names itself as the owner. The result is stored only if the row still has this owner. If it has not,
another manager has claimed the subscription, or a user has changed the subscription.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.notifications.subscription import Kind, Subscription
from climate.db.notifications.subscriptions import ACTIVE, matching, of
from climate.db.tables.notifications import DeadLetterRow, SubscriptionRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim that the manager ``owner`` makes at ``now``, and that expires at ``until``."""

    owner: str
    now: datetime
    until: datetime


def is_any(session: Session, now: datetime, kinds: Collection[Kind]) -> bool:
    """Return whether a manager can claim any subscription of these ``kinds`` now.

    A manager can claim a subscription that is due, is not claimed, and has something to deliver: a
    notification that may match its filter, a dead letter (failed delivery) that is marked for
    redelivery, or the request to confirm an e-mail address.
    """
    names = [kind.value for kind in kinds]
    return session.scalar(_IS_ANY, {"now": now, "kinds": names}) is not None


def claim(
    session: Session, claimed: Claim, free: tuple[int, int], kinds: Collection[Kind]
) -> list[tuple[str, bool]]:
    """Claim due subscriptions of these ``kinds`` for a manager.

    A subscription is *slow* if its receiver was slow or failed last time. At most ``free[0]``
    subscriptions are claimed, at most ``free[1]`` of them slow. Returns the id of each claimed
    subscription, and whether it is slow. Slow ones come last; both groups are sorted by due time.
    """
    claims: list[tuple[str, bool]] = []
    names = [kind.value for kind in kinds]
    for slow in (False, True):
        limit = free[0] - len(claims)
        limit = min(limit, free[1]) if slow else limit
        query = (
            sa.select(SubscriptionRow.id)
            .where(*_claimable(claimed.now, names), SubscriptionRow.slow.is_(slow))
            .order_by(SubscriptionRow.due_at, SubscriptionRow.id)
            .limit(max(0, limit))
            .with_for_update(skip_locked=True)
        )
        claims += [(id_, slow) for id_ in session.scalars(query)]
    if claims:
        ids = SubscriptionRow.id.in_([id_ for id_, _ in claims])
        statement = sa.update(SubscriptionRow).where(ids)
        session.execute(statement.values(owner=claimed.owner, claimed_until=claimed.until))
    return claims


def _claimable(
    now: datetime | sa.BindParameter[Any], kinds: Sequence[str] | sa.BindParameter[Any]
) -> list[sa.ColumnElement[bool]]:
    """Return the SQL conditions for a subscription that a manager can claim at ``now``.

    The subscription is active, due and unclaimed, and has something to deliver (see ``is_any``). An
    e-mail address that is not confirmed gets nothing but the request to confirm it.
    """
    row = SubscriptionRow
    letter = sa.exists().where(
        DeadLetterRow.subscription_id == row.id, DeadLetterRow.wanted.is_(True)
    )
    is_confirmed = sa.or_(row.kind == Kind.WEBHOOK.value, row.confirmed_at.is_not(None))
    confirmation = sa.and_(
        ~is_confirmed, row.confirm_requested_at.is_not(None), row.confirm_sent_at.is_(None)
    )
    notification = sa.or_(matching(row.done_seq), letter.correlate(row))
    return [
        row.status == ACTIVE,
        row.due_at <= now,
        row.kind.in_(kinds),
        sa.or_(row.owner.is_(None), row.claimed_until < now),
        sa.or_(confirmation, sa.and_(is_confirmed, notification)),
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
    .where(
        *_claimable(
            sa.bindparam("now", type_=SubscriptionRow.due_at.type),
            sa.bindparam("kinds", expanding=True),
        )
    )
    .limit(1)
)
