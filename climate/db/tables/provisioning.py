"""The tables about hosts that are got ready, and switched off meanwhile, typed."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from climate.db.engine.types import MARIADB, Id, Serial
from climate.db.tables.leases import Base


class PreparationRow(Base):
    """A host that is to be ready for a reservation by a moment; it outlives the lease.

    The unique key keeps two managers from asking for the same.
    """

    __tablename__ = "preparations"
    __table_args__ = (
        UniqueConstraint("reservation_id", "resource_id", "needed_at"),
        Index(None, "lease_id"),
        Index(None, "resource_id"),
        Index(None, "needed_at", "id"),
        # What is not over, and of that what waits for somebody.
        Index(None, "over_at", "progress"),
        MARIADB,
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    resource_id: Mapped[int] = mapped_column(Serial, ForeignKey("resources.id", ondelete="CASCADE"))
    node: Mapped[str] = mapped_column(sa.String(255))
    hardware: Mapped[str] = mapped_column(sa.String(255))
    lease_id: Mapped[str] = mapped_column(Id)
    reservation_id: Mapped[str] = mapped_column(Id)
    progress: Mapped[str] = mapped_column(sa.String(16))
    wanted_at: Mapped[datetime]
    needed_at: Mapped[datetime]
    lead: Mapped[float] = mapped_column(sa.Double)
    replace_at: Mapped[datetime | None]
    owner: Mapped[str | None] = mapped_column(sa.String(255))
    claimed_until: Mapped[datetime | None]
    attempt: Mapped[int]
    accepted_at: Mapped[datetime | None]
    ready_at: Mapped[datetime | None]
    over_at: Mapped[datetime | None]
    seconds: Mapped[dict[str, Any]]
    reason: Mapped[str | None] = mapped_column(sa.Text)


class ReadinessRow(Base):
    """What is known of how a host gets ready: its last times, and why it is booked for nobody."""

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
    #: Since when nobody was seen to have the host, or to be at it.
    idle_since: Mapped[datetime | None]


class ShutdownRow(Base):
    """A host that is to be without power while nobody needs it, or that was."""

    __tablename__ = "shutdowns"
    __table_args__ = (
        Index(None, "wanted_at", "id"),
        # What is not over, and of that what waits for somebody.
        Index(None, "over_at", "progress"),
        Index(None, "resource_id", "over_at"),
        MARIADB,
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    resource_id: Mapped[int] = mapped_column(Serial, ForeignKey("resources.id", ondelete="CASCADE"))
    node: Mapped[str] = mapped_column(sa.String(255))
    hardware: Mapped[str] = mapped_column(sa.String(255))
    progress: Mapped[str] = mapped_column(sa.String(16))
    wanted_at: Mapped[datetime]
    ahead: Mapped[float] = mapped_column(sa.Double)
    owner: Mapped[str | None] = mapped_column(sa.String(255))
    claimed_until: Mapped[datetime | None]
    attempt: Mapped[int]
    accepted_at: Mapped[datetime | None]
    off_at: Mapped[datetime | None]
    over_at: Mapped[datetime | None]
    reason: Mapped[str | None] = mapped_column(sa.Text)


def is_shut_down(resource_id: sa.SQLColumnExpression[int]) -> sa.Exists:
    """Return whether climate has a host without power, or on its way there or back."""
    return sa.exists().where(ShutdownRow.resource_id == resource_id, ShutdownRow.over_at.is_(None))
