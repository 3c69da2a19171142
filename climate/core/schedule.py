"""Which events a lease has and when they are due: a pure function of the lease.

A lease keeps its *notices* as offsets from its own start or end, so that moving the lease moves
them too. ``start_lease`` and ``end_lease`` always exist; every other event is a notice.
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
END = "end_lease"

# Upkeep of our own: a lease that is still asked for is given up, the end of one is told to an
# enforcement service, a trust that no lease needs any more is revoked.
RELEASE = "release_lease"
TELL_END = "tell_end"
REVOKE = "revoke_trust"

# All kinds that are not a user's own.
OWN_KINDS = frozenset({BEFORE_START, START, UPDATE, BEFORE_END, END, RELEASE, TELL_END})
# Events that act on the cloud; all others only tell.
ACTIONS = (START, UPDATE, BEFORE_END, END)
# Tried until they succeed: what could not be started is still wanted, and resources must come back.
RELENTLESS = frozenset({START, END})
# What a manager has been at for so long past its time counts as failed.
PATIENCE = timedelta(minutes=10)
# At the same instant, in this order; a user's own events come between start and end.
_RANKS = {BEFORE_START: 0, START: 1, UPDATE: 2, BEFORE_END: 4, END: 5}
_USER_RANK = 3
_DAWN = datetime.min.replace(tzinfo=UTC)


class Anchor(StrEnum):
    """The edge of the lease that a notice is measured from."""

    START = "start"
    END = "end"


@dataclass(frozen=True, slots=True)
class Notice:
    """An event ``offset`` seconds after (negative: before) an edge of the lease."""

    kind: str
    anchor: Anchor
    offset: float


@dataclass(frozen=True, slots=True)
class Planned:
    """An event to be: its kind and when it is due (aware UTC)."""

    kind: str
    due_at: datetime


def before_end_notice(window: Window, before_end: datetime) -> Notice:
    """Return the notice for an explicit moment; raises InvalidDate if it is not in the window."""
    if not window.start < before_end < window.end:
        raise InvalidDate("before_end_date must be after the start and before the end of the lease")
    return Notice(BEFORE_END, Anchor.END, (before_end - window.end).total_seconds())


def rank(kind: str) -> int:
    """Return the order of ``kind`` among events that are due at the same instant."""
    return _RANKS.get(kind, _USER_RANK)


def plan(window: Window, notices: Iterable[Notice], now: datetime) -> tuple[Planned, ...]:
    """Return the events of a lease over ``window`` as seen at ``now``, in order.

    Of the heads-ups whose moment has passed, one is left and due at once; none if the start
    itself has passed, as there is nothing left to announce. Nothing is due after the end.
    """
    planned = {Planned(START, window.start), Planned(END, window.end)}
    for notice in notices:
        due_at = _due(window, notice)
        if notice.kind == BEFORE_START:
            if now < window.start:
                planned.add(Planned(BEFORE_START, max(due_at, now)))
        elif notice.kind == BEFORE_END:
            planned.add(Planned(BEFORE_END, max(due_at, window.start)))
        else:
            planned.add(Planned(notice.kind, due_at))
    return tuple(sorted(planned, key=lambda event: (event.due_at, rank(event.kind), event.kind)))


def _due(window: Window, notice: Notice) -> datetime:
    """Return when ``notice`` falls: at the latest at the end, wherever the calendar ends."""
    edge = window.start if notice.anchor is Anchor.START else window.end
    try:
        due_at = edge + timedelta(seconds=notice.offset)
    except OverflowError:
        return window.end if notice.offset > 0 else _DAWN
    return min(due_at, window.end)
