"""Notifications, which are usually about a lease, and filters on notifications."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from climate.core.lease.schedule import BEFORE_START

#: An event type, or a prefix of event types with ``*`` at its end.
PATTERN = re.compile(r"(?:[\w.:-]{1,128}\*?|\*)\Z", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """A notification in the log; ``seq`` is its number there.

    If climate sends a notification twice, both have the same ``message_id``.
    """

    seq: int
    message_id: str
    event_type: str
    lease_id: str | None
    project_id: str
    payload: Mapping[str, Any]
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationFilter:
    """Conditions on notifications. If a field is None or empty, it matches any notification.

    ``event_types`` has event types, or prefixes of event types that end with ``*``.
    """

    project_id: str | None = None
    lease_id: str | None = None
    event_types: tuple[str, ...] = ()
    resource_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """The notifications that a search found, oldest first.

    The next search must begin after the number ``after``.
    """

    notifications: list[Notification]
    after: int


def payload_when_sent(notification: Notification, now: datetime) -> dict[str, Any]:
    """Return the payload of a notification that is sent at ``now``.

    It also has ``seq`` and ``message_id``. If the notification is a reminder of the start, it has
    ``starts_in``, the seconds until the start.
    """
    payload = {
        **notification.payload,
        "seq": notification.seq,
        "message_id": notification.message_id,
    }
    if notification.event_type == f"lease.event.{BEFORE_START}":
        start = datetime.fromisoformat(payload["start_date"]).replace(tzinfo=now.tzinfo)
        payload["starts_in"] = (start - now).total_seconds()
    return payload
