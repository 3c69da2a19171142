"""The current time of the database server. All processes share this clock."""

from datetime import UTC, datetime

import sqlalchemy as sa

from climate.db.engine.database import Database

_QUERIES = {
    "postgresql": sa.text("SELECT clock_timestamp()"),
    "mysql": sa.text("SELECT UTC_TIMESTAMP(6)"),
}


def present(database: Database) -> datetime:
    """Return the current time of the database server in UTC; raise if the server does not answer.

    SQLite has no server. So the result is the time of the machine, which all processes that use the
    file share.
    """
    query = _QUERIES.get(database.dialect)
    if query is None:
        return datetime.now(UTC)
    with database.engine.connect() as connection:
        now: datetime = connection.scalar(query)
    return now.replace(tzinfo=UTC) if now.tzinfo is None else now.astimezone(UTC)
