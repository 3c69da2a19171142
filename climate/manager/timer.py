"""APScheduler as a clock: it rings at moments and at intervals, and knows nothing else.

Its jobs live in memory and only set flags or run short upkeep, so a lost or late job costs
time, never work: the events table is the queue.
"""

from collections.abc import Callable
from datetime import datetime

from apscheduler.schedulers.background import BackgroundScheduler

_ALARM = "alarm"


class Timer:
    """One alarm that can be set and reset, and any number of interval jobs."""

    def __init__(self) -> None:
        """Prepare; nothing rings before ``start``."""
        self._scheduler = BackgroundScheduler(
            timezone="UTC",
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )

    def start(self) -> None:
        """Begin to ring."""
        self._scheduler.start()

    def every(self, seconds: float, job: Callable[[], object], name: str) -> None:
        """Call ``job`` (short, thread-safe) every ``seconds``."""
        self._scheduler.add_job(job, "interval", seconds=seconds, id=name)

    def at(self, moment: datetime, job: Callable[[], object]) -> None:
        """Call ``job`` at ``moment`` (aware UTC); replaces the alarm that was set before."""
        self._scheduler.add_job(job, "date", run_date=moment, id=_ALARM, replace_existing=True)

    def stop(self) -> None:
        """Ring no more; jobs under way are finished."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=True)
