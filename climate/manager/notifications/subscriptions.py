"""Use cases of subscriptions to notifications, and of their dead letters.

A subscription delivers notifications to the URL or the e-mail address of a subscriber. A dead
letter is a notification that climate gave up delivering. If a user changes a subscription, the
change takes effect with the next notification. A new e-mail address gets nothing but a
confirmation, until its owner has used the link in it.

While a manager delivers, it holds a claim on the subscription: only the manager with the claim may
store the result of a delivery. A user's change removes the claim. So the result of a delivery that
is in progress cannot overwrite the change.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from climate.core.errors import (
    Conflict,
    LimitExceeded,
    NotificationsRemoved,
    TooManyConfirmations,
)
from climate.core.notifications import mail
from climate.core.notifications.message import NotificationFilter
from climate.core.notifications.subscription import (
    Format,
    Frequency,
    Kind,
    Subscription,
    SubscriptionStatus,
)
from climate.db.engine import ids
from climate.db.engine.database import Database
from climate.db.notifications import confirmations, outbox, subscriptions
from climate.manager.process.runtime import Runtime, reading
from climate.notifications.secret_encryption import UnreadableSecret, decrypt, encrypt

get = reading(subscriptions.get)
find_all = reading(subscriptions.find_all)
find_dead_letters = reading(subscriptions.find_dead_letters)
count_dead_letters = reading(subscriptions.count_dead_letters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of a subscription. If a field is None, the stored value stays.

    ``wanted`` contains only the filters to change, by name. ``after`` is the number of a
    notification: delivery continues with the notifications after it. ``before_start_leads`` are the
    numbers of seconds before the start of a lease at which the subscriber wants reminders.
    """

    url: str | None = None
    secret: str | None = None
    wanted: Mapping[str, Any]
    status: SubscriptionStatus | None = None
    after: int | None = None
    format: Format | None = None
    frequency: Frequency | None = None
    time_zone: str | None = None
    before_start_leads: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class New:
    """A subscription to create: its owner, and where its notifications go.

    ``secret`` is the key for signatures. If it is None, climate makes one. ``all_projects`` states
    whether the subscription covers all projects.
    """

    project_id: str
    user_id: str
    all_projects: bool
    kind: Kind
    url: str
    secret: str | None


def create(runtime: Runtime, new: New, settings: Change) -> Subscription:
    """Create a subscription, and return it.

    From ``settings``, the function does not use ``url``, ``secret`` and ``status``. Delivery begins
    with the first notification whose number is above ``after`` (None: with the next new
    notification). By e-mail, it begins when the address is confirmed. Raises LimitExceeded,
    TooManyConfirmations. Raises NotificationsRemoved if notifications above ``after`` have been
    removed.
    """
    rules, email = runtime.settings.webhooks, runtime.settings.email
    stored = encrypt(new.secret or mail.new_secret(), rules.secret_keys)
    is_email = new.kind is Kind.EMAIL
    most = email.per_project if is_email and email is not None else rules.per_project
    now = runtime.clock.now()

    def work(session: Session) -> Subscription:
        created = _new(new, settings, _start(session, settings.after), now)
        if not subscriptions.insert(session, created, stored, most):
            raise LimitExceeded(
                f"Project {new.project_id} already has {most} subscriptions, the maximum: remove"
                " one first"
            )
        if is_email:
            _reserve_confirmation(runtime, session, created)
        return created

    created = runtime.database.write(work)
    if is_email:
        runtime.news.hint()  # a manager sends the confirmation
    return created


def _new(new: New, settings: Change, done_seq: int, now: datetime) -> Subscription:
    return Subscription(
        id=ids.new_id(),
        project_id=new.project_id,
        user_id=new.user_id,
        url=new.url,
        wanted=NotificationFilter(**settings.wanted),
        all_projects=new.all_projects,
        done_seq=done_seq,
        created_at=now,
        kind=new.kind,
        format=settings.format or Format.CLOUDEVENTS,
        frequency=settings.frequency or Frequency.IMMEDIATE,
        time_zone=settings.time_zone or "UTC",
        before_start_leads=settings.before_start_leads or (),
        confirm_requested_at=now if new.kind is Kind.EMAIL else None,
    )


def update(runtime: Runtime, subscription_id: str, change: Change) -> Subscription:
    """Change a subscription, reset its count of failures, and return the changed subscription.

    A new e-mail address must be confirmed. If an address is not confirmed, the status ACTIVE
    requests another confirmation. Raises NotFound, TooManyConfirmations. Raises
    NotificationsRemoved if the next notifications to deliver have already been removed.
    """
    now = runtime.clock.now()
    if change.secret is not None:
        keys = runtime.settings.webhooks.secret_keys
        change = replace(change, secret=encrypt(change.secret, keys))

    def work(session: Session) -> Subscription:
        before = subscriptions.get(session, subscription_id, lock=True)
        values = _values(session, before, change) | _confirmation(runtime, session, before, change)
        values |= _leads(before, change, now)
        reset = {"attempts": 0, "given_up": 0, "reason": None, "due_at": now, "slow": False}
        reset["digest_through"] = None
        unclaimed = {"owner": None, "claimed_until": None}
        subscriptions.update(session, subscription_id, now, **reset, **unclaimed, **values)
        return subscriptions.get(session, subscription_id)

    changed = runtime.database.write(work)
    runtime.news.hint()
    return changed


