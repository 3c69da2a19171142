"""The one source of time: everything that needs the present gets a Clock as an argument.

All times in climate are aware UTC with microseconds. What is to take so and so long is measured on
``elapsed``, which no correction of a wall clock changes.
"""

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

LOG = logging.getLogger(__name__)


class Clock(Protocol):
    """Tells the present."""

    def now(self) -> datetime:
        """Return the present, aware UTC. It may jump, either way."""

    def elapsed(self) -> float:
        """Return the seconds since some moment. They pass evenly, whatever wall clocks do."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the machine's time, aware UTC."""
        return datetime.now(UTC)

    def elapsed(self) -> float:
        """Return the seconds since the machine was started, those asleep included."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)


class SampledClock(SystemClock):
    """Somebody else's time: asked for from time to time, and carried on by ``elapsed``.

    So processes on machines whose clocks differ, or are set, agree on the present, as well as one
    answer takes to arrive. As long as nobody answers it runs on, or, if nobody ever did, is the
    machine's.
    """

    # Seconds between two questions; within them crystals drift by no more than a millisecond.
    INTERVAL = 10.0
    # Seconds that an answer may take to be any good, if there is a better one.
    _SLOW = 0.25

    def __init__(self, ask: Callable[[], datetime]) -> None:
        """Take the time from ``ask``, which may be slow and may raise."""
        self._ask = ask
        self._ahead: timedelta | None = None
        self._asked_at = float("-inf")

    def now(self) -> datetime:
        """Return the time as it was told last, plus what has passed since. Asks at first only."""
        present = self.elapsed()
        if present - self._asked_at >= self.INTERVAL:
            self._asked_at = present
            if self._ahead is None:
                self.sample()
            else:
                threading.Thread(target=self.sample, name="clock", daemon=True).start()
        if self._ahead is None:
            return super().now()
        return _EPOCH + self._ahead + timedelta(seconds=self.elapsed())

    def sample(self) -> None:
        """Ask now. Never raises."""
        asked = self.elapsed()
        try:
            told = self._ask()
        except Exception as error:  # noqa: BLE001 - what we know goes on
            LOG.warning("nobody says what time it is, will ask again: %s", error)
            return
        took = self.elapsed() - asked
        if self._ahead is None or took < self._SLOW:
            self._ahead = told - _EPOCH - timedelta(seconds=asked + took / 2)


_EPOCH = datetime.fromtimestamp(0, UTC)


class ManualClock:
    """A clock that stands still until it is moved: for tests and simulations."""

    def __init__(self, now: datetime) -> None:
        """Start at ``now`` (aware)."""
        self._now = now.astimezone(UTC)
        self._elapsed = 0.0

    def now(self) -> datetime:
        """Return the time it was last set to, aware UTC."""
        return self._now

    def elapsed(self) -> float:
        """Return the seconds by which it was moved forward."""
        return self._elapsed

    def advance(self, seconds: float) -> None:
        """Let so many seconds pass; if negative, move back, while none pass."""
        self._now += timedelta(seconds=seconds)
        self._elapsed += max(seconds, 0.0)

    def step(self, seconds: float) -> None:
        """Correct the present by ``seconds``, either way, while none pass."""
        self._now += timedelta(seconds=seconds)

    def set(self, now: datetime) -> None:
        """Jump to ``now`` (aware)."""
        self.advance((now.astimezone(UTC) - self._now).total_seconds())
