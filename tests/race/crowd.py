"""Processes that run the same task at the same moment."""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any, TypeVar

from climate.cmd import bootstrap
from climate.config import registry as config_registry
from tests.conftest import NOON
from tests.support.clock import ManualClock
from tests.support.process import FORKSERVER
from tests.support.service import Story

SIZE = 16
_PATIENCE = 90

T = TypeVar("T")


class Crowd:
    """``SIZE`` processes, created once, which run task after task.

    They are forked from a process that has only imported climate, so they share no connection, lock
    or thread with the test.
    """

    def __init__(self) -> None:
        self._together = FORKSERVER.Barrier(SIZE)
        self._members = []
        for number in range(SIZE):
            ours, theirs = FORKSERVER.Pipe()
            process = FORKSERVER.Process(
                target=_live, args=(number, theirs, self._together), daemon=True
            )
            process.start()
            self._members.append((process, ours))

    def do(self, task: Callable[..., T], *arguments: Any) -> list[T]:
        """Let every process call ``task(number, *arguments)``; return all results.

        A task calls ``wait_for_all`` when it is prepared, so that all begin at the same moment.
        """
        self._together.reset()
        for _, connection in self._members:
            connection.send((task, arguments))
        answers = []
        for process, connection in self._members:
            assert connection.poll(_PATIENCE), f"{process.name} does not answer"
            answers.append(connection.recv())
        for succeeded, answer in answers:
            assert succeeded, answer
        return [answer for _, answer in answers]

    def stop(self) -> None:
        for process, connection in self._members:
            connection.send(None)
            process.join(_PATIENCE)
            connection.close()


def wait_for_all() -> None:
    """Return when every process of the crowd has called this."""
    _meeting[0].wait(_PATIENCE)


_meeting: list[Barrier] = []


def _live(number: int, connection: Connection, together: Barrier) -> None:
    _meeting.append(together)
    while (job := connection.recv()) is not None:
        task, arguments = job
        try:
            answer = (True, task(number, *arguments))
        except Exception:  # noqa: BLE001 - the test shall see whatever it is
            together.abort()
            answer = (False, traceback.format_exc())
        connection.send(answer)


@contextmanager
def at_work(url: str, **options: object) -> Iterator[Story]:
    """Run a process of the service, at noon; options as group__option=value."""
    conf = config_registry.new()
    config_registry.load(conf, "test", [])
    conf.set_override("connection", url, group="database")
    conf.set_override("delete_wait", 0.0, group="api")
    for name, value in options.items():
        group, _, option = name.partition("__")
        conf.set_override(option, value, group=group)
    clock = ManualClock(NOON)
    story = Story(conf, bootstrap.make_runtime(conf, clock), clock)
    yield story
    story.close()
