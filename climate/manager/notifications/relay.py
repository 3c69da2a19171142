"""Relay: numbers committed notifications and publishes them to the message broker in order.

Transactions write notifications to the outbox, a database table. Each manager has a relay. Every
relay gives numbers to the notifications in the outbox, at any time, so that long polling and
webhooks do not wait for the broker. But only one relay at a time may publish: the relay that has
the *turn*.

The relay with the turn sends one notification after the other, and stores its position after each
batch. If the broker fails, the relay retries the same notification after a growing pause. So no
notification is lost, and the order is kept. After a crash, another relay may publish the last batch
again. Each notification keeps its ``message_id``, so that receivers can detect the repetition.
"""

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any, Protocol

from climate.core.notifications.message import Notification, payload_when_sent
from climate.db.engine.database import is_unavailable
from climate.db.notifications import outbox
from climate.manager.process.periodic_task import PeriodicTask, Progress, logged
from climate.manager.process.runtime import Runtime

LOG = logging.getLogger(__name__)

# Notifications per transaction: large enough that its cost is spread, small enough to be quick.
_BATCH = 500
# Seconds between attempts while the broker fails: the first and the longest pause.
_PAUSE, _LONGEST_PAUSE = 1.0, 30.0


class Emitter(Protocol):
    """Interface of the object that publishes notifications to the message broker."""

    def publish(self, notification: Notification, payload: Mapping[str, Any]) -> None:
        """Publish a notification. Return after the broker has stored it; raise if that fails."""

    def close(self) -> None:
        """Close the connections to the broker. No call of ``publish`` may follow."""


class Relay:
    """Numbers and publishes the notifications in the outbox, from ``start`` to ``stop``.

    The outbox is the database table to which transactions write notifications. ``owner`` is the
    name of this manager.
    """

    def __init__(self, runtime: Runtime, emitter: Emitter, owner: str) -> None:
        self._runtime, self._emitter, self._owner = runtime, emitter, owner
        self._turn_ends = runtime.clock.now()
        self._pause, self._retry_at = _PAUSE, 0.0
        poll = runtime.settings.poll_interval
        self._numbering = PeriodicTask("numbers", self.number, interval=poll)
        self._publishing = PeriodicTask("relay", self._publish_waiting, interval=poll)

    @property
    def progress(self) -> list[Progress]:
        """The progress of the loops that number and publish notifications."""
        return [*self._numbering.progress, *self._publishing.progress]

    def start(self) -> None:
        """Start a thread that numbers notifications, and a thread that publishes them.

        The threads are separate, because the broker may block the thread that publishes.
        """
        self._runtime.wakeup.subscribe(self._numbering.wake)
        self._runtime.news.subscribe(self._publishing.wake)
        self._numbering.start()
        self._publishing.start()

    def stop(self) -> None:
        """Stop both threads, and give up the turn to publish, so that another manager can take it.

        Waits up to ``shutdown_timeout`` until the notification in progress is published, the
        transaction in progress has ended, and the broker has confirmed the end of the connection.
        """
        deadline = time.monotonic() + self._runtime.settings.shutdown_timeout
        self._publishing.stop(0)  # both threads end at the same time
        self._numbering.stop(deadline - time.monotonic())
        has_ended = self._publishing.stop(deadline - time.monotonic())
        try:
            self._runtime.database.write(lambda session: outbox.leave_turn(session, self._owner))
        finally:  # last, as the broker may be silent
            if has_ended:
                closing = threading.Thread(target=self._close, name="closing", daemon=True)
                closing.start()
                closing.join(max(0.0, deadline - time.monotonic()))

    def _close(self) -> None:
        """Close the connection to the broker; this takes minutes if the broker is silent."""
        with logged("cannot close the connection to the broker"):
            self._emitter.close()

    def number(self) -> int:
        """Number all new notifications; return how many.

        If there were any, also send a hint (a wake-up message) to the processes that wait for new
        notifications.
        """
        database = self._runtime.database
        with database.read() as session:
            numbered = _BATCH if outbox.is_unnumbered(session) else 0
        total = 0
        while numbered == _BATCH:
            numbered = database.write(lambda session: outbox.number(session, _BATCH))
            total += numbered
        if total:
            self._runtime.news.hint()
        return total

    def flush(self) -> int:
        """Number and publish all notifications in this thread; return how many were published.

        Raises the errors of the emitter. Notifications that were published before such an error
        stay marked as published.
        """
        self.number()
        return self._publish_all()

    def _publish_all(self) -> int:
        published = 0
        while batch := self._next_batch():
            published += self._publish(batch)
        return published

    def _publish_waiting(self) -> int:
        """Publish all unpublished notifications; return how many were published.

        If publishing fails, the method logs the error, and a pause begins: until its end, all calls
        publish nothing. The call with the error and the calls during the pause return False, which
        tells the loop that the run has failed.
        """
        if time.monotonic() < self._retry_at:
            return False
        try:
            published = self._publish_all()
            self._pause = _PAUSE
        except Exception as error:
            if is_unavailable(error):  # the database failed, so the broker needs no pause
                self._pause = _PAUSE
            text = f"cannot publish notifications, next try in {self._pause} s"
            if is_unavailable(error):
                LOG.warning("%s: %s", text, error)
            else:
                LOG.exception(text)
            self._retry_at = time.monotonic() + self._pause
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)
            return False
        return published

    def _next_batch(self) -> list[Notification]:
        """Return the notifications to publish now; an empty list if another relay has the turn."""
        if self._publishing.is_stopping or not self._has_turn():
            return []
        # Query only after taking the turn: another relay may have published until then.
        with self._runtime.database.read() as session:
            return outbox.unpublished(session, _BATCH)

    def _has_turn(self) -> bool:
        """Return whether this relay has the turn, the exclusive right to publish.

        If no relay has the turn and there are notifications to publish, this relay takes the turn.
        """
        now = self._runtime.clock.now()
        if now < self._turn_ends:
            return True
        with self._runtime.database.read() as session:
            if not outbox.is_called_for(session, self._owner, now):
                return False
        until = now + self._runtime.settings.claim_timeout
        has_turn = self._runtime.database.write(
            lambda session: outbox.take_turn(session, self._owner, now, until)
        )
        if has_turn:
            self._turn_ends = until
        return has_turn

    def _publish(self, batch: list[Notification]) -> int:
        """Publish notifications as long as this relay surely has the turn; return how many."""
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
        """Store ``last`` as the last published notification, and extend the turn to publish.

        If another relay has taken the turn in the meantime, this relay stops publishing.
        """
        now = self._runtime.clock.now()
        until = now + self._runtime.settings.claim_timeout
        has_turn = self._runtime.database.write(
            lambda session: outbox.mark_published(session, self._owner, last, until)
        )
        self._turn_ends = until if has_turn else now
