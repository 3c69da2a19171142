"""Context of log lines: the ids of the request, user, project, event and lease.

The API sets it at the begin of a request, the manager at the begin of an event. oslo.log adds it to
all lines that the thread logs until its end: as fields in JSON, else in brackets before the text.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from oslo_context.context import RequestContext, get_current

# The format of OpenStack services. Other values could inject text into the log.
_GLOBAL_ID = re.compile(r"req-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class LogContext(RequestContext):
    """The context of all further log lines of the thread; each id is optional."""

    def __init__(self, request_id: str = "", lease_id: str | None = None, **ids: Any) -> None:
        """Replace the thread's context; without a request id, lines show none."""
        super().__init__(request_id=request_id or "none", resource_uuid=lease_id, **ids)
        self.request_id = request_id
        self.event_id: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return all ids by their names in JSON."""
        ids = {"lease_id": self.resource_uuid, "event_id": self.event_id}
        return {**super().to_dict(), **ids}


def begin_request(request_id: str, global_id: str | None) -> None:
    """Start the context of a request whose user is not authenticated yet."""
    valid_id = global_id if global_id and _GLOBAL_ID.fullmatch(global_id) else None
    LogContext(request_id, global_request_id=valid_id)


def set_requester(user_id: str, project_id: str, lease_id: str | None) -> None:
    """Set the user, project and lease id (None: no lease) of the current request."""
    context = get_current()
    if isinstance(context, LogContext):
        context.user_id, context.project_id = user_id, project_id
        context.resource_uuid = lease_id


def set_lease(lease_id: str) -> None:
    """Set the id of the lease that the current request creates."""
    context = get_current()
    if isinstance(context, LogContext):
        context.resource_uuid = lease_id


def clear() -> None:
    """Clear the context of the thread, at the end of a request."""
    LogContext()


@contextmanager
def about(lease_id: str | None, event_id: str | None = None) -> Iterator[None]:
    """Set the lease and the event of all lines in the block; the request id is ``event-ID``."""
    before = get_current()
    context = LogContext(f"event-{event_id}" if event_id else "", lease_id)
    context.event_id = event_id
    try:
        yield
    finally:
        if before is None:
            clear()
        else:
            before.update_store()
