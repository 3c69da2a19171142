"""The tables of notifications: outbox, relay, subscriptions, confirmations, calendar feeds."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from climate.db.engine.types import MARIADB, Id, Serial
from climate.db.tables.leases import Base, Certified

_IS_NEW = sa.text("seq IS NULL")
_IS_NUMBERED = sa.text("seq IS NOT NULL")


def _is_not_postgresql(*_: object, dialect: sa.Dialect, **__: object) -> bool:
    return dialect.name != "postgresql"


class OutboxRow(Base):
    """The table of notifications. A transaction that changes a lease also writes a row here.

    ``id`` is the order of writing. ``seq`` is the public number. A relay, the part of a manager
    that publishes, numbers only committed rows: a reader that has seen the number n never gets a
    smaller number later.

    ``resource_types`` are the types of the lease's reservations, each between spaces.
    ``changed_from`` and ``changed_until`` are the window of the lease; if the change moved the
    window, they include the previous one. Rows of old releases have NULL in these three columns.
    ``subscription_id`` is set if only this subscription receives the notification.
    ``published_at`` is for processes of schema 0018, which may run beside this release.
    """

    __tablename__ = "outbox"
    __table_args__ = (
        Index(None, "lease_id", "id"),
        # On PostgreSQL, new rows are not in the indexes of numbers, which makes them cheaper.
        Index(None, "project_id", "seq", postgresql_where=_IS_NUMBERED),
        UniqueConstraint("seq").ddl_if(callable_=_is_not_postgresql),
        Index("outbox_numbered", "seq", unique=True, postgresql_where=_IS_NUMBERED).ddl_if(
            dialect="postgresql"
        ),
        # Without it, PostgreSQL may read all notifications to find the few without a number.
        Index("outbox_new", "id", postgresql_where=_IS_NEW).ddl_if(dialect="postgresql"),
        {**MARIADB, "sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(Serial, primary_key=True)
    seq: Mapped[int | None] = mapped_column(sa.BigInteger)
    message_id: Mapped[str] = mapped_column(Id)
    event_type: Mapped[str] = mapped_column(sa.String(128))
    lease_id: Mapped[str | None] = mapped_column(Id)
    project_id: Mapped[str] = mapped_column(sa.String(255))
    payload: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    published_at: Mapped[datetime | None]
    resource_types: Mapped[str | None] = mapped_column(sa.Text)
    changed_from: Mapped[datetime | None]
    changed_until: Mapped[datetime | None]
    subscription_id: Mapped[str | None] = mapped_column(Id)


class RelayRow(Base):
    """The table that stores, in its only row, who may publish and how much of the outbox is done.

    Each manager has a relay, the part that publishes notifications. Only the relay ``owner`` may
    publish, until ``claimed_until``. ``last_seq`` is the last number that was assigned to a
    notification, ``published_seq`` the last one that was published, and ``removed_seq`` the last
    one that was removed from the outbox.
    """

    __tablename__ = "relay"
    __table_args__ = (MARIADB,)

    id: Mapped[int] = mapped_column(sa.Integer, primary_key=True, autoincrement=False)
    last_seq: Mapped[int] = mapped_column(sa.BigInteger)
    owner: Mapped[str | None] = mapped_column(sa.String(64))
    claimed_until: Mapped[datetime | None]
    published_seq: Mapped[int] = mapped_column(sa.BigInteger, server_default="0")
    removed_seq: Mapped[int] = mapped_column(sa.BigInteger, server_default="0")


class SubscriptionRow(Certified, Base):
    """The table of subscriptions by webhook and e-mail, and their progress.

    Every notification up to ``done_seq`` was delivered, became a dead letter (climate gave up
    delivering it), or does not match the subscription. ``owner`` and ``claimed_until`` are the
    claim of the manager that delivers now. ``given_up`` counts dead letters in a row. ``slow``
    means that the receiver was slow or failed last time.

    ``place`` is a number that is unique in a project. A new subscription gets a place less than the
    limit of subscriptions per project, so the unique key enforces the limit. Places of webhooks are
    0 and above, those of e-mail -1 and below.

    ``confirmed_at`` is when the owner of an e-mail address confirmed it. The confirmation was
    requested at ``confirm_requested_at``, and its mail was sent at ``confirm_sent_at``. The next
    digest ends at the number ``digest_through`` (NULL: it is not composed yet).

    ``before_start_leads`` are the numbers of seconds before the start of a lease at which the
    subscriber wants reminders, separated by commas. Reminders that were due up to
    ``reminded_through`` are written.
    """

    __tablename__ = "subscriptions"
    __table_args__ = (
        UniqueConstraint("project_id", "place"),
        Index(None, "status", "due_at"),
        MARIADB,
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    project_id: Mapped[str] = mapped_column(sa.String(255))
    place: Mapped[int]
    user_id: Mapped[str] = mapped_column(sa.String(255))
    url: Mapped[str] = mapped_column(sa.Text)
    secret: Mapped[str] = mapped_column(sa.String(255))
    filters: Mapped[dict[str, Any]]
    all_projects: Mapped[bool]
    status: Mapped[str] = mapped_column(sa.String(16))
    reason: Mapped[str | None] = mapped_column(sa.Text)
    done_seq: Mapped[int] = mapped_column(sa.BigInteger)
    attempts: Mapped[int]
    given_up: Mapped[int]
    slow: Mapped[bool]
    due_at: Mapped[datetime]
    owner: Mapped[str | None] = mapped_column(sa.String(64))
    claimed_until: Mapped[datetime | None]
    delivered_at: Mapped[datetime | None]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime | None]
    kind: Mapped[str] = mapped_column(sa.String(16), server_default="webhook")
    format: Mapped[str] = mapped_column(sa.String(16), server_default="cloudevents")
    frequency: Mapped[str] = mapped_column(sa.String(16), server_default="immediate")
    time_zone: Mapped[str] = mapped_column(sa.String(64), server_default="UTC")
    confirmed_at: Mapped[datetime | None]
    confirm_requested_at: Mapped[datetime | None]
    confirm_sent_at: Mapped[datetime | None]
    digest_through: Mapped[int | None] = mapped_column(sa.BigInteger)
    before_start_leads: Mapped[str | None] = mapped_column(sa.String(64))
    reminded_through: Mapped[datetime | None]


class ConfirmationRow(Base):
    """The table of recent requests for confirmations of e-mail addresses, which are limited.

    ``bucket`` is a hash of the address or of the project. ``place`` is a number less than the limit
    per hour, so the primary key enforces the limit. A place is free an hour after its request.
    """

    __tablename__ = "confirmations"
    __table_args__ = (Index(None, "requested_at"), MARIADB)

    bucket: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    place: Mapped[int] = mapped_column(sa.Integer, primary_key=True, autoincrement=False)
    requested_at: Mapped[datetime]


class DeadLetterRow(Base):
    """The table of dead letters: notifications whose delivery to a subscription climate gave up.

    ``wanted`` means that climate is going to deliver the notification again. The row is deleted
    together with the notification.
    """

    __tablename__ = "dead_letters"
    __table_args__ = (Index(None, "seq"), MARIADB)

    subscription_id: Mapped[str] = mapped_column(
        ForeignKey("subscriptions.id", ondelete="CASCADE"), primary_key=True
    )
    seq: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True, autoincrement=False)
    attempts: Mapped[int]
    reason: Mapped[str] = mapped_column(sa.Text)
    wanted: Mapped[bool]
    failed_at: Mapped[datetime]


class FeedRow(Base):
    """The table of calendar feeds: secret URLs that calendar programs read.

    ``secret_hash`` is the SHA-256 of the secret in the URL. ``scope`` says whether the feed shows a
    project, a resource or a lease; ``target_id`` is the id of that project, resource or lease.
    ``place`` is a number that is unique in a project. A new feed gets a place less than the limit
    of feeds per project, so the unique key enforces the limit.
    """

    __tablename__ = "feeds"
    __table_args__ = (
        UniqueConstraint("project_id", "place"),
        UniqueConstraint("secret_hash"),
        Index(None, "scope", "target_id"),
        MARIADB,
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    project_id: Mapped[str] = mapped_column(sa.String(255))
    place: Mapped[int]
    user_id: Mapped[str] = mapped_column(sa.String(255))
    scope: Mapped[str] = mapped_column(sa.String(16))
    target_id: Mapped[str] = mapped_column(sa.String(255))
    name: Mapped[str] = mapped_column(sa.String(80))
    sees_all: Mapped[bool]
    secret_hash: Mapped[str] = mapped_column(sa.String(64))
    created_at: Mapped[datetime]
    last_read_at: Mapped[datetime | None]


class FeedRemovalRow(Base):
    """The table of deleted leases that calendar feeds still show.

    The transaction that deletes a lease writes the row. ``feed_id`` is not a foreign key, so that
    this transaction never waits for a change of the feed.
    """

    __tablename__ = "feed_removals"
    __table_args__ = (Index(None, "removed_at"), MARIADB)

    feed_id: Mapped[str] = mapped_column(Id, primary_key=True)
    lease_id: Mapped[str] = mapped_column(Id, primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(80))
    status: Mapped[str] = mapped_column(sa.String(16))
    start_at: Mapped[datetime]
    end_at: Mapped[datetime]
    sequence: Mapped[int] = mapped_column(sa.BigInteger)
    created_at: Mapped[datetime]
    removed_at: Mapped[datetime]
