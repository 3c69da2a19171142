"""The booking feed on SQLite, where the order of ids is the order of commits.

Proof: a transaction that writes holds SQLite's only write lock from its first change to its commit.
A trigger inserts a change, and so gets its id, while its transaction has that lock. So of two
transactions, the one that commits first has all lower ids. Ids are never used twice, and have no
gaps: AUTOINCREMENT keeps the last id in a table, whose change is rolled back with the transaction.
"""

import sqlalchemy as sa

from climate.db.engine.types import UtcDateTime
from climate.db.resources.feed.numbered import NumberedFeed
from climate.db.resources.feed.rows import CHANGES

_NOW = sa.func.strftime("%Y-%m-%d %H:%M:%f000", "now", type_=UtcDateTime())

SQLITE = NumberedFeed(CHANGES.c.id, _NOW)
