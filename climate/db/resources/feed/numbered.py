"""Reading of changes that have consecutive numbers: the common part of SQLite and MariaDB.

Numbers have no gaps, and a change with a number is visible only together with all changes with
lower numbers. A position consists of the highest number that was read and the time at which that
change was made (the anchor). While the database has the anchor, it has all changes up to it, and
has deleted none after it: ``prune`` deletes only changes with lower numbers, and always leaves one.
A database that was restored from a backup has no change with that number, or another one.

Some changes may have no number yet. A reader applies them as well, and remembers their ids
(``ahead``), so that it does not apply them again when they have numbers.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.matching.booked_hours.booking_change import ResourceSpans, ResourceState
from climate.db.engine.database import Database
from climate.db.resources.feed import rows
from climate.db.resources.feed.port import KEPT, PRUNED, Changes, Position, Snapshot
from climate.db.resources.feed.rows import CHANGE_COLUMNS, to_changes

_Row = Any  # a row with CHANGE_COLUMNS, its ``number`` or None, and ``read_at``


def changes_after(position: Position, read: Sequence[_Row]) -> Changes:
    """Return the changes after a position.

    ``read`` are all changes whose number is not below ``position.mark``, and all without a number,
    as one statement has read them.
    """
    numbered = [row for row in read if row.number is not None]
    first = min(numbered, key=lambda row: row.number, default=None)
    ids = {row.id for row in read}
    if not (_is_anchored(position, first) and position.ahead <= ids):
        return Changes(position, is_lost=True)
    last = int(position.mark)
    new = [
        row
        for row in read
        if (row.number is None or row.number > last) and row.id not in position.ahead
    ]
    return to_changes(position_after(read, position), new)


def _is_anchored(position: Position, first: _Row | None) -> bool:
    """Return whether the lowest numbered row continues what was read up to a position."""
    if position.mark == "0":
        return first is None or first.number == 1
    return (
        first is not None
        and str(first.number) == position.mark
        and first.made_at.isoformat() == position.history
    )


def position_after(read: Sequence[_Row], before: Position) -> Position:
    """Return the position of a reader that has read these rows after ``before``."""
    ahead = frozenset(row.id for row in read if row.number is None)
    numbered = [row for row in read if row.number is not None]
    read_at = read[0].read_at if read else before.read_at
    if not numbered:
        return Position(before.mark, before.history, ahead, read_at)
    last = max(numbered, key=lambda row: row.number)
    return Position(str(last.number), last.made_at.isoformat(), ahead, read_at)


class NumberedFeed:
    """The booking feed on a database whose changes have numbers; see BookingFeed.

    ``number`` is the column with the number of a change. ``now`` is the SQL of the present time.
    """

    def __init__(self, number: sa.Column[Any], now: sa.ColumnElement[datetime]) -> None:
        """Build the statements."""
        self._number, self._now = number, sa.select(now)
        change = sa.select(*CHANGE_COLUMNS, number.label("number"), now.label("read_at"))
        mark = sa.bindparam("mark", type_=sa.BigInteger)
        is_new = number.is_(None) if number.nullable else sa.false()
        self._since = change.where(sa.or_(number >= mark, is_new))

    def snapshot(self, session: Session, types: Collection[str]) -> Snapshot:
        """Implement BookingFeed.snapshot."""
        highest = session.scalar(sa.select(sa.func.max(self._number))) or 0
        last = session.execute(self._since, {"mark": max(highest, 1)}).all()
        now = session.execute(self._now).scalar_one()
        return Snapshot(
            position_after(last, Position("0", "", read_at=now)),
            now,
            rows.states_of_types(session, types),
            rows.bookings(session, rows.of_types(types), now),
        )

    def changes_since(self, session: Session, position: Position) -> Changes:
        """Implement BookingFeed.changes_since."""
        read = session.execute(self._since, {"mark": int(position.mark)}).all()
        return changes_after(position, read)

    def latest_changes(self, database: Database, position: Position) -> Changes:
        """Implement BookingFeed.latest_changes."""
        with database.read_at_once() as session:
            return self.changes_since(session, position)

    def resource_states(self, session: Session, ids: Collection[int]) -> list[ResourceState]:
        """Implement BookingFeed.resource_states."""
        return rows.resource_states(session, ids)

    def spans_of(self, session: Session, ids: Collection[int]) -> list[ResourceSpans]:
        """Implement BookingFeed.spans_of."""
        return list(rows.spans(session, ids, session.execute(self._now).scalar_one()))

    def number(self, session: Session) -> int:  # noqa: ARG002 - MariaDB overrides it
        """Implement BookingFeed.number: do nothing, because each change has its number."""
        return 0

    def prune(self, session: Session) -> int:
        """Implement BookingFeed.prune: keep the newest of the old changes as an anchor."""
        before = session.execute(self._now).scalar_one() - KEPT
        numbered = sa.select(self._number.label("number"), rows.CHANGES.c.made_at)
        numbered = numbered.where(self._number.is_not(None)).order_by(self._number).limit(PRUNED)
        oldest = numbered.subquery()
        newest = sa.select(sa.func.max(oldest.c.number)).where(oldest.c.made_at < before)
        anchor = session.scalar(newest)
        if anchor is None:
            return 0
        result: Any = session.execute(sa.delete(rows.CHANGES).where(self._number < anchor))
        return int(result.rowcount)
