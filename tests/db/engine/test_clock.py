"""Each database tells the time with its zone."""

from datetime import UTC, datetime

from climate.db.engine.clock import present
from climate.db.engine.database import Database


def test_the_database_tells_the_time_in_utc(database: Database) -> None:
    first, second = present(database), present(database)
    assert first.tzinfo is UTC
    assert first <= second
    assert abs((datetime.now(UTC) - second).total_seconds()) < 3600, "no zone was lost"
