"""The tables of leases, resources and limits.

The constraint against double bookings is not here. The migrations add it, because it differs
between databases.
"""

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from climate.db.engine.types import HEAD_OF_VALUE, MARIADB, Code, Head, Id, Serial, UtcDateTime

# The index of offers is partial where the database can have one: most leases are no offers.
_IS_OFFER = sa.text("offered_until IS NOT NULL")
ONLY_OFFERS: dict[str, Any] = {"postgresql_where": _IS_OFFER, "sqlite_where": _IS_OFFER}
_NAMING = {
    "ix": "%(table_name)s_%(column_0_N_name)s",
    "uq": "%(table_name)s_%(column_0_N_name)s_key",
    "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
    "pk": "%(table_name)s_pkey",
}


class Base(DeclarativeBase):
    """The base class of all tables, with their common settings."""

    metadata = sa.MetaData(naming_convention=_NAMING)
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy's own declarative setting
        datetime: UtcDateTime,
        dict[str, Any]: sa.JSON,
        list[Any]: sa.JSON,
    }


class Certified:
    """A mix-in for tables with rows that transactions lock.

    On a Galera cluster, ``bulk.certify`` increments ``generation`` of the locked rows.
    """

    generation: Mapped[int] = mapped_column(sa.BigInteger, server_default="0", sort_order=1000)


class LeaseRow(Certified, Base):
    """The table of leases: window, owner, status and start.

    A transaction that locks a lease to change it increments ``version``. ``trust_id`` is the
    Keystone trust with which managers act as the user of the lease. If the trust does not work now,
    ``trust_lost`` says why. ``ready_at`` is when climate found all hosts of the lease ready.
    ``start_delayed_at`` is when climate announced that the start is delayed. ``caught_up_at`` is
    when a manager last found that events of the lease were late. ``offered_until`` is when an offer
    expires (NULL: the lease is no offer). ``start_lead_s`` is how many seconds before the start the
    booking begins, so that climate can create resources. ``start_began_at`` is when it began.
    ``cleaning_s`` is how many seconds after the end the booking lasts, as climate has learned it
    (NULL: as long as the operator has configured).
    """

    __tablename__ = "leases"
    __table_args__ = (
        # The default order of lists: of a project, and of all projects.
        Index(None, "project_id", "start_at", "id"),
        Index(None, "start_at", "id"),
        # The present and past leases of an owner, for its limits.
        Index(None, "project_id", "end_at"),
        Index(None, "user_id", "end_at"),
        Index(None, "trust_id", postgresql_where=sa.text("trust_id IS NOT NULL")),
        Index(None, "offered_until", **ONLY_OFFERS),
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
    offered_until: Mapped[datetime | None]
    start_lead_s: Mapped[int] = mapped_column(server_default="0")
    start_began_at: Mapped[datetime | None]
    cleaning_s: Mapped[int | None]


class ReservationRow(Base):
    """The table of reservations: each is the request of a lease for resources of one type.

    ``params`` are the parameters from the user's request. ``details`` contains what the plug-in
    reported at the start, and internal notes. ``position`` orders the reservations of a lease.
    """

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
    """The table of resources that can be reserved, with their ids in the cloud.

    Each change of a resource or its properties increments ``version``, except pushed stats.
    """

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
    version: Mapped[int] = mapped_column(sa.BigInteger, server_default="0", sort_order=1001)


class ResourceProperty(Base):
    """The table of properties of resources: the value as text, and as a number if it is numeric.

    ``version_key`` sorts versions in their order (``climate.core.matching.query.version_key``). It
    is empty if the value is no version, and NULL if a release before schema 0029 wrote the row.
    """

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
    version_key: Mapped[str | None] = mapped_column(Code)


class ResourceStatsRow(Base):
    """The table of the generations of stats: the newest one that climate stored for a resource.

    Not a column of ``resources``: admissions lock those rows, and skip rows that others lock.
    """

    __tablename__ = "resource_stats"
    __table_args__ = (MARIADB,)

    resource_id: Mapped[int] = mapped_column(
        ForeignKey("resources.id", ondelete="CASCADE"), primary_key=True
    )
    generation: Mapped[int] = mapped_column(sa.BigInteger)
    updated_at: Mapped[datetime]


class PropertyRow(Base):
    """The table of definitions of extra properties. Ordinary listings hide private properties."""

    __tablename__ = "properties"
    __table_args__ = (UniqueConstraint("resource_type", "name"), MARIADB)

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    resource_type: Mapped[str] = mapped_column(sa.String(64))
    name: Mapped[str] = mapped_column(sa.String(64))
    private: Mapped[bool]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime | None]


class InventoryRow(Base):
    """The table of inventories: one row per resource and resource class, as in Placement.

    The capacity of a class, such as VCPU, is ``(total - reserved) * allocation_ratio``. A
    reservation asks for units, such as instances. Each unit has at most ``max_unit`` of the class
    (NULL: no limit).
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
    """The table of allocations: each row books a resource in ``[start_at, busy_until)``.

    The window includes cleaning time. If ``resource_class`` is NULL, the row books the whole
    resource, and ``whole_id`` is the id of the resource. Otherwise, the row books a share of the
    resource: ``amount`` of that class, such as 4 of VCPU. Then ``whole_id`` is NULL. After a lease
    is deleted, its rows stay without a reservation until the cleaning of the resource is over.
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
    """The table of the events of leases, which is the queue of the managers.

    ``due_at`` is the time for which the event was scheduled when it was created. ``run_at`` is the
    earliest time of the next attempt. Of events with the same ``run_at``, the lowest ``rank`` comes
    first. A claim reserves the event for one manager; ``owner`` and ``attempt`` identify the claim,
    and it expires at ``claimed_until``. An event without a lease is a finalizer: a task that
    remains after the lease was deleted, with its data in ``payload``.
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
    """The limits of single projects and users that replace the configured limits (overrides).

    The row of a project or user is also a lock: a transaction locks the row before it counts what
    the project or user has in use, and first inserts the row if it is missing. So two requests at
    the same time cannot both pass a limit that allows only one of them.
    """

    __tablename__ = "limits"
    __table_args__ = (MARIADB,)

    scope: Mapped[str] = mapped_column(sa.String(16), primary_key=True)
    owner_id: Mapped[str] = mapped_column(sa.String(255), primary_key=True)
    overrides: Mapped[dict[str, Any]]


class PastUseRow(Base):
    """The table of past use: how many whole hosts were used by reservations that are now deleted.

    A row contains the number of hosts and the time of their use. climate keeps the row as long as
    its host-hours count towards a limit.
    """

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
    """The table of the history: leases that had started and were then removed.

    ``climate.core.lease.history`` describes the columns.
    """

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
    """The table of idempotency keys: a request that is sent again gets the stored ``answer``.

    ``fingerprint`` identifies the content of the request. While the lease of the request is held
    (not confirmed yet), the request has no answer, and ``held_id`` is the id of this lease.
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
