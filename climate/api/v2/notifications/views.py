"""``/v2/notifications``: what was published and is kept, from a cursor on, and what comes."""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from flask import request

from climate.api.call import Answer, Call
from climate.api.v2.http import queries, validation
from climate.api.v2.notifications.event_stream import HEADERS, Stream
from climate.core.errors import InvalidInput
from climate.core.notifications.message import Notification, NotificationFilter
from climate.manager.notifications import log as notifications

# A stream ends after this, and who follows comes back with a token that is looked at again.
_LONGEST_STREAM = timedelta(minutes=15)
_DIGITS = 18


def index(call: Call) -> Answer:
    """List notifications later than ``after``; an admin sees those of all projects."""
    asked = validation.query(queries.NOTIFICATION_QUERY)
    wanted = _wanted(call, asked)
    limit, wait = asked["limit"], asked["wait"] if asked["limit"] else 0
    found = notifications.wait_after(call.runtime, wanted, asked.get("after"), limit, wait)
    bodies = [body(notification) for notification in found.notifications]
    return {"notifications": bodies, "after": found.after}, 200


def stream(call: Call) -> Answer:
    """Send notifications later than ``Last-Event-ID`` or ``after``, or those that come."""
    asked = validation.query(queries.STREAM_QUERY)
    wanted = _wanted(call, asked)
    after = _last_event_id()
    after = asked.get("after") if after is None else after
    if after is None:
        after = notifications.last_seq(call.runtime)
    else:  # what cannot be gone on from is refused now, with a status
        notifications.find_after(call.runtime, wanted, after, 0)
    ends_at = call.runtime.clock.now() + _LONGEST_STREAM
    if call.caller.expires_at is not None:
        ends_at = min(ends_at, call.caller.expires_at)
    made = Stream(call.runtime, wanted, after, ends_at, _event)
    return made, 200, HEADERS


def _wanted(call: Call, asked: Mapping[str, Any]) -> NotificationFilter:
    """Return what is asked for, of what the caller may see; raises Forbidden."""
    project_id = asked.get("project_id")
    if not call.may("notifications:get_all"):
        if project_id not in {None, call.caller.project_id}:
            call.require("notifications:get_all")
        project_id = call.caller.project_id
    return NotificationFilter(
        project_id=project_id,
        lease_id=asked.get("lease_id"),
        event_types=tuple(asked["event_type"]),
        resource_type=asked.get("resource_type"),
    )


def _last_event_id() -> int | None:
    """Return where a client that comes back was; raises InvalidInput."""
    text = request.headers.get("Last-Event-ID", "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
        detail = "This must be the id of an event that was sent."
        errors = [{"header": "Last-Event-ID", "detail": detail}]
        raise InvalidInput(f"Last-Event-ID: {detail}", {"errors": errors})
    return int(text)


def body(notification: Notification) -> dict[str, Any]:
    """Return a notification as it is shown."""
    return {
        "seq": notification.seq,
        "message_id": notification.message_id,
        "event_type": notification.event_type,
        "lease_id": notification.lease_id,
        "created_at": notification.created_at.isoformat(timespec="microseconds"),
        "payload": dict(notification.payload),
    }


def _event(notification: Notification) -> str:
    """Return a notification as one line."""
    return json.dumps(body(notification), separators=(",", ":"))
