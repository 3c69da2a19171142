"""Client processes that all do the same thing at the same moment, and how long each took."""

import math
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from climate import bootstrap

_FORKSERVER = multiprocessing.get_context("forkserver")
_FORKSERVER.set_forkserver_preload(["__main__", "climate.bootstrap", "benchmarks.tasks"])
_PATIENCE = 120.0


@dataclass(slots=True)
class Outcome:
    """What came of the requests of one client, or of all: seconds each, and counts."""

    seconds: list[float] = field(default_factory=list)
    elapsed: float = 0.0
    cpu: float = 0.0
    admitted: int = 0
    refused: int = 0
    gave_up: int = 0
    retries: int = 0
    handed_out: int = 0

    @property
    def cpu_ms(self) -> float:
        """Return the processor time of a client for a request: steadier on a busy machine."""
        return self.cpu / len(self.seconds) * 1000

    @property
    def per_second(self) -> float:
        """Return requests a second, of all clients together."""
        return len(self.seconds) / self.elapsed

    def at(self, share: float) -> float:
        """Return the milliseconds that ``share`` of the requests did not exceed."""
        ordered = sorted(self.seconds)
        return ordered[math.ceil(len(ordered) * share) - 1] * 1000


# Prepares in the client's process; then yields once, and once more after each request.
Task = Callable[..., Iterator[Outcome]]


@dataclass(frozen=True, slots=True)
class Limit:
    """When a client stops: after so many seconds, or requests."""

    seconds: float
    requests: float = math.inf


def run(task: Task, clients: int, limit: Limit, *arguments: Any) -> Outcome:
    """Have each client run ``task(number, *arguments)`` until the limit; return all outcomes."""
    together = _FORKSERVER.Barrier(clients)
    pipes, processes = [], []
    for number in range(clients):
        ours, theirs = _FORKSERVER.Pipe()
        process = _FORKSERVER.Process(
            target=_live, args=(theirs, together, limit, task, number, *arguments), daemon=True
        )
        process.start()
        pipes.append(ours)
        processes.append(process)
    answers = []
    for pipe in pipes:
        assert pipe.poll(_PATIENCE + limit.seconds), "a client does not answer"
        answers.append(pipe.recv())
    for process in processes:
        process.join(_PATIENCE)
    return _sum(answers)


def _live(pipe: Any, together: Any, limit: Limit, task: Task, *arguments: Any) -> None:  # noqa: ANN401
    steps = task(*arguments)
    outcome = next(steps)
    bootstrap.settle()
    together.wait(_PATIENCE)
    cpu = time.process_time()
    begin = before = time.perf_counter()
    while before - begin < limit.seconds and len(outcome.seconds) < limit.requests:
        if next(steps, None) is None:
            break
        after = time.perf_counter()
        outcome.seconds.append(after - before)
        before = after
    outcome.elapsed = before - begin
    outcome.cpu = time.process_time() - cpu
    steps.close()  # type: ignore[attr-defined]  # a generator
    pipe.send(outcome)


def _sum(outcomes: Sequence[Outcome]) -> Outcome:
    return Outcome(
        seconds=[second for outcome in outcomes for second in outcome.seconds],
        elapsed=max(outcome.elapsed for outcome in outcomes),
        cpu=sum(outcome.cpu for outcome in outcomes),
        **{
            name: sum(getattr(outcome, name) for outcome in outcomes)
            for name in ("admitted", "refused", "gave_up", "retries", "handed_out")
        },
    )
