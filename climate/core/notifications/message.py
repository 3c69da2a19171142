"""Notifications and filters of notifications. Most notifications are about a lease."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from climate.core.lease.schedule import BEFORE_END_REMINDER, BEFORE_START
from climate.core.notifications import event_type
from climate.core.record import record

_STARTS_SOON = {event_type.of_event(BEFORE_START), event_type.LEASE_REMINDER}


@record(frozen=True, slots=True, kw_only=True)
class Notification:
    """A notification, such as ``lease.create``; ``seq`` is its number in the log of notifications.

    If climate sends a notification twice, both copies have the same ``message_id``.
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
    """Which notifications a client wants. A field that is None or empty matches all of them.

    ``event_types`` contains types, or beginnings of types followed by ``*``, such as ``lease.*``.
    With ``subscription_id``, notifications for this subscription match whatever the other fields
    are, and those for another subscription do not match.
    """

    project_id: str | None = None
    lease_id: str | None = None
    event_types: tuple[str, ...] = ()
    resource_type: str | None = None
    subscription_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """The notifications that a search found, the oldest first.

    ``after`` is the number (``seq``) of the notification after which the next search must start.
    """

    notifications: list[Notification]
    after: int


def payload_when_sent(notification: Notification, now: datetime) -> dict[str, Any]:
    """Return the payload of a notification that climate sends at ``now``.

    The result is the stored payload plus the keys ``seq`` and ``message_id``. If the notification
    is a reminder of the start, there is also ``starts_in``, the number of seconds until the start.
    A ``before_end_reminder`` has ``ends_in``, the number of seconds until the end.
    """
    payload = {
        **notification.payload,
        "seq": notification.seq,
        "message_id": notification.message_id,
    }
    if notification.event_type in _STARTS_SOON:
        payload["starts_in"] = _seconds_until(payload["start_date"], now)
    if notification.event_type == event_type.of_event(BEFORE_END_REMINDER):
        payload["ends_in"] = _seconds_until(payload["end_date"], now)
    return payload


def _seconds_until(date: str, now: datetime) -> float:
    return (datetime.fromisoformat(date).replace(tzinfo=now.tzinfo) - now).total_seconds()
