"""All rows of a database, to compare and to restore."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.db.engine.database import Database
from climate.db.tables.leases import Base

Rows = dict[str, list[dict[str, Any]]]
# Triggers write the table of booking changes, also while the other tables are restored.
_TABLES = [table for table in Base.metadata.sorted_tables if table.name != "booking_changes"]


def dump(database: Database) -> Rows:
    """Return the rows of every table but one, without computed columns, in order of their keys."""
    with database.read() as session:
        return {
            table.name: [dict(row) for row in session.execute(_stored(table)).mappings()]
            for table in _TABLES
        }


def _stored(table: sa.Table) -> sa.Select[Any]:
    columns = [column for column in table.columns if column.computed is None]
    return sa.select(*columns).order_by(*table.primary_key)


def put_back(database: Database, rows: Rows) -> None:
    def work(session: Session) -> None:
        for table in reversed(_TABLES):
            session.execute(sa.delete(table))
        for table in _TABLES:
            if rows[table.name]:
                session.execute(sa.insert(table), rows[table.name])

    database.write(work)
