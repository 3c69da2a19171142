"""The queue of one manager: which events are due, and which of them run next.

If very many events are due, the full query (for all due events) is slow: 1.3 s for 100,000 events
on PostgreSQL. So ``QueueView`` reuses the result for many claims. Until the next full query, quick
queries add the events that became due since the last query.

``FairShare`` chooses events for the workers. A batch is a list of events that one worker runs.
These rules prevent one project, or hung calls, from occupying all workers:

- If there are more workers than resource types, some workers are reserved for each resource type,
  and some for events without a resource type (reminders, users' events, finalizers).
- A project never occupies all workers, unless there is only one worker.
- The project that occupies the fewest workers is served first. Among equals, ``FairShare`` chooses
  the project and resource types that it served least recently.
- If plug-in calls for a combination of resource types are quick, a batch contains many events of
  this combination, from all projects. At most two workers run such batches of the same combination.
- If a resource type has as many hung calls as there are workers, no event of this type starts.

A finalizer is a task that outlives its lease; it belongs to no project.
"""

import random
import threading
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta

from climate.db.events import waiting
from climate.db.events.ordering import BEGINNING
from climate.db.events.waiting import Group, PendingEvent
from climate.manager.claims import Batch
from climate.manager.process.runtime import Store

# Events per query. Beyond that, the database has to order all of them by turns, which takes 1 to
# 1.6 s for 100,000 (docs/evidence/performance.md). Only a backlog of many hours is longer.
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
# Stands for the resource type of events that have none: reminders, users' events, finalizers.
_NO_TYPE = frozenset({""})
# Workers that run batches of one combination of types. One stores results while the other calls;
# more only contend for the same locks and the same processor.
_BATCH_WORKERS = 2
# Events in one batch. 400 instead of 200 drained a queue faster; a killed manager's batches are
# attempted twice, so it is not larger.
LARGEST_BATCH = 400
# Target duration (seconds) of the calls of one batch: a new event waits at most that long.
_BATCH_TIME = 0.1
# Weight of the previous estimate per call since. One slow call makes the next batches small, but
# after ten quick calls only a tenth of it is left.
_DECAY = 0.8


