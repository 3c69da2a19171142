"""The claims that one worker has: one, or as many as are quickly done together.

They are on the same resource types. If a call takes long after all, the worker is relieved of what
it has not called for yet, and of what is done but not stored.
"""

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from climate.manager.claims import Call, Claim, Task
from climate.manager.events.plugin_calls import Outcome


class Result(NamedTuple):
    """What the plugins said of a task; not stored yet."""

    task: Task
    outcome: Outcome


class Batch:
    """Claims of one worker, and how far it has come; may be asked from other threads."""

    def __init__(self, claims: Sequence[Claim]) -> None:
        """Begin with nothing done; there is at least one claim."""
        self.types = claims[0].types
        self._claims = {claim.event_id: claim for claim in claims}
        self._tasks: deque[Task] = deque()
        self._results: list[Result] = []
        self._lock = threading.Lock()

    @property
    def claims(self) -> list[Claim]:
        """Those that are this worker's to finish."""
        with self._lock:
            return list(self._claims.values())

    @property
    def is_shared(self) -> bool:
        """Whether there are several that are this worker's to finish."""
        return len(self.claims) > 1

    @property
    def projects(self) -> set[str | None]:
        """Whose those are that are this worker's to finish."""
        return {claim.project_id for claim in self.claims}

    def begin(self, tasks: Sequence[Task]) -> None:
        """Note what is to be called for; the other claims are over."""
        with self._lock:
            self._claims = {task.claim.event_id: task.claim for task in tasks}
            self._tasks = deque(tasks)

    def next(self) -> Task | None:
        """Return what to call for now."""
        with self._lock:
            return self._tasks.popleft() if self._tasks else None

    def add(self, result: Result) -> None:
        """Note what became of it."""
        with self._lock:
            self._results.append(result)

    def results(self) -> list[Result]:
        """Return what is to be stored now, once."""
        with self._lock:
            found, self._results = self._results, []
            return found

    def relieve(self) -> tuple[list[Task], list[Result]]:
        """Take over all but the call under way: what nobody called for yet, and what is done."""
        tasks, results = self.rest(), self.results()
        with self._lock:
            self._forget([result.task.claim for result in results])
        return tasks, results

    def rest(self) -> list[Task]:
        """Take over what nobody called for yet."""
        with self._lock:
            tasks, self._tasks = list(self._tasks), deque()
            self._forget([task.claim for task in tasks])
            return tasks

    def give_up(self, claim: Claim) -> None:
        """Take a claim away from the worker, whatever it makes of it."""
        with self._lock:
            self._forget([claim])

    def call_since_before(self, moment: float) -> tuple[Claim, Call] | None:
        """Return the call under way if it began before a moment of the clock's elapsed."""
        for claim in self.claims:
            if call := claim.call_since_before(moment):
                return claim, call
        return None

    def _forget(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            self._claims.pop(claim.event_id, None)
