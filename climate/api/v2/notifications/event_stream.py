"""Sends notifications as Server-Sent Events. A client that reconnects misses no notification.

A stream occupies a thread. So climate counts it as a waiting request, and limits the number of
waiting requests. A stream ends at its time limit, when the token expires, when the process stops,
or when a heartbeat cannot be sent because the client has disconnected.
https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import json
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from climate.api.v2.notifications.schemas import body
from climate.core.errors import NotificationsRemoved
from climate.core.notifications.message import NotificationFilter
from climate.db.engine.database import is_unavailable
from climate.manager.notifications import log as notifications
from climate.manager.process.runtime import Runtime

LOG = logging.getLogger(__name__)

# Proxies must neither buffer nor cache the stream.
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
# Seconds without a notification after which climate sends a heartbeat. After the client has
# disconnected, sending the second heartbeat fails; the built-in server reports this at the third.
_HEARTBEAT = 5.0
_BATCH = 100
# Milliseconds after which a disconnected client should reconnect.
_RETRY = 2000


@dataclass(eq=False)
class Stream(Iterator[bytes]):
    """An iterator over the bytes of an event stream, which ends at ``ends_at`` at the latest.

    The stream sends the notifications that match the filter ``wanted`` and have a number above
    ``after``. ``project_id`` is the caller's project. The code that reads the stream must call
    ``close`` afterwards.
    """

    runtime: Runtime
    project_id: str
    wanted: NotificationFilter
    after: int
    ends_at: datetime

    def __post_init__(self) -> None:
        """Count the stream as a waiting request of the project until ``close`` is called.

        Raises TooManyFollowers if too many requests are waiting already.
        """
        self._parts = self._generate()
        self.close = self.runtime.latest.place(self.project_id).close

    def __next__(self) -> bytes:
        return next(self._parts)

    def _generate(self) -> Iterator[bytes]:
        yield f"retry: {_RETRY}\nid: {self.after}\n\n".encode()
        try:
            yield from self._events()
        except NotificationsRemoved:  # the client gets this error when it reconnects
            return
        except Exception as error:
            detail = None if is_unavailable(error) else error
            LOG.warning(
                "ended the stream of a client after an error, the client reconnects: %s",
                error,
                exc_info=detail,
            )

    def _events(self) -> Iterator[bytes]:
        sent_at = time.monotonic()
        while (seconds := self._seconds_left()) > 0:
            page = notifications.find_after(self.runtime, self.wanted, self.after, _BATCH)
            for notification in page.notifications:
                text = json.dumps(body(notification), separators=(",", ":"))
                yield f"id: {notification.seq}\ndata: {text}\n\n".encode()
            self.after = page.after
            now = time.monotonic()
            if page.notifications:
                sent_at = now
            elif now - sent_at >= _HEARTBEAT:
                # Without data this is no event, but it moves the position for a reconnect.
                yield f": still here\nid: {self.after}\n\n".encode()
                sent_at = now
            self.runtime.latest.wait(self.after, min(seconds, _HEARTBEAT - (now - sent_at)))

    def _seconds_left(self) -> float:
        if self.runtime.latest.is_closed:
            return 0.0
        return (self.ends_at - self.runtime.clock.now()).total_seconds()