class QueueView:
    """The due events that this manager may claim and run, as found by the last queries.

    The events are grouped by project and combination of resource types. Each group is in the order
    in which to run its events.
    """

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
        """Whether to reuse the result of the last full query instead of querying again.

        This is so if that query was slow and recent, and the view still contains events.
        """
        return bool(self._pending) and self._store.clock.elapsed() < self._fresh_until

    @property
    def pending(self) -> Mapping[Group, Collection[PendingEvent]]:
        """The events in this view, by project and combination of resource types."""
        return {group: events.values() for group, events in self._pending.items()}

    def refresh(self, skip: int) -> bool:
        """Query the database for due events, and replace all events in this view by the result.

        A query returns at most ``PAGE`` (100,000) events. ``skip`` is how many due events to skip
        at the beginning: 0 for the first page, ``PAGE`` for the second. Returns True if there may
        be a further page.
        """
        began, now = self._store.clock.elapsed(), self._store.clock.now()
        with self._store.database.read() as session:
            events = waiting.pending(session, now, PAGE, skip, self._known)
        self._known, self._queried_at = {event.event_id: event for event in events}, now
        self._reset(self._spread(events))
        self._fresh_until, self._requery_minute_at = self._reusable_until(began), _NEVER
        return len(events) == PAGE

    def add_newly_due(self) -> None:
        """Add the events that became due since the last query, and events that were written late.

        Written late means after the due time. To find such events, the query also covers the minute
        before the last query. If such a query is slow, the next queries leave out this minute for a
        while.
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
        """Remove events that this manager is about to claim; a later query may find them again."""
        for event in events:
            del self._pending[event.group][event.event_id]
        for group in {event.group for event in events}:
            if not self._pending[group]:
                del self._pending[group]

    def note_claims(self, tried: int, claimed: Collection[str]) -> None:
        """Record how many events this manager tried to claim, and the ids of those it has claimed.

        If a claimed event is requeued later, ``add_newly_due`` finds the event again.
        """
        self._failed_claims = self._failed_claims + 1 if len(claimed) < tried / 2 else 0
        for id_ in claimed:
            self._known.pop(id_, None)

    def avoid_others(self) -> None:
        """Continue at another position of the queue if other managers claim the same events.

        If several claims have failed, this method queries which events in this view are still
        unclaimed:

        - If many are claimed, the view drops the claimed events, and begins at a random position
          among the rest.
        - If few are claimed, the claims failed for another reason, or this manager follows closely
          behind another one. Then only a long view begins at a random position, and this method
          does not query again until the next ``refresh``.
        """
        if not self._may_check or self._failed_claims < _FAILED_CLAIMS:
            return
        self._failed_claims, self._may_check = 0, False
        seen = {id_: event for events in self._pending.values() for id_, event in events.items()}
        with self._store.database.read() as session:
            unclaimed = waiting.unclaimed(session, seen)
        remaining = [event for id_, event in seen.items() if id_ in unclaimed]
        if len(remaining) < len(seen) * _UNCLAIMED:
            self._reset(_rotated(remaining, self._rng))
        elif len(remaining) >= _CROWD:
            self._reset(_rotated(remaining, self._rng))
            self._may_check = False

    def _reusable_until(self, began: float) -> float:
        """Return the time until which to reuse the result of a query that has just ended.

        ``began`` is when the query began. Both times are in seconds of the monotonic clock.
        """
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
    """Return the events from a random position to the end, then the events before this position."""
    first = rng.randrange(len(events)) if events else 0
    return [*events[first:], *events[:first]]


class BatchSizeEstimator:
    """Estimates, for each combination of resource types, how many events a batch may have.

    A batch is a list of events that one worker runs one after the other. Storing the results of a
    hundred events takes hardly longer than storing one, so large batches are efficient. But an
    event that waits for a slow call of the same batch is late. So only events whose plug-in calls
    are quick share a batch.
    """

    def __init__(self) -> None:
        """Begin without estimates. Batches have one event until the first call is recorded."""
        self._seconds: dict[frozenset[str], float] = {}
        self._lock = threading.Lock()

    def note(self, types: frozenset[str], seconds: float, count: int = 1) -> None:
        """Record that ``count`` plug-in calls on these resource types took ``seconds`` in total."""
        with self._lock:
            before = self._seconds.get(types, 0.0)
            self._seconds[types] = max(seconds / count, before * _DECAY**count)

    def max_batch(self, types: frozenset[str]) -> int:
        """Return the maximum number of events in a batch on these resource types; at least 1."""
        if not types:  # no plug-in is called
            return LARGEST_BATCH
        seconds = self._seconds.get(types)
        if seconds is None:
            return 1
        return max(1, min(LARGEST_BATCH, int(_BATCH_TIME / max(seconds, 1e-9))))


class FairShare:
    """Chooses events for the free workers of one manager; no project occupies all workers."""

    def __init__(self, workers: int, types: Collection[str], sizes: BatchSizeEstimator) -> None:
        """Prepare to share worker threads among resource types.

        ``workers`` is the number of worker threads, and ``types`` are the enabled resource types.
        ``sizes`` sets how many events a batch may have.
        """
        self._workers = workers
        self._sizes = sizes
        self._types = _NO_TYPE | set(types)
        count = len(self._types)
        self._reserved = max(1, workers // (2 * count)) if workers > count else 0
        self._most_of_project = max(1, workers - max(1, self._reserved))
        self._turn = 0
        self._last_turn: dict[Group, int] = {}

    def choose(
        self,
        pending: Mapping[Group, Iterable[PendingEvent]],
        running: Collection[Batch],
        abandoned: Collection[Batch],
    ) -> list[list[PendingEvent]]:
        """Return the events to start now: a list for each free worker, the most urgent first.

        ``pending`` contains the due events by project and resource types. ``running`` are the
        batches of busy workers. ``abandoned`` are batches whose plug-in call the worker pool no
        longer waits for, although the call still runs.
        """
        usage = _Usage(running, abandoned)
        queues = list(self._queues(pending, usage))
        chosen: list[list[PendingEvent]] = []
        while queues and usage.workers < self._workers:
            for queue in list(queues):
                events = next(queue, None)
                if events is None or not self._may_run(events, usage):
                    queues.remove(queue)
                    continue
                usage.add({e.project_id for e in events}, events[0].types, len(events) > 1)
                chosen.append(events)
                self._turn += 1
                self._last_turn.update({event.group: self._turn for event in events})
        return chosen

    def _queues(
        self, pending: Mapping[Group, Iterable[PendingEvent]], usage: "_Usage"
    ) -> Iterator[Iterator[list[PendingEvent]]]:
        """Yield queues of events, the most urgent queue first.

        Each item of a queue is a list of events for one worker. Each project has its own queue for
        each combination of resource types. But if plug-in calls for a combination are quick, all
        projects share one queue for it. ``usage`` counts the busy workers.
        """
        quick: dict[frozenset[str], dict[str, Iterable[PendingEvent]]] = {}
        for group in self._order(pending, usage):
            project_id, types = group
            size = self._sizes.max_batch(types)
            if project_id is None or size == 1:
                # Finalizers (no project) call other services, whose speed is not known.
                yield ([event] for event in pending[group])
            elif types in quick:
                quick[types][project_id] = pending[group]
            else:
                quick[types] = {project_id: pending[group]}
                yield self._batches(quick[types], size, usage)

    def _batches(
        self, pending: Mapping[str, Iterable[PendingEvent]], size: int, usage: "_Usage"
    ) -> Iterator[list[PendingEvent]]:
        """Yield batches of up to ``size`` events, with one event of each project in turn.

        ``pending`` contains the events by project id. ``usage`` counts the busy workers. If a
        project already occupies the maximum number of workers, its events are left out.
        """
        rest = {project_id: iter(events) for project_id, events in pending.items()}
        while True:
            batch: list[PendingEvent] = []
            turn = deque(id_ for id_ in rest if usage.projects[id_] < self._most_of_project)
            while turn and len(batch) < size:
                project_id = turn.popleft()
                if event := next(rest[project_id], None):
                    batch.append(event)
                    turn.append(project_id)
            if not batch:
                return
            yield batch

    def _order(self, pending: Collection[Group], usage: "_Usage") -> list[Group]:
        self._last_turn = {group: n for group, n in self._last_turn.items() if group in pending}
        return sorted(
            pending,
            key=lambda group: (usage.projects[group[0]], self._last_turn.get(group, 0)),
        )

    def _may_run(self, events: Sequence[PendingEvent], usage: "_Usage") -> bool:
        types = events[0].types
        others = self._types - (types or _NO_TYPE)
        reserved = sum(max(0, self._reserved - usage.types[other]) for other in others)
        if self._workers - usage.workers <= reserved:
            return False
        if any(usage.abandoned[type_] >= self._workers for type_ in types):
            return False
        if len(events) > 1 and usage.batches[types] >= _BATCH_WORKERS:
            return False
        projects = {event.project_id for event in events} - {None}
        return all(usage.projects[project_id] < self._most_of_project for project_id in projects)


class _Usage:
    """Counts of busy workers and of abandoned plug-in calls.

    - ``workers``: all busy workers.
    - ``types``: busy workers by resource type.
    - ``projects``: busy workers by project.
    - ``batches``: workers that run several events, by combination of resource types.
    - ``abandoned``: calls that the worker pool no longer waits for, by resource type.
    """

    def __init__(self, running: Collection[Batch], abandoned: Collection[Batch]) -> None:
        self.workers = 0
        self.types: Counter[str] = Counter()
        self.projects: Counter[str | None] = Counter()
        self.batches: Counter[frozenset[str]] = Counter()
        self.abandoned = Counter(type_ for batch in abandoned for type_ in batch.types or _NO_TYPE)
        for batch in running:
            self.add(batch.projects, batch.types, len(batch.claims) > 1)

    def add(
        self,
        projects: Iterable[str | None],
        types: frozenset[str],
        is_batch: bool,  # noqa: FBT001 - not a switch, a fact
    ) -> None:
        """Count a worker as busy with events of these projects and resource types.

        ``is_batch`` states whether the worker runs several events.
        """
        self.workers += 1
        self.types.update(types or _NO_TYPE)
        self.projects.update(projects)
        self.batches[types] += is_batch
