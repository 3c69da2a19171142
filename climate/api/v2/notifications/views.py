"""The routes of ``/v2/notifications``, with which clients read notifications.

A client reads them page by page, with or without waiting for new ones (long polling), or as a
stream.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from flask import request

from climate.api.call import Answer, Call
from climate.api.v2.http import validation
from climate.api.v2.notifications import schemas
from climate.api.v2.notifications.event_stream import HEADERS, Stream
from climate.core.errors import InvalidInput
from climate.core.notifications.message import NotificationFilter
from climate.manager.notifications import log as notifications

# A stream ends after this time, so that climate checks the token again when the client reconnects.
_MAX_STREAM = timedelta(minutes=15)
_MAX_DIGITS = 18


def index(call: Call) -> Answer:
    """List the notifications after a given number; the request can wait for new ones."""
    query = validation.query(schemas.NOTIFICATION_QUERY)
    filter_ = _filter(call, query)
    limit, wait = query["limit"], query["wait"] if query["limit"] else 0
    page = notifications.wait_after(
        call.runtime,
        filter_,
        query.get("after"),
        limit,
        seconds=wait,
        project_id=call.caller.project_id,
    )
    bodies = [schemas.body(notification) for notification in page.notifications]
    return {"notifications": bodies, "after": page.after}, 200


def stream(call: Call) -> Answer:
    """Stream notifications as Server-Sent Events, from a given number or from now on."""
    query = validation.query(schemas.STREAM_QUERY)
    filter_ = _filter(call, query)
    after = _last_event_id()
    after = query.get("after") if after is None else after
    if after is None:
        after = notifications.last_seq(call.runtime)
    else:  # reject a cursor of removed notifications before the response starts
        notifications.find_after(call.runtime, filter_, after, 0)
    ends_at = call.runtime.clock.now() + _MAX_STREAM
    if call.caller.expires_at is not None:
        ends_at = min(ends_at, call.caller.expires_at)
    events = Stream(call.runtime, call.caller.project_id, filter_, after, ends_at)
    return events, 200, HEADERS


def _filter(call: Call, query: Mapping[str, Any]) -> NotificationFilter:
    """Return the filter in the query, restricted to notifications that the caller may see.

    Raises Forbidden if the query names a project whose notifications the caller may not see.
    """
    project_id = query.get("project_id")
    if not call.may("notifications:get_all"):
        if project_id not in {None, call.caller.project_id}:
            call.require("notifications:get_all")
        project_id = call.caller.project_id
    return NotificationFilter(
        project_id=project_id,
        lease_id=query.get("lease_id"),
        event_types=tuple(query["event_type"]),
        resource_type=query.get("resource_type"),
    )


def _last_event_id() -> int | None:
    """Return the number in the header Last-Event-ID, or None if the header is absent.

    Raises InvalidInput if the header is not a number.
    """
    text = request.headers.get("Last-Event-ID", "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS):
        detail = "This must be the id of an event that you received."
        errors = [{"header": "Last-Event-ID", "detail": detail}]
        raise InvalidInput(f"Last-Event-ID: {detail}", {"errors": errors})
    return int(text)
