"""The use cases of subscriptions: made, shown, changed and removed, and what was not taken.

A change takes effect with the next notification. Who changes a subscription takes it from the
manager that is at it, so that manager's result cannot overwrite the change.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from climate.core.errors import Conflict, LimitExceeded, NotificationsRemoved
from climate.core.notifications.message import NotificationFilter
from climate.core.notifications.subscription import DeadLetter, Subscription, SubscriptionStatus
from climate.db.engine import ids
from climate.db.notifications import outbox, subscriptions
from climate.manager.process.runtime import Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is to change; None stays as it is. ``wanted`` has the filters that were named."""

    url: str | None = None
    secret: str | None = None
    wanted: Mapping[str, Any]
    status: SubscriptionStatus | None = None
    after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who subscribes, and whether to what happens in all projects."""

    project_id: str
    user_id: str
    all_projects: bool


def create(runtime: Runtime, owner: Owner, url: str, secret: str, asked: Change) -> Subscription:
    """Subscribe, to what comes after ``asked.after`` (None: from now on).

    Raises LimitExceeded, NotificationsRemoved.
    """
    most = runtime.settings.webhooks.per_project
    now = runtime.clock.now()

    def work(session: Session) -> Subscription:
        made = Subscription(
            id=ids.new_id(),
            project_id=owner.project_id,
            user_id=owner.user_id,
            url=url,
            wanted=NotificationFilter(**asked.wanted),
            all_projects=owner.all_projects,
            status=SubscriptionStatus.ACTIVE,
            reason=None,
            done_seq=_start(session, asked.after),
            attempts=0,
            given_up=0,
            slow=False,
            delivered_at=None,
            created_at=now,
            updated_at=None,
        )
        if not subscriptions.insert(session, made, secret, most):
            raise LimitExceeded(
                f"Project {owner.project_id} has {most} subscriptions already, which is all that"
                " it may have: remove one first"
            )
        return made

    return runtime.database.write(work)


def get(runtime: Runtime, subscription_id: str) -> Subscription:
    """Return a subscription; raises NotFound."""
    with runtime.database.read() as session:
        return subscriptions.get(session, subscription_id)


def find_all(
    runtime: Runtime, project_id: str | None, after: tuple[datetime, str] | None, limit: int
) -> list[Subscription]:
    """Return up to ``limit`` subscriptions of a project, or of all, the oldest first."""
    with runtime.database.read() as session:
        return subscriptions.find_all(session, project_id, after, limit)


def dead_letter_counts(runtime: Runtime, found: Collection[Subscription]) -> Mapping[str, int]:
    """Return how many dead letters subscriptions have, by id; none are left out."""
    with runtime.database.read() as session:
        return subscriptions.count_dead_letters(session, [one.id for one in found])


def update(runtime: Runtime, subscription_id: str, change: Change) -> Subscription:
    """Change a subscription; raises NotFound, NotificationsRemoved."""
    now = runtime.clock.now()

    def work(session: Session) -> Subscription:
        before = subscriptions.get(session, subscription_id, lock=True)
        values = _values(session, before, change)
        fresh = {"attempts": 0, "given_up": 0, "reason": None, "due_at": now, "slow": False}
        handed_back = {"owner": None, "claimed_until": None}
        subscriptions.update(session, subscription_id, now, **fresh, **handed_back, **values)
        return subscriptions.get(session, subscription_id)

    changed = runtime.database.write(work)
    runtime.news.hint()
    return changed


def _values(session: Session, before: Subscription, change: Change) -> dict[str, Any]:
    plain = {"url": change.url, "secret": change.secret, "after": change.after}
    values: dict[str, Any] = {name: value for name, value in plain.items() if value is not None}
    if change.after is not None:
        values["done_seq"] = _start(session, values.pop("after"))
    if change.wanted:
        values["filters"] = subscriptions.filters(replace(before.wanted, **change.wanted))
    if change.status is not None:
        values["status"] = change.status.value
    is_active = (change.status or before.status) is SubscriptionStatus.ACTIVE
    if is_active and change.after is None:
        _start(session, before.done_seq)
    return values


def _start(session: Session, after: int | None) -> int:
    """Return the number that a subscription goes on after; raises NotificationsRemoved."""
    if after is None:
        return outbox.last_seq(session)
    removed = outbox.removed_seq(session)
    if after < removed:
        raise NotificationsRemoved(
            f"Notifications up to {removed} are not kept any more, so some after {after} cannot be"
            f' sent: say where to go on, with "after": {removed} or later',
            {"oldest": removed + 1},
        )
    return after


def delete(runtime: Runtime, subscription_id: str) -> None:
    """Remove a subscription with its dead letters; what is under way may still arrive."""
    runtime.database.write(lambda session: subscriptions.delete(session, subscription_id))


def find_dead_letters(
    runtime: Runtime, subscription_id: str, after: int, limit: int
) -> list[DeadLetter]:
    """Return what was not taken, in the order of its numbers."""
    with runtime.database.read() as session:
        return subscriptions.find_dead_letters(session, subscription_id, after, limit)


def redeliver(runtime: Runtime, subscription_id: str, seqs: Collection[int] | None) -> int:
    """Have dead letters (None: all) sent again, once each; return how many.

    Raises NotFound, and Conflict while the subscription is suspended.
    """

    def work(session: Session) -> int:
        found = subscriptions.get(session, subscription_id, lock=True)
        if found.status is not SubscriptionStatus.ACTIVE:
            raise Conflict(
                f"Subscription {subscription_id} is suspended, and nothing is sent: make its"
                ' status "active" first'
            )
        subscriptions.update(session, subscription_id, runtime.clock.now(), due_at=found.created_at)
        return subscriptions.want_dead_letters(session, subscription_id, seqs)

    count = runtime.database.write(work)
    runtime.news.hint()
    return count
