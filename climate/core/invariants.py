"""Checks of the invariants in ARCHITECTURE.md: each takes stored rows and returns violations.

The continuous audit in the managers, the operator's audit command and the tests use these checks.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from climate.core.lease.lifecycle import OPEN_EVENT, LeaseStatus
from climate.core.lease.schedule import ACTIONS, END, EXPIRE, RELEASE, START
from climate.core.matching.calendar import Booking
from climate.core.matching.requirement import EXCLUSIVE
from climate.core.window import Window

_OPEN = frozenset(status.value for status in OPEN_EVENT)
# The clocks of managers and of the audit may differ by this much.
_CLOCK_SKEW = timedelta(seconds=1)
# A lease with one of these statuses has a single event, of this kind.
_ONLY_EVENT = {LeaseStatus.CREATING.value: RELEASE, LeaseStatus.WAITING.value: EXPIRE}
_NOT_STARTED = frozenset({LeaseStatus.PENDING.value, LeaseStatus.STARTING.value})


@dataclass(frozen=True, slots=True)
class Due:
    """An event of a lease: its kind, its status and its due time."""

    kind: str
    status: str
    due_at: datetime


def booked_twice(bookings: Iterable[Booking], capacity: Mapping[str, int]) -> Iterator[str]:
    """Yield a text for each moment at which the bookings of a resource conflict.

    A booking of the whole resource excludes all other bookings at the same time. Bookings of parts
    may together use at most ``capacity``, such as ``{"VCPU": 64}``. ``bookings`` are all bookings
    of the resource.
    """
    # At the same instant, ends come before starts.
    steps = sorted(
        (moment, change, booking.resource_class or "", booking.amount)
        for booking in bookings
        if booking.resource_class != EXCLUSIVE
        for moment, change in ((booking.start, 1), (booking.end, -1))
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


def shared_exclusively(bookings: Sequence[Booking]) -> Iterator[str]:
    """Yield a text for each booking that shares a resource with an exclusive one of another owner.

    ``bookings`` are all bookings of the resource.
    """
    for alone in (booking for booking in bookings if booking.resource_class == EXCLUSIVE):
        for other in bookings:
            overlaps = other.start < alone.end and alone.start < other.end
            if overlaps and other.owner != alone.owner:
                yield (
                    f"is exclusively for reservation {alone.owner} at {other.start}, but"
                    f" reservation {other.owner} has a part of it"
                )


def wrong_events(
    status: str,
    window: Window,
    events: Sequence[Due],
    now: datetime,
    offered_until: datetime | None = None,
) -> str | None:
    """Return what is wrong with the events of a lease, as a text; None if nothing is wrong.

    The events must fit the ``status`` and the ``window`` of the lease. For example, a lease that
    has not started must have an unfinished start event until its window ends. ``offered_until`` is
    when an offer expires (None: the lease is no offer).
    """
    if status in _ONLY_EVENT or offered_until is not None:
        return _wrong_only_event(status, events, offered_until)
    ends = [event for event in events if event.kind == END]
    if len(ends) != 1:
        return f"has {len(ends)} ends"
    if status == LeaseStatus.TERMINATED.value:
        open_ = sorted(e.kind for e in events if e.kind in ACTIONS and e.status in _OPEN)
        return f"is over, and {', '.join(open_)} is still to be done" if open_ else None
    if ends[0].status not in _OPEN:
        return f"is {status}, and its end is {ends[0].status}"
    if status != LeaseStatus.DELETING.value and ends[0].due_at != window.end:
        return f"ends at {window.end}, and its end is due at {ends[0].due_at}"
    needs_start = now < window.end - _CLOCK_SKEW
    starts = [event for event in events if event.kind == START]
    return _wrong_start(status, window, starts) if needs_start else None


def wrong_place(status: str, window: Window, entry: Sequence[datetime | None] | None) -> str | None:
    """Return what is wrong with the place of a lease in the wait list, as a text, or None.

    ``entry`` contains the promised start of its entry, which may be None. ``entry`` is None if the
    lease has no entry. The entry may stay for some time after the lease has started.
    """
    is_waiting = status == LeaseStatus.WAITING.value
    if entry is None:
        return "is WAITING, and is not in the wait list" if is_waiting else None
    (promised,) = entry
    if is_waiting != (promised is None):
        return f"is {status}, and its promised start is {promised}"
    if status == LeaseStatus.PENDING.value and promised != window.start:
        return f"starts at {window.start}, and its promised start is {promised}"
    return None


def _wrong_only_event(
    status: str, events: Sequence[Due], offered_until: datetime | None
) -> str | None:
    kinds = [event.kind for event in events]
    if offered_until is not None and status != LeaseStatus.CREATING.value:
        return f"is {status}, and is still offered until {offered_until}"
    if kinds != [_ONLY_EVENT[status]]:
        return f"is {status}, and has events {kinds}"
    if offered_until is not None and events[0].due_at != offered_until:
        return f"is offered until {offered_until}, and its release is due at {events[0].due_at}"
    return None


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
    """The result, so far, of the checks of an invariant.

    A round of checks examines the whole database, part by part. ``violations`` contains those found
    so far in the present round. ``broken_since`` is when the first violation was found (None: the
    invariant holds).
    """

    broken_since: datetime | None
    violations: tuple[str, ...]

    def after(self, violations: Sequence[str], now: datetime, *, is_round_over: bool) -> "Verdict":
        """Return the verdict after one more part of the database was checked.

        ``violations`` are those found in this part. ``is_round_over`` is whether the part was the
        last of the round. If the round is over and has found no violation in any part, the
        invariant holds again.
        """
        seen = tuple(dict.fromkeys((*self.violations, *violations)))
        since = self.broken_since or (now if seen else None)
        if not is_round_over:
            return Verdict(since, seen)
        return Verdict(since if seen else None, ())
