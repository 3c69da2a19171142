"""How many events one worker may take at once: as many as are done in a moment. Pure.

What is stored of a hundred events takes little more than of one. But whoever waits behind a call
that takes long is late, so only what has been quick lately is taken together.
"""

import threading

# At most so many, which should be done within so many seconds.
MOST = 400
_MOMENT = 0.1
# What took long, the next calls count for less and less of.
_FADES = 0.8


class Pace:
    """How long the calls for each combination of resource types take, in seconds."""

    def __init__(self) -> None:
        """Begin without any: what is not known might take long."""
        self._longest: dict[frozenset[str], float] = {}
        self._lock = threading.Lock()

    def note(self, types: frozenset[str], seconds: float, count: int = 1) -> None:
        """Remember that the calls for so many events on these resource types took so long."""
        with self._lock:
            before = self._longest.get(types, 0.0)
            self._longest[types] = max(seconds / count, before * _FADES**count)

    def fits(self, types: frozenset[str]) -> int:
        """Return how many events on these resource types are done in a moment; at least one."""
        if not types:  # nothing is called
            return MOST
        longest = self._longest.get(types)
        if longest is None:
            return 1
        return max(1, min(MOST, int(_MOMENT / max(longest, 1e-9))))
