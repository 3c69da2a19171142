"""Heartbeats: every process sees which managers work, and whether writes succeed."""

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
_trial_running = threading.Lock()


class ManagerHeartbeat:
    """Stores a heartbeat every five seconds, until the manager stops."""

    def __init__(
        self, store: Store, owner: str, progress: Callable[[], Iterable[Progress]]
    ) -> None:
        """Prepare; ``progress`` returns the progress of the loops of the manager ``owner``."""
        self._store, self._owner, self._all_progress = store, owner, progress
        self._task = PeriodicTask("heartbeat", self.beat, interval=_INTERVAL)

    def start(self) -> None:
        """Start a thread, which stores the first heartbeat immediately."""
        self._task.start()

    def stop(self) -> None:
        """Stop, and remove the row: other processes notice at once that the manager is gone."""
        self._task.stop(_INTERVAL)
        self._store.database.write(lambda session: managers.remove(session, self._owner))

    def beat(self) -> None:
        """Store a heartbeat with the age of each loop."""
        loops = {
            progress.name: {"age": progress.age, "interval": progress.interval}
            for progress in self._all_progress()
        }
        now = self._store.clock.now()
        self._store.database.write(lambda session: managers.beat(session, self._owner, now, loops))


@dataclass(frozen=True, slots=True, kw_only=True)
class Beats:
    """The managers that are alive, and the latest heartbeat of all managers (None: there is none).

    ``now`` is when they were read.
    """

    alive: list[Heartbeat]
    last: datetime | None
    now: datetime

    def warnings(self) -> list[str]:
        """Return sentences about absent managers and stalled loops, without names of machines."""
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
    """Return the present heartbeats."""
    now = store.clock.now()
    with store.database.read() as session:
        return Beats(alive=managers.alive(session, now), last=managers.last_beat(session), now=now)


def write_error(store: Store, beats: Beats) -> Exception | None:
    """Return the error if the database answers and cannot be written (a full disk), else None.

    Heartbeats are writes. If they are late, or if the last write of this process failed, a trial
    write decides; without a result in time, the last write of this process.
    """
    is_late = beats.last is None or beats.now - beats.last > _LATE
    if not is_late and store.database.write_error is None:
        return None
    if _trial_running.acquire(blocking=False):
        trial = threading.Thread(target=_write, args=(store, beats.now), daemon=True)
        trial.start()
        trial.join(_TRIAL)
    return store.database.write_error


def _write(store: Store, now: datetime) -> None:
    try:
        store.database.write(partial(managers.try_write, now=now))
    except SQLAlchemyError as error:
        LOG.warning("the database cannot be written: %s", error)
    finally:
        _trial_running.release()
