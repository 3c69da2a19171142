"""Tables of processes: the managers at work, and advisory locks on a Galera cluster."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from climate.db.engine.types import MARIADB
from climate.db.tables.leases import Base


class AdvisoryLockRow(Base):
    """An advisory lock that has been taken at least once; ``name`` is the SHA-1 of its name.

    Only a Galera cluster uses it. Its own advisory locks act within one node.
    """

    __tablename__ = "advisory_locks"
    __table_args__ = (MARIADB,)

    name: Mapped[str] = mapped_column(sa.String(40), primary_key=True)
    owner: Mapped[str | None] = mapped_column(sa.String(64))
    held_until: Mapped[datetime | None]


class ManagerRow(Base):
    """A manager process, with its last heartbeat.

    ``loops`` has, by the name of each loop, ``age`` and ``interval`` in seconds: ``age`` is the
    time from its last run without an error to the heartbeat.
    """

    __tablename__ = "managers"
    __table_args__ = (MARIADB,)

    id: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    started_at: Mapped[datetime]
    beat_at: Mapped[datetime]
    loops: Mapped[dict[str, Any]]
