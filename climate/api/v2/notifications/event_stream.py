"""Server-Sent Events: the log of notifications as a stream that is gone on with where it broke.

A stream holds one of the places of its process (and the thread that serves it) until it ends: when
its time is over or its token is, when the process stops, or when nobody reads any more, which a
heartbeat finds out. https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import logging
import time
from collections.abc import Callable, Iterator
from datetime import datetime

from climate.core.errors import NotificationsRemoved
from climate.core.notifications.message import Notification, NotificationFilter
from climate.db.engine.database import is_unavailable
from climate.manager.notifications import log as notifications
from climate.manager.process.runtime import Runtime

LOG = logging.getLogger(__name__)

# Proxies keep nothing back, and remember nothing.
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
# Seconds without a notification after which a sign of life is sent.
_HEARTBEAT = 15.0
_BATCH = 100
# Milliseconds after which a client that lost us should come back.
_RETRY = 2000


class Stream(Iterator[bytes]):
    """The parts of an answer that goes on until ``ends_at``; ``close`` it, whatever happens."""

    def __init__(
        self,
        runtime: Runtime,
        wanted: NotificationFilter,
        after: int,
        ends_at: datetime,
        as_text: Callable[[Notification], str],
    ) -> None:
        """Take a place; raises TooManyFollowers."""
        self._runtime = runtime
        self._wanted = wanted
        self._after = after
        self._ends_at = ends_at
        self._as_text = as_text
        self._parts = self._make()
        self.close = runtime.latest.take_place()

    def __next__(self) -> bytes:
        """Return what is to be sent next, as soon as there is anything."""
        return next(self._parts)

    def _make(self) -> Iterator[bytes]:
        yield f"retry: {_RETRY}\nid: {self._after}\n\n".encode()
        try:
            yield from self._events()
        except NotificationsRemoved:  # who comes back is told so
            return
        except Exception as error:
            detail = None if is_unavailable(error) else error
            LOG.warning("a stream of notifications ends: %s", error, exc_info=detail)

    def _events(self) -> Iterator[bytes]:
        sent_at = time.monotonic()
        while (left := self._left()) > 0:
            found = notifications.find_after(self._runtime, self._wanted, self._after, _BATCH)
            for one in found.notifications:
                yield f"id: {one.seq}\ndata: {self._as_text(one)}\n\n".encode()
            self._after = found.after
            now = time.monotonic()
            if found.notifications:
                sent_at = now
            elif now - sent_at >= _HEARTBEAT:
                # Without data this is no event, but who comes back comes back from here.
                yield f": still here\nid: {self._after}\n\n".encode()
                sent_at = now
            self._runtime.latest.wait(self._after, min(left, _HEARTBEAT - (now - sent_at)))

    def _left(self) -> float:
        """Return for how many seconds it may go on."""
        if self._runtime.latest.is_closed:
            return 0.0
        return (self._ends_at - self._runtime.clock.now()).total_seconds()
