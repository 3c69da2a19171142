"""The tables of processes: running managers, and advisory locks on a Galera cluster."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from climate.db.engine.types import MARIADB
from climate.db.tables.leases import Base


class AdvisoryLockRow(Base):
    """The table of advisory locks, used only on a Galera cluster.

    MariaDB's own advisory locks act only within one node of such a cluster. ``name`` is the SHA-1
    of the lock's name. ``owner`` holds the lock until ``held_until``. The row stays after the lock
    was released.
    """

    __tablename__ = "advisory_locks"
    __table_args__ = (MARIADB,)

    name: Mapped[str] = mapped_column(sa.String(40), primary_key=True)
    owner: Mapped[str | None] = mapped_column(sa.String(64))
    held_until: Mapped[datetime | None]


class ManagerRow(Base):
    """The table of manager processes, with the last heartbeat (``beat_at``) of each.

    A loop is a task that the process repeats. ``loops`` maps the name of each loop to two numbers
    of seconds: ``interval``, its planned interval, and ``age``, the time from its last run without
    an error to the heartbeat.
    """

    __tablename__ = "managers"
    __table_args__ = (MARIADB,)

    id: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    started_at: Mapped[datetime]
    beat_at: Mapped[datetime]
    loops: Mapped[dict[str, Any]]
