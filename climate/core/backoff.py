"""Exponential backoff between the attempts of an event. Pure."""

import random

# Seconds: the longest of the growing pauses, and the mean of those that follow them.
_LONGEST = 60.0
# Jitter of the later pauses. Without it, the retries of many leases would reach a recovering cloud
# in the same second of every minute.
_JITTER = 0.1
# Bounds the power of two, as the number of attempts has no bound.
_LARGEST_EXPONENT = 16


def pause_before(attempt: int, retries: int, rng: random.Random) -> float:
    """Return the seconds between attempt ``attempt`` (from 1) and the next: 1, 2, 4 ... 60.

    After attempts beyond ``retries`` it is 60 s with jitter.
    """
    if attempt > retries:
        return _LONGEST * rng.uniform(1 - _JITTER, 1 + _JITTER)
    return float(min(2 ** min(attempt - 1, _LARGEST_EXPONENT), _LONGEST))
