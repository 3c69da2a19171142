"""The choice of the booking feed for a database."""

from climate.db.resources.feed.mariadb import MariadbFeed
from climate.db.resources.feed.port import BookingFeed
from climate.db.resources.feed.postgresql import PostgresqlFeed
from climate.db.resources.feed.sqlite import SQLITE

_FEEDS: dict[str, BookingFeed] = {
    "postgresql": PostgresqlFeed(),
    "mysql": MariadbFeed(),
    "sqlite": SQLITE,
}


def for_dialect(name: str) -> BookingFeed:
    """Return the booking feed for a database; ``name`` is ``Database.dialect``."""
    return _FEEDS[name]
