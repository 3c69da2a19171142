"""Fair share: choose events for the workers, and the size of batches. No input or output.

These rules prevent one project, or hung calls, from occupying all workers:

- If there are more workers than resource types, some workers are reserved for each resource type,
  and some for events without a resource type (reminders, users' events, finalizers).
- A project never occupies all workers, unless there is only one worker.
- The project that occupies the fewest workers is served first. Among equals, it is the turn of the
  project and resource types that were served least recently.
- If calls on a combination of resource types are quick, a worker runs a batch of such events, from
  all projects. At most two workers run batches of the same combination.
- A resource type with as many abandoned calls that still run as there are workers starts no events.
"""

import threading
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from climate.db.events.waiting import Group, PendingEvent
from climate.manager.claims import Call, Claim, Task
from climate.manager.events.plugin_calls import Outcome

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


class BatchSizeEstimator:
    """Estimates, for each combination of resource types, how many events one batch may have.

    It records the seconds per plug-in call. Storing the results of a hundred events takes hardly
    longer than storing one result, so large batches are efficient. But an event that waits behind a
    slow call is late. So only events whose calls are quick are batched.
    """

    def __init__(self) -> None:
        """Begin without estimates. Batches have one event until the first call is recorded."""
        self._seconds: dict[frozenset[str], float] = {}
        self._lock = threading.Lock()

    def note(self, types: frozenset[str], seconds: float, count: int = 1) -> None:
        """Record that ``count`` calls on these resource types took ``seconds`` in total."""
        with self._lock:
            before = self._seconds.get(types, 0.0)
            self._seconds[types] = max(seconds / count, before * _DECAY**count)

    def max_batch(self, types: frozenset[str]) -> int:
        """Return the maximum number of events on these resource types in one batch; at least 1."""
        if not types:  # no plug-in is called
            return LARGEST_BATCH
        seconds = self._seconds.get(types)
        if seconds is None:
            return 1
        return max(1, min(LARGEST_BATCH, int(_BATCH_TIME / max(seconds, 1e-9))))


class Result(NamedTuple):
    """A task, and what plug-ins returned for it. The outcome is not stored yet."""

    task: Task
    outcome: Outcome


class Batch:
    """The claims and the progress of one worker. Thread-safe.

    All claims are on the same resource types. If a plug-in call is unexpectedly slow,
    ``relieve`` removes all other tasks, so that another thread requeues them or stores their
    results.
    """

    def __init__(self, claims: Sequence[Claim]) -> None:
        """Begin with ``claims``, of which there is at least one, and without tasks or results."""
        self.types = claims[0].types
        self._claims = {claim.event_id: claim for claim in claims}
        self._tasks: deque[Task] = deque()
        self._results: list[Result] = []
        self._lock = threading.Lock()

    @property
    def claims(self) -> list[Claim]:
        """The claims that this worker must still finish."""
        with self._lock:
            return list(self._claims.values())

    @property
    def projects(self) -> set[str | None]:
        """The project ids of the claims that this worker must still finish."""
        return {claim.project_id for claim in self.claims}

    def begin(self, tasks: Sequence[Task]) -> None:
        """Set the tasks that need plug-in calls; forget all other claims, which are decided."""
        with self._lock:
            self._claims = {task.claim.event_id: task.claim for task in tasks}
            self._tasks = deque(tasks)

    def next(self) -> Task | None:
        """Remove and return the next task for which to call plug-ins; None if there is none."""
        with self._lock:
            return self._tasks.popleft() if self._tasks else None

    def add(self, result: Result) -> None:
        """Add a result, which the worker stores later."""
        with self._lock:
            self._results.append(result)

    def take_results(self) -> list[Result]:
        """Remove and return all results, so that the caller stores them."""
        with self._lock:
            results, self._results = self._results, []
            return results

    def relieve(self) -> tuple[list[Task], list[Result]]:
        """Remove and return (tasks that called no plug-in yet, results that are not stored yet).

        The worker forgets their claims, so the caller must finish them.
        """
        tasks, results = self.take_tasks(), self.take_results()
        with self._lock:
            self._forget([result.task.claim for result in results])
        return tasks, results

    def take_tasks(self) -> list[Task]:
        """Remove and return the tasks that called no plug-in yet, and forget their claims."""
        with self._lock:
            tasks, self._tasks = list(self._tasks), deque()
            self._forget([task.claim for task in tasks])
            return tasks

    def discard(self, claim: Claim) -> None:
        """Forget a claim, whose call the pool has abandoned."""
        with self._lock:
            self._forget([claim])

    def call_since_before(self, moment: float) -> tuple[Claim, Call] | None:
        """Return the running call and its claim if it began before ``moment``; None otherwise.

        ``moment`` is a reading of ``clock.elapsed``.
        """
        for claim in self.claims:
            if call := claim.call_since_before(moment):
                return claim, call
        return None

    def _forget(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            self._claims.pop(claim.event_id, None)


class FairShare:
    """Chooses events for the free workers of one manager."""

    def __init__(self, workers: int, types: Collection[str], sizes: BatchSizeEstimator) -> None:
        """Share ``workers`` among the resource ``types`` and events without a resource type."""
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
        """Return the events to start now: one list per free worker, the most urgent first.

        ``running`` are the batches of busy workers. ``abandoned`` are those with an abandoned call.
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
        """Yield queues; each item of a queue is the work of one worker.

        Each group has a queue. Groups with quick types share one per combination of types.
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
        """Yield batches of up to ``size``: one event of each project, then the next of each."""
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
    """How many workers are busy: by resource type, by project, and with batches."""

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
        """Count one more worker."""
        self.workers += 1
        self.types.update(types or _NO_TYPE)
        self.projects.update(projects)
        self.batches[types] += is_batch
