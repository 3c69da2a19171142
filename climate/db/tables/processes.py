"""Tables of what processes hold: advisory locks on a Galera cluster."""

from datetime import datetime

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
