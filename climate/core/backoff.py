"""Pauses between the attempts to run an event: 1 s, then doubled each time, up to about 60 s."""

import random

# Seconds: the longest of the growing pauses, and the mean of those that follow them.
_LONGEST = 60.0
# Jitter of the later pauses. Without it, the retries of many leases would reach a recovering cloud
# in the same second of every minute.
_JITTER = 0.1


def pause_before(attempt: int, retries: int, rng: random.Random) -> float:
    """Return how many seconds to wait after a failed attempt to run an event.

    ``attempt`` is the number of the failed attempt, from 1. For attempts up to ``retries``, the
    pause is 1 s after the first attempt, and doubles each time, up to 60 s. For later attempts, the
    pause is about 60 s; ``rng`` varies it.
    """
    if attempt > retries:
        return _LONGEST * rng.uniform(1 - _JITTER, 1 + _JITTER)
    return float(min(2 ** (attempt - 1), _LONGEST))
