"""A thread that runs functions at an interval, and earlier when another thread wakes it."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from climate.db.engine.database import is_unavailable

LOG = logging.getLogger(__name__)

# Seconds between two runs. Under load, one run handles all hints since the previous run.
_PAUSE = 0.02
# The same after a run that handled many items. The next few can wait a tenth of a second without
# being noticed, and every run costs queries.
_MANY, _LONG_PAUSE = 100, 0.1


@dataclass(slots=True)
class Progress:
    """When a loop last completed a run without an error, and the interval of its runs.

    ``done_at`` is the end of that run, in seconds of the clock ``time.monotonic``. Until the first
    such run, it is the time at which the loop was created. ``interval`` is in seconds.
    """

    name: str
    interval: float
    done_at: float = field(default_factory=time.monotonic)

    @property
    def age(self) -> float:
        """Seconds since the last run without an error."""
        return time.monotonic() - self.done_at

    def note_done(self) -> None:
        """Store that a run has ended now without an error."""
        self.done_at = time.monotonic()


@contextmanager
def logged(text: str) -> Iterator[None]:
    """Return a context that logs an error of its block instead of raising it.

    If the error means that the database is unavailable, the log message has no traceback.
    """
    try:
        yield
    except Exception as error:
        detail = None if is_unavailable(error) else error
        LOG.warning("%s: %s", text, error, exc_info=detail)


class PeriodicTask:
    """A thread that calls the functions ``steps`` at an interval, and after each call of ``wake``.

    The interval begins at the end of the last run. A step (one of these functions) may return the
    number of items that it handled, or False if it failed. If a step raises an error, the thread
    logs the error and continues with the next step.
    """

    def __init__(
        self,
        name: str,
        *steps: Callable[[], object],
        interval: float,
        pause: float = _PAUSE,
        runs_at_start: bool = True,
    ) -> None:
        """Prepare; no step runs before ``start``.

        ``interval`` is the maximum time between two runs, and ``pause`` the minimum, in seconds. If
        ``runs_at_start`` is set, the first run begins at once, otherwise after an interval.
        """
        self._name, self._steps = name, steps
        self._interval = min(interval, threading.TIMEOUT_MAX)
        self._progress = Progress(name, self._interval)
        self._pause, self._runs_at_start = pause, runs_at_start
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)

    @property
    def progress(self) -> list[Progress]:
        """The progress of this loop."""
        return [self._progress]

    @property
    def is_stopping(self) -> bool:
        """Whether ``stop`` was called, so that a running step should return soon."""
        return self._stopping.is_set()

    def start(self) -> None:
        """Start the thread that runs the steps."""
        if self._runs_at_start:
            self._wake.set()
        self._thread.start()

    def wake(self) -> None:
        """Request that the steps run soon; return at once."""
        self._wake.set()

    def stop(self, timeout: float | None = None) -> bool:
        """Stop; wait up to ``timeout`` seconds (None: without limit) for the end of a running step.

        Returns True if the thread has ended, and False if a step is still running.
        """
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _loop(self) -> None:
        pause = 0.0
        while not self._stopping.wait(pause):
            # From the end of the last run: steps that are slow, or count a pause from their own
            # failure, must not run back to back or come a moment too early.
            self._wake.wait(self._interval)
            self._wake.clear()
            results = [self._try(step) for step in self._steps if not self._stopping.is_set()]
            # Steps that were left out, because the task stops, are no progress.
            has_failed = any(result is False for result in results)
            if len(results) == len(self._steps) and not has_failed:
                self._progress.note_done()
            handled = sum(result for result in results if isinstance(result, int))
            pause = max(self._pause, _LONG_PAUSE) if handled >= _MANY else self._pause

    def _try(self, step: Callable[[], object]) -> object:
        """Run a step; return its result, or False after an error."""
        with logged(f"the loop {self._name} failed, will try again"):
            return step()
        return False  # after an error, which is logged
