"""Limits on powering on: a rack or a PDU allows only a few nodes at once."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

# Seconds between two attempts to get a slot.
_RETRY = 0.2


class Groups:
    """Limits of this process: ``limit`` nodes per group at once, ``pause`` seconds apart."""

    def __init__(
        self, limit: int, pause: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit, self._pause, self._clock = limit, pause, clock
        self._lock = threading.Lock()
        self._busy: Counter[str] = Counter()
        self._last: dict[str, float] = {}

    @contextmanager
    def slot(self, names: Collection[str], wait: Callable[[float], object]) -> Iterator[None]:
        """Hold a slot in each of the groups; until all are free, call ``wait(seconds)`` repeatedly.

        Acquires all slots together or none, so that there is no deadlock.
        """
        while not self._take(names):
            wait(_RETRY)
        try:
            yield
        finally:
            with self._lock:
                self._busy.subtract(names)

    def _take(self, names: Collection[str]) -> bool:
        with self._lock:
            now = self._clock()
            if any(
                self._busy[name] >= self._limit
                or now - self._last.get(name, -self._pause) < self._pause
                for name in names
            ):
                return False
            self._busy.update(names)
            self._last.update(dict.fromkeys(names, now))
            return True
