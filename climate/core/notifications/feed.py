"""Calendar feeds: which leases a feed shows, and how a lease becomes a calendar entry.

A feed is a secret URL that a calendar program reads without a token. A feed shows only what the
project that created it may see.
"""

import hashlib
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from climate.core.lease.lifecycle import LeaseStatus
from climate.core.record import record
from climate.core.window import Window

#: A feed shows at most ``MOST_ENTRIES`` leases or bookings: those that have not ended, or ended at
#: most ``PAST`` ago, and begin within ``AHEAD``.
PAST, AHEAD = timedelta(days=30), timedelta(days=366)
MOST_ENTRIES = 2000
#: How long a feed shows a removed lease.
REMOVED_SHOWN = PAST
# 32 random bytes in URL-safe base64.
_SECRET_BYTES = 32
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_SECOND = timedelta(seconds=1)


class FeedScope(StrEnum):
    """What a feed shows: one lease, the leases of a project, or the bookings of a resource."""

    LEASE = "lease"
    PROJECT = "project"
    RESOURCE = "resource"


class EntryStatus(StrEnum):
    """The status of a calendar entry, as in RFC 5545."""

    CONFIRMED = "CONFIRMED"
    TENTATIVE = "TENTATIVE"
    CANCELLED = "CANCELLED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """A calendar feed: what it shows, and which user created it.

    ``target_id`` is the id of the lease, project or resource. ``sees_all`` means that the user may
    read the leases of all projects. ``last_read_at`` may be up to an hour too early.
    """

    id: str
    project_id: str
    user_id: str
    scope: FeedScope
    target_id: str
    name: str
    sees_all: bool
    created_at: datetime
    last_read_at: datetime | None = None


@record(frozen=True, slots=True, kw_only=True)
class ListedLease:
    """The attributes of a lease from which its calendar entry is made."""

    id: str
    name: str
    status: LeaseStatus
    window: Window
    version: int
    created_at: datetime
    updated_at: datetime | None
    started_at: datetime | None
    start_delayed_at: datetime | None
    resource_types: Sequence[str] = ()
    resources: Sequence[str] = ()


@record(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry of a calendar feed: usually a lease.

    ``sequence`` grows whenever the window or the status changes. ``lease_id`` is None for a booking
    whose lease the reader may not see.
    """

    uid: str
    summary: str
    details: str = ""
    window: Window
    status: EntryStatus = EntryStatus.CONFIRMED
    sequence: int = 0
    created_at: datetime | None = None
    changed_at: datetime
    lease_id: str | None = None


def new_secret() -> str:
    """Return a new random secret for the address of a feed."""
    return secrets.token_urlsafe(_SECRET_BYTES)


def secret_hash(secret: str) -> str | None:
    """Return the SHA-256 of a secret in hexadecimal; None if ``secret`` is malformed."""
    if not _SECRET.fullmatch(secret):
        return None
    return hashlib.sha256(secret.encode()).hexdigest()


def uid(lease_id: str, feed_scope: FeedScope, target_id: str) -> str:
    """Return the identifier of a lease's calendar entry, such as ``<lease id>@climate``.

    The identifier stays the same when the lease changes, so that calendar programs update the
    entry. In the feed of a resource, the identifier also contains the id of the resource.
    """
    suffix = f"-{target_id}" if feed_scope is FeedScope.RESOURCE else ""
    return f"{lease_id}{suffix}@climate"


def entry(lease: ListedLease, uid: str) -> Entry:
    """Return the calendar entry of ``lease``; ``uid`` becomes its identifier."""
    # A delay of the start changes the status of the entry, and not ``updated_at``.
    changes = (lease.created_at, lease.updated_at, lease.start_delayed_at, lease.started_at)
    changed_at = max(moment for moment in changes if moment is not None)
    status, window = EntryStatus.CONFIRMED, lease.window
    if lease.status is LeaseStatus.DELETING:
        status, window = removed(window, changed_at, begun=window.start <= changed_at)
    elif lease.status is LeaseStatus.PENDING and lease.start_delayed_at is not None:
        status = EntryStatus.TENTATIVE
    return Entry(
        uid=uid,
        summary=lease.name,
        details=_details(lease),
        window=window,
        status=status,
        sequence=lease.version,
        created_at=lease.created_at,
        changed_at=changed_at,
        lease_id=lease.id,
    )


def removed(window: Window, ended_at: datetime, *, begun: bool) -> tuple[EntryStatus, Window]:
    """Return the status and the window of the calendar entry of a deleted lease.

    If the lease had begun, the entry ends at ``ended_at``. Otherwise the entry is cancelled.
    """
    end = min(window.end, ended_at).replace(microsecond=0)
    if not begun or end - window.start < _SECOND:
        return EntryStatus.CANCELLED, window
    return EntryStatus.CONFIRMED, Window(window.start, end)


def nearest(entries: Iterable[Entry], now: datetime) -> list[Entry]:
    """Return the entries that are nearest to ``now``, at most ``MOST_ENTRIES``.

    First come the entries that have not ended, sorted by start. Then come those that have ended,
    the latest first. The result does not depend on the order of ``entries``, so that a feed that
    has not changed is always the same file.
    """

    def key(item: Entry) -> tuple[bool, float, str]:
        is_over = item.window.end <= now
        place = -item.window.end.timestamp() if is_over else item.window.start.timestamp()
        return is_over, place, item.uid

    return sorted(entries, key=key)[:MOST_ENTRIES]


def taken(feed: Feed, bookings: Iterable[tuple[Window, bool]]) -> list[Entry]:
    """Return anonymous calendar entries for bookings of other projects.

    ``bookings`` are pairs: the window of a booking, and whether the booking is for a part of the
    resource. The windows must be sorted by start. Bookings that touch become one entry, so that the
    reader cannot see where one lease ends and the next begins.
    """
    merged: list[tuple[Window, bool]] = []
    for is_share in (False, True):
        end: datetime | None = None
        for window in (window for window, shared in bookings if shared is is_share):
            if end is not None and window.start <= end:
                end = max(end, window.end)
                merged[-1] = Window(merged[-1][0].start, end), is_share
            else:
                end = window.end
                merged.append((window, is_share))
    return [_taken(feed, window, is_share) for window, is_share in merged]


def _taken(feed: Feed, window: Window, is_share: bool) -> Entry:  # noqa: FBT001 - a row
    key = f"{feed.id} {window.start.isoformat()} {is_share}"
    return Entry(
        uid=f"{hashlib.sha256(key.encode()).hexdigest()[:32]}@climate",
        summary="Partly taken" if is_share else "Taken",
        window=window,
        changed_at=feed.created_at,
    )


def _details(lease: ListedLease) -> str:
    lines = [f"Status: {lease.status.value}"]
    if lease.resource_types:
        lines.append(f"Reserved: {', '.join(lease.resource_types)}")
    if lease.resources:
        lines.append(f"Resources: {', '.join(lease.resources)}")
    return "\n".join(lines)
