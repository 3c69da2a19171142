"""Clocks: climate's only source of time. Code that needs the time receives a ``Clock``.

All times in climate are timezone-aware, in UTC, with microseconds. Durations and time-outs are
measured with ``elapsed``, which corrections of the wall clock do not change.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Protocol

LOG = logging.getLogger(__name__)


class Clock(Protocol):
    """Interface of clocks: the present time, and a monotonic timer."""

    def now(self) -> datetime:
        """Return the present time as aware UTC.

        A later call may return an earlier time, because the clock can be corrected in between.
        """

    def elapsed(self) -> float:
        """Return the seconds since an arbitrary moment. Never goes back, unlike the wall clock.

        Only the difference of two values has a meaning.
        """


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        """Return the time of this machine as aware UTC."""
        return datetime.now(UTC)

    def elapsed(self) -> float:
        """Return the seconds since the machine booted, including time in suspend mode."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)


class SampledClock(SystemClock):
    """A clock that follows a remote source of time, such as the database.

    It reads the source every ten seconds, and adds the time since the last reading. So all
    processes that read the same source agree on the present time, even if the clocks of their
    machines differ or change. The error is at most the time that one reading takes. While the
    source fails, the clock keeps running. Until the first reading succeeds, the clock returns the
    machine's time.

    A reading that is a little earlier than expected, as its error explains, does not set the clock
    back: the clock stands still for these milliseconds. Otherwise an event could be due in one
    query and not yet due in the next. Thread-safe.
    """

    # Seconds between two samples. A crystal drifts by less than a millisecond in this time.
    INTERVAL = 10.0
    # A sample that took longer (seconds) is ignored if there is an earlier sample.
    _SLOW = 0.25

    def __init__(self, read: Callable[[], datetime]) -> None:
        """Set the function ``read``, which returns the time of the source.

        ``read`` may be slow, and may raise an exception.
        """
        self._read = read
        # In seconds since 1970, as all times here: computing with datetimes takes twice as long.
        self._ahead: float | None = None
        self._sampled_at = float("-inf")
        self._lock = threading.Lock()
        self._latest = 0.0

    def now(self) -> datetime:
        """Return the time of the source, as aware UTC: the last reading plus the time since then.

        Until the first reading has succeeded, a call may read the source itself, which can take
        long. After that, a background thread reads the source, so calls return at once.
        """
        present = self.elapsed()
        if present - self._sampled_at >= self.INTERVAL:
            self._sampled_at = present
            if self._ahead is None:
                self.sample()
            else:
                with suppress(RuntimeError):  # too many threads: the last reading stays in use
                    threading.Thread(target=self.sample, name="clock", daemon=True).start()
            present = self.elapsed()
        if self._ahead is None:
            return super().now()
        return datetime.fromtimestamp(self._not_set_back(self._ahead + present), UTC)

    def _not_set_back(self, present: float) -> float:
        """Return ``present``, or the last result if ``present`` is only a little earlier."""
        with self._lock:
            if not 0.0 < self._latest - present < self._SLOW:
                self._latest = present
            return self._latest

    def sample(self) -> None:
        """Read the source and store the reading. Logs errors instead of raising them."""
        began = self.elapsed()
        try:
            sample = self._read()
        except Exception as error:  # noqa: BLE001 - the last sample stays in use
            LOG.warning("cannot read the time from the database, will try again: %s", error)
            return
        took = self.elapsed() - began
        if self._ahead is None or took < self._SLOW:
            self._ahead = sample.timestamp() - (began + took / 2)
