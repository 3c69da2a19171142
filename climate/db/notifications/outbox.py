"""The outbox: notifications that are to be published, and the log of the published ones.

A transaction writes its notifications together with its change. ``number`` then assigns public
sequence numbers (``seq``) to committed rows, in the order of writing. Transactions that change a
lease lock its row, so the notifications of a lease stay in order.

A *relay* is the part of a manager that numbers notifications and publishes them to the message
broker. Each manager has a relay, but only one relay at a time has the *turn* to publish: a claim
with an owner and an expiry. The one row of the table ``relay`` stores this claim, and how far
notifications are numbered and published.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import takewhile
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease import blazar_wire
from climate.core.notifications.event_type import LEASE_REMINDER, EventType
from climate.core.notifications.message import Matches, Notification, NotificationFilter
from climate.core.window import Window
from climate.db.engine import ids
from climate.db.tables.bulk import Rows, insert
from climate.db.tables.leases import columns
from climate.db.tables.notifications import DeadLetterRow, OutboxRow, RelayRow

_RELAY = 1
# Core tables for frequent statements: they return rows in half the time of mapped classes, and
# sessions do not cache their rows.
_OUTBOX: sa.Table = OutboxRow.metadata.tables[OutboxRow.__tablename__]
_RELAY_TABLE: sa.Table = RelayRow.metadata.tables[RelayRow.__tablename__]
_IS_RELAY = _RELAY_TABLE.c.id == _RELAY
_LAST = sa.select(_RELAY_TABLE.c.last_seq).where(_IS_RELAY)
_PUBLISHED = sa.select(_RELAY_TABLE.c.published_seq).where(_IS_RELAY)
_PROGRESS = sa.select(_RELAY_TABLE.c.last_seq, _RELAY_TABLE.c.published_seq).where(_IS_RELAY)
_NEW = sa.select(_OUTBOX.c.id).where(_OUTBOX.c.seq.is_(None))
# In the order of the ids, as the index of new notifications: PostgreSQL then uses it whatever its
# statistics are.
_FIRST_NEW = _NEW.order_by(_OUTBOX.c.id).limit(sa.bindparam("limit", type_=sa.Integer))
_IS_NEW = _NEW.order_by(_OUTBOX.c.id).limit(1)
_PUBLIC_COLUMNS = columns(
    _OUTBOX, "seq message_id event_type lease_id project_id payload created_at"
)
_UNPUBLISHED = (
    sa.select(*_PUBLIC_COLUMNS)
    .where(_OUTBOX.c.seq > _PUBLISHED.scalar_subquery())
    .order_by(_OUTBOX.c.seq)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)
_IS_CLAIMABLE = sa.or_(
    _RELAY_TABLE.c.owner.is_(None),
    _RELAY_TABLE.c.owner == sa.bindparam("by"),
    _RELAY_TABLE.c.claimed_until < sa.bindparam("now", type_=_RELAY_TABLE.c.claimed_until.type),
)
_HAS_WORK = sa.select(_RELAY_TABLE.c.id).where(
    _IS_RELAY, _IS_CLAIMABLE, _RELAY_TABLE.c.last_seq > _RELAY_TABLE.c.published_seq
)
_CLAIM = (
    sa.update(_RELAY_TABLE)
    .where(_IS_RELAY, _IS_CLAIMABLE)
    .values(owner=sa.bindparam("by"), claimed_until=sa.bindparam("until"))
)
# False if the database was restored from a backup: the number has another message or none.
_IS_STORED = sa.exists().where(
    _OUTBOX.c.seq == sa.bindparam("through"), _OUTBOX.c.message_id == sa.bindparam("last")
)
_PUBLISH = (
    sa.update(_RELAY_TABLE)
    .where(_IS_RELAY, _RELAY_TABLE.c.owner == sa.bindparam("by"), _IS_STORED)
    .values(published_seq=sa.bindparam("through"), claimed_until=sa.bindparam("until"))
)


def write(
    session: Session,
    event_type: EventType,
    payload: Mapping[str, Any],
    now: datetime,
    before: Window | None = None,
) -> None:
    """Add a notification to the outbox, the table from which a relay publishes.

    ``payload`` must contain the id of the project, and the id of the lease if there is one.
    ``before`` is the window of the lease before the change; None if the window has not changed.
    """
    row = _row(event_type, payload, now)
    if before is not None:
        row["changed_from"] = min(before.start, row["changed_from"])
        row["changed_until"] = max(before.end, row["changed_until"])
    insert(session, (OutboxRow, [row]))


def write_all(
    session: Session, notifications: Iterable[tuple[EventType, Mapping[str, Any]]], now: datetime
) -> None:
    """Add notifications to the outbox, in this order; each has an event type and a payload."""
    insert(session, rows(notifications, now))


def latest_about(session: Session, lease_id: str) -> tuple[str, str] | None:
    """Return the type and the project of the latest notification about a lease; None if none."""
    of = _OUTBOX.c
    query = sa.select(of.event_type, of.project_id).where(of.lease_id == lease_id)
    row = session.execute(query.order_by(of.id.desc()).limit(1)).one_or_none()
    return None if row is None else (row[0], row[1])


def rows(notifications: Iterable[tuple[EventType, Mapping[str, Any]]], now: datetime) -> Rows:
    """Return the outbox rows of notifications, to insert them together with rows of other tables.

    Each notification has an event type and a payload.
    """
    return OutboxRow, [_row(event_type, payload, now) for event_type, payload in notifications]


def _row(event_type: EventType, payload: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    types = {reservation["resource_type"] for reservation in payload.get("reservations", [])}
    window = blazar_wire.window(payload)
    return {
        "message_id": ids.new_id(),
        "event_type": event_type,
        "lease_id": payload.get("lease_id"),
        "project_id": payload["project_id"],
        "payload": dict(payload),
        "created_at": now,
        "resource_types": f" {' '.join(sorted(types))} ",
        "changed_from": window and window.start,
        "changed_until": window and window.end,
        "subscription_id": payload["subscription_id"] if event_type == LEASE_REMINDER else None,
    }


def is_called_for(session: Session, owner: str, now: datetime) -> bool:
    """Return whether the relay ``owner`` should publish now.

    Two conditions must hold:

    - Some numbered notifications are not published yet.
    - No other relay has the turn (the claim to publish), or that claim has expired.
    """
    return session.scalar(_HAS_WORK, {"by": owner, "now": now}) is not None


def take_turn(session: Session, owner: str, now: datetime, until: datetime) -> bool:
    """Give the relay ``owner`` the turn (the claim to publish) until ``until``, or renew it.

    Returns False if another relay has the turn at ``now``.
    """
    result = session.execute(_CLAIM, {"by": owner, "now": now, "until": until})
    return bool(result.rowcount)  # type: ignore[attr-defined]


def leave_turn(session: Session, owner: str) -> None:
    """Release the turn (the claim to publish) of the relay ``owner``.

    Another relay can then continue immediately. If ``owner`` does not have the turn, nothing
    changes.
    """
    claimed = sa.update(RelayRow).where(RelayRow.id == _RELAY, RelayRow.owner == owner)
    session.execute(claimed.values(owner=None, claimed_until=None))


def is_unnumbered(session: Session) -> bool:
    """Return whether a committed notification has no sequence number yet."""
    return session.scalar(_IS_NEW) is not None


def lag(session: Session, most: int) -> tuple[int, datetime | None]:
    """Return how many notifications are unpublished, and when the oldest of them was written.

    Notifications without a number are included. The count is at most ``most``. The time is None if
    all notifications are published.
    """
    first = sa.select(_OUTBOX.c.created_at).where(_OUTBOX.c.seq > _PUBLISHED.scalar_subquery())
    oldest = session.scalar(first.order_by(_OUTBOX.c.seq).limit(1))
    last, published = session.execute(_PROGRESS).one()
    new = _NEW.with_only_columns(_OUTBOX.c.created_at).limit(most).subquery()
    since = sa.func.min(new.c.created_at, type_=_OUTBOX.c.created_at.type)
    count, newest = session.execute(sa.select(sa.func.count(), since).select_from(new)).one()
    return min(most, last - published + count), oldest or newest


def number(session: Session, limit: int) -> int:
    """Assign sequence numbers to up to ``limit`` committed notifications; return how many.

    Locks the row of the table ``relay``. So only one process at a time assigns numbers, and readers
    never see a number before all lower ones.
    """
    last = session.scalar(_LAST.with_for_update())
    assert last is not None  # noqa: S101 - the migration inserts the row
    ids = session.scalars(_FIRST_NEW, {"limit": limit}).all()
    for first, final in _runs(ids):
        run = sa.update(_OUTBOX).where(_OUTBOX.c.id >= first, _OUTBOX.c.id <= final)
        session.execute(run.values(seq=_OUTBOX.c.id + last - first + 1))
        last += final - first + 1
    if ids:
        session.execute(sa.update(_RELAY_TABLE).where(_IS_RELAY).values(last_seq=last))
    return len(ids)


def _notification(row: Any) -> Notification:  # noqa: ANN401 - a row of _PUBLIC_COLUMNS
    # By position, because reading columns by name takes twice as long.
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


def _runs(ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Split sorted ids into runs of consecutive ids; yield the first and last id of each run.

    For example, 3, 4, 5, 8 gives (3, 5) and (8, 8). One UPDATE can number a whole run.
    """
    first = 0
    for at, id_ in enumerate(ids):
        if at + 1 == len(ids) or ids[at + 1] != id_ + 1:
            yield ids[first], id_
            first = at + 1


