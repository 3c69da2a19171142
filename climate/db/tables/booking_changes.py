"""The table of booking changes, which database triggers write."""

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from climate.db.engine.types import MARIADB, Serial
from climate.db.tables.leases import Base

_XID, _SEQ = sa.text("xid IS NOT NULL"), sa.text("seq IS NOT NULL")


class BookingChangeRow(Base):
    """The table of changes of bookings and resources, which is the source of the booking feed.

    Triggers of migration 0026 write a row for each allocation that was added or removed, in the
    transaction that did so. ``project_id`` is the owner of the lease; it is NULL if the lease was
    deleted. A row with ``start_at`` NULL means that the resource or its properties changed.
    ``made_at`` is a time of the database's clock.

    Readers need the order of the commits (see ``climate.db.resources.feed``). On PostgreSQL, it
    follows from ``xid``, the number of the transaction. On MariaDB, managers assign ``seq`` after
    the commit. On SQLite, ``id`` is that order.
    """

    __tablename__ = "booking_changes"
    __table_args__ = (
        # Empty on databases that leave the column NULL (but MariaDB has no partial indexes).
        Index("booking_changes_xid", "xid", postgresql_where=_XID, sqlite_where=_XID),
        Index("booking_changes_seq", "seq", unique=True, postgresql_where=_SEQ, sqlite_where=_SEQ),
        {**MARIADB, "sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(Serial, primary_key=True)
    resource_id: Mapped[int] = mapped_column(sa.BigInteger)
    project_id: Mapped[str | None] = mapped_column(sa.String(255))
    start_at: Mapped[datetime | None]
    busy_until: Mapped[datetime | None]
    is_shared: Mapped[bool | None]
    is_added: Mapped[bool | None]
    made_at: Mapped[datetime]
    xid: Mapped[int | None] = mapped_column(sa.BigInteger)
    seq: Mapped[int | None] = mapped_column(sa.BigInteger)
