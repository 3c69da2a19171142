"""``/v2/notifications``: all that was ever published, from a cursor on."""

from typing import Any

from climate.api.call import Call
from climate.core.errors import InvalidInput
from climate.core.notification import Notification
from climate.manager import notifications

_MOST = 1000
_DEFAULT = 100
_LARGEST = 2**63 - 1


def index(call: Call) -> tuple[Any, int]:
    """List notifications later than ``after``; an admin sees those of all projects."""
    project_id = None if call.may("notifications:get_all") else call.caller.project_id
    after = _number(call, "after", 0, _LARGEST)
    limit = _number(call, "limit", _DEFAULT, _MOST)
    found = notifications.find_after(call.runtime, after, limit, project_id)
    return {"notifications": [_body(notification) for notification in found]}, 200


def _number(call: Call, name: str, default: int, largest: int) -> int:
    text = call.query(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= largest):  # noqa: PLR2004
        raise InvalidInput(f"{name} must be a whole number from 0 to {largest}")
    return int(text)


def _body(notification: Notification) -> dict[str, Any]:
    return {
        "seq": notification.seq,
        "message_id": notification.message_id,
        "event_type": notification.event_type,
        "lease_id": notification.lease_id,
        "created_at": notification.created_at.isoformat(timespec="microseconds"),
        "payload": dict(notification.payload),
    }
