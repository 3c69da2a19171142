"""``/v2/notifications``: all that was ever published, from a cursor on."""

from typing import Any

from climate.api.call import Answer, Call
from climate.api.v2 import queries, reading
from climate.core.notification import Notification
from climate.manager import notifications


def index(call: Call) -> Answer:
    """List notifications later than ``after``; an admin sees those of all projects."""
    project_id = None if call.may("notifications:get_all") else call.caller.project_id
    asked = reading.query(queries.NOTIFICATION_QUERY)
    found = notifications.find_after(call.runtime, asked["after"], asked["limit"], project_id)
    return {"notifications": [_body(notification) for notification in found]}, 200


def _body(notification: Notification) -> dict[str, Any]:
    return {
        "seq": notification.seq,
        "message_id": notification.message_id,
        "event_type": notification.event_type,
        "lease_id": notification.lease_id,
        "created_at": notification.created_at.isoformat(timespec="microseconds"),
        "payload": dict(notification.payload),
    }
