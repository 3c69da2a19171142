"""Webhook delivery: sends notifications by HTTP to each subscriber, in order.

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
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol

from sqlalchemy.orm import Session

from climate.core.notifications import event_type
from climate.core.notifications.message import NotificationFilter, payload_when_sent
from climate.core.notifications.subscription import (
    DeadLetter,
    Delivery,
    Outcome,
    Subscription,
    SubscriptionStatus,
    Verdict,
    judge,
)
from climate.db.engine.database import is_unavailable
from climate.db.notifications import outbox, subscriptions, webhook_queue
from climate.manager.process.periodic_task import PeriodicTask, Progress
from climate.manager.process.runtime import Runtime

LOG = logging.getLogger(__name__)

# A turn ends after this many seconds or notifications, so that the next subscription is served.
_TURN = 2.0
_MESSAGES = 50
# The columns of a subscription without a claim.
_UNCLAIMED = {"owner": None, "claimed_until": None}


class Poster(Protocol):
    """Interface of the object that sends a notification to its receiver by HTTP."""

    def post(self, delivery: Delivery, payload: Mapping[str, Any]) -> Outcome:
        """Send the payload within the configured time-out; return whether that succeeded."""


class WebhookDelivery:
    """Claims subscriptions with undelivered notifications, and serves each in its own thread.

    ``poster`` sends the notifications. ``owner`` is the name of this manager.
    """

    def __init__(self, runtime: Runtime, poster: Poster, owner: str) -> None:
        self._runtime, self._poster, self._owner = runtime, poster, owner
        self._results = _Results(runtime, owner)
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
            lambda session: webhook_queue.release(session, self._owner, unfinished)
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
            threading.Thread(target=work, name="delivery", daemon=True).start()
        return len(claimed)

    def _claim(self, free: int, slow: int) -> list[tuple[str, bool]]:
        """Claim subscriptions for the free threads of this manager.

        ``free`` is the maximum number of subscriptions, ``slow`` the maximum number of those with a
        slow receiver. Returns a list of (subscription id, whether its receiver is slow).
        """
        now = self._runtime.clock.now()
        with self._runtime.database.read() as session:
            if free < 1 or not webhook_queue.is_any(session, now):
                return []
        until = self._results.claimed_until(now)
        claimed = self._runtime.database.write(
            lambda session: webhook_queue.claim(session, self._owner, now, until, (free, slow))
        )
        with self._done:
            return [(id_, is_slow) for id_, is_slow in claimed if id_ not in self._running]

    def _work(self, subscription_id: str) -> None:
        try:
            self._serve(subscription_id)
        except Exception as error:
            detail = None if is_unavailable(error) else error
            text = "subscription %s: the claim will expire: %s"
            LOG.warning(text, subscription_id, error, exc_info=detail)
        finally:
            with self._done:
                self._running.pop(subscription_id, None)
                self._done.notify_all()
            self._task.wake()

    def _serve(self, subscription_id: str) -> int:
        """Deliver to one subscription for a limited time, then release the claim on it.

        Returns how many deliveries the method attempted.
        """
        turn_end = time.monotonic() + _TURN
        count = 0
        while count < _MESSAGES and time.monotonic() < turn_end and not self._task.is_stopping:
            if (delivery := self._next(subscription_id)) is None:
                return count
            payload = payload_when_sent(delivery.notification, delivery.at)
            count += 1
            if not self._results.note(delivery, self._poster.post(delivery, payload)):
                return count
        self._results.release(subscription_id, due_at=self._runtime.clock.now())
        return count

    def _next(self, subscription_id: str) -> Delivery | None:
        """Return the next delivery of a subscription that this manager has claimed.

        Returns None in three cases:

        - There is nothing to deliver. In this case, the method releases the claim.
        - Notifications were removed before their delivery. In this case, it suspends the
          subscription.
        - This manager has lost the claim.
        """
        with self._runtime.database.read() as session:
            claimed = webhook_queue.find_mine(session, subscription_id, self._owner)
            if claimed is None:
                return None
            subscription, secret = claimed
            letter = subscriptions.next_dead_letter(session, subscription_id)
            after = subscription.done_seq if letter is None else letter.seq - 1
            wanted = subscription.wanted if letter is None else NotificationFilter()
            part = outbox.find_after(session, wanted, after, 1)
            removed = outbox.removed_seq(session)
        if subscription.done_seq < removed:
            reason = f"notifications up to {removed} were removed before it got them"
            self._results.suspend(subscription, reason)
            return None
        if not part.notifications:
            self._results.release(subscription_id, done_seq=part.after)
            return None
        return Delivery(
            subscription=subscription,
            secret=secret,
            notification=part.notifications[0],
            letter=letter,
            at=self._runtime.clock.now(),
        )


class _Results:
    """Stores the results of deliveries while this manager has the claim on the subscription.

    ``owner`` is the name of this manager.
    """

    def __init__(self, runtime: Runtime, owner: str) -> None:
        self._runtime, self._owner = runtime, owner

    def claimed_until(self, now: datetime) -> datetime:
        """Return when a claim made at ``now`` expires.

        The claim lasts longer than a delivery can take.
        """
        timeout = timedelta(seconds=2 * self._runtime.settings.webhooks.timeout)
        return now + timeout + self._runtime.settings.claim_timeout

    def note(self, delivery: Delivery, outcome: Outcome) -> bool:
        """Store the outcome of a delivery; return whether to continue with the next delivery."""
        if outcome.reason is None:
            return self._note_success(delivery, outcome)
        subscription, rules = delivery.subscription, self._runtime.settings.webhooks
        verdict = judge(subscription, outcome, rules, self._runtime.rng.random())
        if delivery.letter is not None and verdict.suspend is None:
            verdict = Verdict(pause=verdict.pause, give_up=True)
        LOG.info("subscription %s: not delivered: %s", subscription.id, outcome.reason)
        self._note_failure(delivery, outcome.reason, verdict)
        return False

    def suspend(self, subscription: Subscription, reason: str) -> None:
        """Suspend a subscription for ``reason``, and write a notification.

        A suspended subscription delivers nothing until its owner activates it again.
        """
        self._store(
            subscription.id,
            lambda session: self._notify_suspended(session, subscription, reason),
            **_UNCLAIMED,
            status=SubscriptionStatus.SUSPENDED.value,
            reason=reason,
        )

    def release(self, subscription_id: str, **values: Any) -> None:
        """Release the claim on a subscription, and store ``values`` in its row."""
        self._store(subscription_id, None, **_UNCLAIMED, **values)

    def _note_success(self, delivery: Delivery, outcome: Outcome) -> bool:
        now = self._runtime.clock.now()
        id_, seq = delivery.subscription.id, delivery.notification.seq
        values: dict[str, Any] = {"given_up": 0, "slow": outcome.slow, "delivered_at": now}
        values |= {"claimed_until": self.claimed_until(now), "reason": None}
        if delivery.letter is None:
            values |= {"done_seq": seq, "attempts": 0}
        return self._store(
            id_, lambda session: subscriptions.remove_dead_letter(session, id_, seq), **values
        )

    def _note_failure(self, delivery: Delivery, reason: str, verdict: Verdict) -> None:
        """Store that a delivery failed for ``reason``, apply ``verdict``, and release the claim.

        The verdict is one of these:

        - Retry the delivery after a pause.
        - Give up, and store the notification as a dead letter.
        - Suspend the subscription, so that it delivers nothing, and write a notification.

        If the failed delivery was another attempt for a dead letter (a notification that climate
        had given up before), the notification remains a dead letter in all cases.
        """
        now = self._runtime.clock.now()
        subscription, letter = delivery.subscription, delivery.letter
        due_at = now + timedelta(seconds=verdict.pause)
        values: dict[str, Any] = {"slow": True, "due_at": due_at, **_UNCLAIMED}
        values["reason"] = verdict.suspend or reason
        if letter is None and verdict.give_up:
            values |= {"done_seq": delivery.notification.seq, "attempts": 0}
            values |= {"given_up": subscription.given_up + 1}
        elif letter is None:
            values["attempts"] = subscription.attempts + 1
        if verdict.suspend is not None:
            values["status"] = SubscriptionStatus.SUSPENDED.value
        dead = DeadLetter(
            subscription_id=subscription.id,
            seq=delivery.notification.seq,
            attempts=(letter or subscription).attempts + 1,
            reason=reason,
            wanted=False,
            failed_at=now,
        )

        def work(session: Session) -> None:
            if verdict.give_up or letter is not None:
                subscriptions.add_dead_letter(session, dead)
            if verdict.suspend is not None:
                self._notify_suspended(session, subscription, verdict.suspend)

        self._store(subscription.id, work, **values)

    def _notify_suspended(self, session: Session, subscription: Subscription, reason: str) -> None:
        id_, project_id = subscription.id, subscription.project_id
        LOG.warning("subscription %s of %s is suspended: %s", id_, project_id, reason)
        payload = {
            "subscription_id": id_,
            "project_id": project_id,
            "user_id": subscription.user_id,
            "reason": reason,
        }
        outbox.write(session, event_type.SUBSCRIPTION_SUSPENDED, payload, self._runtime.clock.now())

    def _store(
        self, subscription_id: str, more: Callable[[Session], object] | None, **values: Any
    ) -> bool:
        """Store ``values`` in the row of a subscription; return whether this manager had the claim.

        If this manager has lost the claim on the subscription, the method stores nothing and
        returns False. Otherwise, it also calls the function ``more``, which stores further rows in
        the same transaction (None: there are no further rows).
        """

        def work(session: Session) -> bool:
            has_claim = webhook_queue.note(session, subscription_id, self._owner, values)
            if has_claim and more is not None:
                more(session)
            return has_claim

        has_claim = self._runtime.database.write(work)
        if "status" in values:
            self._runtime.wakeup.hint()
        return has_claim
