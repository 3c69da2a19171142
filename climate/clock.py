"""Clocks: all code that needs the current time receives a ``Clock`` as an argument.

All times in climate are aware UTC with microseconds. Durations are differences of ``elapsed``,
which ignores corrections of the wall clock.
"""

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

LOG = logging.getLogger(__name__)


class Clock(Protocol):
    """A source of the current time."""

    def now(self) -> datetime:
        """Return the current time, aware UTC. It may jump in either direction."""

    def elapsed(self) -> float:
        """Return the seconds since a fixed moment. Corrections of the wall clock do not matter."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the machine's time, aware UTC."""
        return datetime.now(UTC)

    def elapsed(self) -> float:
        """Return the seconds since the machine booted, including suspended time."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)


class SampledClock(SystemClock):
    """The time of a remote source, sampled regularly and extrapolated with ``elapsed``.

    Processes on machines with different clocks agree on the time, with an error of at most the
    time of one answer. While the source does not answer, the clock continues from the last sample.
    Before the first sample it is the machine's clock.
    """

    # Seconds between two samples. Within them, a machine's clock drifts by a millisecond at most.
    INTERVAL = 10.0
    # Seconds. A sample that took longer does not replace a better one.
    _SLOW = 0.25

    def __init__(self, read: Callable[[], datetime]) -> None:
        """Sample the time from ``read``, which may be slow and may raise."""
        self._read = read
        self._ahead: timedelta | None = None
        self._sampled_at = float("-inf")

    def now(self) -> datetime:
        """Return the last sample plus the time since. Only the first call waits for a sample."""
        present = self.elapsed()
        if present - self._sampled_at >= self.INTERVAL:
            self._sampled_at = present
            if self._ahead is None:
                self.sample()
            else:
                threading.Thread(target=self.sample, name="clock", daemon=True).start()
        if self._ahead is None:
            return super().now()
        return _EPOCH + self._ahead + timedelta(seconds=self.elapsed())

    def sample(self) -> None:
        """Take a sample now. Never raises."""
        began = self.elapsed()
        try:
            remote = self._read()
        except Exception as error:  # noqa: BLE001 - the clock continues from the last sample
            LOG.warning("cannot read the time of the database, will retry: %s", error)
            return
        took = self.elapsed() - began
        if self._ahead is None or took < self._SLOW:
            self._ahead = remote - _EPOCH - timedelta(seconds=began + took / 2)


_EPOCH = datetime.fromtimestamp(0, UTC)


class ManualClock:
    """A clock for tests and simulations; it moves only when the test moves it."""

    def __init__(self, now: datetime) -> None:
        """Start at ``now`` (aware)."""
        self._now = now.astimezone(UTC)
        self._elapsed = 0.0

    def now(self) -> datetime:
        """Return the time that the test set, aware UTC."""
        return self._now

    def elapsed(self) -> float:
        """Return the sum of all seconds that have passed."""
        return self._elapsed

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass. A negative value moves ``now`` back, and no time passes."""
        self._now += timedelta(seconds=seconds)
        self._elapsed += max(seconds, 0.0)

    def step(self, seconds: float) -> None:
        """Correct ``now`` by ``seconds``, in either direction; no time passes."""
        self._now += timedelta(seconds=seconds)

    def set(self, now: datetime) -> None:
        """Jump to ``now`` (aware)."""
        self.advance((now.astimezone(UTC) - self._now).total_seconds())
