"""Notifications waiting for the world, and the log of those it was told.

A row is written with the change that it is about. ``number`` gives public sequence numbers to
committed rows, in the order of writing; as changes of one lease are serialised by its row, the
order of one lease is kept. One relay at a time has the turn, with an expiry, and notes how far it
has published.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import takewhile
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.notifications.message import Found, Notification, NotificationFilter
from climate.db.tables.bulk import Rows, insert
from climate.db.tables.leases import columns
from climate.db.tables.notifications import DeadLetterRow, OutboxRow, RelayRow

_RELAY = 1
# The tables rather than what is mapped to them: what is asked very often is read in half the time,
# and nothing of it is kept in sessions.
_OUTBOX: sa.Table = OutboxRow.metadata.tables[OutboxRow.__tablename__]
_TURN: sa.Table = RelayRow.metadata.tables[RelayRow.__tablename__]
_IS_RELAY = _TURN.c.id == _RELAY
_LAST = sa.select(_TURN.c.last_seq).where(_IS_RELAY)
_PUBLISHED = sa.select(_TURN.c.published_seq).where(_IS_RELAY)
_PROGRESS = sa.select(_TURN.c.last_seq, _TURN.c.published_seq).where(_IS_RELAY)
_NEW = sa.select(_OUTBOX.c.id).where(_OUTBOX.c.seq.is_(None))
_IS_NEW = _NEW.limit(1)
_TOLD = columns(_OUTBOX, "seq message_id event_type lease_id project_id payload created_at")
_UNPUBLISHED = (
    sa.select(*_TOLD)
    .where(_OUTBOX.c.seq > _PUBLISHED.scalar_subquery())
    .order_by(_OUTBOX.c.seq)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)
_NOW = sa.bindparam("now", type_=_TURN.c.claimed_until.type)
_MAY_TAKE_TURN = (
    _IS_RELAY,
    sa.or_(
        _TURN.c.owner.is_(None), _TURN.c.owner == sa.bindparam("by"), _TURN.c.claimed_until < _NOW
    ),
)
_IS_CALLED_FOR = sa.select(_TURN.c.id).where(
    *_MAY_TAKE_TURN, _TURN.c.last_seq > _TURN.c.published_seq
)
_TAKE_TURN = (
    sa.update(_TURN)
    .where(*_MAY_TAKE_TURN)
    .values(owner=sa.bindparam("by"), claimed_until=sa.bindparam("until"))
)
_PUBLISH = (
    sa.update(_TURN)
    .where(
        _IS_RELAY,
        _TURN.c.owner == sa.bindparam("by"),
        # Not so in a database of before, where that number is another's, or nobody's yet.
        sa.exists().where(
            _OUTBOX.c.seq == sa.bindparam("through"), _OUTBOX.c.message_id == sa.bindparam("last")
        ),
    )
    .values(published_seq=sa.bindparam("through"), claimed_until=sa.bindparam("until"))
)


def write(
    session: Session,
    event_type: str,
    payload: Mapping[str, Any],
    now: datetime,
) -> None:
    """Add a notification; ``payload`` names its project, and its lease if it is about one."""
    write_all(session, [(event_type, payload)], now)


def write_all(
    session: Session, told: Iterable[tuple[str, Mapping[str, Any]]], now: datetime
) -> None:
    """Add notifications in this order, each an event type and a payload as for ``write``."""
    insert(session, rows(told, now))


def rows(told: Iterable[tuple[str, Mapping[str, Any]]], now: datetime) -> Rows:
    """Return what ``write_all`` would store."""
    return OutboxRow, [_row(event_type, payload, now) for event_type, payload in told]


def _row(event_type: str, payload: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    types = {reservation["resource_type"] for reservation in payload.get("reservations", [])}
    return {
        "message_id": str(uuid.uuid4()),
        "event_type": event_type,
        "lease_id": payload.get("lease_id"),
        "project_id": payload["project_id"],
        "payload": dict(payload),
        "created_at": now,
        "resource_types": f" {' '.join(sorted(types))} ",
    }


def is_called_for(session: Session, owner: str, now: datetime) -> bool:
    """Tell whether there is something to publish, and no other relay that has the turn."""
    return session.scalar(_IS_CALLED_FOR, {"by": owner, "now": now}) is not None


def take_turn(session: Session, owner: str, now: datetime, until: datetime) -> bool:
    """Become (or stay) the relay until ``until``; False while somebody else is."""
    result = session.execute(_TAKE_TURN, {"by": owner, "now": now, "until": until})
    return bool(result.rowcount)  # type: ignore[attr-defined]


def leave_turn(session: Session, owner: str) -> None:
    """Let another relay go on at once."""
    session.execute(
        sa.update(RelayRow)
        .where(RelayRow.id == _RELAY, RelayRow.owner == owner)
        .values(owner=None, claimed_until=None)
    )


def is_unnumbered(session: Session) -> bool:
    """Tell whether anything that is committed has no number yet."""
    return session.scalar(_IS_NEW) is not None


def lag(session: Session, most: int) -> tuple[int, datetime | None]:
    """Return how many rows are unpublished, of which ``most`` are looked at, and since when."""
    first = sa.select(_OUTBOX.c.created_at).where(_OUTBOX.c.seq > _PUBLISHED.scalar_subquery())
    oldest = session.scalar(first.order_by(_OUTBOX.c.seq).limit(1))
    last, published = session.execute(_PROGRESS).one()
    new = _NEW.with_only_columns(_OUTBOX.c.created_at).limit(most).subquery()
    since = sa.func.min(new.c.created_at, type_=_OUTBOX.c.created_at.type)
    count, newest = session.execute(sa.select(sa.func.count(), since).select_from(new)).one()
    return min(most, last - published + count), oldest or newest


def number(session: Session, limit: int) -> int:
    """Give sequence numbers to up to ``limit`` committed rows; return how many.

    The relay's row is locked, so numbers become visible in their order, whoever gives them.
    """
    last = session.scalar(_LAST.with_for_update())
    assert last is not None  # noqa: S101 - the migration makes the row
    ids = session.scalars(_NEW.order_by(_OUTBOX.c.id).limit(limit)).all()
    for first, final in _runs(ids):
        known = (_OUTBOX.c.id >= first, _OUTBOX.c.id <= final)
        numbered = sa.update(_OUTBOX).where(*known)
        session.execute(numbered.values(seq=_OUTBOX.c.id + last - first + 1))
        last += final - first + 1
    if ids:
        session.execute(sa.update(_TURN).where(_TURN.c.id == _RELAY).values(last_seq=last))
    return len(ids)


def _runs(ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last of each run of ids without a gap: one statement numbers it."""
    first = 0
    for at, id_ in enumerate(ids):
        if at + 1 == len(ids) or ids[at + 1] != id_ + 1:
            yield ids[first], id_
            first = at + 1


