"""New ids: UUIDs that begin with the time of their creation.

Rows that are created together are often due together. Ids in time order keep them together in
indexes and tables, so the database reads and writes fewer pages.
"""

import os
import random
import time
import uuid
from collections import deque

_MILLISECOND = 1_000_000  # ns
_RANDOM_BITS = (1 << 62) - 1
# The operating system needs longer for a call than for the bytes, so one call serves many ids.
_AHEAD = 256
_random_numbers: deque[int] = deque()
# Parent and child must not use the same numbers.
os.register_at_fork(after_in_child=_random_numbers.clear)


def new_id() -> str:
    """Return a new UUID of version 7 (RFC 9562): the present time, followed by 62 random bits.

    Other people cannot guess the id, but can see when it was created.
    """
    milliseconds, remainder = divmod(time.time_ns(), _MILLISECOND)
    fraction = (remainder << 12) // _MILLISECOND
    bits = milliseconds << 80 | 7 << 76 | fraction << 64 | 2 << 62 | _random_number()
    text = f"{bits:032x}"  # uuid.UUID would take as long as all the rest
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _random_number() -> int:
    """Return 62 bits from the operating system's source of random bytes."""
    try:
        return _random_numbers.pop()
    except IndexError:  # also if other threads have taken all numbers
        fresh = memoryview(os.urandom(8 * _AHEAD)).cast("Q")
        _random_numbers.extend(number & _RANDOM_BITS for number in fresh[1:])
        return int(fresh[0]) & _RANDOM_BITS


def repeatable(rng: random.Random) -> str:
    """Return a new random id, taken from ``rng``.

    If an external enforcement service decides about a change, climate makes the change twice: the
    first time, it shows the result to the service and rolls back. Both times, ``rng`` begins with
    the same seed, so the ids are the same.
    """
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))
