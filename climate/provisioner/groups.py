"""Not all at once: what nodes share (a rack, a PDU) bears only so many being switched on."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

_LOOK_AGAIN = 0.2


class Groups:
    """Limits of one process: in each group ``limit`` at once, ``pause`` seconds between two."""

    def __init__(
        self, limit: int, pause: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin with nobody at work."""
        self._limit, self._pause, self._clock = limit, pause, clock
        self._lock = threading.Lock()
        self._busy: Counter[str] = Counter()
        self._last: dict[str, float] = {}

    @contextmanager
    def slot(self, names: Collection[str], wait: Callable[[float], object]) -> Iterator[None]:
        """Have a place in each of the groups; until there is one, ``wait`` is called.

        All are taken at once or none, so two never wait for each other.
        """
        while not self._take(names):
            wait(_LOOK_AGAIN)
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
