"""Queue view: the due events that wait for a worker, as of the last query.

The full query is slow if very many events are due (PostgreSQL: 1.3 s for 100,000). So its result is
reused for many claims. Until the next full query, quick queries add the events that became due
since. So the many events of one project do not delay new events of another project.
"""

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta

from climate.db.events import waiting
from climate.db.events.ordering import BEGINNING
from climate.db.events.waiting import Group, PendingEvent
from climate.manager.process.runtime import Store

# Events per query. Beyond that, the database has to order all of them by turns, which takes 1 to
# 1.6 s for 100,000 (docs/performance.md). Only a backlog of many hours is longer.
PAGE = 100_000
# From this length on, each manager begins at a random position in the list. Managers that begin at
# the same position try to claim the same events, and only one of them succeeds.
_CROWD = 10_000
# A query that took longer than this (seconds) is reused. A shorter query runs again.
_SLOW_QUERY = 0.02
# A slow query's result is reused for this many times the query's duration: so queries take at most
# a twentieth of the time.
_REUSE = 20.0
# Upper bound (seconds) on reusing one result, so that released events reappear.
_LONGEST_REUSE = 10.0
_NEVER = float("-inf")
# An event may be written after its due time: a lease that starts now has the start of the current
# minute as its start date. So the last minute is queried again.
_WRITTEN_LATE = timedelta(minutes=1)
# This many batches in a row, of which less than half could be claimed, mean that other managers are
# probably claiming the same events. One such batch is normal: a few events are always blocked.
_FAILED_CLAIMS = 2
# Other managers are the cause only if they claimed more than a tenth of this view. Otherwise the
# events are blocked, and another position in the list would not help.
_UNCLAIMED = 0.9


class QueueView:
    """The pending events of each project and combination of resource types, in order."""

    def __init__(self, store: Store, rng: random.Random) -> None:
        """Begin empty; the first call of ``refresh`` queries the database."""
        self._store, self._rng = store, rng
        self._pending: dict[Group, dict[str, PendingEvent]] = {}
        self._known: dict[str, PendingEvent] = {}
        self._queried_at = BEGINNING
        self._fresh_until, self._requery_minute_at = _NEVER, _NEVER
        self._failed_claims, self._may_check = 0, False

    @property
    def is_fresh(self) -> bool:
        """Whether to reuse the last full query: it was slow and recent, and events remain."""
        return bool(self._pending) and self._store.clock.elapsed() < self._fresh_until

    @property
    def pending(self) -> Mapping[Group, Collection[PendingEvent]]:
        """The events found by queries and not removed since, by project and resource types."""
        return {group: events.values() for group, events in self._pending.items()}

    def refresh(self, skip: int) -> bool:
        """Replace all events by a full query that skips the first ``skip`` due events.

        Return whether there may be more events after those found.
        """
        began, now = self._store.clock.elapsed(), self._store.clock.now()
        with self._store.database.read() as session:
            events = waiting.pending(session, now, PAGE, skip, self._known)
        self._known, self._queried_at = {event.event_id: event for event in events}, now
        self._reset(self._spread(events))
        self._fresh_until, self._requery_minute_at = self._reusable_until(began), _NEVER
        return len(events) == PAGE

    def add_newly_due(self) -> None:
        """Add events that became due since the last query, and those written after their due time.

        To find the latter, it also queries the minute before the last query. If that is slow, it
        does so less often.
        """
        began, now = self._store.clock.elapsed(), self._store.clock.now()
        is_whole_minute = began >= self._requery_minute_at
        since = self._queried_at - _WRITTEN_LATE if is_whole_minute else self._queried_at
        with self._store.database.read() as session:
            events = waiting.newly_due(session, since, now, PAGE, self._known)
        self._known.update({event.event_id: event for event in events})
        self._queried_at = now
        self._add(self._spread(events))
        if is_whole_minute:
            self._requery_minute_at = self._reusable_until(began)

    def remove(self, events: Collection[PendingEvent]) -> None:
        """Remove events from this view until the next full query.

        A manager has claimed them, or they are blocked by other events.
        """
        for event in events:
            del self._pending[event.group][event.event_id]
        for group in {event.group for event in events}:
            if not self._pending[group]:
                del self._pending[group]

    def note_claims(self, tried: int, claimed: Collection[str]) -> None:
        """Record how many events this manager tried to claim, and the ids of those it claimed.

        If a claimed event is requeued, ``add_newly_due`` finds it again.
        """
        self._failed_claims = self._failed_claims + 1 if len(claimed) < tried / 2 else 0
        for id_ in claimed:
            self._known.pop(id_, None)

    def avoid_others(self) -> None:
        """If claims keep failing because other managers are faster, continue at another position.

        It removes the events that other managers have claimed, and rotates the others by a random
        number. If claims fail because events are blocked, it does nothing, and does not check this
        again before the next full query.
        """
        if not self._may_check or self._failed_claims < _FAILED_CLAIMS:
            return
        self._failed_claims, self._may_check = 0, False
        seen = {id_: event for events in self._pending.values() for id_, event in events.items()}
        with self._store.database.read() as session:
            unclaimed = waiting.unclaimed(session, seen)
        if len(unclaimed) < len(seen) * _UNCLAIMED:
            remaining = [event for id_, event in seen.items() if id_ in unclaimed]
            self._reset(_rotated(remaining, self._rng))

    def _reusable_until(self, began: float) -> float:
        """Return until when the result of a query is reused that began then and ends now."""
        now = self._store.clock.elapsed()
        took = now - began
        return now + (min(_REUSE * took, _LONGEST_REUSE) if took > _SLOW_QUERY else 0.0)

    def _spread(self, events: Sequence[PendingEvent]) -> Sequence[PendingEvent]:
        return _rotated(events, self._rng) if len(events) >= _CROWD else events

    def _reset(self, events: Iterable[PendingEvent]) -> None:
        self._pending, self._failed_claims, self._may_check = {}, 0, True
        self._add(events)

    def _add(self, events: Iterable[PendingEvent]) -> None:
        for event in events:
            self._pending.setdefault(event.group, {})[event.event_id] = event


def _rotated(events: Sequence[PendingEvent], rng: random.Random) -> Sequence[PendingEvent]:
    """Return the events in their order, beginning at a random place."""
    first = rng.randrange(len(events)) if events else 0
    return [*events[first:], *events[:first]]
