"""Subscriptions by webhook and e-mail, and their dead letters.

For a subscription, climate sends notifications to a receiver. A dead letter is a notification that
climate gave up delivering to the receiver.

Each subscription has a number ``place`` that is unique in its project. A new subscription gets one
of as many places as the limit of subscriptions per project allows. So the unique key enforces this
limit, even if two requests run at the same time. Webhooks and e-mail have limits of their own:
places of webhooks are 0 and above, those of e-mail -1 and below.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.errors import NotFound
from climate.core.notifications.message import NotificationFilter
from climate.core.notifications.subscription import (
    DeadLetter,
    Format,
    Frequency,
    Kind,
    Subscription,
    SubscriptionStatus,
)
from climate.core.page import Page, Part
from climate.db.resources.pages import cut
from climate.db.tables.bulk import certify, record, values
from climate.db.tables.notifications import DeadLetterRow, OutboxRow, SubscriptionRow

ACTIVE = SubscriptionStatus.ACTIVE.value


def insert(session: Session, subscription: Subscription, secret: str, most: int) -> bool:
    """Store a new subscription; return False if its project has ``most`` of the same kind already.

    ``secret`` is the key for signatures or links, in the form in which it is stored.
    """
    of_project = SubscriptionRow.project_id == subscription.project_id
    used = set(session.scalars(sa.select(SubscriptionRow.place).where(of_project)))
    is_email = subscription.kind is Kind.EMAIL
    places = (-1 - number if is_email else number for number in range(most))
    place = next((place for place in places if place not in used), None)
    if place is None:
        return False
    row = {
        **values(subscription, "id project_id user_id url all_projects done_seq created_at"),
        **values(subscription, "attempts given_up slow time_zone confirm_requested_at"),
        **leads(subscription.before_start_leads, subscription.created_at),
        "kind": subscription.kind.value,
        "format": subscription.format.value,
        "frequency": subscription.frequency.value,
        "place": place,
        "secret": secret,
        "filters": filters(subscription.wanted),
        "status": subscription.status.value,
        "due_at": subscription.created_at,
    }
    session.add(SubscriptionRow(**row))
    session.flush()  # if another request took the place, the transaction runs again
    return True


def filters(wanted: NotificationFilter) -> dict[str, Any]:
    """Return the filter of a subscription as it is stored in the column ``filters``.

    The keys are ``lease_id``, ``event_types`` and ``resource_type``.
    """
    return values(wanted, "lease_id event_types resource_type")


def leads(before_start: Iterable[int], now: datetime) -> dict[str, Any]:
    """Return the columns that store for which reminders a subscriber asked at ``now``."""
    text = ",".join(map(str, before_start))
    return {"before_start_leads": text or None, "reminded_through": now if text else None}


def get(session: Session, subscription_id: str, *, lock: bool = False) -> Subscription:
    """Return a subscription; if ``lock`` is set, lock its row until the commit. Raises NotFound."""
    query = sa.select(SubscriptionRow).where(SubscriptionRow.id == subscription_id)
    row = session.scalar(query.with_for_update() if lock else query)
    if lock:
        certify(session, SubscriptionRow, [subscription_id])
    if row is None:
        raise NotFound(f"There is no subscription {subscription_id}")
    return of(row)


def secret_of(session: Session, subscription_id: str) -> str:
    """Return the secret of an existing subscription, in the form in which it is stored."""
    query = sa.select(SubscriptionRow.secret).where(SubscriptionRow.id == subscription_id)
    return session.execute(query).scalar_one()


def find_all(
    session: Session, project_id: str | None, page: Page, *, with_all_projects: bool
) -> Part[Subscription]:
    """Return the subscriptions of a project (None: of all projects), sorted by creation time.

    ``page`` selects a part of the list. If ``with_all_projects`` is false, subscriptions that
    receive the notifications of all projects are left out.
    """
    query = sa.select(SubscriptionRow)
    if not with_all_projects:
        query = query.where(SubscriptionRow.all_projects.is_(False))
    if project_id is not None:
        query = query.where(SubscriptionRow.project_id == project_id)
    rows = session.scalars(cut(query, SubscriptionRow.created_at, SubscriptionRow.id, page)).all()
    items = [of(row) for row in rows[: page.limit]]
    return Part(items=items, more=len(rows) > page.limit)


def update(session: Session, subscription_id: str, now: datetime, **new: Any) -> None:
    """Store values that a user changed, with ``now`` as the time of the change.

    ``new`` contains the values by column name.
    """
    changed = sa.update(SubscriptionRow).where(SubscriptionRow.id == subscription_id)
    session.execute(changed.values(updated_at=now, **new))


def secrets(session: Session) -> dict[str, str]:
    """Return the stored secrets of all subscriptions, by subscription id."""
    rows = session.execute(sa.select(SubscriptionRow.id, SubscriptionRow.secret))
    return {row.id: row.secret for row in rows}


def replace_secret(session: Session, *, subscription_id: str, stored: str, new: str) -> None:
    """Store ``new`` as the secret of a subscription, if the present secret equals ``stored``."""
    unchanged = (SubscriptionRow.id == subscription_id, SubscriptionRow.secret == stored)
    session.execute(sa.update(SubscriptionRow).where(*unchanged).values(secret=new))


def delete(session: Session, subscription_id: str) -> None:
    """Delete a subscription with its dead letters."""
    session.execute(sa.delete(SubscriptionRow).where(SubscriptionRow.id == subscription_id))


def matching(
    after: sa.SQLColumnExpression[int], *more: sa.ColumnElement[bool]
) -> sa.ColumnElement[bool]:
    """Return the SQL condition that the outbox may have a notification for a subscription.

    The number of the notification is above ``after``, and the notification meets all conditions in
    ``more``. The notification belongs to the project of the subscription, or to any project if
    ``all_projects`` is set. The filter of the subscription is not checked.
    """
    later = sa.exists().where(OutboxRow.seq > after, *more)
    its_own = later.where(OutboxRow.project_id == SubscriptionRow.project_id)
    # Two conditions, as each uses an index: the log may be long, and mostly of other projects.
    return sa.or_(
        its_own.correlate(SubscriptionRow),
        sa.and_(SubscriptionRow.all_projects.is_(True), later.correlate(SubscriptionRow)),
    )


def catch_up(session: Session, through: int) -> None:
    """Set ``done_seq`` to ``through`` in subscriptions with nothing to deliver up to this number.

    ``done_seq`` is the sequence number up to which a subscription is done. A subscription stays
    unchanged if it may match a notification after ``done_seq`` and up to ``through``.
    """
    may_match = matching(SubscriptionRow.done_seq, OutboxRow.seq <= through)
    behind = sa.update(SubscriptionRow).where(SubscriptionRow.done_seq < through, ~may_match)
    session.execute(
        behind.values(done_seq=through), execution_options={"synchronize_session": False}
    )


def add_dead_letter(session: Session, letter: DeadLetter) -> None:
    """Store a dead letter, a notification that climate gave up delivering to a subscription.

    It replaces an earlier dead letter of the same notification and subscription.
    """
    session.merge(DeadLetterRow(**asdict(letter)))


def find_dead_letters(
    session: Session, subscription_id: str, after: int, limit: int
) -> list[DeadLetter]:
    """Return up to ``limit`` dead letters of a subscription, the lowest sequence number first.

    A dead letter is a notification that climate gave up delivering. Dead letters up to the number
    ``after`` are left out.
    """
    query = sa.select(DeadLetterRow).where(
        DeadLetterRow.subscription_id == subscription_id, DeadLetterRow.seq > after
    )
    rows = session.scalars(query.order_by(DeadLetterRow.seq).limit(limit))
    return [record(DeadLetter, row) for row in rows]


def count_dead_letters(session: Session, ids: Collection[str]) -> Mapping[str, int]:
    """Return how many dead letters (undelivered notifications) each subscription has, by its id.

    Subscriptions without dead letters are left out.
    """
    query = sa.select(DeadLetterRow.subscription_id, sa.func.count()).where(
        DeadLetterRow.subscription_id.in_(ids)
    )
    rows = session.execute(query.group_by(DeadLetterRow.subscription_id)).all()
    return {id_: count for id_, count in rows}  # noqa: C416 - rows are no pairs to mypy


def want_dead_letters(session: Session, subscription_id: str, seqs: Collection[int] | None) -> int:
    """Mark dead letters of a subscription for redelivery; return how many were marked.

    A dead letter is a notification that climate gave up delivering. ``seqs`` contains the sequence
    numbers of the dead letters to mark (None: all of the subscription).
    """
    which = [DeadLetterRow.subscription_id == subscription_id]
    if seqs is not None:
        which.append(DeadLetterRow.seq.in_(seqs))
    result = session.execute(sa.update(DeadLetterRow).where(*which).values(wanted=True))
    return int(result.rowcount)  # type: ignore[attr-defined]


def next_dead_letter(session: Session, subscription_id: str) -> DeadLetter | None:
    """Return the dead letter of a subscription that climate must deliver again next.

    This is the marked dead letter with the lowest sequence number (see ``want_dead_letters``).
    Returns None if no dead letter is marked.
    """
    query = sa.select(DeadLetterRow).where(
        DeadLetterRow.subscription_id == subscription_id, DeadLetterRow.wanted.is_(True)
    )
    row = session.scalar(query.order_by(DeadLetterRow.seq).limit(1))
    return None if row is None else record(DeadLetter, row)


def wanted_seqs(session: Session, subscription_id: str, limit: int) -> tuple[int, ...]:
    """Return the numbers of up to ``limit`` dead letters that climate must deliver again, sorted.

    See ``want_dead_letters``.
    """
    query = sa.select(DeadLetterRow.seq).where(
        DeadLetterRow.subscription_id == subscription_id, DeadLetterRow.wanted.is_(True)
    )
    return tuple(session.scalars(query.order_by(DeadLetterRow.seq).limit(limit)))


def remove_dead_letters(session: Session, subscription_id: str, seqs: Collection[int]) -> None:
    """Delete dead letters, because the receiver has accepted their notifications now."""
    of_subscription = DeadLetterRow.subscription_id == subscription_id
    session.execute(sa.delete(DeadLetterRow).where(of_subscription, DeadLetterRow.seq.in_(seqs)))


def of(row: SubscriptionRow) -> Subscription:
    """Convert a row to a subscription, which does not contain the secret."""
    fields = {**row.filters, "event_types": tuple(row.filters["event_types"])}
    project_id = None if row.all_projects else row.project_id
    wanted = NotificationFilter(project_id=project_id, subscription_id=row.id, **fields)
    stored_leads = (row.before_start_leads or "").split(",")
    return record(
        Subscription,
        row,
        wanted=wanted,
        status=SubscriptionStatus(row.status),
        kind=Kind(row.kind),
        format=Format(row.format),
        frequency=Frequency(row.frequency),
        before_start_leads=tuple(int(lead) for lead in stored_leads if lead),
    )
