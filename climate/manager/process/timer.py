"""Timer: calls jobs at a given time or at intervals, with APScheduler.

A job only sets a flag or does short upkeep. Jobs exist only in memory, but the due events of leases
are in the database. So if a job is lost or late, events are delayed, but none is lost.

APScheduler uses the machine's wall clock. If an operator sets that clock back by an hour, the next
job at an interval would run an hour late. So the timer compares the wall clock with monotonic time.
If the difference has changed, the timer restarts all intervals.
"""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from apscheduler.schedulers.background import BackgroundScheduler

from climate.clock import Clock
from climate.manager.process.periodic_task import Progress, logged

_ALARM = "alarm"
# Seconds between two comparisons of the wall clock with monotonic time, and the smallest
# difference between them that counts as a step.
_COMPARE_INTERVAL = 1.0
_STEP = 0.5


class Timer:
    """Calls functions: one at a given time (``at``), and others at intervals (``every``).

    ``progress`` contains the progress of each function that is called at intervals.
    """

    def __init__(self, clock: Clock) -> None:
        self.progress: list[Progress] = []
        self._clock = clock
        self._intervals: dict[str, float] = {}
        self._stopped = threading.Event()
        self._scheduler = BackgroundScheduler(
            timezone="UTC",
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )

    def start(self) -> None:
        """Start the threads that run the jobs."""
        self._scheduler.start()
        threading.Thread(target=self._watch, name="wall clock", daemon=True).start()

    def every(self, seconds: float, job: Callable[[], object], name: str) -> None:
        """Call ``job`` every ``seconds``. ``name`` must be unique among the interval jobs.

        The job must be short and thread-safe. If the job raises an error, the timer logs the error
        and calls the job again after the interval.
        """
        progress = Progress(name, seconds)

        def run() -> None:
            with logged(f"the loop {name} failed, will try again"):
                job()
                progress.note_done()

        self.progress.append(progress)
        self._intervals[name] = seconds
        self._scheduler.add_job(run, "interval", seconds=seconds, id=name)

    def at(self, moment: datetime, job: Callable[[], object]) -> None:
        """Call ``job`` once, when climate's clock shows ``moment``.

        A later call of ``at`` replaces this job.
        """
        run_at = _wall() + (moment - self._clock.now())
        self._scheduler.add_job(job, "date", run_date=run_at, id=_ALARM, replace_existing=True)

    def stop(self) -> None:
        """Stop the timer; wait for jobs that are running."""
        self._stopped.set()
        if self._scheduler.running:
            self._scheduler.shutdown(wait=True)

    def _watch(self) -> None:
        offset = _offset(self._clock)
        while not self._stopped.wait(_COMPARE_INTERVAL):
            present = _offset(self._clock)
            if abs(present - offset) > timedelta(seconds=_STEP):
                for name, seconds in self._intervals.items():
                    self._scheduler.reschedule_job(name, trigger="interval", seconds=seconds)
            offset = present


def _wall() -> datetime:
    return datetime.now(UTC)


def _offset(clock: Clock) -> timedelta:
    """Return the wall clock minus monotonic time.

    The result stays the same unless the wall clock is set to another time.
    """
    return _wall() - datetime.fromtimestamp(clock.elapsed(), UTC)
