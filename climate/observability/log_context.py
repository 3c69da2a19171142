"""Whom and what a line of the log is about: request, user, project, event, lease.

It is set where a request or an event begins, and oslo.log adds it to whatever the thread logs until
that is over: as fields in JSON, in brackets before the text otherwise.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from oslo_context.context import RequestContext, get_current

# What other services of OpenStack send; anything else would let a caller write into the log.
_GLOBAL_ID = re.compile(r"req-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class LogContext(RequestContext):
    """What the lines of a thread are about from now on, each id where there is one."""

    def __init__(self, request_id: str = "", lease_id: str | None = None, **known: Any) -> None:
        """Take the place of what was known before; without a request id nothing is."""
        super().__init__(request_id=request_id or "none", resource_uuid=lease_id, **known)
        self.request_id = request_id
        self.event_id: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return all of it by the names that it has in JSON."""
        known = {"lease_id": self.resource_uuid, "event_id": self.event_id}
        return {**super().to_dict(), **known}


def begin_request(request_id: str, global_id: str | None) -> None:
    """A request begins; nobody knows yet who asks."""
    known = global_id if global_id and _GLOBAL_ID.fullmatch(global_id) else None
    LogContext(request_id, global_request_id=known)


def identified(user_id: str, project_id: str, lease_id: str | None) -> None:
    """It is known who asks in the request under way, and about which lease, if it is one."""
    context = get_current()
    if isinstance(context, LogContext):
        context.user_id, context.project_id = user_id, project_id
        context.resource_uuid = lease_id


def about_lease(lease_id: str) -> None:
    """The request under way turns out to be about this lease, which it makes."""
    context = get_current()
    if isinstance(context, LogContext):
        context.resource_uuid = lease_id


def forget() -> None:
    """What was under way in this thread is over."""
    LogContext()


@contextmanager
def about(lease_id: str | None, event_id: str | None = None) -> Iterator[None]:
    """Have what is logged be about a lease, and an event, which is told as ``event-ID``, too."""
    before = get_current()
    context = LogContext(f"event-{event_id}" if event_id else "", lease_id)
    context.event_id = event_id
    try:
        yield
    finally:
        if before is None:
            forget()
        else:
            before.update_store()
