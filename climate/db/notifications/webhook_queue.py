"""Subscriptions as a queue: which have something to be sent, who is at it, and how far it got.

A claim has an owner and an expiry. Whoever notes a result names the owner; if the row says
otherwise, somebody else took over, or its owner changed it, and the result is dropped.
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
    """Tell whether anything may be claimed now."""
    return session.scalar(_IS_ANY, {"now": now}) is not None


def claim(
    session: Session, owner: str, now: datetime, until: datetime, free: tuple[int, int]
) -> list[tuple[str, bool]]:
    """Claim what is due: up to ``free[0]`` in all, quick ones first, up to ``free[1]`` slow ones.

    Returns (id, whether it is slow), those first that waited longest.
    """
    found: list[tuple[str, bool]] = []
    for slow in (False, True):
        limit = free[0] - len(found)
        limit = min(limit, free[1]) if slow else limit
        query = (
            sa.select(SubscriptionRow.id)
            .where(*_claimable(now), SubscriptionRow.slow.is_(slow))
            .order_by(SubscriptionRow.due_at, SubscriptionRow.id)
            .limit(max(0, limit))
            .with_for_update(skip_locked=True)
        )
        found += [(id_, slow) for id_ in session.scalars(query)]
    if found:
        session.execute(
            sa.update(SubscriptionRow)
            .where(SubscriptionRow.id.in_([id_ for id_, _ in found]))
            .values(owner=owner, claimed_until=until)
        )
    return found


def _claimable(now: datetime | sa.BindParameter[Any]) -> list[sa.ColumnElement[bool]]:
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
    """Return the subscription as it is now and its secret, if the claim still holds."""
    query = sa.select(SubscriptionRow).where(*_mine([subscription_id], owner))
    row = session.scalar(query)
    return None if row is None else (of(row), row.secret)


def note(session: Session, subscription_id: str, owner: str, values: Mapping[str, Any]) -> bool:
    """Store how a claim goes on (without an owner: that it ends); False if it is not ours."""
    result = session.execute(
        sa.update(SubscriptionRow).where(*_mine([subscription_id], owner)).values(**values)
    )
    return bool(result.rowcount)  # type: ignore[attr-defined]


def hand_back(session: Session, owner: str, ids: Collection[str]) -> None:
    """Return what ``owner`` has claimed: it is stopping."""
    session.execute(
        sa.update(SubscriptionRow)
        .where(SubscriptionRow.id.in_(ids), SubscriptionRow.owner == owner)
        .values(owner=None, claimed_until=None)
    )


def _mine(ids: Collection[str], owner: str) -> list[sa.ColumnElement[bool]]:
    return [
        SubscriptionRow.id.in_(ids),
        SubscriptionRow.owner == owner,
        SubscriptionRow.status == ACTIVE,
    ]


# Made once: it is asked whenever anything was told.
_IS_ANY = (
    sa.select(SubscriptionRow.id)
    .where(*_claimable(sa.bindparam("now", type_=SubscriptionRow.due_at.type)))
    .limit(1)
)
