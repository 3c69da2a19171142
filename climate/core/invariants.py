"""The invariants of ARCHITECTURE.md as rules on what is stored: each says what is wrong, if it is.

Pure, so that the self-audit, the audit of an operator and tests judge alike.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from climate.core.lease.lifecycle import OPEN_EVENT, LeaseStatus
from climate.core.lease.schedule import ACTIONS, END, RELEASE, START
from climate.core.matching.calendar import Booking
from climate.core.window import Window

_OPEN = frozenset(status.value for status in OPEN_EVENT)
_NOT_STARTED = frozenset({LeaseStatus.PENDING.value, LeaseStatus.STARTING.value})


@dataclass(frozen=True, slots=True)
class Due:
    """What an event says about itself."""

    kind: str
    status: str
    due_at: datetime


def booked_twice(bookings: Iterable[Booking], capacity: Mapping[str, int]) -> Iterator[str]:
    """Say where one resource is taken as a whole and by others too, or shared beyond ``capacity``.

    A sweep: at one instant what is over goes before what starts.
    """
    steps = sorted(
        (moment, change, one.resource_class or "", one.amount)
        for one in bookings
        for moment, change in ((one.start, 1), (one.end, -1))
    )
    whole, shares, used = 0, 0, dict.fromkeys(capacity, 0)
    for moment, change, name, amount in steps:
        if name:
            shares += change
            used[name] = used.get(name, 0) + change * amount
        else:
            whole += change
        if change < 0:
            continue
        if whole > 1 or (whole and shares):
            yield f"is taken {whole} times as a whole and {shares} times in part at {moment}"
        elif name and used[name] > capacity.get(name, 0):
            yield f"has {capacity.get(name, 0)} {name}, and {used[name]} are taken at {moment}"


def wrong_events(status: str, window: Window, events: Sequence[Due]) -> str | None:
    """Say which open events a lease has that its state does not call for, or lacks."""
    if status == LeaseStatus.CREATING.value:
        kinds = [one.kind for one in events]
        return None if kinds == [RELEASE] else f"is only held, and has events {kinds}"
    ends = [one for one in events if one.kind == END]
    if len(ends) != 1:
        return f"has {len(ends)} ends"
    if status == LeaseStatus.TERMINATED.value:
        open_ = sorted(one.kind for one in events if one.kind in ACTIONS and one.status in _OPEN)
        return f"is over, and {', '.join(open_)} is still to be done" if open_ else None
    if ends[0].status not in _OPEN:
        return f"is {status}, and its end is {ends[0].status}"
    if status != LeaseStatus.DELETING.value and ends[0].due_at != window.end:
        return f"ends at {window.end}, and its end is due at {ends[0].due_at}"
    return _wrong_start(status, window, [one for one in events if one.kind == START])


def _wrong_start(status: str, window: Window, starts: Sequence[Due]) -> str | None:
    if status not in _NOT_STARTED:
        return None
    if len(starts) != 1:
        return f"is {status}, and has {len(starts)} starts"
    if starts[0].status not in _OPEN:
        return f"is {status}, and its start is {starts[0].status}"
    if starts[0].due_at != window.start:
        return f"starts at {window.start}, and its start is due at {starts[0].due_at}"
    return None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known of an invariant: since when it is broken, what was found in this round."""

    broken_since: datetime | None
    found: tuple[str, ...]

    def after(self, found: Sequence[str], now: datetime, *, is_round_over: bool) -> "Verdict":
        """Return what is known after another look; a broken one holds again after a clean round."""
        seen = tuple(dict.fromkeys((*self.found, *found)))
        since = self.broken_since or (now if seen else None)
        if not is_round_over:
            return Verdict(since, seen)
        return Verdict(since if seen else None, ())
