"""Context of log lines: the request, user, project, event and lease that a thread works for.

The code sets the context when a request or an event begins. oslo.log adds it to each log line of
the thread until the context is cleared: as fields in JSON logs, in brackets in other logs.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from oslo_context.context import RequestContext, get_current

# Request ids as other OpenStack services send them. Any other text could forge log lines.
_GLOBAL_ID = re.compile(r"req-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


# A stack trace repeats the lease's id on each line. The id comes from the URL, so a line break in
# the id could forge a log line.
_LEASE_ID = re.compile(r"[0-9a-f-]{36}")


class LogContext(RequestContext):
    """The ids that the log lines of a thread contain.

    An object becomes the context of the current thread when it is created.
    """

    def __init__(self, request_id: str = "", lease_id: str | None = None, **fields: Any) -> None:
        """Create a context and make it that of this thread. Without arguments, it has no ids.

        ``fields`` are other arguments of oslo.context's RequestContext.
        """
        super().__init__(request_id=request_id or "none", resource_uuid=lease_id, **fields)
        self.request_id = request_id
        self.event_id: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return all ids, under the names that they have in JSON logs."""
        ids = {"lease_id": self.resource_uuid, "event_id": self.event_id}
        return {**super().to_dict(), **ids}


def begin_request(request_id: str, global_id: str | None) -> None:
    """Set the context of log lines for a new request, whose caller is not authenticated yet.

    ``global_id`` is the id that the caller chose for related requests (None or invalid: ignored).
    """
    valid_id = global_id if global_id and _GLOBAL_ID.fullmatch(global_id) else None
    LogContext(request_id, global_request_id=valid_id)


def identified(user_id: str, project_id: str, lease_id: str | None) -> None:
    """Add the authenticated caller, and the lease in the URL, to the context of log lines.

    ``lease_id`` comes from the URL, and is ignored if it is None or malformed.
    """
    context = get_current()
    if isinstance(context, LogContext):
        context.user_id, context.project_id = user_id, project_id
        is_id = lease_id is not None and _LEASE_ID.fullmatch(lease_id)
        context.resource_uuid = lease_id if is_id else None


def about_lease(lease_id: str) -> None:
    """Add the lease that the current request creates to the context of log lines."""
    context = get_current()
    if isinstance(context, LogContext):
        context.resource_uuid = lease_id


def forget() -> None:
    """Clear the context of log lines of this thread."""
    LogContext()


@contextmanager
def about(lease_id: str | None, event_id: str | None = None) -> Iterator[None]:
    """Context manager: log lines in the block contain this lease and this event.

    After the block, the previous context is restored. If ``event_id`` is set, the request id in the
    log lines is ``event-`` followed by ``event_id``.
    """
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