def _confirmation(
    runtime: Runtime, session: Session, before: Subscription, change: Change
) -> dict[str, Any]:
    """Return the values to store if the change requires a confirmation of the address.

    A new address gets a new secret, so that the links in earlier mails become invalid. Raises
    TooManyConfirmations.
    """
    if before.kind is not Kind.EMAIL:
        return {}
    is_new = change.url is not None and change.url != before.url
    is_requested = before.confirm_requested_at is not None and before.confirm_sent_at is None
    is_pending = is_requested and before.status is SubscriptionStatus.ACTIVE
    is_resumed = change.status is SubscriptionStatus.ACTIVE
    if not is_new and (before.is_confirmed or is_pending or not is_resumed):
        return {}
    _reserve_confirmation(runtime, session, replace(before, url=change.url or before.url))
    values: dict[str, Any] = {"confirmed_at": None, "confirm_sent_at": None}
    values["confirm_requested_at"] = runtime.clock.now()
    if is_new:
        values["secret"] = encrypt(mail.new_secret(), runtime.settings.webhooks.secret_keys)
    return values


def _reserve_confirmation(runtime: Runtime, session: Session, subscription: Subscription) -> None:
    """Count a confirmation to the address of ``subscription``; raise TooManyConfirmations."""
    email, now = runtime.settings.email, runtime.clock.now()
    address = mail.address_of(subscription.url)
    if email is None or address is None:
        return
    for bucket, most, whose in (
        (mail.mailbox_key(address), email.confirmations_per_address, "to this address"),
        (
            mail.hashed(f"project {subscription.project_id}"),
            email.confirmations_per_project,
            f"for project {subscription.project_id}",
        ),
    ):
        if not confirmations.reserve(session, bucket, most, now):
            raise TooManyConfirmations(
                f"climate sends at most {most} confirmations in an hour {whose}: try again later"
            )


def _values(session: Session, before: Subscription, change: Change) -> dict[str, Any]:
    names = ("url", "secret", "time_zone", "format", "frequency")
    given = {name: getattr(change, name) for name in names}
    values: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if change.after is not None:
        values["done_seq"] = _start(session, change.after)
    if change.wanted:
        values["filters"] = subscriptions.filters(replace(before.wanted, **change.wanted))
    if change.status is not None:
        values["status"] = change.status.value
    is_active = (change.status or before.status) is SubscriptionStatus.ACTIVE
    if is_active and change.after is None and before.is_confirmed:
        _start(session, before.done_seq)
    return values


def _leads(before: Subscription, change: Change, now: datetime) -> dict[str, Any]:
    """Return the values to store so that reminders due from ``now`` on are sent."""
    if change.before_start_leads is not None:
        return subscriptions.leads(change.before_start_leads, now)
    if change.status is SubscriptionStatus.ACTIVE:
        return subscriptions.leads(before.before_start_leads, now)
    return {}


def _start(session: Session, after: int | None) -> int:
    """Return the number of the notification after which delivery starts.

    This is ``after``, or the number of the newest notification if ``after`` is None. Raises
    NotificationsRemoved if notifications above ``after`` have been removed.
    """
    if after is None:
        return outbox.last_seq(session)
    removed = outbox.removed_seq(session)
    if after < removed:
        raise NotificationsRemoved(
            f"Notifications up to {removed} have been removed, so some after {after} cannot be"
            f' delivered: continue with "after": {removed} or later',
            {"oldest": removed + 1},
        )
    return after


def delete(runtime: Runtime, subscription_id: str) -> None:
    """Remove a subscription with its dead letters. Do nothing if there is no such subscription.

    A delivery that is in progress may still arrive.
    """
    runtime.database.write(lambda session: subscriptions.delete(session, subscription_id))


def redeliver(runtime: Runtime, subscription_id: str, seqs: Collection[int] | None) -> int:
    """Request that climate delivers dead letters (undeliverable notifications) once more.

    ``seqs`` are the numbers of the notifications (None: all dead letters of the subscription).
    Returns how many dead letters will be delivered. Raises NotFound. Raises Conflict if the
    subscription is suspended.
    """

    def work(session: Session) -> int:
        subscription = subscriptions.get(session, subscription_id, lock=True)
        if subscription.status is not SubscriptionStatus.ACTIVE:
            raise Conflict(
                f"Subscription {subscription_id} is suspended, and delivers nothing: set its status"
                ' to "active" first'
            )
        subscriptions.update(
            session, subscription_id, runtime.clock.now(), due_at=subscription.created_at
        )
        return subscriptions.want_dead_letters(session, subscription_id, seqs)

    count = runtime.database.write(work)
    runtime.news.hint()
    return count


def encrypt_secrets(database: Database, keys: Sequence[str]) -> tuple[int, list[str]]:
    """Encrypt all stored secrets of subscriptions with the first of ``keys``.

    Secrets that were stored in clear text are encrypted as well. If ``keys`` is empty, they stay in
    clear text. Returns the number of all secrets, and the ids of the subscriptions whose secrets
    cannot be decrypted with any of the keys.
    """
    with database.read() as session:
        secrets = subscriptions.secrets(session)
    unreadable: list[str] = []
    for id_, stored in secrets.items():
        try:
            encrypted = encrypt(decrypt(stored, keys), keys)
        except UnreadableSecret:
            unreadable.append(id_)
            continue
        database.write(
            partial(subscriptions.replace_secret, subscription_id=id_, stored=stored, new=encrypted)
        )
    return len(secrets), unreadable
