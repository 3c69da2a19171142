"""A thread that runs its steps at an interval, and earlier when it is woken."""

import logging
import threading
from collections.abc import Callable

from climate.db.engine.database import is_unavailable

LOG = logging.getLogger(__name__)

# Seconds between two runs. Under load, one run handles all hints since the previous run.
_PAUSE = 0.02
# The same after a run that handled many items. The next few can wait a tenth of a second without
# being noticed, and every run costs queries.
_MANY, _LONG_PAUSE = 100, 0.1


class PeriodicTask:
    """Runs ``steps`` at each wake-up, and ``interval`` seconds after the end of their last run.

    If a step returns a number, that is how many items it handled. An error of a step is logged. It
    prevents neither the next step nor the next run of this step.
    """

    def __init__(
        self,
        name: str,
        *steps: Callable[[], object],
        interval: float,
        pause: float = _PAUSE,
        runs_at_start: bool = True,
    ) -> None:
        """Prepare; nothing runs before ``start``. ``pause``: minimum seconds between two runs."""
        self._name, self._steps = name, steps
        self._interval = min(interval, threading.TIMEOUT_MAX)
        self._pause, self._runs_at_start = pause, runs_at_start
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)

    @property
    def is_stopping(self) -> bool:
        """Whether the running step should return soon."""
        return self._stopping.is_set()

    def start(self) -> None:
        """Start the thread that runs the steps."""
        if self._runs_at_start:
            self._wake.set()
        self._thread.start()

    def wake(self) -> None:
        """Request a run of the steps soon; return at once."""
        self._wake.set()

    def stop(self, timeout: float | None = None) -> bool:
        """Stop; wait up to ``timeout`` seconds (None: no limit) for the running step.

        Return whether the thread has ended: False means that the step is still running.
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
            handled = 0
            for step in self._steps:
                if not self._stopping.is_set():
                    handled += self._try(step)
            pause = max(self._pause, _LONG_PAUSE) if handled >= _MANY else self._pause

    def _try(self, step: Callable[[], object]) -> int:
        try:
            handled = step()
        except Exception as error:
            detail = None if is_unavailable(error) else error
            LOG.warning("%s: will try again: %s", self._name, error, exc_info=detail)
            return 0
        return handled if isinstance(handled, int) else 0