def unpublished(session: Session, limit: int) -> list[Notification]:
    """Return numbered notifications that were not published yet, in order."""
    found = session.execute(_UNPUBLISHED, {"limit": limit}).all()
    return [_notification(row) for row in found]


def mark_published(session: Session, owner: str, last: Notification, until: datetime) -> bool:
    """Remember that all up to this one are safe, and stay the relay.

    False if we were not it, or the database is one of before.
    """
    values = {"by": owner, "through": last.seq, "last": last.message_id, "until": until}
    result = session.execute(_PUBLISH, values)
    return bool(result.rowcount)  # type: ignore[attr-defined]


def last_seq(session: Session) -> int:
    """Return the last number that was given."""
    return session.scalar(_LAST) or 0


def removed_seq(session: Session) -> int:
    """Return the last number whose notification is not kept any more, 0 if all are.

    Who reads notifications asks for this afterwards: what it missed then shows here.
    """
    return session.scalar(sa.select(RelayRow.removed_seq).where(RelayRow.id == _RELAY)) or 0


def find_after(session: Session, wanted: NotificationFilter, after: int, limit: int) -> Found:
    """Return up to ``limit`` notifications later than ``after``."""
    last = last_seq(session)  # before the rows: they are all there up to it
    query = sa.select(*_TOLD).where(
        OutboxRow.seq > after, OutboxRow.seq <= last, *_conditions(wanted)
    )
    rows = session.execute(query.order_by(OutboxRow.seq).limit(limit)).all()
    found = [_notification(row) for row in rows]
    if len(found) < limit:
        return Found(notifications=found, after=max(after, last))
    return Found(notifications=found, after=found[-1].seq if found else after)


