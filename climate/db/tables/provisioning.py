"""Tables of provisioning: the tasks of provisioners, and what climate knows about hosts.

A provisioner is a program that powers hosts on and off.
"""

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from climate.db.engine.types import MARIADB, Id, Serial
from climate.db.tables.leases import Base, Certified


class TaskRow(Certified, Base):
    """The columns of a provisioner's task, which the tables of preparations and shutdowns share.

    A provisioner is a program that powers hosts on and off. ``progress`` is the state of the task.
    ``owner`` and ``claimed_until`` are the claim of the provisioner that works on the task.
    ``over_at`` is when climate stopped needing the task (NULL: climate still needs it).
    """

    __abstract__ = True

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    resource_id: Mapped[int] = mapped_column(Serial, ForeignKey("resources.id", ondelete="CASCADE"))
    node: Mapped[str] = mapped_column(sa.String(255))
    hardware: Mapped[str] = mapped_column(sa.String(255))
    progress: Mapped[str] = mapped_column(sa.String(16))
    wanted_at: Mapped[datetime]
    owner: Mapped[str | None] = mapped_column(sa.String(255))
    claimed_until: Mapped[datetime | None]
    attempt: Mapped[int]
    accepted_at: Mapped[datetime | None]
    over_at: Mapped[datetime | None]
    reason: Mapped[str | None] = mapped_column(sa.Text)


class PreparationRow(TaskRow):
    """The table of preparations: tasks to get a host ready for a reservation by ``needed_at``.

    ``lead`` is the planned duration in seconds. ``seconds`` maps each phase to its measured
    duration. If the host is not ready at ``replace_at``, climate gives the lease another host
    (NULL: the lease keeps the host, even if it becomes ready late). A row stays after its lease is
    deleted. The unique key prevents two managers from creating the same preparation.
    """

    __tablename__ = "preparations"
    __table_args__ = (
        UniqueConstraint("reservation_id", "resource_id", "needed_at"),
        Index(None, "lease_id"),
        Index(None, "resource_id"),
        Index(None, "needed_at", "id"),
        # Finds the tasks that are not over, and those of them that a provisioner can claim.
        Index(None, "over_at", "progress"),
        MARIADB,
    )

    lease_id: Mapped[str] = mapped_column(Id)
    reservation_id: Mapped[str] = mapped_column(Id)
    needed_at: Mapped[datetime]
    lead: Mapped[float] = mapped_column(sa.Double)
    replace_at: Mapped[datetime | None]
    ready_at: Mapped[datetime | None]
    seconds: Mapped[dict[str, Any]]


class ShutdownRow(TaskRow):
    """The table of shutdowns: tasks to switch off a host while no lease needs it.

    ``off_at`` is when the host was switched off. The task must not begin if a booking of the host
    begins in less than ``ahead`` seconds.
    """

    __tablename__ = "shutdowns"
    __table_args__ = (
        Index(None, "wanted_at", "id"),
        # As for preparations.
        Index(None, "over_at", "progress"),
        Index(None, "resource_id", "over_at"),
        MARIADB,
    )

    ahead: Mapped[float] = mapped_column(sa.Double)
    off_at: Mapped[datetime | None]


class ReadinessRow(Base):
    """The table of what climate knows about hosts.

    ``times`` are the durations of the last preparations in seconds, the oldest first. ``set_aside``
    is why the host is in quarantine (NULL: it is not in quarantine). ``up`` is whether the cloud
    reported the host as up at ``seen_at``. No lease and no provisioner's task has used the host
    since ``idle_since`` (NULL: the host is not idle).
    """

    __tablename__ = "readiness"
    __table_args__ = (MARIADB,)

    resource_id: Mapped[int] = mapped_column(
        Serial,
        ForeignKey("resources.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    )
    hardware: Mapped[str] = mapped_column(sa.String(255))
    times: Mapped[list[Any]]
    set_aside: Mapped[str | None] = mapped_column(sa.Text)
    set_aside_at: Mapped[datetime | None]
    up: Mapped[bool | None]
    seen_at: Mapped[datetime | None]
    #: Since when no lease and no task has used the host.
    idle_since: Mapped[datetime | None]


class CreationTimesRow(Base):
    """The table of how long creations took: one row per resource type and source.

    The source is an id of an image or a template. ``times`` are the durations of the last creations
    in seconds, the oldest first.
    """

    __tablename__ = "creation_times"
    __table_args__ = (MARIADB,)

    resource_type: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    source: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    times: Mapped[list[Any]]
    updated_at: Mapped[datetime]


class CleaningRow(Base):
    """The table of cleanings that climate measures: one row per bare-metal node.

    The end of the lease began at ``began_at``. ``seen_at`` is when climate last saw the node in
    cleaning (NULL: not yet). ``resource_id`` has no foreign key, because its check would wait for
    transactions that lock the resource, and so delay the end of the lease.
    """

    __tablename__ = "cleanings"
    __table_args__ = (MARIADB,)

    resource_id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=False)
    lease_id: Mapped[str] = mapped_column(Id)
    resource_class: Mapped[str] = mapped_column(sa.String(255))
    began_at: Mapped[datetime]
    seen_at: Mapped[datetime | None]


class CleaningTimesRow(Base):
    """The table of how long cleanings took: one row per resource class of bare-metal nodes.

    ``times`` are the durations of the last cleanings in seconds, the oldest first.
    """

    __tablename__ = "cleaning_times"
    __table_args__ = (MARIADB,)

    resource_class: Mapped[str] = mapped_column(sa.String(255), primary_key=True)
    times: Mapped[list[Any]]


def has_preparation(resource_id: int | sa.SQLColumnExpression[int]) -> sa.Exists:
    """Return the SQL condition that a host has a preparation that is not over.

    A preparation is a task to get the host ready for a lease.
    """
    of_host = PreparationRow.resource_id == resource_id
    return sa.exists().where(of_host, PreparationRow.over_at.is_(None))


def is_quarantined(resource_id: sa.SQLColumnExpression[int]) -> sa.Exists:
    """Return the SQL condition that a host is in quarantine, so that no new lease can book it."""
    of_host = ReadinessRow.resource_id == resource_id
    return sa.exists().where(of_host, ReadinessRow.set_aside.is_not(None))


def is_shut_down(resource_id: sa.SQLColumnExpression[int]) -> sa.Exists:
    """Return the SQL condition that a host has a shutdown that is not over.

    A shutdown is a task to switch a host off, and on again later. Until it is over, the host may be
    without power.
    """
    return sa.exists().where(ShutdownRow.resource_id == resource_id, ShutdownRow.over_at.is_(None))
