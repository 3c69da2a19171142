"""Rules for changes of a lease: which new dates and start condition are allowed. Pure.

A lease that has started keeps its start date. If the new end date is in the current minute, the
lease ends now. An earlier end date is an error.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from climate.core.errors import Conflict, InvalidDate, LeaseBusy
from climate.core.lease.lifecycle import STABLE_LEASE, EventStatus, LeaseStatus
from climate.core.lease.model import Lease, Start, StartWhen
from climate.core.lease.schedule import BEFORE_END, END, START, Notice, before_end_notice
from climate.core.window import (
    MAX_SPAN,
    Window,
    ends_too_early,
    later,
    minute_of,
    starts_in_the_past,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """New dates for a lease. A date that is None does not change.

    ``before_end`` is the new time of the reminder before the end. ``duration``, if set, is the time
    from the start to the new end, and ``end`` is ignored. ``asked_at`` is when the request arrived
    (None: now). Dates before the minute of ``asked_at`` are in the past.
    """

    start: datetime | None = None
    end: datetime | None = None
    duration: timedelta | None = None
    before_end: datetime | None = None
    asked_at: datetime | None = field(default=None, compare=False)


def check_changeable(lease: Lease, *, only_name: bool, wants_more: bool = False) -> None:
    """Raise LeaseBusy, Conflict or InvalidDate if the lease's status does not allow the change.

    ``only_name`` means that the request changes only the name. ``wants_more`` means that the
    request adds or changes reservations.
    """
    if lease.status is LeaseStatus.WAITING:
        if only_name:
            return
        raise Conflict(
            f"Lease {lease.id} waits for capacity: only its name and wait can be changed. Or delete"
            " it, and request another one"
        )
    if lease.status not in STABLE_LEASE:
        raise LeaseBusy(
            f"Lease {lease.id} is {lease.status.value}: wait until that is over and try again"
        )
    if not only_name:
        _check_not_in_progress(lease)
    end = lease.event(END)
    if lease.status is LeaseStatus.ERROR and not only_name and end and end.attempt > 0:
        raise InvalidDate(f"Lease {lease.id} is being ended: only its name can be changed")
    if lease.status is LeaseStatus.ERROR and wants_more:
        raise Conflict(f"Lease {lease.id} is in ERROR: only its name and its end can be changed")
    if lease.status is LeaseStatus.TERMINATED and not only_name:
        raise InvalidDate(f"Lease {lease.id} has ended: only its name can be changed")


def _check_not_in_progress(lease: Lease) -> None:
    """Raise LeaseBusy while a manager creates resources, or acts before the end of the lease."""
    start, before_end = lease.event(START), lease.event(BEFORE_END)
    if lease.start.began_at and start and start.status is EventStatus.IN_PROGRESS:
        raise LeaseBusy(f"climate is creating resources for lease {lease.id}: try again shortly")
    if before_end and before_end.status is EventStatus.IN_PROGRESS:
        raise LeaseBusy(
            f"Lease {lease.id} is being prepared for its end (snapshots are taken): wait until"
            " that is over and try again"
        )


def has_started(lease: Lease, now: datetime) -> bool:
    """Return whether a manager has begun to start the lease, or its start date has passed."""
    has_begun = lease.status is not LeaseStatus.PENDING or lease.start.began_at is not None
    return has_begun or lease.window.start <= now


def changed_window(lease: Lease, change: Change, now: datetime) -> Window:
    """Return the window of the lease with the dates in ``change``.

    Raises InvalidDate if these dates are not allowed.
    """
    asked_at = change.asked_at or now
    if lease.window.end < minute_of(now):
        raise InvalidDate(f"Lease {lease.id} has ended: only its name can be changed")
    start = change.start or lease.window.start
    started, minute = has_started(lease, now), minute_of(asked_at)
    # The start time passed between the arrival of the request and now.
    has_come = asked_at < lease.window.start <= now
    if has_come and minute <= start < lease.window.start:
        start = lease.window.start
    end = _changed_end(lease, change, start)
    if started and start != lease.window.start:
        raise InvalidDate("Cannot modify the start date of a lease that has started")
    if not started and start < minute:
        raise starts_in_the_past(start, now)
    # For an active lease, an end in the current minute means "now", even if it is before the start.
    if end < minute or (end < start and (has_come or not started)):
        raise ends_too_early(end, max(start, now))
    if started:
        return _changed_running(lease, end, now)
    if end <= max(start, now):
        raise ends_too_early(end, max(start, now))
    return Window(start, end)


def _changed_running(lease: Lease, end: datetime, now: datetime) -> Window:
    """Return the window of a lease that has begun to start, with the new ``end``."""
    start = lease.window.start
    if lease.status is LeaseStatus.PENDING and end <= start:
        raise InvalidDate(f"Lease {lease.id} has not started yet: delete it instead of ending it")
    # "Now" is never after the present end, as the next lease may start at that instant.
    return Window(start, max(end, min(now, lease.window.end)))


def earliest_span(
    lease: Lease, change: Change, end_by: datetime | None, now: datetime
) -> tuple[Window, timedelta]:
    """Return the span in which climate searches for a new start, and the duration of the lease.

    ``end_by`` is the latest end. If it is None, the lease starts no later than before the change.
    Raises InvalidDate if the lease has started, is longer than MAX_SPAN (API v1 creates such
    leases), or does not fit into the span.
    """
    if has_started(lease, now):
        raise InvalidDate(f"Lease {lease.id} has started: its start cannot change any more")
    start = (change.asked_at or now).replace(microsecond=0)
    length = change.duration or lease.window.end - lease.window.start
    if length > MAX_SPAN:
        raise InvalidDate(
            f"Lease {lease.id} lasts longer than {MAX_SPAN.days} days: with the start asap, send a"
            f" duration of at most {int(MAX_SPAN.total_seconds())} seconds ({MAX_SPAN.days} days)"
        )
    latest = end_by or later(lease.window.start, length)
    if end_by is None:
        latest = min(latest, later(start, MAX_SPAN))
    if start + length > latest:
        raise InvalidDate("The lease does not fit between now and end_by")
    return Window(start, latest), length


def _changed_end(lease: Lease, change: Change, start: datetime) -> datetime:
    if change.duration is not None:
        return later(start, change.duration)
    return change.end or lease.window.end


def changed_notices(lease: Lease, change: Change, window: Window) -> tuple[Notice, ...]:
    """Return the notices of the lease (reminders and custom events) after ``change``.

    A change can move only one notice, the reminder before the end. ``change.before_end`` is its new
    time. If that is None, all notices stay as they are.
    """
    if change.before_end is None:
        return lease.notices
    others = tuple(notice for notice in lease.notices if notice.kind != BEFORE_END)
    return (*others, before_end_notice(window, change.before_end))


def changed_start(lease: Lease, when: StartWhen | None) -> Start:
    """Return the start of the lease, with ``when`` as its start condition (None: unchanged).

    Raises Conflict if the condition would change after the lease has started.
    """
    if when is None or when is lease.start.when:
        return lease.start
    if lease.status is not LeaseStatus.PENDING:
        raise Conflict(f"Lease {lease.id} has started: its start condition cannot be changed")
    return replace(lease.start, when=when)


def check_resource_type(present: str, wanted: str | None) -> None:
    """Raise Conflict if a request would change the resource type of a reservation.

    ``present`` is the type of the reservation. ``wanted`` is the type in the request (None: the
    request names no type).
    """
    if wanted is not None and wanted != present:
        raise Conflict(f"Cannot change the resource type of a reservation from {present}")


def moved(lease: Lease, window: Window, notices: tuple[Notice, ...], now: datetime) -> Lease:
    """Return the lease with a new window and new notices (reminders and custom events).

    If the start date changes, the result does not say any more that the hosts are ready, because
    they must be prepared again for the new date.
    """
    start = lease.start
    if window.start != lease.window.start:
        start = replace(start, ready_at=None)
    return replace(lease, window=window, notices=notices, start=start, updated_at=now)
