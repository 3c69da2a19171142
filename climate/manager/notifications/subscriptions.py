"""Use cases of subscriptions to notifications, and of their dead letters.

A subscription delivers notifications to the URL of a subscriber. A dead letter is a notification
that climate gave up delivering. If a user changes a subscription, the change takes effect with the
next notification.

While a manager delivers, it holds a claim on the subscription: only the manager with the claim may
store the result of a delivery. A user's change removes the claim. So the result of a delivery that
is in progress cannot overwrite the change.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from climate.core.errors import Conflict, LimitExceeded, NotificationsRemoved
from climate.core.notifications.message import NotificationFilter
from climate.core.notifications.subscription import Subscription, SubscriptionStatus
from climate.db.engine import ids
from climate.db.engine.database import Database
from climate.db.notifications import outbox, subscriptions
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
    notification: delivery continues with the notifications after it.
    """

    url: str | None = None
    secret: str | None = None
    wanted: Mapping[str, Any]
    status: SubscriptionStatus | None = None
    after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The owner of a subscription, and whether the subscription covers all projects."""

    project_id: str
    user_id: str
    all_projects: bool


def create(runtime: Runtime, owner: Owner, url: str, secret: str, settings: Change) -> Subscription:
    """Create a subscription, which delivers notifications to ``url``; return the subscription.

    From ``settings``, the function uses only the filters (``wanted``) and ``after``. Delivery
    begins with the first notification whose number is above ``after`` (None: with the next new
    notification). Raises LimitExceeded. Raises NotificationsRemoved if notifications above
    ``after`` have been removed.
    """
    rules = runtime.settings.webhooks
    most, stored = rules.per_project, encrypt(secret, rules.secret_keys)
    now = runtime.clock.now()

    def work(session: Session) -> Subscription:
        created = Subscription(
            id=ids.new_id(),
            project_id=owner.project_id,
            user_id=owner.user_id,
            url=url,
            wanted=NotificationFilter(**settings.wanted),
            all_projects=owner.all_projects,
            done_seq=_start(session, settings.after),
            created_at=now,
        )
        if not subscriptions.insert(session, created, stored, most):
            raise LimitExceeded(
                f"Project {owner.project_id} already has {most} subscriptions, the maximum: remove"
                " one first"
            )
        return created

    return runtime.database.write(work)


def update(runtime: Runtime, subscription_id: str, change: Change) -> Subscription:
    """Change a subscription, reset its count of failures, and return the changed subscription.

    Raises NotFound. Raises NotificationsRemoved if the next notifications to deliver have already
    been removed.
    """
    now = runtime.clock.now()
    if change.secret is not None:
        keys = runtime.settings.webhooks.secret_keys
        change = replace(change, secret=encrypt(change.secret, keys))

    def work(session: Session) -> Subscription:
        before = subscriptions.get(session, subscription_id, lock=True)
        values = _values(session, before, change)
        reset = {"attempts": 0, "given_up": 0, "reason": None, "due_at": now, "slow": False}
        unclaimed = {"owner": None, "claimed_until": None}
        subscriptions.update(session, subscription_id, now, **reset, **unclaimed, **values)
        return subscriptions.get(session, subscription_id)

    changed = runtime.database.write(work)
    runtime.news.hint()
    return changed


def _values(session: Session, before: Subscription, change: Change) -> dict[str, Any]:
    plain = {"url": change.url, "secret": change.secret}
    values: dict[str, Any] = {name: value for name, value in plain.items() if value is not None}
    if change.after is not None:
        values["done_seq"] = _start(session, change.after)
    if change.wanted:
        values["filters"] = subscriptions.filters(replace(before.wanted, **change.wanted))
    if change.status is not None:
        values["status"] = change.status.value
    is_active = (change.status or before.status) is SubscriptionStatus.ACTIVE
    if is_active and change.after is None:
        _start(session, before.done_seq)
    return values


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
