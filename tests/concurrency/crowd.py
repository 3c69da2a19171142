"""Processes that all do the same at the same moment."""

import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.synchronize import Barrier
from typing import Any, TypeVar

from climate import config, service
from climate.clock import ManualClock
from climate.manager.runtime import Runtime
from tests.conftest import NOON

SIZE = 16
_PATIENCE = 90

T = TypeVar("T")


class Crowd:
    """``SIZE`` processes, made once and used for task after task.

    They are forked from a clean process that has only imported climate: nothing of the test's
    own process (connections, locks, threads) is in them.
    """

    def __init__(self) -> None:
        context: ForkServerContext = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["climate.service", __name__])
        self._together = context.Barrier(SIZE)
        self._members = []
        for number in range(SIZE):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_live, args=(number, theirs, self._together), daemon=True
            )
            process.start()
            self._members.append((process, ours))

    def do(self, task: Callable[..., T], *arguments: Any) -> list[T]:
        """Have every process call ``task(number, *arguments)``; return all results."""
        for _, connection in self._members:
            connection.send((task, arguments))
        answers = []
        for process, connection in self._members:
            assert connection.poll(_PATIENCE), f"{process.name} does not answer"
            answers.append(connection.recv())
        for succeeded, answer in answers:
            assert succeeded, answer
        return [answer for _, answer in answers]

    def go(self) -> None:
        """Have all processes end."""
        for process, connection in self._members:
            connection.send(None)
            process.join(_PATIENCE)
            connection.close()


def _live(number: int, connection: Connection, together: Barrier) -> None:
    while (job := connection.recv()) is not None:
        task, arguments = job
        try:
            together.wait(_PATIENCE)
            answer = (True, task(number, *arguments))
        except Exception:  # noqa: BLE001 - the test shall see whatever it is
            answer = (False, traceback.format_exc())
        connection.send(answer)


def make_runtime(url: str) -> Runtime:
    """Return a runtime as a process of the API has one, at noon."""
    conf = config.new()
    config.load(conf, "test", [])
    conf.set_override("connection", url, group="database")
    return service.make_runtime(conf, ManualClock(NOON))
