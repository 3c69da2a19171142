"""The tables of the wait list: leases that wait for capacity, and who places them now."""

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from climate.db.engine.types import MARIADB, Id
from climate.db.tables.leases import Base


class WaitRow(Base):
    """The table of waiting leases; ``climate.core.lease.wait_list.Wait`` describes the columns.

    ``length_s`` is the duration of the lease in seconds. The row stays after the lease was booked,
    until its start has begun: until then, the start may move to an earlier time.
    """

    __tablename__ = "waits"
    __table_args__ = (
        Index(None, "pool", "rank_at", "lease_id"),
        # For the count of open leases: the end of a waiting lease may be in the past.
        Index(None, "project_id"),
        Index(None, "user_id"),
        MARIADB,
    )

    lease_id: Mapped[str] = mapped_column(
        Id, ForeignKey("leases.id", ondelete="CASCADE"), primary_key=True
    )
    project_id: Mapped[str] = mapped_column(sa.String(255))
    user_id: Mapped[str] = mapped_column(sa.String(255))
    pool: Mapped[str] = mapped_column(sa.String(255))
    shape: Mapped[str] = mapped_column(sa.String(64))
    rank_at: Mapped[datetime]
    priority: Mapped[int]
    asked_at: Mapped[datetime]
    length_s: Mapped[int] = mapped_column(sa.BigInteger)
    earliest: Mapped[datetime]
    end_by: Mapped[datetime]
    until: Mapped[datetime]
    is_exempt: Mapped[bool]
    promised_start: Mapped[datetime | None]
    held_back: Mapped[str | None] = mapped_column(sa.String(16))
    tried_at: Mapped[datetime | None]


class WaitTurnRow(Base):
    """The table of turns: ``owner`` places the leases of a pool until ``held_until``.

    If ``is_wanted_again`` is set, the owner must look at the pool once more before it leaves.
    """

    __tablename__ = "wait_turns"
    __table_args__ = (MARIADB,)

    pool: Mapped[str] = mapped_column(sa.String(255), primary_key=True)
    owner: Mapped[str | None] = mapped_column(sa.String(64))
    held_until: Mapped[datetime | None]
    is_wanted_again: Mapped[bool]


WAITS, WAIT_TURNS = (Base.metadata.tables[row.__tablename__] for row in (WaitRow, WaitTurnRow))
