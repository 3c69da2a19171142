"""Delivery to subscriptions: sends notifications by HTTP or e-mail to each subscriber, in order.

Several managers deliver at once. A manager claims a subscription for a limited time. Only the
manager with the claim delivers to the subscription and stores the results.

A slow subscriber does not delay the others. A manager serves at most ``webhooks.parallel``
subscriptions at a time, and at most half of these places go to slow receivers. A receiver is slow
if its last delivery was slow or failed.

After a crash, another manager may send a notification again, with the same id.
"""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from climate.core.notifications.feed import Entry
from climate.core.notifications.message import payload_when_sent
from climate.core.notifications.subscription import Confirmation, Delivery, Kind, Outcome
from climate.core.notifications.wording import WITH_CALENDAR
from climate.db.engine.database import is_unavailable
from climate.db.notifications import subscription_queue
from climate.db.notifications.subscription_queue import Claim
from climate.manager.notifications import feeds
from climate.manager.notifications.delivery_results import Results
from climate.manager.notifications.next_delivery import next_delivery
from climate.manager.process.periodic_task import PeriodicTask, Progress
from climate.manager.process.runtime import Runtime

LOG = logging.getLogger(__name__)

# A turn ends after this many seconds or notifications, so that the next subscription is served.
_TURN = 2.0
_MESSAGES = 50


class Poster(Protocol):
    """Interface of the object that sends a notification to its receiver by HTTP."""

    def post(self, delivery: Delivery, payload: Mapping[str, Any]) -> Outcome:
        """Send the payload within the configured time-out; return whether that succeeded."""


class Mailer(Protocol):
    """Interface of the object that sends mails."""

    def send(self, item: Delivery | Confirmation, entries: Sequence[Entry] = ()) -> Outcome:
        """Send a mail within the configured time-out; return whether that succeeded.

        The mail about a notification contains ``entries`` as a calendar file.
        """


