"""Chooses what a manager delivers next to a subscription that it has claimed."""

from datetime import datetime

from sqlalchemy.orm import Session

from climate.core.notifications.mail import MOST_IN_DIGEST, MOST_LISTED, period_start, zone
from climate.core.notifications.message import NotificationFilter
from climate.core.notifications.subscription import (
    Confirmation,
    DeadLetter,
    Delivery,
    Digest,
    Subscription,
)
from climate.db.notifications import outbox, subscription_queue, subscriptions
from climate.manager.notifications.delivery_results import Results
from climate.manager.process.runtime import Runtime


def next_delivery(
    runtime: Runtime, results: Results, subscription_id: str, owner: str
) -> Delivery | Confirmation | None:
    """Return the next delivery of a subscription that the manager ``owner`` has claimed.

    Returns None in four cases:

    - There is nothing to deliver. In this case, the function releases the claim.
    - The digest is not due. In this case, it releases the claim until the next period.
    - Notifications were removed before their delivery. In this case, it suspends the subscription.
    - The manager has lost the claim.
    """
    now = runtime.clock.now()
    with runtime.database.read() as session:
        claimed = subscription_queue.find_mine(session, subscription_id, owner)
        if claimed is None:
            return None
        subscription, secret = claimed
        removed = outbox.removed_seq(session)
        letter = subscriptions.next_dead_letter(session, subscription_id)
    if not subscription.is_confirmed:
        return Confirmation(subscription=subscription, secret=secret, at=now)
    if subscription.done_seq < removed:
        reason = f"notifications up to {removed} were removed before it got them"
        results.suspend(subscription, reason)
        return None
    if subscription.is_digest:
        return _digest(runtime, results, subscription, secret, letter)
    return _single(runtime, results, subscription, secret, letter)


def _single(
    runtime: Runtime,
    results: Results,
    subscription: Subscription,
    secret: str,
    letter: DeadLetter | None,
) -> Delivery | None:
    """Return the delivery of one notification; None, and no claim, if there is none."""
    after = subscription.done_seq if letter is None else letter.seq - 1
    wanted = subscription.wanted if letter is None else NotificationFilter()
    with runtime.database.read() as session:
        part = outbox.find_after(session, wanted, after, 1)
    if not part.notifications:
        results.release(subscription.id, done_seq=part.after)
        return None
    return Delivery(
        subscription=subscription,
        secret=secret,
        notification=part.notifications[0],
        letter=letter,
        at=runtime.clock.now(),
    )


def _digest(
    runtime: Runtime,
    results: Results,
    subscription: Subscription,
    secret: str,
    letter: DeadLetter | None,
) -> Delivery | None:
    """Return the delivery of a digest; None, and no claim, if none is due.

    A digest covers what was written before the present period began. So there is at most one digest
    in each period. Dead letters that the owner requested again come at once, in a mail of their
    own.
    """
    now, id_ = runtime.clock.now(), subscription.id
    with runtime.database.read() as session:
        through = _through(runtime, session, subscription, now)
        if letter is not None:
            seqs = subscriptions.wanted_seqs(session, id_, MOST_IN_DIGEST)
        else:
            done, wanted = subscription.done_seq, subscription.wanted
            seqs = outbox.matching_seqs(session, wanted, done, through, MOST_IN_DIGEST)
        listed = outbox.find_some(session, seqs[:MOST_LISTED])
    if not seqs:
        results.wait_for_period(subscription, done_seq=max(through, subscription.done_seq))
        return None
    if not listed:  # they were removed just now, which the next turn finds
        results.release(id_)
        return None
    if letter is None and not results.fix_digest(subscription, seqs[-1]):
        return None
    return Delivery(
        subscription=subscription,
        secret=secret,
        notification=listed[0],
        letter=letter,
        at=now,
        digest=Digest(seqs=seqs, listed=listed),
    )


def _through(runtime: Runtime, session: Session, subscription: Subscription, now: datetime) -> int:
    """Return the number up to which the digest goes; that of the last one if none is due yet."""
    if subscription.digest_through is not None:
        return subscription.digest_through
    email, of = runtime.settings.email, zone(subscription.time_zone)
    hour = email.daily_hour if email is not None else 0
    began = period_start(now, subscription.frequency, of, hour)
    if subscription.delivered_at is not None and subscription.delivered_at >= began:
        return subscription.done_seq
    return outbox.last_before(session, began)
