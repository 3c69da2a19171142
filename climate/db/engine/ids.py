"""New ids: UUIDs that begin with the time of their creation.

Rows that are created together are often due together. Ids in time order keep them together in
indexes and tables, so the database reads and writes fewer pages.
"""

import random
import secrets
import time
import uuid

_MILLISECOND = 1_000_000  # ns


def new_id() -> str:
    """Return a new UUID of version 7 (RFC 9562): the present time, followed by 62 random bits.

    Other people cannot guess the id, but can see when it was created.
    """
    milliseconds, remainder = divmod(time.time_ns(), _MILLISECOND)
    fraction = (remainder << 12) // _MILLISECOND
    bits = milliseconds << 80 | 7 << 76 | fraction << 64 | 2 << 62 | secrets.randbits(62)
    text = f"{bits:032x}"  # uuid.UUID would take as long as all the rest
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def repeatable(rng: random.Random) -> str:
    """Return a new random id, taken from ``rng``.

    If an external enforcement service decides about a change, climate makes the change twice: the
    first time, it shows the result to the service and rolls back. Both times, ``rng`` begins with
    the same seed, so the ids are the same.
    """
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))