def unpublished(session: Session, limit: int) -> list[Notification]:
    """Return up to ``limit`` notifications to publish next, in the order of their sequence numbers.

    Notifications without a number are left out.
    """
    return [_notification(row) for row in session.execute(_UNPUBLISHED, {"limit": limit})]


def mark_published(session: Session, owner: str, last: Notification, until: datetime) -> bool:
    """Store that all notifications up to ``last`` are published; renew the turn until ``until``.

    ``owner`` is the relay that has the turn (the claim to publish). Returns False, and stores
    nothing, in two cases: ``owner`` has lost the turn, or ``last`` is not stored any more, because
    the database was restored from a backup.
    """
    values = {"by": owner, "through": last.seq, "last": last.message_id, "until": until}
    result = session.execute(_PUBLISH, values)
    return bool(result.rowcount)  # type: ignore[attr-defined]


def last_seq(session: Session) -> int:
    """Return the last assigned sequence number; 0 if no notification has a number."""
    return session.scalar(_LAST) or 0


def removed_seq(session: Session) -> int:
    """Return the last sequence number whose notification was removed from the log; 0 if none was.

    After reading notifications, readers call this function to find out whether they missed some.
    """
    return session.scalar(sa.select(RelayRow.removed_seq).where(RelayRow.id == _RELAY)) or 0


