"""The tables of leases, resources and limits.

The migrations add the guard against double bookings, which differs between databases.
"""

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


class Certified:
    """A table whose rows transactions lock; ``bulk.certify`` counts ``generation`` up."""

    generation: Mapped[int] = mapped_column(sa.BigInteger, server_default="0", sort_order=1000)


class LeaseRow(Certified, Base):
    """A lease: its window, owner, status and start.

    A transaction that locks the lease to change it increments ``version``. ``caught_up_at`` is when
    a manager last found its events late.
    """

    __tablename__ = "leases"
    __table_args__ = (
        # The default order of lists: of a project, and of all projects.
        Index(None, "project_id", "start_at", "id"),
        Index(None, "start_at", "id"),
        # The present and past leases of an owner, for its limits.
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
    """A reservation: the request of a lease for resources of one type."""

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


class ResourceRow(Certified, Base):
    """A resource that can be reserved, with its id in the cloud."""

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
    """A property of a resource: its value as text, and as a number if the text is numeric."""

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
    # The beginning of the value, short enough for an index.
    head: Mapped[str | None] = mapped_column(Head, HEAD_OF_VALUE)
    number: Mapped[float | None] = mapped_column(sa.Double)
    native: Mapped[bool]


class PropertyRow(Base):
    """The definition of an extra property; ordinary listings hide private ones."""

    __tablename__ = "properties"
    __table_args__ = (UniqueConstraint("resource_type", "name"), MARIADB)

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    resource_type: Mapped[str] = mapped_column(sa.String(64))
    name: Mapped[str] = mapped_column(sa.String(64))
    private: Mapped[bool]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime | None]


class InventoryRow(Base):
    """The inventory of a resource class on a resource, as in Placement.

    The capacity is ``(total - reserved) * allocation_ratio``; a unit has at most ``max_unit``.
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
    """A resource, or ``amount`` of one of its classes, occupied in ``[start_at, busy_until)``.

    The window includes cleaning time. Without a class the row occupies the whole resource, and
    ``whole_id`` is the resource's id; for a share it is NULL. After a lease is deleted, the row
    stays without a reservation until cleaning ends.
    """

    __tablename__ = "allocations"
    __table_args__ = (
        sa.CheckConstraint("start_at < busy_until", name="allocations_window"),
        sa.CheckConstraint("(resource_class IS NULL) = (amount IS NULL)", name="allocations_share"),
        # Finds the last booking that starts before a given end in one descent.
        Index("allocations_probe", "whole_id", "start_at", "busy_until"),
        # Finds shares that are not over, with all that sums of them need; on PostgreSQL it contains
        # shares only.
        Index(
            "allocations_shares",
            "resource_id",
            "busy_until",
            "start_at",
            "resource_class",
            "amount",
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


class EventRow(Certified, Base):
    """An event of a lease; this table is the queue of the managers.

    ``due_at`` is the scheduled time, set at ``created_at``. ``run_at`` is the earliest time of the
    next attempt. ``owner`` and ``attempt`` are the fencing token of the claim. A finalizer has no
    lease; its data is in ``payload``.
    """

    __tablename__ = "events"
    __table_args__ = (
        # Exactly the order of the queue queries: else InnoDB sorts all due events.
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


class LimitRow(Certified, Base):
    """Limits of a project or user that override the configured limits.

    A transaction locks the row before it counts what the project or user has in use.
    """

    __tablename__ = "limits"
    __table_args__ = (MARIADB,)

    scope: Mapped[str] = mapped_column(sa.String(16), primary_key=True)
    owner_id: Mapped[str] = mapped_column(sa.String(255), primary_key=True)
    overrides: Mapped[dict[str, Any]]


class PastUseRow(Base):
    """Whole hosts that a deleted reservation used, stored while the host-hours count."""

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


class PastLeaseRow(Base):
    """A lease that had started and was removed; ``climate.core.lease.history`` has its fields."""

    __tablename__ = "past_leases"
    __table_args__ = (
        Index(None, "project_id", "ended_at", "id"),
        Index(None, "ended_at", "id"),
        MARIADB,
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(80))
    user_id: Mapped[str] = mapped_column(sa.String(255))
    project_id: Mapped[str] = mapped_column(sa.String(255))
    status: Mapped[str] = mapped_column(sa.String(16))
    degraded: Mapped[bool]
    start_at: Mapped[datetime]
    end_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime]
    created_at: Mapped[datetime]
    reservations: Mapped[list[Any]]


class IdempotencyKeyRow(Base):
    """The idempotency key of a request, with its answer.

    While the request has no answer, ``held_id`` is the id of the held lease.
    """

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
    """Return the columns of a table; ``names`` are their names, separated by spaces."""
    return [table.c[name] for name in names.split()]


# Core tables for frequent statements: they compile and return rows in half the time of mapped
# classes, and sessions do not cache their rows.
LEASES, RESERVATIONS, EVENTS = _table(LeaseRow), _table(ReservationRow), _table(EventRow)
RESOURCES, PROPERTIES = _table(ResourceRow), _table(ResourceProperty)
ALLOCATIONS, LIMITS = _table(AllocationRow), _table(LimitRow)
