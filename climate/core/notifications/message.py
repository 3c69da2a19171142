"""A message to the world, about a lease as a rule, and which of them somebody wants."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from climate.core.lease.schedule import BEFORE_START

#: One type of events, or with ``*`` at the end all that begin so.
PATTERN = re.compile(r"(?:[\w.:-]{1,128}\*?|\*)\Z", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """What happened to which lease; ``seq`` orders all, ``message_id`` tells repeats apart."""

    seq: int
    message_id: str
    event_type: str
    lease_id: str | None
    project_id: str
    payload: Mapping[str, Any]
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationFilter:
    """Which notifications are wanted; None (or no pattern) is any. Patterns: see ``PATTERN``."""

    project_id: str | None = None
    lease_id: str | None = None
    event_types: tuple[str, ...] = ()
    resource_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was found, the oldest first, and the number up to which there is no more of it."""

    notifications: list[Notification]
    after: int


def payload_when_sent(notification: Notification, now: datetime) -> dict[str, Any]:
    """Return the payload with what belongs to the message; ``starts_in`` is true at ``now``."""
    payload = {
        **notification.payload,
        "seq": notification.seq,
        "message_id": notification.message_id,
    }
    if notification.event_type == f"lease.event.{BEFORE_START}":
        start = datetime.fromisoformat(payload["start_date"]).replace(tzinfo=now.tzinfo)
        payload["starts_in"] = (start - now).total_seconds()
    return payload
