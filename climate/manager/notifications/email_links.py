"""Use cases of the secret links in mails: confirm an address, and end a subscription.

A link works without a sign-in. It contains a token that only the owner of the address has received.
All links that do not work get the same error.
"""

import hmac
import logging
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from climate.core.errors import NotFound
from climate.core.notifications import mail
from climate.core.notifications.mail import CONFIRMED_WITHIN, Purpose
from climate.core.notifications.subscription import Kind, Subscription, SubscriptionStatus
from climate.db.notifications import confirmations, outbox, subscriptions
from climate.manager.notifications.delivery_results import notify_suspended
from climate.manager.process.runtime import Runtime, Store
from climate.notifications.secret_encryption import UnreadableSecret, decrypt

LOG = logging.getLogger(__name__)

_ABSENT = "This link does not work: it is not complete, too old, or of a subscription that is gone"
UNSUBSCRIBED = "the receiver of the mails has unsubscribed"


def find(runtime: Runtime, link: str, purpose: Purpose) -> Subscription:
    """Return the subscription to which a link belongs. Changes nothing. Raises NotFound."""
    with runtime.database.read() as session:
        return _find(runtime, session, link, purpose, lock=False)


def confirm(runtime: Runtime, link: str) -> Subscription:
    """Confirm the address of a subscription: from now on, climate sends it notifications.

    Notifications from before are not sent. A suspended subscription stays suspended. Raises
    NotFound. A second call changes nothing.
    """

    def work(session: Session) -> Subscription:
        subscription = _find(runtime, session, link, Purpose.CONFIRM, lock=True)
        if subscription.is_confirmed:
            return subscription
        now = runtime.clock.now()
        values: dict[str, Any] = {"confirmed_at": now, "due_at": now}
        if subscription.status is SubscriptionStatus.ACTIVE:
            values["reason"] = None
        values |= {
            "slow": False,
            "attempts": 0,
            "given_up": 0,
            "done_seq": outbox.last_seq(session),
        }
        unclaimed = {"owner": None, "claimed_until": None}
        subscriptions.update(session, subscription.id, now, **values, **unclaimed)
        return subscriptions.get(session, subscription.id)

    return runtime.database.write(work)


def unsubscribe(runtime: Runtime, link: str) -> Subscription:
    """End a subscription: climate sends nothing more, until the address is confirmed again.

    The project of the subscription gets a notification. Raises NotFound. A second call changes
    nothing.
    """

    def work(session: Session) -> Subscription:
        subscription = _find(runtime, session, link, Purpose.UNSUBSCRIBE, lock=True)
        if not subscription.is_confirmed:
            return subscription
        now = runtime.clock.now()
        names = ("confirmed_at", "confirm_requested_at", "confirm_sent_at")
        values: dict[str, Any] = dict.fromkeys(names)
        values |= {"status": SubscriptionStatus.SUSPENDED.value, "reason": UNSUBSCRIBED}
        unclaimed = {"owner": None, "claimed_until": None}
        subscriptions.update(session, subscription.id, now, **values, **unclaimed)
        notify_suspended(session, subscription, UNSUBSCRIBED, now)
        return subscriptions.get(session, subscription.id)

    unsubscribed = runtime.database.write(work)
    runtime.wakeup.hint()
    return unsubscribed


def remove_old_confirmations(store: Store) -> None:
    """Remove records of confirmations that no limit counts any more."""
    before = store.clock.now() - mail.LIMITED_TIME
    store.database.write(partial(confirmations.remove_old, before=before))


def _find(
    runtime: Runtime, session: Session, link: str, purpose: Purpose, *, lock: bool
) -> Subscription:
    """Return the subscription of a valid link; if ``lock`` is set, lock its row until the commit.

    Raises NotFound.
    """
    subscription_id = mail.subscription_id_of(link)
    if subscription_id is None:
        raise NotFound(_ABSENT)
    try:
        subscription = subscriptions.get(session, subscription_id, lock=lock)
        stored = subscriptions.secret_of(session, subscription_id)
        secret = decrypt(stored, runtime.settings.webhooks.secret_keys)
    except NotFound:
        raise NotFound(_ABSENT) from None
    except UnreadableSecret as error:
        LOG.warning(
            "cannot check the link in a mail of subscription %s: %s", subscription_id, error
        )
        raise NotFound(_ABSENT) from None
    # The owner of a webhook knows its secret, so it must not open a link.
    is_valid = subscription.kind is Kind.EMAIL and hmac.compare_digest(
        link, mail.link(subscription, secret, purpose)
    )
    if not is_valid or not _is_open(runtime, subscription, purpose):
        raise NotFound(_ABSENT)
    return subscription


def _is_open(runtime: Runtime, subscription: Subscription, purpose: Purpose) -> bool:
    """Return whether the link can be used now. A confirmation expires some days after its mail.

    The time counts from the mail and not from the request, because the mail can be late.
    """
    if purpose is Purpose.UNSUBSCRIBE:
        return True
    if subscription.confirm_requested_at is None:
        return False
    now = runtime.clock.now()
    sent = subscription.confirm_sent_at or now
    return subscription.is_confirmed or now <= sent + CONFIRMED_WITHIN
