"""All rows of a database, to compare and to restore."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.db.engine.database import Database
from climate.db.tables.leases import Base

Rows = dict[str, list[dict[str, Any]]]


def dump(database: Database) -> Rows:
    """Return the rows of every table, without computed columns, in order of their keys."""
    with database.read() as session:
        return {
            table.name: [dict(row) for row in session.execute(_stored(table)).mappings()]
            for table in Base.metadata.sorted_tables
        }


def _stored(table: sa.Table) -> sa.Select[Any]:
    columns = [column for column in table.columns if column.computed is None]
    return sa.select(*columns).order_by(*table.primary_key)


def put_back(database: Database, rows: Rows) -> None:
    def work(session: Session) -> None:
        for table in reversed(Base.metadata.sorted_tables):
            session.execute(sa.delete(table))
        for table in Base.metadata.sorted_tables:
            if rows[table.name]:
                session.execute(sa.insert(table), rows[table.name])

    database.write(work)
