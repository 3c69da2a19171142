"""Notifications waiting for the world, and the log of those it was told.

A row is written with the change that it is about. ``number`` gives public sequence numbers to
committed rows, in the order of writing; as changes of one lease are serialised by its row, the
order of one lease is kept. One relay at a time has the turn, with an expiry.
"""

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.notification import Notification
from climate.db.rows import Rows, insert
from climate.db.tables import OutboxRow, RelayRow

_RELAY = 1


def write(
    session: Session,
    event_type: str,
    payload: Mapping[str, Any],
    now: datetime,
) -> None:
    """Add a notification; ``payload`` names its lease and project."""
    insert(session, rows(event_type, payload, now))


def rows(event_type: str, payload: Mapping[str, Any], now: datetime) -> Rows:
    """Return what ``write`` would store."""
    row = {
        "message_id": str(uuid.uuid4()),
        "event_type": event_type,
        "lease_id": payload["lease_id"],
        "project_id": payload["project_id"],
        "payload": dict(payload),
        "created_at": now,
    }
    return OutboxRow, [row]


def take_turn(session: Session, owner: str, now: datetime, until: datetime) -> bool:
    """Become (or stay) the relay until ``until``; False while somebody else is."""
    result = session.execute(
        sa.update(RelayRow)
        .where(
            RelayRow.id == _RELAY,
            sa.or_(RelayRow.owner.is_(None), RelayRow.owner == owner, RelayRow.claimed_until < now),
        )
        .values(owner=owner, claimed_until=until)
    )
    return bool(result.rowcount)  # type: ignore[attr-defined]


def leave_turn(session: Session, owner: str) -> None:
    """Let another relay go on at once."""
    session.execute(
        sa.update(RelayRow)
        .where(RelayRow.id == _RELAY, RelayRow.owner == owner)
        .values(owner=None, claimed_until=None)
    )


def is_waiting(session: Session) -> bool:
    """Tell whether anything is unnumbered or unpublished."""
    query = sa.select(OutboxRow.id).where(OutboxRow.published_at.is_(None))
    return session.scalar(query.limit(1)) is not None


def lag(session: Session, most: int) -> tuple[int, datetime | None]:
    """Return how many rows are unpublished, of which ``most`` are looked at, and since when."""
    waiting = sa.select(OutboxRow.created_at).where(OutboxRow.published_at.is_(None))
    found = waiting.limit(most).subquery()
    oldest = sa.func.min(found.c.created_at, type_=OutboxRow.created_at.type)
    count, since = session.execute(sa.select(sa.func.count(), oldest).select_from(found)).one()
    return count, since


def number(session: Session, limit: int) -> int:
    """Give sequence numbers to up to ``limit`` committed rows; return how many.

    The relay's row is locked, so numbers become visible in their order.
    """
    last = session.scalar(
        sa.select(RelayRow.last_seq).where(RelayRow.id == _RELAY).with_for_update()
    )
    assert last is not None  # noqa: S101 - the migration makes the row
    new = sa.select(OutboxRow.id).where(OutboxRow.published_at.is_(None), OutboxRow.seq.is_(None))
    ids = session.scalars(new.order_by(OutboxRow.id).limit(limit)).all()
    if ids:
        rows = [{"id": id_, "seq": last + n} for n, id_ in enumerate(ids, start=1)]
        session.execute(sa.update(OutboxRow), rows)
        session.execute(
            sa.update(RelayRow).where(RelayRow.id == _RELAY).values(last_seq=last + len(ids))
        )
    return len(ids)


def unpublished(session: Session, limit: int) -> list[Notification]:
    """Return numbered notifications that were not published yet, in order."""
    query = sa.select(OutboxRow).where(OutboxRow.published_at.is_(None), OutboxRow.seq > 0)
    return [
        _notification(row) for row in session.scalars(query.order_by(OutboxRow.seq).limit(limit))
    ]


def mark_published(session: Session, seqs: Sequence[int], now: datetime) -> None:
    """Remember that these reached the broker (or the log)."""
    session.execute(sa.update(OutboxRow).where(OutboxRow.seq.in_(seqs)).values(published_at=now))


def find_after(
    session: Session, after: int, limit: int, project_id: str | None
) -> list[Notification]:
    """Return up to ``limit`` notifications later than ``after`` (of one project, or of all)."""
    query = sa.select(OutboxRow).where(OutboxRow.seq > after)
    if project_id is not None:
        query = query.where(OutboxRow.project_id == project_id)
    return [
        _notification(row) for row in session.scalars(query.order_by(OutboxRow.seq).limit(limit))
    ]


def _notification(row: OutboxRow) -> Notification:
    return Notification(
        seq=row.seq or 0,
        message_id=row.message_id,
        event_type=row.event_type,
        lease_id=row.lease_id,
        project_id=row.project_id,
        payload=row.payload,
        created_at=row.created_at,
    )
