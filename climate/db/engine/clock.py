"""What time it is: the database says so, for all processes that share it."""

from datetime import UTC, datetime

import sqlalchemy as sa

from climate.db.engine.database import Database

_ASK = {
    "postgresql": sa.text("SELECT clock_timestamp()"),
    "mysql": sa.text("SELECT UTC_TIMESTAMP(6)"),
}


def present(database: Database) -> datetime:
    """Return the time of the database's server, aware UTC; raises if it does not answer.

    SQLite's is the machine's, to the microsecond, which all that share a file have in common.
    """
    question = _ASK.get(database.dialect)
    if question is None:
        return datetime.now(UTC)
    with database.engine.connect() as connection:
        told: datetime = connection.scalar(question)
    return told.replace(tzinfo=UTC) if told.tzinfo is None else told.astimezone(UTC)
