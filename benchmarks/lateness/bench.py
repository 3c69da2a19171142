"""The database of the benchmark, and the processes of its managers."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from benchmarks.lateness import stopwatch
from benchmarks.lateness.managers import GO
from climate.core.lease.lifecycle import OPEN_EVENT
from climate.core.lease.schedule import START
from climate.db.engine import schema
from climate.db.tables.leases import EventRow
from climate.manager.process.runtime import Runtime

# Seconds between two progress queries, which also load the database.
_PAUSE = 0.1
# Seconds; the longest wait.
_PATIENCE = 1800.0
_SPAWN = get_context("spawn")
_OPEN = (EventRow.kind == START, EventRow.status.in_([one.value for one in OPEN_EVENT]))


class Bench:
    """A database, and the processes of its managers, which may use another URL of it."""

    def __init__(self, runtime: Runtime, url: str, folder: Path) -> None:
        self.runtime = runtime
        self.folder = folder
        self._url = url
        self.managers: list[BaseProcess] = []

    @classmethod
    @contextmanager
    def at(cls, url: str, folder: Path, managers_url: str = "") -> Iterator["Bench"]:
        """Create the schema; at the end, remove all events and end the managers."""
        bench = cls(stopwatch.make_runtime(url, folder), managers_url or url, folder)
        schema.upgrade(bench.runtime.database)
        try:
            yield bench
        finally:
            for manager in bench.managers:
                manager.kill()
                manager.join()
            stopwatch.forget(bench.runtime)
            bench.runtime.close()

    @property
    def pids(self) -> list[int]:
        """Return the process ids of the managers."""
        return [manager.pid for manager in self.managers if manager.pid is not None]

    def prepare(self, count: int, manage: Callable[..., None], **options: Any) -> None:
        """Start ``count`` managers, and wait until they are ready to begin."""
        for _ in range(count):
            manager = _SPAWN.Process(
                target=manage, args=(self._url, self.folder, options), daemon=True
            )
            manager.start()
            self.managers.append(manager)
        self.until(lambda: len(list(self.folder.glob("*.ready"))) >= count)

    def begin(self) -> None:
        """Let the managers begin."""
        (self.folder / GO).touch()

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition."""
        deadline = time.monotonic() + _PATIENCE
        while not condition():
            assert time.monotonic() < deadline, "it takes too long"
            time.sleep(_PAUSE)

    def left(self) -> int:
        """Return the number of unfinished starts."""
        with self.runtime.database.read() as session:
            return session.scalar(sa.select(sa.func.count()).where(*_OPEN)) or 0

    def is_done(self) -> bool:
        """Return whether all starts are finished; cheaper than ``left``, as it runs often."""
        with self.runtime.database.read() as session:
            return session.scalar(sa.select(EventRow.id).where(*_OPEN).limit(1)) is None

    def twice(self) -> int:
        """Return how many starts were attempted more than once."""
        more = sa.select(sa.func.count()).where(EventRow.kind == START, EventRow.attempt > 1)
        with self.runtime.database.read() as session:
            return session.scalar(more) or 0
