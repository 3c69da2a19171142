"""The booking feed on MariaDB, where managers number the changes after their commit.

A change gets its id before its transaction commits, so a change with a lower id may appear later.
So ``number`` assigns numbers (``seq``) to committed changes, 1, 2, 3 and so on. A reader reads in
one statement all changes from its last number on, and all that have no number yet.

Proof that a reader receives each change exactly once:

1. Numbers become visible in their order. Each run of ``number`` reads the highest number n, reads
   committed changes without a number, and writes n + 1 and so on. Two runs with the same n both
   write n + 1, and the unique index lets only one commit. A run that writes higher numbers has read
   n after its commit. So a statement that sees the number n sees all lower ones.
2. Nothing is missed. Each statement reads all committed changes without a number. If a change has a
   number above the reader's last one, the statement reads it, too. If its number is not above, the
   reader's earlier statement saw it, by 1.
3. Nothing is received twice. A reader remembers the ids of changes without a number (``ahead``).
   Such a change is read again without a number, or with one above the reader's last number, and
   its id is known. All other changes are read only if their number is above the last one.

A snapshot reads its position and the bookings in one read view, so the proof holds from there on.

On Galera, all nodes apply transactions in one order. Two runs of ``number`` on two nodes conflict
in the unique index, so certification rejects one. A statement sees the state after a prefix of that
order; ``wsrep_sync_wait`` makes it contain all that was committed before. On a node that is behind,
a reader does not find its last number, and loads a new snapshot. The rows of changes replicate like
all others; triggers do not fire again on other nodes.
"""

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.db.engine.types import UtcDateTime
from climate.db.resources.feed.numbered import NumberedFeed
from climate.db.resources.feed.port import Snapshot
from climate.db.resources.feed.rows import CHANGES

# The time limit of connections is for short statements; this one is in seconds.
_PATIENCE = sa.text("SET max_statement_time = 600")
_NOW = sa.func.utc_timestamp(sa.literal_column("6"), type_=UtcDateTime())
_HIGHEST = sa.select(sa.func.coalesce(sa.func.max(CHANGES.c.seq), 0))
# Changes per call of ``number``.
_BATCH = 500
_UNNUMBERED = sa.select(CHANGES.c.id).where(CHANGES.c.seq.is_(None)).order_by(CHANGES.c.id)


class MariadbFeed(NumberedFeed):
    """The booking feed on MariaDB; see BookingFeed."""

    def __init__(self) -> None:
        """Build the statements."""
        super().__init__(CHANGES.c.seq, _NOW)

    def snapshot(self, session: Session, types: Collection[str]) -> Snapshot:
        """Implement BookingFeed.snapshot."""
        session.connection().detach()  # the pool must not reuse a connection with this limit
        session.execute(_PATIENCE)
        return super().snapshot(session, types)

    def number(self, session: Session) -> int:
        """Implement BookingFeed.number: assign numbers to up to ``_BATCH`` changes.

        The changes are read without locks: a statement that locks them would wait for transactions
        in progress. If another process numbers at the same time, one of them fails at the unique
        index, and ``Database.write`` runs it again.
        """
        highest = session.execute(_HIGHEST).scalar_one()
        ids = session.scalars(_UNNUMBERED.limit(_BATCH)).all()
        if ids:
            place = sa.func.field(CHANGES.c.id, *ids)
            numbered = sa.update(CHANGES).where(CHANGES.c.id.in_(ids))
            session.execute(numbered.values(seq=highest + place))
        return len(ids)
