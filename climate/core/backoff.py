"""Pauses between the attempts of an event: they double from 1 s, then stay at about a minute."""

import random

# Seconds: the longest of the growing pauses, and the mean of those that follow them.
_LONGEST = 60.0
# Jitter of the later pauses. Without it, the retries of many leases would reach a recovering cloud
# in the same second of every minute.
_JITTER = 0.1


def pause_before(attempt: int, retries: int, rng: random.Random) -> float:
    """Return how many seconds to wait between a failed attempt of an event and the next one.

    ``attempt`` is the number of the failed attempt, from 1. Up to ``retries``, the pause doubles
    with each attempt, to at most 60 s. After that, it is 60 s plus or minus a random part from
    ``rng``.
    """
    if attempt > retries:
        return _LONGEST * rng.uniform(1 - _JITTER, 1 + _JITTER)
    return float(min(2 ** (attempt - 1), _LONGEST))
