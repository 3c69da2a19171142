"""Use case: show on which days the calendar has changed since an earlier version.

Viewers of any project may see the result, because it contains neither names nor exact times.
"""

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy.orm import Session

from climate.core.settings import Settings
from climate.core.window import END_OF_TIME, Window, later, merged
from climate.db.notifications import calendar_changes, outbox
from climate.manager.process.runtime import Runtime

# The notifications that one request reads; a client that is further behind starts again.
MAX_NOTIFICATIONS = 5_000
MAX_WINDOWS = 50
_ALL_TIME = Window(datetime(1970, 1, 1, tzinfo=UTC), END_OF_TIME.replace(microsecond=0))
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Version:
    """A version of the calendar: a notification's number ``seq`` and a digest of the resources.

    ``seq`` is the number of the last notification up to this version. It grows with each change of
    a lease, because climate writes a notification for each change.
    """

    seq: int
    resources: str

    def __str__(self) -> str:
        """Return the version in the form that the API shows to clients."""
        return f"{self.seq}.{self.resources}"


@dataclass(frozen=True, slots=True)
class CalendarChanges:
    """The windows in which the calendar changed, and its version after these changes.

    If ``reset`` is set, the changes are not known. Clients must then read the whole calendar again.
    """

    version: Version
    windows: list[Window]
    reset: bool = False


def current(session: Session) -> Version:
    """Return the present version of the calendar.

    Whatever the session reads afterwards includes at least the changes up to this version.
    """
    return Version(outbox.last_seq(session), calendar_changes.resources_version(session))


def find(runtime: Runtime, after: Version | None, resource_type: str | None) -> CalendarChanges:
    """Return in which windows the calendar changed since the version ``after``.

    If ``after`` is None, the result contains only the present version. If ``resource_type`` is
    None, the result covers all resource types. Raises UnsupportedResourceType.
    """
    types = None if resource_type is None else _reserved_types(runtime, resource_type)
    with runtime.database.snapshot() as session:
        version = current(session)
        if after is None:
            return CalendarChanges(version, [])
        # The notifications of all types are read, so the limit is on all, not only on those found.
        oldest = max(outbox.removed_seq(session), version.seq - MAX_NOTIFICATIONS)
        if not oldest <= after.seq <= version.seq:
            return CalendarChanges(version, [], reset=True)
        found = calendar_changes.after(session, after.seq, version.seq, types)
    if not found.complete:
        return CalendarChanges(version, [], reset=True)
    if version.resources != after.resources:
        return CalendarChanges(version, [_ALL_TIME])
    creation, cleaning = runtime.settings.creation, _longest_cleaning(runtime.settings)
    # climate may book a lease from some time before its start on, to create resources.
    lead = timedelta(seconds=creation.policy.longest if creation else 0)
    busy = (Window(window.start - lead, window.end).busy(cleaning) for window in found.windows)
    days = map(_days, busy)
    return CalendarChanges(version, merged(days, MAX_WINDOWS))


def _longest_cleaning(settings: Settings) -> timedelta:
    """Return the longest time for which a resource may stay booked after a lease."""
    learned = timedelta(seconds=settings.cleaning.policy.longest if settings.cleaning else 0)
    return max(settings.cleaning_time, learned)


def wait(
    runtime: Runtime,
    after: Version,
    resource_type: str | None,
    *,
    seconds: float,
    project_id: str,
) -> CalendarChanges:
    """Return the same as ``find``, but wait up to ``seconds`` for a change if there is none yet.

    Only a change of a lease ends the wait early. If only resources change, the function returns
    this change at the end of the time. ``project_id`` is the requester's project. Raises
    TooManyFollowers if too many requests, of this project or of all projects, are already waiting.
    """
    changes = find(runtime, after, resource_type)
    if _is_news(changes) or seconds <= 0:
        return changes
    deadline = time.monotonic() + seconds
    with runtime.latest.place(project_id):
        while not _is_news(changes) and runtime.latest.wait(
            changes.version.seq, deadline - time.monotonic()
        ):
            changes = find(runtime, after, resource_type)
    return changes if _is_news(changes) else find(runtime, after, resource_type)


def _is_news(changes: CalendarChanges) -> bool:
    return changes.reset or bool(changes.windows)


def _reserved_types(runtime: Runtime, resource_type: str) -> list[str]:
    """Return the types of reservations that book the same resources as ``resource_type``."""
    rows = runtime.plugin(resource_type).type_of_resources
    return [name for name, plugin in runtime.plugins.items() if plugin.type_of_resources == rows]


def _days(window: Window) -> Window:
    """Return the whole days (UTC) that a window touches, so that the result identifies no lease."""
    start = window.start.replace(hour=0, minute=0, second=0, microsecond=0)
    end = window.end.replace(hour=0, minute=0, second=0, microsecond=0)
    return Window(start, end if end == window.end else later(end, _DAY).replace(microsecond=0))
