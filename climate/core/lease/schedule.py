"""The event plan of a lease: which events it has and when they are due. Pure.

Each plan has ``start_lease`` and ``end_lease``. The other events come from *notices*: reminders,
and custom events of the user. A notice is stored as an offset from the start or the end of the
lease, so it moves with the lease.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from climate.core.errors import InvalidDate
from climate.core.window import Window

BEFORE_START = "before_start_lease"
START = "start_lease"
UPDATE = "update_lease"
BEFORE_END = "before_end_lease"
BEFORE_END_REMINDER = "before_end_reminder"
END = "end_lease"

# Internal events: discard a lease that is still held, report an end to the enforcement service,
# revoke a trust that no lease needs any more.
RELEASE = "release_lease"
TELL_END = "tell_end"
REVOKE = "revoke_trust"
# Internal event: a lease has waited for capacity as long as its owner wanted.
EXPIRE = "expire_wait"

# All kinds that users cannot define.
OWN_KINDS = frozenset(
    {BEFORE_START, START, UPDATE, BEFORE_END, BEFORE_END_REMINDER, END, RELEASE, TELL_END, EXPIRE}
)
# Events that act on the cloud; all others only send a notification.
ACTIONS = (START, UPDATE, BEFORE_END, END)
# Retried until they succeed: a failed start is still wanted, and resources must be reclaimed.
RELENTLESS = frozenset({START, END})
# An action that has been under way for so long after its due time counts as failed.
PATIENCE = timedelta(minutes=10)
# The order at the same instant; users' events come between start and end.
_RANKS = {BEFORE_START: 0, START: 1, UPDATE: 2, BEFORE_END: 4, END: 5}
_USER_RANK = 3
_DAWN = datetime.min.replace(tzinfo=UTC)


class Anchor(StrEnum):
    """Whether the offset of a notice counts from the start or from the end of the lease."""

    START = "start"
    END = "end"


@dataclass(frozen=True, slots=True)
class Notice:
    """A planned event, such as a reminder, at an offset from the start or end of the lease.

    ``offset`` is in seconds, such as -3600: one hour before the ``anchor``.
    """

    kind: str
    anchor: Anchor
    offset: float


@dataclass(frozen=True, slots=True)
class Planned:
    """An item of an event plan: the kind of the event and its due time (aware UTC)."""

    kind: str
    due_at: datetime


def before_end_notice(window: Window, before_end: datetime, kind: str = BEFORE_END) -> Notice:
    """Return the notice for an event before the end, at the time ``before_end``.

    Raises InvalidDate if this time is not inside ``window``, the window of the lease.
    """
    if not window.start < before_end < window.end:
        error = InvalidDate(
            f"A {kind} event must be after the start and before the end of the lease"
        )
        error.place = ("before_end",)
        raise error
    return Notice(kind, Anchor.END, (before_end - window.end).total_seconds())


def rank(kind: str) -> int:
    """Return a number that orders events with the same due time; ``kind`` is the event's kind."""
    return _RANKS.get(kind, _USER_RANK)


def plan(window: Window, notices: Iterable[Notice], now: datetime) -> tuple[Planned, ...]:
    """Return the events of a lease with this window and these notices, in the order of due times.

    If ``now`` is before the start of the lease, one reminder that is due at ``now`` replaces all
    overdue reminders of the start. If the start has passed, the plan contains no reminders of the
    start. Reminders of the end that would be due before the start are left out. No event is due
    after the end.
    """
    planned = {Planned(START, window.start), Planned(END, window.end)}
    for notice in notices:
        due_at = _due(window, notice)
        if notice.kind == BEFORE_START:
            if now < window.start:
                planned.add(Planned(BEFORE_START, max(due_at, now)))
        elif notice.kind == BEFORE_END:
            planned.add(Planned(BEFORE_END, max(due_at, window.start)))
        elif notice.kind != BEFORE_END_REMINDER or due_at > window.start:
            planned.add(Planned(notice.kind, due_at))
    return tuple(sorted(planned, key=lambda event: (event.due_at, rank(event.kind), event.kind)))


def _due(window: Window, notice: Notice) -> datetime:
    """Return when ``notice`` is due, at the latest the end of the lease."""
    edge = window.start if notice.anchor is Anchor.START else window.end
    try:
        due_at = edge + timedelta(seconds=notice.offset)
    except OverflowError:
        return window.end if notice.offset > 0 else _DAWN
    return min(due_at, window.end)
