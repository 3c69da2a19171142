"""Heartbeats of managers in the database, and trial writes to the database.

Each manager stores a heartbeat every five seconds: the present time, and how long ago each of its
loops last succeeded. From the heartbeats, any process can see which managers are alive, and which
loops have stalled. If there is no recent heartbeat, a process makes a trial write: it inserts and
deletes a row, to find out whether the database accepts writes.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.exc import SQLAlchemyError

from climate.db import managers
from climate.db.managers import Heartbeat
from climate.manager.process.periodic_task import PeriodicTask, Progress
from climate.manager.process.runtime import Store

LOG = logging.getLogger(__name__)

_INTERVAL = 5.0
# Without a heartbeat for two intervals, a trial shows whether writes still succeed.
_LATE = 2 * timedelta(seconds=_INTERVAL)
# Seconds to wait for a trial write, so that a locked database does not block health checks.
_TRIAL = 2.0


class ManagerHeartbeat:
    """Stores a heartbeat in the database every five seconds, from ``start`` to ``stop``."""

    def __init__(
        self, store: Store, owner: str, progress: Callable[[], Iterable[Progress]]
    ) -> None:
        """Prepare; ``owner`` is the manager's name, ``progress`` returns the state of its loops."""
        self._store, self._owner, self._all_progress = store, owner, progress
        self._task = PeriodicTask("heartbeat", self.beat, interval=_INTERVAL)

    def start(self) -> None:
        """Start a thread, which stores the first heartbeat immediately."""
        self._task.start()

    def stop(self) -> None:
        """Stop, and remove the heartbeat.

        So other processes see at once that this manager has stopped.
        """
        self._task.stop(_INTERVAL)
        self._store.database.write(lambda session: managers.remove(session, self._owner))

    def beat(self) -> None:
        """Store a heartbeat, with the seconds since each loop of the manager last succeeded."""
        loops = {
            progress.name: {"age": progress.age, "interval": progress.interval}
            for progress in self._all_progress()
        }
        now = self._store.clock.now()
        self._store.database.write(lambda session: managers.beat(session, self._owner, now, loops))


@dataclass(frozen=True, slots=True, kw_only=True)
class Beats:
    """The managers that are alive, and the time of the latest heartbeat in the database.

    ``last`` is the time of the latest heartbeat, or None if the database contains no heartbeat.
    ``now`` is when the heartbeats were read.
    """

    alive: list[Heartbeat]
    last: datetime | None
    now: datetime

    def warnings(self) -> list[str]:
        """Return sentences, without host names, about missing managers and stalled loops."""
        if self.last is None:
            return ["no manager is running"]
        if not self.alive:
            return [f"no manager for {(self.now - self.last).total_seconds():.0f} s"]
        ages: dict[str, list[float]] = {}
        for manager in self.alive:
            for name, age in manager.stalled(self.now).items():
                ages.setdefault(name, []).append(age)
        return [
            f"{name} has not succeeded for {max(of_managers):.0f} s in {len(of_managers)} of"
            f" {len(self.alive)} managers"
            for name, of_managers in sorted(ages.items())
        ]


def find_beats(store: Store) -> Beats:
    """Return the managers that are alive, and the time of the latest heartbeat in the database."""
    now = store.clock.now()
    with store.database.read() as session:
        return Beats(alive=managers.alive(session, now), last=managers.last_beat(session), now=now)


class WriteTrials:
    """Finds out whether the database accepts writes. Each process has one such object.

    However often health checks call ``error``, it makes at most one trial write in five seconds.
    """

    def __init__(self, store: Store) -> None:
        """Prepare; the first trial write runs in ``error``."""
        self._store = store
        self._running = threading.Lock()
        self._next = float("-inf")

    def error(self, beats: Beats) -> Exception | None:
        """Return the error if the database rejects writes (for example: full disk), else None.

        If the heartbeats in ``beats`` are recent and the last write of this process succeeded, the
        method returns None. Otherwise it makes a trial write, waits up to two seconds for the end
        of this write, and returns the error of the last completed write of this process (None: the
        write succeeded).
        """
        database = self._store.database
        is_late = beats.last is None or beats.now - beats.last > _LATE
        # A probe that waited for the trial of another one uses its result.
        if (is_late or database.write_error) and self._running.acquire(timeout=_TRIAL):
            self._try(beats.now)
        return database.write_error

    def _try(self, now: datetime) -> None:
        if self._store.clock.elapsed() < self._next:
            self._running.release()
            return
        self._next = self._store.clock.elapsed() + _INTERVAL
        trial = threading.Thread(target=self._write, args=(now,), daemon=True)
        try:
            trial.start()
        except RuntimeError:  # the process has too many threads
            self._running.release()
            raise
        trial.join(_TRIAL)

    def _write(self, now: datetime) -> None:
        try:
            self._store.database.write(partial(managers.try_write, now=now))
        except SQLAlchemyError as error:
            LOG.warning("cannot write to the database, GET /readyz answers 503: %s", error)
        finally:
            self._running.release()
