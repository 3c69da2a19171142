"""The tables, typed. The double-booking guard is added by the migrations, per database."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from climate.db.engine.types import HEAD_OF_VALUE, MARIADB, Code, Head, Id, Serial, UtcDateTime

_NAMING = {
    "ix": "%(table_name)s_%(column_0_N_name)s",
    "uq": "%(table_name)s_%(column_0_N_name)s_key",
    "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
    "pk": "%(table_name)s_pkey",
}


class Base(DeclarativeBase):
    """Shared settings of all tables."""

    metadata = sa.MetaData(naming_convention=_NAMING)
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy's own declarative setting
        datetime: UtcDateTime,
        dict[str, Any]: sa.JSON,
        list[Any]: sa.JSON,
    }


class LeaseRow(Base):
    """A window of time, its owner, and when it was told last that events of it are late.

    Who locks it to change it, or what it has, counts its ``version`` up.
    """

    __tablename__ = "leases"
    __table_args__ = (
        # The order of lists by default: a project's, and everybody's.
        Index(None, "project_id", "start_at", "id"),
        Index(None, "start_at", "id"),
        # What an owner has and had, for its limits.
        Index(None, "project_id", "end_at"),
        Index(None, "user_id", "end_at"),
        Index(None, "trust_id"),
        MARIADB,
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(80))
    user_id: Mapped[str] = mapped_column(sa.String(255))
    project_id: Mapped[str] = mapped_column(sa.String(255))
    start_at: Mapped[datetime]
    end_at: Mapped[datetime]
    status: Mapped[str] = mapped_column(sa.String(16))
    degraded: Mapped[bool]
    notices: Mapped[list[Any]]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime | None]
    trust_id: Mapped[str | None] = mapped_column(sa.String(64))
    trust_lost: Mapped[str | None] = mapped_column(sa.Text)
    caught_up_at: Mapped[datetime | None]
    start_when: Mapped[str] = mapped_column(sa.String(16), server_default="scheduled")
    ready_at: Mapped[datetime | None]
    start_delayed_at: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    version: Mapped[int] = mapped_column(sa.BigInteger, server_default="0")


class ReservationRow(Base):
    """What a lease holds of one resource type."""

    __tablename__ = "reservations"
    __table_args__ = (Index(None, "lease_id"), MARIADB)

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    lease_id: Mapped[str] = mapped_column(ForeignKey("leases.id", ondelete="CASCADE"))
    position: Mapped[int]
    resource_type: Mapped[str] = mapped_column(sa.String(64))
    status: Mapped[str] = mapped_column(sa.String(16))
    params: Mapped[dict[str, Any]]
    details: Mapped[dict[str, Any]]
    missing_resources: Mapped[bool]
    resources_changed: Mapped[bool]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime | None]


class ResourceRow(Base):
    """A thing that can be reserved."""

    __tablename__ = "resources"
    __table_args__ = (
        UniqueConstraint("type", "external_id"),
        {**MARIADB, "sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(Serial, primary_key=True)
    type: Mapped[str] = mapped_column(sa.String(64))
    external_id: Mapped[str] = mapped_column(sa.String(255))
    reservable: Mapped[bool]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime | None]


class ResourceProperty(Base):
    """One property of a resource, as text, and as a number where it is one."""

    __tablename__ = "resource_properties"
    __table_args__ = (
        Index(None, "name", "number", "resource_id"),
        Index(None, "name", "head", "resource_id"),
        MARIADB,
    )

    resource_id: Mapped[int] = mapped_column(
        ForeignKey("resources.id", ondelete="CASCADE"), primary_key=True
    )
    name: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    value: Mapped[str] = mapped_column(Code)
    # What an index can hold of it.
    head: Mapped[str | None] = mapped_column(Head, HEAD_OF_VALUE)
    number: Mapped[float | None] = mapped_column(sa.Double)
    native: Mapped[bool]


class PropertyRow(Base):
    """The name of an extra capability, and whether ordinary listings show it."""

    __tablename__ = "properties"
    __table_args__ = (UniqueConstraint("resource_type", "name"), MARIADB)

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    resource_type: Mapped[str] = mapped_column(sa.String(64))
    name: Mapped[str] = mapped_column(sa.String(64))
    private: Mapped[bool]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime | None]


class InventoryRow(Base):
    """How much of a resource class a resource has to share, as Placement counts it.

    ``(total - reserved) * allocation_ratio`` can be taken, at most ``max_unit`` of it at once.
    """

    __tablename__ = "inventories"
    __table_args__ = (MARIADB,)

    resource_id: Mapped[int] = mapped_column(
        ForeignKey("resources.id", ondelete="CASCADE"), primary_key=True
    )
    resource_class: Mapped[str] = mapped_column(sa.String(255), primary_key=True)
    total: Mapped[int] = mapped_column(sa.BigInteger)
    reserved: Mapped[int] = mapped_column(sa.BigInteger)
    allocation_ratio: Mapped[float] = mapped_column(sa.Double)
    max_unit: Mapped[int | None] = mapped_column(sa.BigInteger)


class AllocationRow(Base):
    """A resource, or ``amount`` of one of its classes, taken for ``[start_at, busy_until)``.

    Cleaning time is included. Without a class the resource is taken whole; ``whole_id`` is its id
    then, else NULL. A deleted lease's row stays, with no reservation, until cleaning time is over.
    """

    __tablename__ = "allocations"
    __table_args__ = (
        sa.CheckConstraint("start_at < busy_until", name="allocations_window"),
        sa.CheckConstraint("(resource_class IS NULL) = (amount IS NULL)", name="allocations_share"),
        # The probe "who was the last to start before my end?" is one descent of this index.
        Index("allocations_probe", "whole_id", "start_at", "busy_until"),
        # Of shares, those that were over long ago are not looked at; whole bookings never are.
        Index(
            "allocations_shares",
            "resource_id",
            "busy_until",
            postgresql_where=sa.text("resource_class IS NOT NULL"),
        ),
        Index(None, "reservation_id"),
        MARIADB,
    )

    id: Mapped[int] = mapped_column(Serial, primary_key=True)
    resource_id: Mapped[int] = mapped_column(ForeignKey("resources.id", ondelete="CASCADE"))
    reservation_id: Mapped[str | None] = mapped_column(
        ForeignKey("reservations.id", ondelete="CASCADE")
    )
    start_at: Mapped[datetime]
    busy_until: Mapped[datetime]
    resource_class: Mapped[str | None] = mapped_column(sa.String(255))
    amount: Mapped[int | None] = mapped_column(sa.BigInteger)
    whole_id: Mapped[int | None] = mapped_column(
        sa.BigInteger,
        sa.Computed("CASE WHEN resource_class IS NULL THEN resource_id END", persisted=True),
    )


class EventRow(Base):
    """Something due in a lease's life; this table is the managers' queue.

    ``due_at`` is the promise, made or moved there at ``created_at``, ``run_at`` when it may next be
    tried; ``owner`` and ``attempt`` fence whoever is at it. One without a lease has all it needs in
    ``payload``.
    """

    __tablename__ = "events"
    __table_args__ = (
        # The order of looks at the queue, to the letter: else InnoDB sorts all that is due.
        Index(None, "status", "run_at", "rank", "id"),
        Index(None, "lease_id", "kind"),
        MARIADB,
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    lease_id: Mapped[str | None] = mapped_column(ForeignKey("leases.id", ondelete="CASCADE"))
    kind: Mapped[str] = mapped_column(sa.String(64))
    rank: Mapped[int]
    due_at: Mapped[datetime]
    run_at: Mapped[datetime]
    status: Mapped[str] = mapped_column(sa.String(16))
    owner: Mapped[str | None] = mapped_column(sa.String(64))
    claimed_until: Mapped[datetime | None]
    attempt: Mapped[int]
    last_error: Mapped[str | None] = mapped_column(sa.Text)
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime | None]
    payload: Mapped[dict[str, Any] | None]


class LimitRow(Base):
    """The limits of a project's or a user's own, by name; locked while its use is counted."""

    __tablename__ = "limits"
    __table_args__ = (MARIADB,)

    scope: Mapped[str] = mapped_column(sa.String(16), primary_key=True)
    owner_id: Mapped[str] = mapped_column(sa.String(255), primary_key=True)
    overrides: Mapped[dict[str, Any]]


class PastUseRow(Base):
    """What a lease that was deleted had used, kept for as long as host-hours are counted."""

    __tablename__ = "past_use"
    __table_args__ = (
        Index(None, "project_id", "end_at"),
        Index(None, "user_id", "end_at"),
        Index(None, "end_at"),
        MARIADB,
    )

    id: Mapped[int] = mapped_column(Serial, primary_key=True)
    project_id: Mapped[str] = mapped_column(sa.String(255))
    user_id: Mapped[str] = mapped_column(sa.String(255))
    start_at: Mapped[datetime]
    end_at: Mapped[datetime]
    hosts: Mapped[int]


class IdempotencyKeyRow(Base):
    """A request under a key of its sender's: what was answered, or the lease held meanwhile."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (Index(None, "created_at"), MARIADB)
    project_id: Mapped[str] = mapped_column(sa.String(255), primary_key=True)
    user_id: Mapped[str] = mapped_column(sa.String(255), primary_key=True)
    key: Mapped[str] = mapped_column(sa.String(255), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(sa.String(64))
    answer: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    held_id: Mapped[str | None] = mapped_column(Id)


def _table(row: type[Base]) -> sa.Table:
    return row.metadata.tables[row.__tablename__]


def columns(table: sa.Table, names: str) -> list[sa.Column[Any]]:
    """Return the columns that have these names, with spaces between them."""
    return [table.c[name] for name in names.split()]


# The tables rather than what is mapped to them, for what is asked all the time: a statement takes
# half as long to be put together and to be read, and nothing of it is kept in sessions.
LEASES, RESERVATIONS, EVENTS = _table(LeaseRow), _table(ReservationRow), _table(EventRow)
RESOURCES, PROPERTIES = _table(ResourceRow), _table(ResourceProperty)
ALLOCATIONS = _table(AllocationRow)
