"""Results of deliveries: a manager stores them while it has the claim on the subscription."""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from climate.core.notifications import event_type
from climate.core.notifications.mail import next_period, zone
from climate.core.notifications.subscription import (
    Confirmation,
    DeadLetter,
    Delivery,
    Kind,
    Outcome,
    Subscription,
    SubscriptionStatus,
    Verdict,
    WebhookRules,
    judge,
)
from climate.db.notifications import outbox, subscription_queue, subscriptions
from climate.manager.process.runtime import Runtime

LOG = logging.getLogger(__name__)

# The columns of a subscription without a claim.
_UNCLAIMED = {"owner": None, "claimed_until": None}


class Results:
    """Stores the results of deliveries while this manager has the claim on the subscription.

    ``owner`` is the name of this manager.
    """

    def __init__(self, runtime: Runtime, owner: str) -> None:
        self._runtime, self._owner = runtime, owner

    def claimed_until(self, now: datetime) -> datetime:
        """Return when a claim made at ``now`` expires.

        The claim lasts longer than a delivery can take.
        """
        settings = self._runtime.settings
        longest = max(settings.webhooks.timeout, settings.email.timeout if settings.email else 0.0)
        return now + timedelta(seconds=2 * longest) + settings.claim_timeout

    def note(self, delivery: Delivery | Confirmation, outcome: Outcome) -> bool:
        """Store the outcome of a delivery; return whether to continue with the next delivery."""
        if outcome.reason is None:
            if isinstance(delivery, Confirmation):
                return self._note_confirmation_sent(delivery)
            return self._note_success(delivery, outcome)
        subscription = delivery.subscription
        rules = self._rules(subscription)
        verdict = judge(subscription, outcome, rules, self._runtime.rng.random())
        LOG.info("subscription %s: a delivery failed: %s", subscription.id, outcome.reason)
        if isinstance(delivery, Confirmation):
            self._note_confirmation_failed(delivery, outcome.reason, verdict)
            return False
        if delivery.letter is not None and verdict.suspend is None and verdict.counts:
            verdict = Verdict(pause=verdict.pause, give_up=True)
        self._note_failure(delivery, outcome.reason, verdict)
        return False

    def _rules(self, subscription: Subscription) -> WebhookRules:
        """Return the rules that decide about retries: e-mail has a maximum of its own."""
        rules, email = self._runtime.settings.webhooks, self._runtime.settings.email
        if subscription.kind is Kind.EMAIL and email is not None:
            return replace(rules, attempts=email.attempts)
        return rules

    def suspend(self, subscription: Subscription, reason: str) -> None:
        """Suspend a subscription for ``reason``, and write a notification.

        A suspended subscription delivers nothing until its owner activates it again.
        """
        self._store(
            subscription.id,
            lambda session: notify_suspended(session, subscription, reason, self._now()),
            **_UNCLAIMED,
            status=SubscriptionStatus.SUSPENDED.value,
            reason=reason,
        )

    def release(self, subscription_id: str, **values: Any) -> None:
        """Release the claim on a subscription, and store ``values`` in its row."""
        self._store(subscription_id, None, **_UNCLAIMED, **values)

    def fix_digest(self, subscription: Subscription, through: int) -> bool:
        """Store the number with which a digest ends; return False if the claim is lost.

        So the digest has the same content, and the same Message-ID, in each attempt.
        """
        return self._store(subscription.id, None, digest_through=through)

    def wait_for_period(self, subscription: Subscription, **values: Any) -> None:
        """Release the claim until the next period of the digest; store ``values``."""
        due_at = self._next_period(subscription)
        self.release(subscription.id, due_at=due_at, digest_through=None, **values)

    def _next_period(self, subscription: Subscription) -> datetime:
        email, of = self._runtime.settings.email, zone(subscription.time_zone)
        hour = email.daily_hour if email is not None else 0
        return next_period(self._now(), subscription.frequency, of, hour)

    def _note_success(self, delivery: Delivery, outcome: Outcome) -> bool:
        now, subscription = self._now(), delivery.subscription
        id_, seqs = subscription.id, delivery.seqs
        values: dict[str, Any] = {"given_up": 0, "slow": outcome.slow, "reason": None}
        values["claimed_until"] = self.claimed_until(now)
        if delivery.letter is None:
            values |= {"done_seq": seqs[-1], "attempts": 0, "digest_through": None}
        if delivery.letter is None or not subscription.is_digest:
            # A redelivered dead letter does not take the place of the digest of the period.
            values["delivered_at"] = now
        return self._store(
            id_, lambda session: subscriptions.remove_dead_letters(session, id_, seqs), **values
        )

    def _note_confirmation_sent(self, delivery: Confirmation) -> bool:
        """Store that the confirmation was sent, and release the claim; return False."""
        now = self._now()
        self.release(delivery.subscription.id, confirm_sent_at=now, attempts=0, reason=None)
        return False

    def _note_confirmation_failed(
        self, delivery: Confirmation, reason: str, verdict: Verdict
    ) -> None:
        """Store that the confirmation was not sent: retry it, or suspend the subscription."""
        subscription = delivery.subscription
        if verdict.give_up or verdict.suspend is not None:
            self.suspend(subscription, f"the confirmation was not delivered: {reason}")
            return
        due_at = self._now() + timedelta(seconds=verdict.pause)
        attempts = subscription.attempts + verdict.counts
        values = {"slow": True, "due_at": due_at, "reason": reason, "attempts": attempts}
        self.release(subscription.id, **values)

    def _note_failure(self, delivery: Delivery, reason: str, verdict: Verdict) -> None:
        """Store that a delivery failed for ``reason``, apply ``verdict``, and release the claim.

        The verdict is one of these:

        - Retry the delivery after a pause.
        - Give up, and store the notification as a dead letter.
        - Suspend the subscription, so that it delivers nothing, and write a notification.

        If the failed delivery was another attempt for a dead letter (a notification that climate
        had given up before), the notification remains a dead letter in all cases. If the mail
        server of climate failed, the requested delivery of the dead letter remains requested.
        """
        now = self._now()
        subscription, letter = delivery.subscription, delivery.letter
        due_at = now + timedelta(seconds=verdict.pause)
        values: dict[str, Any] = {"slow": True, "due_at": due_at, **_UNCLAIMED}
        values["reason"] = verdict.suspend or reason
        if letter is None and verdict.give_up:
            values |= {"done_seq": delivery.seqs[-1], "attempts": 0, "digest_through": None}
            values |= {"given_up": subscription.given_up + 1}
        elif letter is None:
            values["attempts"] = subscription.attempts + verdict.counts
        if verdict.suspend is not None:
            values["status"] = SubscriptionStatus.SUSPENDED.value
        attempts = (letter or subscription).attempts + 1

        def work(session: Session) -> None:
            if verdict.give_up or (letter is not None and verdict.counts):
                for seq in delivery.seqs:
                    dead = _dead_letter(subscription, seq, attempts, reason, now)
                    subscriptions.add_dead_letter(session, dead)
            if verdict.suspend is not None:
                notify_suspended(session, subscription, verdict.suspend, now)

        self._store(subscription.id, work, **values)

    def _now(self) -> datetime:
        return self._runtime.clock.now()

    def _store(
        self, subscription_id: str, more: Callable[[Session], object] | None, **values: Any
    ) -> bool:
        """Store ``values`` in the row of a subscription; return whether this manager had the claim.

        If this manager has lost the claim on the subscription, the method stores nothing and
        returns False. Otherwise, it also calls the function ``more``, which stores further rows in
        the same transaction (None: there are no further rows).
        """

        def work(session: Session) -> bool:
            has_claim = subscription_queue.note(session, subscription_id, self._owner, values)
            if has_claim and more is not None:
                more(session)
            return has_claim

        has_claim = self._runtime.database.write(work)
        if "status" in values:
            self._runtime.wakeup.hint()
        return has_claim


def notify_suspended(
    session: Session, subscription: Subscription, reason: str, now: datetime
) -> None:
    """Write the notification that a subscription is suspended for ``reason``."""
    id_, project_id = subscription.id, subscription.project_id
    LOG.warning("suspended subscription %s of project %s: %s", id_, project_id, reason)
    payload = {
        "subscription_id": id_,
        "project_id": project_id,
        "user_id": subscription.user_id,
        "reason": reason,
    }
    outbox.write(session, event_type.SUBSCRIPTION_SUSPENDED, payload, now)


def _dead_letter(
    subscription: Subscription, seq: int, attempts: int, reason: str, now: datetime
) -> DeadLetter:
    return DeadLetter(
        subscription_id=subscription.id,
        seq=seq,
        attempts=attempts,
        reason=reason,
        wanted=False,
        failed_at=now,
    )
