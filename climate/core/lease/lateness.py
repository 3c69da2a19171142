"""Which late events of a lease managers still run, for example after downtime. Pure.

- ``end_lease``: always, because resources must be reclaimed.
- ``start_lease``, ``update_lease``: only before the end date of the lease.
- ``before_end_lease`` (may take snapshots): only if the lease is active, or before its end date.
- ``before_start_lease``: only before the start of the lease. If several of these reminders are
  late, managers send only the last one.
- ``before_end_reminder``: only before the end date of the lease.
- custom event of a user (a notification): always.

Managers run late events in the order of their due times, and never two events of a lease at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from climate.core.lease.lifecycle import OPEN_EVENT, LeaseStatus
from climate.core.lease.model import Event, Lease
from climate.core.lease.schedule import (
    BEFORE_END,
    BEFORE_END_REMINDER,
    BEFORE_START,
    EXPIRE,
    RELEASE,
    START,
    TELL_END,
    UPDATE,
)

# Internal events, which users do not see.
_INTERNAL = frozenset({RELEASE, TELL_END, EXPIRE})


@dataclass(frozen=True, slots=True)
class Late:
    """A late event, with its delay in seconds.

    ``runs`` is whether a manager still runs it; otherwise it is skipped.
    """

    event: Event
    seconds: float
    runs: bool

    def body(self) -> Mapping[str, Any]:
        """Return the late event as a dict for a notification."""
        return {
            "event_type": self.event.kind,
            "due": self.event.due_at.replace(tzinfo=None).isoformat(),
            "late_seconds": self.seconds,
            "outcome": "done" if self.runs else "skipped",
        }


def late_events(lease: Lease, now: datetime, after: timedelta) -> tuple[Late, ...]:
    """Return the events of ``lease`` that are late by more than ``after``.

    The events keep the order of ``lease.events``. Events that a manager has already tried to run
    are left out.
    """
    return tuple(
        Late(event, (now - lease.due(event, now)).total_seconds(), _still_runs(lease, event, now))
        for event in lease.events
        if event.status in OPEN_EVENT
        and event.is_untried
        and event.kind not in _INTERNAL
        and now - lease.due(event, now) > after
    )


def is_overtaken(lease: Lease, heads_up: Event, now: datetime) -> bool:
    """Return whether a reminder of the start is redundant, because a later one is due as well.

    ``heads_up`` is the reminder, an event of ``lease``.
    """
    return any(
        other.kind == BEFORE_START
        and other.status in OPEN_EVENT
        and heads_up.due_at < other.due_at <= now
        for other in lease.events
    )


def _still_runs(lease: Lease, event: Event, now: datetime) -> bool:
    over = now >= lease.window.end
    if event.kind == BEFORE_START:
        ahead = lease.status is LeaseStatus.PENDING and now < lease.window.start
        return ahead and not is_overtaken(lease, event, now)
    if event.kind in {START, UPDATE, BEFORE_END_REMINDER}:
        return not over
    if event.kind == BEFORE_END:
        return lease.status is LeaseStatus.ACTIVE or not over
    return True
