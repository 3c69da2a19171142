"""A clock for tests and simulations."""

from datetime import UTC, datetime, timedelta


class ManualClock:
    """A clock that only moves when its owner moves it."""

    def __init__(self, now: datetime) -> None:
        """Start at ``now`` (aware)."""
        self._now = now.astimezone(UTC)
        self._elapsed = 0.0

    def now(self) -> datetime:
        """Return the time to which the clock was moved, in UTC, timezone-aware."""
        return self._now

    def elapsed(self) -> float:
        """Return the sum of all forward moves by ``advance`` and ``set``, in seconds."""
        return self._elapsed

    def advance(self, seconds: float) -> None:
        """Move by ``seconds``; a negative number moves ``now`` back and leaves ``elapsed``."""
        self._now += timedelta(seconds=seconds)
        self._elapsed += max(seconds, 0.0)

    def step(self, seconds: float) -> None:
        """Correct ``now`` by ``seconds``, forward or back; ``elapsed`` stays."""
        self._now += timedelta(seconds=seconds)

    def set(self, now: datetime) -> None:
        """Move to ``now`` (aware), as with ``advance``."""
        self.advance((now.astimezone(UTC) - self._now).total_seconds())
