"""A thread that works whenever it is woken, and from time to time in any case."""

import logging
import threading
from collections.abc import Callable

from climate.db.engine import is_unavailable

LOG = logging.getLogger(__name__)
# After work, wake-ups of so many seconds are taken together: under load each is little to do.
_PAUSE = 0.02
# After so much work at once nobody sees when the next comes, but all see what each look costs.
_MUCH, _LONG_PAUSE = 100, 0.1


class Loop:
    """Does ``work`` at each wake-up and every ``interval`` seconds, until it is stopped.

    ``work`` returns how much there was to do.
    """

    def __init__(self, name: str, work: Callable[[], int], interval: float) -> None:
        """Prepare; nothing happens before ``start``."""
        self._name = name
        self._work = work
        self._interval = interval
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_stopping(self) -> bool:
        """Tell whether the work under way should come to its end."""
        return self._stopping.is_set()

    def start(self) -> None:
        """Begin, with work at once."""
        self._wake.set()
        self._thread.start()

    def wake(self) -> None:
        """Have work done soon."""
        self._wake.set()

    def stop(self, timeout: float) -> bool:
        """Work no more; wait so many seconds for what is under way, and tell if it is done."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.wait(self._interval)
            self._wake.clear()
            done = 0
            try:
                if not self._stopping.is_set():
                    done = self._work()
            except Exception as error:
                detail = None if is_unavailable(error) else error
                LOG.warning("%s: will try again: %s", self._name, error, exc_info=detail)
            self._stopping.wait(_LONG_PAUSE if done >= _MUCH else _PAUSE)
