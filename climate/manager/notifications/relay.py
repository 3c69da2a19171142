"""From the outbox to the world: numbers committed notifications and publishes them in order.

Any relay numbers, at once: readers over HTTP and subscriptions need not wait for the broker. One
relay at a time has the turn to publish. It sends one after the other and remembers each batch; if
the broker fails it stops there and tries again after a growing pause, so nothing is lost and the
order is kept. After a crash the last batch may be sent twice: ``message_id`` tells.
"""

import logging
import time
from collections.abc import Mapping
from typing import Any, Protocol

from climate.core.notification import Notification, payload_when_sent
from climate.db import outbox
from climate.db.engine import is_unavailable
from climate.manager.process.runtime import Runtime
from climate.manager.process.worker_loop import Loop

LOG = logging.getLogger(__name__)

_BATCH = 500
# Seconds between two tries, as long as the broker fails: from the one to the other.
_PAUSE, _LONGEST_PAUSE = 1.0, 30.0


class Emitter(Protocol):
    """Whatever carries notifications away."""

    def publish(self, notification: Notification, payload: Mapping[str, Any]) -> None:
        """Hand one notification over; returns when it is safe there, raises if it is not."""

    def close(self) -> None:
        """Give up connections; nothing is published after this."""


class Relay:
    """Numbers and publishes the outbox until it is stopped."""

    def __init__(self, runtime: Runtime, emitter: Emitter, owner: str) -> None:
        """Prepare; nothing happens before ``start``."""
        self._runtime = runtime
        self._emitter = emitter
        self._owner = owner
        self._turn_ends = runtime.clock.now()
        self._pause, self._retry_at = _PAUSE, 0.0
        poll = runtime.settings.poll_interval
        self._numbering = Loop("numbers", self.number, poll)
        self._publishing = Loop("relay", self._publish_waiting, poll)

    def start(self) -> None:
        """Begin to number and to publish, in a thread each: a broker may be silent for long."""
        self._runtime.wakeup.subscribe(self._numbering.wake)
        self._runtime.news.subscribe(self._publishing.wake)
        self._numbering.start()
        self._publishing.start()

    def stop(self) -> None:
        """Finish the message under way, if that does not take too long, and give up the turn."""
        patience = self._runtime.settings.shutdown_timeout
        self._numbering.stop(patience)
        if self._publishing.stop(patience):
            self._emitter.close()
        self._runtime.database.write(lambda session: outbox.leave_turn(session, self._owner))

    def number(self) -> int:
        """Number all that is new, and hint at the news; return how many they were."""
        total, given = 0, _BATCH if self._has_new() else 0
        while given == _BATCH:
            given = self._runtime.database.write(lambda session: outbox.number(session, _BATCH))
            total += given
        if total:
            self._runtime.news.hint()
        return total

    def flush(self) -> int:
        """Number and publish all that waits, in this thread; return how many were published.

        Raises what the emitter raises; all before that message is remembered as published.
        """
        self.number()
        published = 0
        while batch := self._next_batch():
            published += self._publish(batch)
        return published

    def _has_new(self) -> bool:
        with self._runtime.database.read() as session:
            return outbox.is_unnumbered(session)

    def _publish_waiting(self) -> int:
        """Publish, unless the broker failed a moment ago; return how many were published."""
        published = 0
        if time.monotonic() < self._retry_at:
            return published
        try:
            while batch := self._next_batch():
                published += self._publish(batch)
            self._pause = _PAUSE
        except Exception as error:
            if is_unavailable(error):  # then it is not the broker that is to be spared
                self._pause = _PAUSE
            text = f"notifications wait in the outbox, next try in {self._pause} s"
            if is_unavailable(error):
                LOG.warning("%s: %s", text, error)
            else:
                LOG.exception(text)
            self._retry_at = time.monotonic() + self._pause
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        return published

    def _next_batch(self) -> list[Notification]:
        """Return what is to be published now; nothing while another relay has the turn."""
        if self._publishing.is_stopping or not self._has_turn():
            return []
        with self._runtime.database.read() as session:  # only now: others published until now
            return outbox.unpublished(session, _BATCH)

    def _has_turn(self) -> bool:
        """Tell whether it is our turn; take it if there is something to do, and it is nobody's."""
        now = self._runtime.clock.now()
        if now < self._turn_ends:
            return True
        with self._runtime.database.read() as session:
            if not outbox.is_called_for(session, self._owner, now):
                return False
        until = now + self._runtime.settings.claim_timeout
        is_ours = self._runtime.database.write(
            lambda session: outbox.take_turn(session, self._owner, now, until)
        )
        if is_ours:
            self._turn_ends = until
        return is_ours

    def _publish(self, batch: list[Notification]) -> int:
        """Publish as much as can be while the turn is surely ours; return how many."""
        done = 0
        try:
            for notification in batch:
                now = self._runtime.clock.now()
                if self._publishing.is_stopping or now >= self._turn_ends:
                    break
                self._emitter.publish(notification, payload_when_sent(notification, now))
                done += 1
        finally:
            if done:
                self._mark(batch[done - 1])
        return done

    def _mark(self, last: Notification) -> None:
        """Remember how far we are, and keep the turn; if it was taken from us, it is not ours."""
        now = self._runtime.clock.now()
        until = now + self._runtime.settings.claim_timeout
        is_ours = self._runtime.database.write(
            lambda session: outbox.mark_published(session, self._owner, last, until)
        )
        self._turn_ends = until if is_ours else now