def get(session: Session, seq: int) -> Notification:
    """Return the notification with a number that is known to be kept."""
    return _notification(session.execute(sa.select(*_TOLD).where(OutboxRow.seq == seq)).one())


def removable(session: Session, before: datetime, limit: int) -> int | None:
    """Return through which number to remove up to ``limit``, told ``before``; None: nothing.

    What is removed is always the beginning of the log, and published. The relay's row is locked.
    """
    published = session.scalar(_PUBLISHED.with_for_update())
    oldest = sa.select(_OUTBOX.c.seq, _OUTBOX.c.created_at).where(_OUTBOX.c.seq <= published)
    found = session.execute(oldest.order_by(_OUTBOX.c.seq).limit(limit)).all()
    gone = list(takewhile(lambda row: row.created_at < before, found))
    return gone[-1].seq if gone else None


def remove(session: Session, through: int) -> None:
    """Remove the beginning of the log, and dead letters with it."""
    session.execute(sa.delete(DeadLetterRow).where(DeadLetterRow.seq <= through))
    session.execute(sa.delete(OutboxRow).where(OutboxRow.seq <= through))
    session.execute(sa.update(RelayRow).where(RelayRow.id == _RELAY).values(removed_seq=through))


def is_old(session: Session, before: datetime) -> bool:
    """Tell whether the oldest notification was written ``before``, and is published."""
    published = _OUTBOX.c.seq <= _PUBLISHED.scalar_subquery()
    oldest = sa.select(_OUTBOX.c.created_at).where(published).order_by(_OUTBOX.c.seq)
    written = session.scalar(oldest.limit(1))
    return written is not None and written < before


def _conditions(wanted: NotificationFilter) -> list[sa.ColumnElement[bool]]:
    found: list[sa.ColumnElement[bool]] = []
    if wanted.project_id is not None:
        found.append(OutboxRow.project_id == wanted.project_id)
    if wanted.lease_id is not None:
        found.append(OutboxRow.lease_id == wanted.lease_id)
    if wanted.event_types:
        found.append(sa.or_(*(_is_like(pattern) for pattern in wanted.event_types)))
    if wanted.resource_type is not None:
        named = OutboxRow.resource_types.contains(f" {wanted.resource_type} ", autoescape=True)
        # Rather too much than too little: rows of an earlier release do not say it.
        found.append(sa.or_(named, OutboxRow.resource_types.is_(None)))
    return found


def _is_like(pattern: str) -> sa.ColumnElement[bool]:
    if not pattern.endswith("*"):
        return OutboxRow.event_type == pattern
    prefix = pattern[:-1]
    return sa.func.substr(OutboxRow.event_type, 1, len(prefix)) == prefix  # LIKE ignores case


def _notification(row: Any) -> Notification:  # noqa: ANN401 - a row of _TOLD
    seq, message_id, event_type, lease_id, project_id, payload, created_at = row
    return Notification(
        seq=seq,
        message_id=message_id,
        event_type=event_type,
        lease_id=lease_id,
        project_id=project_id,
        payload=payload,
        created_at=created_at,
    )
