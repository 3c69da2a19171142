"""Limits on powering on: only a few nodes of a rack or a PDU may power on at the same time."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

# Seconds between two attempts to get a slot.
_RETRY = 0.2


class Groups:
    """Limits how many nodes of a group, such as a rack, this process powers on at the same time.

    At most ``limit`` nodes of a group power on at once, and at least ``pause`` seconds apart.
    """

    def __init__(
        self, limit: int, pause: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit, self._pause, self._clock = limit, pause, clock
        self._lock = threading.Lock()
        self._busy: Counter[str] = Counter()
        self._last: dict[str, float] = {}

    @contextmanager
    def slot(self, names: Collection[str], wait: Callable[[float], object]) -> Iterator[None]:
        """Context manager: wait until a node may power on, then run the block.

        ``names`` are the groups of the node. During the block, the node takes one of the ``limit``
        places in each of these groups. While a group has no free place, or its ``pause`` is not
        over, the method calls ``wait(seconds)`` repeatedly. The node takes the places in all groups
        at the same moment, to avoid deadlocks.
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
