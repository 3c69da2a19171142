"""APScheduler as a clock: it rings at moments and at intervals, and knows nothing else.

Its jobs live in memory and only set flags or run short upkeep, so a lost or late job costs
time, never work: the events table is the queue.

APScheduler goes by the machine's wall clock. When that is set, what was to ring in a second might
ring in an hour; so the two are compared all the time, and then all intervals begin anew.
"""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from apscheduler.schedulers.background import BackgroundScheduler

from climate.clock import Clock

_ALARM = "alarm"
# Seconds between two looks at whether the wall clock was set, and by how much it matters.
_LOOK = 1.0
_STEP = 0.5


class Timer:
    """One alarm that can be set and reset, and any number of interval jobs."""

    def __init__(self, clock: Clock) -> None:
        """Prepare; nothing rings before ``start``."""
        self._clock = clock
        self._intervals: dict[str, float] = {}
        self._stopped = threading.Event()
        self._scheduler = BackgroundScheduler(
            timezone="UTC",
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )

    def start(self) -> None:
        """Begin to ring."""
        self._scheduler.start()
        threading.Thread(target=self._watch, name="wall clock", daemon=True).start()

    def every(self, seconds: float, job: Callable[[], object], name: str) -> None:
        """Call ``job`` (short, thread-safe) every ``seconds``."""
        self._intervals[name] = seconds
        self._scheduler.add_job(job, "interval", seconds=seconds, id=name)

    def at(self, moment: datetime, job: Callable[[], object]) -> None:
        """Call ``job`` at ``moment`` of the clock; replaces the alarm that was set before."""
        rings_at = _wall() + (moment - self._clock.now())
        self._scheduler.add_job(job, "date", run_date=rings_at, id=_ALARM, replace_existing=True)

    def stop(self) -> None:
        """Ring no more; jobs under way are finished."""
        self._stopped.set()
        if self._scheduler.running:
            self._scheduler.shutdown(wait=True)

    def _watch(self) -> None:
        apart = _apart(self._clock)
        while not self._stopped.wait(_LOOK):
            present = _apart(self._clock)
            if abs(present - apart) > timedelta(seconds=_STEP):
                self._begin_anew()
            apart = present

    def _begin_anew(self) -> None:
        """Let the intervals begin now, by the wall clock as it is now."""
        for name, seconds in self._intervals.items():
            self._scheduler.reschedule_job(name, trigger="interval", seconds=seconds)


def _wall() -> datetime:
    return datetime.now(UTC)


def _apart(clock: Clock) -> timedelta:
    """Return by how much the wall clock and evenly passing time differ."""
    return _wall() - datetime.fromtimestamp(clock.elapsed(), UTC)
