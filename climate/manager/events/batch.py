"""The claims of one worker: one, or several that take little time together.

All are on the same resource types. If a call is slow after all, other threads take over the claims
that the worker has not called plug-ins for yet, and the results that are not stored.
"""

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from climate.manager.claims import Call, Claim, Task
from climate.manager.events.plugin_calls import Outcome


class Result(NamedTuple):
    """What the plug-ins returned for a task; not stored yet."""

    task: Task
    outcome: Outcome


class Batch:
    """The claims and the progress of one worker. Safe to use from other threads."""

    def __init__(self, claims: Sequence[Claim]) -> None:
        """Begin with at least one claim."""
        self.types = claims[0].types
        self._claims = {claim.event_id: claim for claim in claims}
        self._tasks: deque[Task] = deque()
        self._results: list[Result] = []
        self._lock = threading.Lock()

    @property
    def claims(self) -> list[Claim]:
        """The claims that this worker has to finish."""
        with self._lock:
            return list(self._claims.values())

    @property
    def is_shared(self) -> bool:
        """Whether this worker has several claims to finish."""
        return len(self.claims) > 1

    @property
    def projects(self) -> set[str | None]:
        """The projects of the claims that this worker has to finish."""
        return {claim.project_id for claim in self.claims}

    def begin(self, tasks: Sequence[Task]) -> None:
        """Set the tasks that need plug-in calls; all other claims are finished."""
        with self._lock:
            self._claims = {task.claim.event_id: task.claim for task in tasks}
            self._tasks = deque(tasks)

    def next(self) -> Task | None:
        """Return the next task to call plug-ins for."""
        with self._lock:
            return self._tasks.popleft() if self._tasks else None

    def add(self, result: Result) -> None:
        """Add a result to store later."""
        with self._lock:
            self._results.append(result)

    def take_results(self) -> list[Result]:
        """Return the results to store now; they are not returned again."""
        with self._lock:
            results, self._results = self._results, []
            return results

    def relieve(self) -> tuple[list[Task], list[Result]]:
        """Take from the worker all but the call under way: tasks not called for, and results."""
        tasks, results = self.take_tasks(), self.take_results()
        with self._lock:
            self._forget([result.task.claim for result in results])
        return tasks, results

    def take_tasks(self) -> list[Task]:
        """Take from the worker the tasks that it has not called plug-ins for."""
        with self._lock:
            tasks, self._tasks = list(self._tasks), deque()
            self._forget([task.claim for task in tasks])
            return tasks

    def abandon(self, claim: Claim) -> None:
        """Take a claim from the worker, whatever result its call will have."""
        with self._lock:
            self._forget([claim])

    def call_since_before(self, moment: float) -> tuple[Claim, Call] | None:
        """Return the call under way if it began before ``moment`` of ``clock.elapsed``."""
        for claim in self.claims:
            if call := claim.call_since_before(moment):
                return claim, call
        return None

    def _forget(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            self._claims.pop(claim.event_id, None)