def find_after(session: Session, wanted: NotificationFilter, after: int, limit: int) -> Matches:
    """Return up to ``limit`` notifications that match the filter ``wanted``, lowest number first.

    Notifications up to the sequence number ``after`` are left out. The result also contains the
    number to pass as ``after`` in the next call.
    """
    last = last_seq(session)  # read before the rows: all rows up to it are visible
    in_range = (OutboxRow.seq > after, OutboxRow.seq <= last)
    query = sa.select(*_PUBLIC_COLUMNS).where(*in_range, *_conditions(wanted))
    rows = session.execute(query.order_by(OutboxRow.seq).limit(limit))
    items = [_notification(row) for row in rows]
    if len(items) < limit:
        return Matches(notifications=items, after=max(after, last))
    return Matches(notifications=items, after=items[-1].seq if items else after)


def matching_seqs(
    session: Session, wanted: NotificationFilter, after: int, through: int, limit: int
) -> tuple[int, ...]:
    """Return the numbers of up to ``limit`` notifications that match the filter, in order.

    The numbers are above ``after``, and at most ``through``.
    """
    in_range = (OutboxRow.seq > after, OutboxRow.seq <= through)
    query = sa.select(OutboxRow.seq).where(*in_range, *_conditions(wanted))
    seqs = session.scalars(query.order_by(OutboxRow.seq).limit(limit))
    return tuple(seq for seq in seqs if seq is not None)


