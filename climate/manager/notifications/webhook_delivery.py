"""Sending notifications to subscribers: each hears in order, and none waits for another.

Any number of managers may do so; claims keep them apart, and a result counts only while its claim
holds. At most so many subscriptions are served at once; those whose receivers were slow or failed
get half of the places, so that quick ones are never kept waiting by them. After a crash, what was
under way is sent again: the id tells.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

from sqlalchemy.orm import Session

from climate.core.notification import NotificationFilter, payload_when_sent
from climate.core.subscription import (
    DeadLetter,
    Delivery,
    Outcome,
    Subscription,
    SubscriptionStatus,
    Verdict,
    judge,
    later,
)
from climate.db import deliveries, outbox, subscriptions
from climate.db.engine import is_unavailable
from climate.manager.process.runtime import Runtime
from climate.manager.process.worker_loop import Loop

LOG = logging.getLogger(__name__)

# One subscription is served for so many seconds and messages, then it is another's turn.
_TURN = 2.0
_MESSAGES = 50


class Poster(Protocol):
    """Whatever carries one notification to its receiver."""

    def post(self, delivery: Delivery, payload: Mapping[str, Any]) -> Outcome:
        """Send it, within the time-out that was agreed on; whatever goes wrong is an outcome."""


class Deliveries:
    """Serves subscriptions until it is stopped."""

    def __init__(self, runtime: Runtime, poster: Poster, owner: str) -> None:
        """Prepare; nothing happens before ``start``."""
        self._runtime = runtime
        self._poster = poster
        self._owner = owner
        self._running: dict[str, bool] = {}
        self._done = threading.Condition()
        self._loop = Loop("deliveries", self._begin_all, runtime.settings.poll_interval)

    def start(self) -> None:
        """Begin to deliver, in threads of its own."""
        self._runtime.news.subscribe(self._loop.wake)
        self._loop.start()

    def stop(self) -> None:
        """Let what is under way finish for a while, and hand back the rest."""
        patience = self._runtime.settings.shutdown_timeout
        self._loop.stop(patience)
        with self._done:
            self._done.wait_for(lambda: not self._running, patience)
            left = list(self._running)
        self._runtime.database.write(
            lambda session: deliveries.hand_back(session, self._owner, left)
        )

    def run_due(self) -> int:
        """Deliver all that is due now, in this thread; return how many deliveries were tried."""
        count = 0
        while claimed := self._claim(1, 1):
            for subscription_id, _ in claimed:
                count += self._serve(subscription_id)
        return count

    def _begin_all(self) -> int:
        """Give each subscription that is due, as far as there is room, a thread; how many."""
        with self._done:
            running = list(self._running.values())
        places = self._runtime.settings.webhooks.parallel
        slow = max(1, places // 2) - running.count(True)
        claimed = self._claim(places - len(running), slow)
        for subscription_id, is_slow in claimed:
            with self._done:
                self._running[subscription_id] = is_slow
            target = threading.Thread(
                target=self._run, args=(subscription_id,), name="delivery", daemon=True
            )
            target.start()
        return len(claimed)

    def _claim(self, free: int, slow: int) -> list[tuple[str, bool]]:
        """Claim up to ``free`` in all, of which up to ``slow`` slow ones."""
        now = self._runtime.clock.now()
        with self._runtime.database.read() as session:
            if free < 1 or not deliveries.is_any(session, now):
                return []
        until = self._until(now)
        found = self._runtime.database.write(
            lambda session: deliveries.claim(session, self._owner, now, until, (free, slow))
        )
        with self._done:
            return [one for one in found if one[0] not in self._running]

    def _until(self, now: datetime) -> datetime:
        """Return how long a claim lasts: longer than any delivery."""
        timeout = timedelta(seconds=2 * self._runtime.settings.webhooks.timeout)
        return now + timeout + self._runtime.settings.claim_timeout

    def _run(self, subscription_id: str) -> None:
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
            self._loop.wake()

    def _serve(self, subscription_id: str) -> int:
        """Deliver for one turn, then give the claim back; return how many were tried."""
        ends = time.monotonic() + _TURN
        count = 0
        while count < _MESSAGES and time.monotonic() < ends and not self._loop.is_stopping:
            delivery = self._next(subscription_id)
            if delivery is None:
                return count
            payload = payload_when_sent(delivery.notification, delivery.at)
            outcome = self._poster.post(delivery, payload)
            count += 1
            if not self._note(delivery, outcome):
                return count
        self._note_end(subscription_id, due_at=self._runtime.clock.now())
        return count

    def _next(self, subscription_id: str) -> Delivery | None:
        """Return what is to be sent next; gives the claim back if there is nothing."""
        with self._runtime.database.read() as session:
            mine = deliveries.find_mine(session, subscription_id, self._owner)
            if mine is None:
                return None
            found, secret = mine
            letter = subscriptions.next_dead_letter(session, subscription_id)
            after = found.done_seq if letter is None else letter.seq - 1
            wanted = found.wanted if letter is None else NotificationFilter()
            part = outbox.find_after(session, wanted, after, 1)
            removed = outbox.removed_seq(session)
        if found.done_seq < removed:
            self._suspend(found, f"notifications up to {removed} were removed before it got them")
            return None
        if not part.notifications:
            self._note_end(subscription_id, done_seq=part.after)
            return None
        return Delivery(
            subscription=found,
            secret=secret,
            notification=part.notifications[0],
            letter=letter,
            at=self._runtime.clock.now(),
        )

    def _note(self, delivery: Delivery, outcome: Outcome) -> bool:
        """Store what became of a delivery; tell whether the turn goes on."""
        if outcome.reason is None:
            return self._note_taken(delivery, outcome)
        found, rules = delivery.subscription, self._runtime.settings.webhooks
        verdict = judge(found, outcome, rules, self._runtime.rng.random())
        if delivery.letter is not None and verdict.suspend is None:
            verdict = Verdict(pause=verdict.pause, give_up=True)
        LOG.info("subscription %s: not delivered: %s", found.id, outcome.reason)
        self._note_failed(delivery, outcome.reason, verdict)
        return False

    def _note_taken(self, delivery: Delivery, outcome: Outcome) -> bool:
        now = self._runtime.clock.now()
        found, seq = delivery.subscription, delivery.notification.seq
        values: dict[str, Any] = {"given_up": 0, "slow": outcome.slow, "delivered_at": now}
        values |= {"claimed_until": self._until(now), "reason": None}
        if delivery.letter is None:
            values |= {"done_seq": seq, "attempts": 0}
        return self._store(
            found.id,
            lambda session: subscriptions.remove_dead_letter(session, found.id, seq),
            **values,
        )

    def _note_failed(self, delivery: Delivery, reason: str, verdict: Verdict) -> None:
        """Store when to try again, or that this one is put aside, or that there is an end to it."""
        now = self._runtime.clock.now()
        found, letter = delivery.subscription, delivery.letter
        values: dict[str, Any] = {"slow": True, "due_at": later(now, verdict.pause)}
        values |= {"reason": verdict.suspend or reason, "owner": None, "claimed_until": None}
        if letter is None and verdict.give_up:
            values |= {"done_seq": delivery.notification.seq, "attempts": 0}
            values |= {"given_up": found.given_up + 1}
        elif letter is None:
            values |= {"attempts": found.attempts + 1}
        if verdict.suspend is not None:
            values |= {"status": SubscriptionStatus.SUSPENDED.value}
        dead = DeadLetter(
            subscription_id=found.id,
            seq=delivery.notification.seq,
            attempts=(letter or found).attempts + 1,
            reason=reason,
            wanted=False,
            failed_at=now,
        )

        def work(session: Session) -> None:
            if verdict.give_up or letter is not None:
                subscriptions.add_dead_letter(session, dead)
            if verdict.suspend is not None:
                self._tell(session, found, verdict.suspend)

        self._store(found.id, work, **values)

    def _suspend(self, found: Subscription, reason: str) -> None:
        """Send no more before the owner says where to go on."""
        self._store(
            found.id,
            lambda session: self._tell(session, found, reason),
            status=SubscriptionStatus.SUSPENDED.value,
            reason=reason,
            owner=None,
            claimed_until=None,
        )

    def _tell(self, session: Session, found: Subscription, reason: str) -> None:
        """Write the notification that a subscription is suspended, for its owner."""
        LOG.warning("subscription %s of %s is suspended: %s", found.id, found.project_id, reason)
        payload = {
            "subscription_id": found.id,
            "project_id": found.project_id,
            "user_id": found.user_id,
            "reason": reason,
        }
        outbox.write(session, "subscription.suspended", payload, self._runtime.clock.now())

    def _note_end(self, subscription_id: str, **values: Any) -> None:
        """Give a claim back."""
        self._store(subscription_id, None, owner=None, claimed_until=None, **values)

    def _store(
        self, subscription_id: str, more: Callable[[Session], object] | None, **values: Any
    ) -> bool:
        """Store how a claim of ours goes on, and ``more`` with it; False if it is not ours."""

        def work(session: Session) -> bool:
            mine = deliveries.note(session, subscription_id, self._owner, values)
            if mine and more is not None:
                more(session)
            return mine

        mine = self._runtime.database.write(work)
        if "status" in values:
            self._runtime.wakeup.hint()
        return mine
