"""What requests for leases and offers have in common: dates, reservations, idempotency keys."""

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from flask import request

from climate.api.call import Call
from climate.api.v2.http import spans, validation
from climate.api.v2.http.fields import NOW
from climate.api.v2.http.fields import show as show_time
from climate.api.v2.leases import reservations
from climate.api.v2.leases.reservations import moment
from climate.core.errors import InvalidDate, InvalidInput
from climate.core.lease.idempotency import IdempotencyKey
from climate.core.lease.model import Lease
from climate.core.window import MAX_SPAN, later
from climate.manager.leases.create import LeaseRequest
from climate.manager.leases.idempotency import IdempotentRequest

_MAX_KEY_LENGTH = 255


def lease_search(call: Call, data: Mapping[str, Any]) -> tuple[LeaseRequest, timedelta]:
    """Return the request for a lease that starts as soon as possible, and the lease's duration.

    ``data`` is the validated body. In the result, ``start`` is now and ``end`` is the ``end_by`` of
    the body: the lease must lie between these times.
    """
    now = call.asked_at.replace(microsecond=0)
    span = spans.in_body(now, data.get("end_by") or later(now, MAX_SPAN), "end_by")
    request = lease_request(call, {**data, "start": NOW, "end": span.end})
    return request, timedelta(seconds=data["duration"])


def lease_request(call: Call, data: Mapping[str, Any]) -> LeaseRequest:
    """Return the request for a lease with fixed dates; ``data`` is the validated body."""
    start = moment(call, data["start"])
    end = data["end"] if "end" in data else later(start, timedelta(seconds=data["duration"]))
    check_length(start, end, "end")
    return LeaseRequest(
        asked_at=call.asked_at,
        name=data["name"],
        start=start,
        end=end,
        before_end=data.get("before_end"),
        start_when=data["start_when"],
        reservations=reservations.requests(call, data["reservations"]),
        user_events=tuple((event["type"], event["at"]) for event in data["events"]),
    )


def check_length(start: datetime, end: datetime, key: str) -> None:
    """Raise InvalidDate, which names ``key``, if a lease would be too long."""
    if end - start > MAX_SPAN:
        latest = show_time(later(start, MAX_SPAN))
        error = InvalidDate(f"A lease lasts at most {MAX_SPAN.days} days: end it by {latest}")
        raise validation.placed(error, (key,))


def idempotent_request(
    call: Call, body: Mapping[str, Any], render: Callable[[Lease], Mapping[str, Any]]
) -> IdempotentRequest | None:
    """Return the idempotency key of the request, and the function ``render``, for the answer.

    The key includes a hash of ``body``, the body of the request, so that climate notices if a
    client uses the key for another request. If the client sent no header Idempotency-Key, return
    None. Raises InvalidInput if the header is malformed.
    """
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return None
    if not (key.isascii() and key.isprintable() and 0 < len(key) <= _MAX_KEY_LENGTH):
        text = f"This must be 1 to {_MAX_KEY_LENGTH} printable ASCII characters, such as a UUID."
        errors = [{"header": "Idempotency-Key", "detail": text}]
        raise InvalidInput(f"Idempotency-Key: {text}", {"errors": errors})
    identity = IdempotencyKey(
        project_id=call.caller.project_id,
        user_id=call.caller.user_id,
        key=key,
        fingerprint=fingerprint(json.dumps(body, sort_keys=True)),
    )
    return IdempotentRequest(key=identity, render=render)


def fingerprint(text: str) -> str:
    """Return a hash of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
