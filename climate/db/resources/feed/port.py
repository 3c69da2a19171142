"""The interface between a copy of the calendar in memory and the database: ``BookingFeed``.

A copy begins with ``snapshot`` and then applies the result of each ``changes_since``, in order.
Afterwards it has the bookings that were committed when the last call began. It misses no change and
receives none twice, however late a transaction commits.

Bookings that are over are not part of the feed:

- The snapshot leaves them out, and triggers record no change of them. So a copy must drop a booking
  by itself when it is over. Whole bookings may overlap until it does so.
- A removal may concern a booking that the copy does not have, because the booking was over before
  the snapshot. The copy ignores such a removal.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from sqlalchemy.orm import Session

from climate.core.matching.booked_hours.booking_change import (
    BookingChange,
    ResourceBookings,
    ResourceSpans,
    ResourceState,
)
from climate.db.engine.database import Database

#: How long ``prune`` keeps changes, and how many it deletes in a call.
KEPT = timedelta(hours=1)
PRUNED = 10_000


@dataclass(frozen=True, slots=True)
class Position:
    """How far a reader has read.

    Only implementations of BookingFeed use ``mark`` and ``history``. ``mark`` is a place in the
    order of commits. ``history`` identifies the database and its past: a different value means that
    commits may have been lost. ``ahead`` contains ids of changes that were read before they got a
    place in the order. ``read_at`` is the database's time of the call that read the latest change,
    or of a later call.
    """

    mark: str
    history: str
    ahead: frozenset[int] = frozenset()
    read_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The resources and bookings at a ``position``; ``read_at`` is the database's time.

    ``bookings`` reads from the database while the caller iterates, so the session must stay open.
    """

    position: Position
    read_at: datetime
    resources: Sequence[ResourceState]
    bookings: Iterable[ResourceBookings]


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes between two positions, of resources of all types.

    All added bookings come before all removed ones, so bookings may overlap in between; equal
    bookings may be added several times. ``resources`` contains the ids of resources that were
    added, removed or changed: read their states again before you apply ``changes``.

    If ``is_lost`` is set, the feed cannot tell what changed since the old position, and the other
    fields have no meaning: load a new snapshot.
    """

    position: Position
    changes: Sequence[BookingChange] = ()
    resources: Collection[int] = frozenset()
    is_lost: bool = False


class BookingFeed(Protocol):
    """What a copy of the calendar needs from the database (a port); one implementation each."""

    def snapshot(self, session: Session, types: Collection[str]) -> Snapshot:
        """Read all resources of these types with their bookings that are not over.

        Needs a session of ``Database.snapshot``, so that all statements see the same state.
        """

    def changes_since(self, session: Session, position: Position) -> Changes:
        """Return what was committed since ``position``; executes one SQL statement.

        The result contains all transactions that were committed before the call began, so the
        session must be new: any of ``Database.read``, or of ``Database.snapshot``. With the latter,
        ``resource_states`` and ``spans_of`` see the same state in the same session.
        """

    def latest_changes(self, database: Database, position: Position) -> Changes:
        """Return the result of ``changes_since``, without a session. This is faster."""

    def resource_states(self, session: Session, ids: Collection[int]) -> list[ResourceState]:
        """Return the present states of these resources; ids without a resource are left out."""

    def spans_of(self, session: Session, ids: Collection[int]) -> list[ResourceSpans]:
        """Return the times of the present bookings of these resources that are not over.

        The owners of bookings are in other tables, so reading them would take ten times as long.
        The result contains changes that later calls of ``changes_since`` return once more, unless
        ``changes_since`` runs first in the same session of ``Database.snapshot``.
        """

    def number(self, session: Session) -> int:
        """Assign places in the order of commits to new changes; return how many got one.

        Managers call this method often, and readers if managers do not. Only MariaDB needs it:
        without it, readers stay correct, but read the same changes again and again.
        """

    def prune(self, session: Session) -> int:
        """Delete up to ``PRUNED`` changes that are older than ``KEPT``; return how many.

        The database's clock decides.
        """
