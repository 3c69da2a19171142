"""Subscriptions and their dead letters: rows to records and back.

How many a project may have is kept by the places that it has, of which no two are the same.
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.errors import NotFound
from climate.core.notifications.message import NotificationFilter
from climate.core.notifications.subscription import DeadLetter, Subscription, SubscriptionStatus
from climate.db.tables.notifications import DeadLetterRow, OutboxRow, SubscriptionRow

ACTIVE = SubscriptionStatus.ACTIVE.value


def insert(session: Session, made: Subscription, secret: str, most: int) -> bool:
    """Store a new subscription; False if its project has ``most`` already."""
    query = sa.select(SubscriptionRow.place).where(SubscriptionRow.project_id == made.project_id)
    free = set(range(most)).difference(session.scalars(query))
    if not free:
        return False
    session.add(
        SubscriptionRow(
            id=made.id,
            project_id=made.project_id,
            place=min(free),
            user_id=made.user_id,
            url=made.url,
            secret=secret,
            filters=filters(made.wanted),
            all_projects=made.all_projects,
            status=made.status.value,
            reason=None,
            done_seq=made.done_seq,
            attempts=0,
            given_up=0,
            slow=False,
            due_at=made.created_at,
            owner=None,
            claimed_until=None,
            delivered_at=None,
            created_at=made.created_at,
            updated_at=None,
        )
    )
    session.flush()  # whoever took the place meanwhile has us run again
    return True


def filters(wanted: NotificationFilter) -> dict[str, Any]:
    """Return a filter as it is stored; the project is that of the subscription."""
    kept = asdict(wanted)
    del kept["project_id"]
    return {**kept, "event_types": list(wanted.event_types)}


def get(session: Session, subscription_id: str, *, lock: bool = False) -> Subscription:
    """Return a subscription; raises NotFound."""
    query = sa.select(SubscriptionRow).where(SubscriptionRow.id == subscription_id)
    row = session.scalar(query.with_for_update() if lock else query)
    if row is None:
        raise NotFound(f"There is no subscription {subscription_id}")
    return of(row)


def find_all(
    session: Session, project_id: str | None, after: tuple[datetime, str] | None, limit: int
) -> list[Subscription]:
    """Return up to ``limit`` subscriptions of a project, or of all, beyond a (made at, id)."""
    query = sa.select(SubscriptionRow)
    if project_id is not None:
        query = query.where(SubscriptionRow.project_id == project_id)
    key = (SubscriptionRow.created_at, SubscriptionRow.id)
    if after is not None:
        made, id_ = after
        query = query.where(
            SubscriptionRow.created_at >= made,
            sa.or_(SubscriptionRow.created_at > made, SubscriptionRow.id > id_),
        )
    return [of(row) for row in session.scalars(query.order_by(*key).limit(limit))]


def update(session: Session, subscription_id: str, now: datetime, **values: Any) -> None:
    """Store changes of its owner's."""
    session.execute(
        sa.update(SubscriptionRow)
        .where(SubscriptionRow.id == subscription_id)
        .values(updated_at=now, **values)
    )


def delete(session: Session, subscription_id: str) -> None:
    """Remove it with its dead letters."""
    session.execute(sa.delete(SubscriptionRow).where(SubscriptionRow.id == subscription_id))


def matching(
    after: sa.SQLColumnExpression[int], *more: sa.ColumnElement[bool]
) -> sa.ColumnElement[bool]:
    """Tell whether anything later than ``after`` may concern the subscription: its project does."""
    later = sa.exists().where(OutboxRow.seq > after, *more)
    its_own = later.where(OutboxRow.project_id == SubscriptionRow.project_id)
    # Two questions, as each has an index to walk: a log may be long, and mostly others'.
    return sa.or_(
        its_own.correlate(SubscriptionRow),
        sa.and_(SubscriptionRow.all_projects.is_(True), later.correlate(SubscriptionRow)),
    )


def catch_up(session: Session, through: int) -> None:
    """Let those pass ``through`` that nothing up to there concerns: it is about to be removed."""
    session.execute(
        sa.update(SubscriptionRow)
        .where(
            SubscriptionRow.done_seq < through,
            ~matching(SubscriptionRow.done_seq, OutboxRow.seq <= through),
        )
        .values(done_seq=through)
        .execution_options(synchronize_session=False)
    )


def add_dead_letter(session: Session, letter: DeadLetter) -> None:
    """Put a notification aside (or put it aside again)."""
    session.merge(DeadLetterRow(**asdict(letter)))


def find_dead_letters(
    session: Session, subscription_id: str, after: int, limit: int
) -> list[DeadLetter]:
    """Return up to ``limit`` dead letters with numbers beyond ``after``, in their order."""
    query = sa.select(DeadLetterRow).where(
        DeadLetterRow.subscription_id == subscription_id, DeadLetterRow.seq > after
    )
    rows = session.scalars(query.order_by(DeadLetterRow.seq).limit(limit))
    return [_dead_letter(row) for row in rows]


def count_dead_letters(session: Session, ids: Collection[str]) -> Mapping[str, int]:
    """Return how many dead letters subscriptions have, by id."""
    query = sa.select(DeadLetterRow.subscription_id, sa.func.count()).where(
        DeadLetterRow.subscription_id.in_(ids)
    )
    found = session.execute(query.group_by(DeadLetterRow.subscription_id)).all()
    return {id_: count for id_, count in found}  # noqa: C416 - rows are no pairs to mypy


def want_dead_letters(session: Session, subscription_id: str, seqs: Collection[int] | None) -> int:
    """Have dead letters (None: all) sent again; return how many."""
    which = [DeadLetterRow.subscription_id == subscription_id]
    if seqs is not None:
        which.append(DeadLetterRow.seq.in_(seqs))
    result = session.execute(sa.update(DeadLetterRow).where(*which).values(wanted=True))
    return int(result.rowcount)  # type: ignore[attr-defined]


def next_dead_letter(session: Session, subscription_id: str) -> DeadLetter | None:
    """Return the first dead letter that is to be sent again, if there is one."""
    query = sa.select(DeadLetterRow).where(
        DeadLetterRow.subscription_id == subscription_id, DeadLetterRow.wanted.is_(True)
    )
    row = session.scalar(query.order_by(DeadLetterRow.seq).limit(1))
    return None if row is None else _dead_letter(row)


def remove_dead_letter(session: Session, subscription_id: str, seq: int) -> None:
    """Remove one that was taken after all."""
    session.execute(
        sa.delete(DeadLetterRow).where(
            DeadLetterRow.subscription_id == subscription_id, DeadLetterRow.seq == seq
        )
    )


def of(row: SubscriptionRow) -> Subscription:
    """Return what a row says, but for the secret."""
    kept = {**row.filters, "event_types": tuple(row.filters["event_types"])}
    project_id = None if row.all_projects else row.project_id
    return Subscription(
        id=row.id,
        project_id=row.project_id,
        user_id=row.user_id,
        url=row.url,
        wanted=NotificationFilter(project_id=project_id, **kept),
        all_projects=row.all_projects,
        status=SubscriptionStatus(row.status),
        reason=row.reason,
        done_seq=row.done_seq,
        attempts=row.attempts,
        given_up=row.given_up,
        slow=row.slow,
        delivered_at=row.delivered_at,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _dead_letter(row: DeadLetterRow) -> DeadLetter:
    return DeadLetter(
        subscription_id=row.subscription_id,
        seq=row.seq,
        attempts=row.attempts,
        reason=row.reason,
        wanted=row.wanted,
        failed_at=row.failed_at,
    )