def find_some(session: Session, seqs: Collection[int]) -> tuple[Notification, ...]:
    """Return the stored notifications with these numbers, in order."""
    query = sa.select(*_PUBLIC_COLUMNS).where(OutboxRow.seq.in_(seqs)).order_by(OutboxRow.seq)
    return tuple(_notification(row) for row in session.execute(query))


def last_before(session: Session, moment: datetime) -> int:
    """Return the number of the last notification that was written before ``moment``; 0: none."""
    # From the end of the log, which has few rows that are younger than a digest's period.
    query = sa.select(OutboxRow.seq).where(OutboxRow.created_at < moment)
    numbered = query.where(OutboxRow.seq <= last_seq(session))
    return session.scalar(numbered.order_by(OutboxRow.seq.desc()).limit(1)) or 0


def get(session: Session, seq: int) -> Notification:
    """Return the notification with this number, which must be stored."""
    query = sa.select(*_PUBLIC_COLUMNS).where(OutboxRow.seq == seq)
    return _notification(session.execute(query).one())


def removable(session: Session, before: datetime, limit: int) -> int | None:
    """Return the highest sequence number up to which all notifications can be removed now.

    A notification can be removed if it is published and was written before ``before``. Only the
    ``limit`` notifications with the lowest numbers are considered. Returns None if none of them can
    be removed. Locks the row of the table ``relay``.
    """
    published = session.scalar(_PUBLISHED.with_for_update())
    oldest = sa.select(_OUTBOX.c.seq, _OUTBOX.c.created_at).where(_OUTBOX.c.seq <= published)
    rows = session.execute(oldest.order_by(_OUTBOX.c.seq).limit(limit)).all()
    removed = list(takewhile(lambda row: row.created_at < before, rows))
    return removed[-1].seq if removed else None


def remove(session: Session, through: int) -> None:
    """Delete all notifications up to the sequence number ``through``, and their dead letters.

    A dead letter is a notification that climate gave up delivering to a subscription. ``through``
    is stored, so that readers can detect that they missed notifications.
    """
    session.execute(sa.delete(DeadLetterRow).where(DeadLetterRow.seq <= through))
    session.execute(sa.delete(OutboxRow).where(OutboxRow.seq <= through))
    session.execute(sa.update(RelayRow).where(RelayRow.id == _RELAY).values(removed_seq=through))


def is_old(session: Session, before: datetime) -> bool:
    """Return whether the oldest published notification was written before ``before``."""
    published = _OUTBOX.c.seq <= _PUBLISHED.scalar_subquery()
    oldest = sa.select(_OUTBOX.c.created_at).where(published).order_by(_OUTBOX.c.seq)
    written = session.scalar(oldest.limit(1))
    return written is not None and written < before


def _conditions(wanted: NotificationFilter) -> list[sa.ColumnElement[bool]]:
    """Return the SQL conditions on OutboxRow for a filter."""
    conditions: list[sa.ColumnElement[bool]] = []
    if wanted.project_id is not None:
        conditions.append(OutboxRow.project_id == wanted.project_id)
    if wanted.lease_id is not None:
        conditions.append(OutboxRow.lease_id == wanted.lease_id)
    if wanted.event_types:
        conditions.append(sa.or_(*(_is_like(pattern) for pattern in wanted.event_types)))
    if wanted.resource_type is not None:
        has_type = OutboxRow.resource_types.contains(f" {wanted.resource_type} ", autoescape=True)
        # Rows of earlier releases have no types: include them rather than miss a notification.
        conditions.append(sa.or_(has_type, OutboxRow.resource_types.is_(None)))
    if wanted.subscription_id is not None:
        is_its_own = OutboxRow.subscription_id == wanted.subscription_id
        conditions.append(OutboxRow.subscription_id.is_(None))
        return [sa.or_(is_its_own, sa.and_(*conditions))]
    return conditions


def _is_like(pattern: str) -> sa.ColumnElement[bool]:
    """Return the SQL condition that the event type matches ``pattern``.

    A pattern such as ``lease.*`` matches all types that begin with ``lease.``. A pattern without a
    final ``*`` matches only the equal type.
    """
    if not pattern.endswith("*"):
        return OutboxRow.event_type == pattern
    prefix = pattern[:-1]
    return sa.func.substr(OutboxRow.event_type, 1, len(prefix)) == prefix  # LIKE ignores case
