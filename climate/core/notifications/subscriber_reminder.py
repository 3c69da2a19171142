"""Reminders of subscribers: which leases a subscriber must be reminded of now. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile

#: Limits of a subscription: how many leads, and the longest one in seconds.
MOST_LEADS = 5
LONGEST_LEAD = 366 * 24 * 3600
# Bounds one transaction.
_MOST_REMINDERS = 200


@dataclass(frozen=True, slots=True)
class Upcoming:
    """A lease that has not started: when it was created, and when it starts."""

    lease_id: str
    created_at: datetime
    start_at: datetime


@dataclass(frozen=True, slots=True)
class Reminders:
    """The leases of which to remind a subscriber now. Reminders up to ``through`` are then done."""

    lease_ids: tuple[str, ...]
    through: datetime


def due(
    leases: Iterable[Upcoming], leads: Collection[int], since: datetime, now: datetime
) -> Reminders:
    """Return the reminders that became due after ``since`` and up to ``now``.

    ``leads`` are seconds before the start. A lease has one reminder at most, even if several became
    due. It has none if it was created after the reminder was due, or if it has started. If there
    are very many, the later ones are left for another call.
    """
    found = sorted(
        (max(times), each.lease_id)
        for each in leases
        if each.start_at > now and (times := _due_times(each, leads, since, now))
    )
    if len(found) <= _MOST_REMINDERS:
        return Reminders(tuple(id_ for _, id_ in found), now)
    last, _ = found[_MOST_REMINDERS - 1]
    taken = takewhile(lambda item: item[0] <= last, found)
    return Reminders(tuple(id_ for _, id_ in taken), last)


def _due_times(
    lease: Upcoming, leads: Collection[int], since: datetime, now: datetime
) -> list[datetime]:
    times = (lease.start_at - timedelta(seconds=lead) for lead in leads)
    return [at for at in times if since < at <= now and at >= lease.created_at]
