"""Limits how many sign-ins may fail: per user and address, per user, and per address.

Each process counts only its own failures. Keystone itself can lock a user out of all processes.
"""

import ipaddress
import math
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager

from climate.core.errors import SignInFailed, TooManySignIns

# Seconds in which the failures count.
PERIOD = 300.0
# The first limit bounds guesses of one user's password from one address; the second, guesses from
# many addresses (a botnet); the third, guesses for many users. The third is the highest, because
# many users can share the address of a proxy.
PER_USER_AND_ADDRESS, PER_USER, PER_ADDRESS = 10, 50, 100
_MAX_KEYS = 10_000
_IPV6_PREFIX = 64

_Key = tuple[str, str]


class Attempts:
    """Counts the failed sign-ins of the last five minutes, in memory."""

    def __init__(self, at_once: int) -> None:
        """Allow at most ``at_once`` sign-ins at the same time, because each occupies a thread."""
        self._failures: OrderedDict[_Key, deque[float]] = OrderedDict()
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(at_once)

    @contextmanager
    def attempt(self, address: str, user: str, now: float) -> Iterator[None]:
        """Context manager around one sign-in by ``user`` from ``address``; counts a failed sign-in.

        The sign-in fails if the block raises SignInFailed. It is counted as failed already while
        the block runs, so that simultaneous requests cannot exceed a limit. ``now`` is in monotonic
        seconds. Raises TooManySignIns if too many sign-ins have failed or are in progress.
        """
        if not self._places.acquire(blocking=False):
            raise TooManySignIns("Too many sign-ins are under way", {"retry_after": 1})
        try:
            keys = _limits(address, user)
            self._count(keys, now)
            try:
                yield
            except SignInFailed:
                raise
            except BaseException:
                self._forget(keys, now)
                raise
            self._forget(keys, now)
        finally:
            self._places.release()

    def _count(self, keys: dict[_Key, int], now: float) -> None:
        with self._lock:
            waits = [self._wait(key, limit, now) for key, limit in keys.items()]
            if any(waits):
                raise TooManySignIns(
                    "Too many sign-ins failed: try again later",
                    {"retry_after": math.ceil(max(waits))},
                )
            for key in keys:
                self._failures.setdefault(key, deque()).append(now)
                self._failures.move_to_end(key)
            while len(self._failures) > _MAX_KEYS:
                self._failures.popitem(last=False)

    def _wait(self, key: _Key, limit: int, now: float) -> float:
        """Return the seconds until ``key`` allows another sign-in; 0 if it allows one now.

        ``key`` is an address and a user; an empty address or user stands for any. ``limit`` is how
        many failures of ``key`` are allowed.
        """
        failures = self._failures.get(key, deque())
        while failures and failures[0] <= now - PERIOD:
            failures.popleft()
        return failures[-limit] + PERIOD - now if len(failures) >= limit else 0.0

    def _forget(self, keys: dict[_Key, int], now: float) -> None:
        with self._lock:
            for key in keys:
                failures = self._failures.get(key)
                if failures and now in failures:
                    failures.remove(now)


def _limits(address: str, user: str) -> dict[_Key, int]:
    place = _network(address)
    return {(place, user): PER_USER_AND_ADDRESS, ("", user): PER_USER, (place, ""): PER_ADDRESS}


def _network(address: str) -> str:
    """Return ``address`` if it is IPv4. If it is IPv6, return its /64 network instead.

    One client can own all addresses of a /64 network, so failures are counted for the network.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:  # noqa: PLR2004 - IPv4
        return address
    return str(ipaddress.ip_network((parsed, _IPV6_PREFIX), strict=False))