class SubscriptionDelivery:
    """Claims subscriptions with undelivered notifications, and serves each in its own thread.

    ``poster`` sends the notifications by HTTP, and ``mailer`` by e-mail (None: this process serves
    no subscriptions by e-mail). ``owner`` is the name of this manager.
    """

    def __init__(
        self, runtime: Runtime, poster: Poster, owner: str, mailer: Mailer | None = None
    ) -> None:
        self._runtime, self._poster, self._mailer = runtime, poster, mailer
        self._owner = owner
        self._kinds = (Kind.WEBHOOK, *((Kind.EMAIL,) if mailer else ()))
        self._results = Results(runtime, owner)
        self._running: dict[str, bool] = {}
        self._done = threading.Condition()
        self._task = PeriodicTask(
            "deliveries", self._start_due, interval=runtime.settings.poll_interval
        )

    @property
    def progress(self) -> list[Progress]:
        """The progress of the loop that claims subscriptions."""
        return self._task.progress

    def start(self) -> None:
        """Start a thread that claims subscriptions and starts another thread for each of them."""
        self._runtime.news.subscribe(self._task.wake)
        self._task.start()

    def stop(self) -> None:
        """Stop claiming, wait for running deliveries, and release the claims of unfinished ones.

        The wait takes at most ``shutdown_timeout``. If a delivery is still running after that,
        another manager may repeat it.
        """
        deadline = time.monotonic() + self._runtime.settings.shutdown_timeout
        self._task.stop(deadline - time.monotonic())
        with self._done:
            self._done.wait_for(lambda: not self._running, deadline - time.monotonic())
            unfinished = list(self._running)
        self._runtime.database.write(
            lambda session: subscription_queue.release(session, self._owner, unfinished)
        )

    def run_due(self) -> int:
        """Attempt all due deliveries in this thread; return how many deliveries these were."""
        count = 0
        while claimed := self._claim(1, 1):
            count += sum(self._serve(subscription_id) for subscription_id, _ in claimed)
        return count

    def _start_due(self) -> int:
        """Start a thread for each subscription with a due delivery; return how many were started.

        At most ``webhooks.parallel`` threads run at a time. At most half of them serve slow
        receivers.
        """
        with self._done:
            running = list(self._running.values())
        places = self._runtime.settings.webhooks.parallel
        slow = max(1, places // 2) - running.count(True)
        claimed = self._claim(places - len(running), slow)
        for subscription_id, is_slow in claimed:
            with self._done:
                self._running[subscription_id] = is_slow
            work = partial(self._work, subscription_id)
            try:
                threading.Thread(target=work, name="delivery", daemon=True).start()
            except RuntimeError:  # the process has too many threads; the claim expires
                self._forget(subscription_id)
                raise
        return len(claimed)

    def _claim(self, free: int, slow: int) -> list[tuple[str, bool]]:
        """Claim subscriptions for the free threads of this manager.

        ``free`` is the maximum number of subscriptions, ``slow`` the maximum number of those with a
        slow receiver. Returns a list of (subscription id, whether its receiver is slow).
        """
        now = self._runtime.clock.now()
        with self._runtime.database.read() as session:
            if free < 1 or not subscription_queue.is_any(session, now, self._kinds):
                return []
        wanted = Claim(owner=self._owner, now=now, until=self._results.claimed_until(now))
        claimed = self._runtime.database.write(
            lambda session: subscription_queue.claim(session, wanted, (free, slow), self._kinds)
        )
        with self._done:
            return [(id_, is_slow) for id_, is_slow in claimed if id_ not in self._running]

    def _work(self, subscription_id: str) -> None:
        try:
            self._serve(subscription_id)
        except Exception as error:
            detail = None if is_unavailable(error) else error
            text = "subscription %s: a manager delivers again when the claim expires: %s"
            LOG.warning(text, subscription_id, error, exc_info=detail)
        finally:
            self._forget(subscription_id)
            self._task.wake()

    def _forget(self, subscription_id: str) -> None:
        with self._done:
            self._running.pop(subscription_id, None)
            self._done.notify_all()

    def _serve(self, subscription_id: str) -> int:
        """Deliver to one subscription for a limited time, then release the claim on it.

        Returns how many deliveries the method attempted.
        """
        turn_end = time.monotonic() + _TURN
        count = 0
        while count < _MESSAGES and time.monotonic() < turn_end and not self._task.is_stopping:
            delivery = next_delivery(self._runtime, self._results, subscription_id, self._owner)
            if delivery is None:
                return count
            count += 1
            if not self._results.note(delivery, self._attempt(delivery)):
                return count
        self._results.release(subscription_id, due_at=self._runtime.clock.now())
        return count

    def _attempt(self, delivery: Delivery | Confirmation) -> Outcome:
        """Send a delivery; return the outcome.

        If a notification cannot be put into a message, this is a failed attempt. Otherwise, such a
        notification would hold up its subscription forever.
        """
        try:
            return self._send(delivery)
        except Exception as error:
            if is_unavailable(error):
                raise
            LOG.exception(
                "subscription %s: cannot make a message from a notification",
                delivery.subscription.id,
            )
            return Outcome(reason="climate could not make the message: the operator's log says why")

    def _send(self, delivery: Delivery | Confirmation) -> Outcome:
        """Send a notification, a digest or a confirmation; return the outcome."""
        if isinstance(delivery, Delivery) and delivery.subscription.kind is not Kind.EMAIL:
            payload = payload_when_sent(delivery.notification, delivery.at)
            return self._poster.post(delivery, payload)
        assert self._mailer is not None  # noqa: S101 - others are not claimed
        return self._mailer.send(delivery, self._entries(delivery))

    def _entries(self, delivery: Delivery | Confirmation) -> Sequence[Entry]:
        """Return the calendar entry of the lease, if the mail about the notification needs it.

        It is the entry of the lease as it is now, as calendar feeds show it.
        """
        if isinstance(delivery, Confirmation) or delivery.digest is not None:
            return ()
        item = delivery.notification
        if item.lease_id is None or item.event_type not in WITH_CALENDAR:
            return ()
        return feeds.lease_entries(self._runtime, item.lease_id)
