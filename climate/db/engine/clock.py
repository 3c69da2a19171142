"""The current time of the database server, which is the clock that all processes share."""

from datetime import UTC, datetime

import sqlalchemy as sa

from climate.db.engine.database import Database

_QUERIES = {
    "postgresql": sa.text("SELECT clock_timestamp()"),
    "mysql": sa.text("SELECT UTC_TIMESTAMP(6)"),
}


def present(database: Database) -> datetime:
    """Return the time of the database server (aware UTC); raise if the server does not answer.

    SQLite has no server. All processes that share the file also share the machine's clock, so the
    result is the machine's time.
    """
    query = _QUERIES.get(database.dialect)
    if query is None:
        return datetime.now(UTC)
    with database.engine.connect() as connection:
        now: datetime = connection.scalar(query)
    return now.replace(tzinfo=UTC) if now.tzinfo is None else now.astimezone(UTC)
