"""Clients that run the same task at the same time, and the duration of each request."""

import math
import multiprocessing
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.databases.processor_time import Meter
from climate.cmd import launch

_FORKSERVER = multiprocessing.get_context("forkserver")
_FORKSERVER.set_forkserver_preload(
    ["__main__", "climate.cmd.bootstrap", "benchmarks.admission.tasks"]
)
# Seconds until all clients are ready; each may load a large calendar.
_PATIENCE = 600.0


@dataclass(slots=True)
class Outcome:
    """The results of the requests of one client, or of all: their seconds, and counts."""

    seconds: list[float] = field(default_factory=list)
    elapsed: float = 0.0
    cpu: float = 0.0
    admitted: int = 0
    refused: int = 0
    gave_up: int = 0
    retries: int = 0
    # The seconds from the end of the last request to the arrival of the next one. Negative if the
    # next one arrived before: then it waited.
    idle: float = 0.0
    # Whether the client has no more requests.
    finished: bool = False

    @property
    def cpu_ms(self) -> float:
        """Return a client's processor time per request, which varies less on a busy machine."""
        return self.cpu / len(self.seconds) * 1000

    @property
    def per_second(self) -> float:
        """Return the requests per second of all clients together."""
        return len(self.seconds) / self.elapsed

    def at(self, share: float) -> float:
        """Return the milliseconds that ``share`` of the requests did not exceed."""
        ordered = sorted(self.seconds)
        return ordered[math.ceil(len(ordered) * share) - 1] * 1000


# Prepares the client, yields once, and then yields after each request.
Task = Callable[..., Iterator[Outcome]]


@dataclass(frozen=True, slots=True)
class Limit:
    """The seconds or requests after which a client stops."""

    seconds: float
    requests: float = math.inf

    def permits(self, seconds: float, requests: int) -> bool:
        """Return whether a client may send one more request after these."""
        return seconds < self.seconds and requests < self.requests


def run(
    task: Task,
    clients: int,
    limit: Limit,
    *arguments: Any,
    processes: int = 0,
    meters: Collection[Meter] = (),
) -> Outcome:
    """Run ``task(number, *arguments)`` in each client until the limit; return the outcome.

    Each client has a process. But if ``processes`` is not 0, the clients are threads of this number
    of processes. ``meters`` measure other processes meanwhile, for example those that serve the
    clients.
    """
    count = min(processes or clients, clients)
    together = _FORKSERVER.Barrier(count + 1)
    pipes, started = [], []
    for first in range(count):
        ours, theirs = _FORKSERVER.Pipe()
        numbers = range(first, clients, count)
        process = _FORKSERVER.Process(
            target=_live, args=(theirs, together, limit, task, numbers, *arguments), daemon=True
        )
        process.start()
        pipes.append(ours)
        started.append(process)
    together.wait(_PATIENCE)  # all are prepared
    for meter in meters:
        meter.begin()
    together.wait(_PATIENCE)  # all begin
    answers = []
    for pipe in pipes:
        assert pipe.poll(_PATIENCE + limit.seconds), "a client does not answer"
        answers.append(pipe.recv())
    for meter in meters:  # while the connections of the clients are still open
        meter.end()
    together.wait(_PATIENCE)  # all leave
    for process in started:
        process.join(_PATIENCE)
    return _sum(answers)


def _live(
    pipe: Any,  # noqa: ANN401
    together: Any,  # noqa: ANN401
    limit: Limit,
    task: Task,
    numbers: Sequence[int],
    *arguments: Any,
) -> None:
    clients = [task(number, *arguments) for number in numbers]
    with ThreadPoolExecutor(len(clients)) as threads:
        outcomes = list(threads.map(next, clients))
        launch.settle()
        together.wait(_PATIENCE)
        together.wait(_PATIENCE)
        cpu = time.process_time()
        list(threads.map(partial(_ask_until, limit), clients, outcomes))
    outcome = _sum(outcomes)
    outcome.cpu = time.process_time() - cpu
    pipe.send(outcome)
    together.wait(_PATIENCE + limit.seconds)
    for steps in clients:
        steps.close()  # type: ignore[attr-defined]  # a generator


def _ask_until(limit: Limit, steps: Iterator[Outcome], outcome: Outcome) -> None:
    begin = before = time.perf_counter()
    while not outcome.finished and limit.permits(before - begin, len(outcome.seconds)):
        next(steps)
        after = time.perf_counter()
        outcome.seconds.append(after - before - outcome.idle)
        before = after
    outcome.elapsed = before - begin


def _sum(outcomes: Sequence[Outcome]) -> Outcome:
    return Outcome(
        seconds=[second for outcome in outcomes for second in outcome.seconds],
        elapsed=max(outcome.elapsed for outcome in outcomes),
        cpu=sum(outcome.cpu for outcome in outcomes),
        **{
            name: sum(getattr(outcome, name) for outcome in outcomes)
            for name in ("admitted", "refused", "gave_up", "retries")
        },
    )
