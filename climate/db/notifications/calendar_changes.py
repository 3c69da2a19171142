"""Queries for the windows (start to end) of the leases that recent notifications are about.

The result tells viewers of the booking calendar which parts of the calendar have changed. The
result contains nothing else from the notifications, so viewers of any project may see it.
"""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.window import Window
from climate.db.tables.leases import RESOURCES
from climate.db.tables.notifications import OutboxRow

# Notifications about a lease or an offer; those of earlier releases have no window.
_OF_LEASE = sa.or_(
    OutboxRow.event_type.startswith("lease."), OutboxRow.event_type.startswith("offer.")
)
_RESOURCES = sa.select(
    sa.func.count(),
    sa.func.sum(sa.case((RESOURCES.c.reservable.is_(True), 1), else_=0)),
    sa.func.max(RESOURCES.c.id),
    sa.func.max(RESOURCES.c.updated_at),
)


@dataclass(frozen=True, slots=True)
class ChangedWindows:
    """The windows (start to end) of the leases that notifications report as changed.

    If ``complete`` is false, some windows are missing, because notifications of an earlier release
    do not contain the window of their lease.
    """

    windows: list[Window]
    complete: bool


def after(
    session: Session, seq: int, last: int, resource_types: Collection[str] | None
) -> ChangedWindows:
    """Return the windows of the leases in the notifications from number ``seq`` + 1 to ``last``.

    Reads all notifications in this range, so the caller must keep the range small. If
    ``resource_types`` is set, the result includes only leases with a reservation of these types.
    """
    query = sa.select(OutboxRow.changed_from, OutboxRow.changed_until).where(
        OutboxRow.seq > seq, OutboxRow.seq <= last, _OF_LEASE
    )
    if resource_types is not None:
        of_type = [
            OutboxRow.resource_types.contains(f" {type_} ", autoescape=True)
            for type_ in resource_types
        ]
        query = query.where(sa.or_(OutboxRow.resource_types.is_(None), *of_type))
    rows = session.execute(query.order_by(OutboxRow.seq)).all()
    known = [Window(start, end) for start, end in rows if start is not None and end is not None]
    return ChangedWindows(known, len(known) == len(rows))


def resources_version(session: Session) -> str:
    """Return a short text that changes whenever a resource is registered, removed or changed."""
    state = tuple(session.execute(_RESOURCES).one())
    return hashlib.sha256(repr(state).encode()).hexdigest()[:8]
