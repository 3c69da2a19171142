"""From the outbox to the world: numbers committed notifications and publishes them in order.

One relay at a time has the turn. It publishes one after the other and remembers each batch; if
the broker fails it stops there and tries again after a growing pause, so nothing is lost and the
order is kept. After a crash the last batch may be sent twice: ``message_id`` tells.
"""

import logging
import threading
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from sqlalchemy.orm import Session

from climate.core.notification import Notification
from climate.core.schedule import BEFORE_START
from climate.db import outbox
from climate.db.engine import is_unavailable
from climate.manager.runtime import Runtime
from climate.manager.timer import Timer

LOG = logging.getLogger(__name__)

_BATCH = 100
_LONGEST_PAUSE = 30.0


class Emitter(Protocol):
    """Whatever carries notifications away."""

    def publish(self, notification: Notification, payload: Mapping[str, Any]) -> None:
        """Hand one notification over; returns when it is safe there, raises if it is not."""

    def close(self) -> None:
        """Give up connections; nothing is published after this."""


class Relay:
    """Publishes the outbox until it is stopped."""

    def __init__(self, runtime: Runtime, emitter: Emitter, owner: str) -> None:
        """Prepare; nothing happens before ``start``."""
        self._runtime = runtime
        self._emitter = emitter
        self._owner = owner
        self._turn_ends = runtime.clock.now()
        self._timer = Timer()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="relay", daemon=True)

    def start(self) -> None:
        """Begin to publish, in a thread of its own."""
        self._runtime.wakeup.subscribe(self._wake.set)
        self._timer.every(self._runtime.settings.poll_interval, self._wake.set, "poll")
        self._timer.start()
        self._wake.set()
        self._thread.start()

    def stop(self) -> None:
        """Finish the message under way, if that does not take too long, and give up the turn."""
        self._stopping.set()
        self._wake.set()
        self._thread.join(self._runtime.settings.shutdown_timeout)
        self._timer.stop()
        self._runtime.database.write(lambda session: outbox.leave_turn(session, self._owner))

    def flush(self) -> int:
        """Number and publish all that waits, in this thread; return how many were published.

        Raises what the emitter raises; all before that message is remembered as published.
        """
        published = 0
        while not self._stopping.is_set() and self._number():
            with self._runtime.database.read() as session:
                batch = outbox.unpublished(session, _BATCH)
            if not batch:
                break
            published += self._publish(batch)
        return published

    def _loop(self) -> None:
        """Publish at each wake-up; while the broker is away still number, for HTTP readers."""
        pause, retry_at = 1.0, 0.0
        while not self._stopping.is_set():
            self._wake.wait()
            self._wake.clear()
            try:
                if time.monotonic() < retry_at:
                    self._number()
                else:
                    self.flush()
                    pause = 1.0
            except Exception as error:
                text = f"notifications wait in the outbox, next try in {pause} s"
                if is_unavailable(error):
                    LOG.warning("%s: %s", text, error)
                else:
                    LOG.exception(text)
                retry_at = time.monotonic() + pause
                pause = min(pause * 2, _LONGEST_PAUSE)
        self._emitter.close()

    def _number(self) -> bool:
        """Number all that is new; False if nothing waits or another relay has the turn."""
        with self._runtime.database.read() as session:
            if not outbox.is_waiting(session):
                return False
        now = self._runtime.clock.now()
        until = now + self._runtime.settings.claim_timeout

        def work(session: Session) -> bool:
            if not outbox.take_turn(session, self._owner, now, until):
                return False
            while outbox.number(session, _BATCH) == _BATCH:
                pass
            return True

        has_turn = self._runtime.database.write(work)
        self._turn_ends = until
        return has_turn

    def _publish(self, batch: list[Notification]) -> int:
        """Publish as much as can be while the turn is surely ours; return how many."""
        done: list[int] = []
        try:
            for notification in batch:
                now = self._runtime.clock.now()
                if self._stopping.is_set() or now >= self._turn_ends:
                    break
                self._emitter.publish(notification, payload_when_sent(notification, now))
                done.append(notification.seq)
        finally:
            if done:
                now = self._runtime.clock.now()
                self._runtime.database.write(
                    lambda session: outbox.mark_published(session, done, now)
                )
        return len(done)


def payload_when_sent(notification: Notification, now: datetime) -> dict[str, Any]:
    """Return the payload with what belongs to the message; ``starts_in`` is true at ``now``."""
    payload = {
        **notification.payload,
        "seq": notification.seq,
        "message_id": notification.message_id,
    }
    if notification.event_type == f"lease.event.{BEFORE_START}":
        start = datetime.fromisoformat(payload["start_date"]).replace(tzinfo=now.tzinfo)
        payload["starts_in"] = (start - now).total_seconds()
    return payload
