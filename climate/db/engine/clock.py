"""The current time, from the database server: all processes that share it use one clock."""

from datetime import UTC, datetime

import sqlalchemy as sa

from climate.db.engine.database import Database

_QUERIES = {
    "postgresql": sa.text("SELECT clock_timestamp()"),
    "mysql": sa.text("SELECT UTC_TIMESTAMP(6)"),
}


def present(database: Database) -> datetime:
    """Return the time of the database server, aware UTC; raises if the server does not answer.

    SQLite has no server: all processes that share the file also share the machine's clock.
    """
    query = _QUERIES.get(database.dialect)
    if query is None:
        return datetime.now(UTC)
    with database.engine.connect() as connection:
        now: datetime = connection.scalar(query)
    return now.replace(tzinfo=UTC) if now.tzinfo is None else now.astimezone(UTC)
