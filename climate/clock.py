"""The one source of time: everything that needs the present gets a Clock as an argument.

All times in climate are aware UTC with microseconds.
"""

from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Tells the present."""

    def now(self) -> datetime:
        """Return the present, aware UTC."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the machine's time, aware UTC."""
        return datetime.now(UTC)


class ManualClock:
    """A clock that stands still until it is moved: for tests and simulations."""

    def __init__(self, now: datetime) -> None:
        """Start at ``now`` (aware)."""
        self._now = now.astimezone(UTC)

    def now(self) -> datetime:
        """Return the time it was last set to, aware UTC."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move forward (or back, if negative) by ``seconds``."""
        self._now += timedelta(seconds=seconds)

    def set(self, now: datetime) -> None:
        """Jump to ``now`` (aware)."""
        self._now = now.astimezone(UTC)
