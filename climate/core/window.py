"""The one type for a span of time: half-open ``[start, end)``, aware UTC.

Two windows that touch do not overlap, so a host can go from one lease to the next at 09:00:00.
"""

from datetime import UTC, datetime, timedelta

from climate.core.errors import InvalidDate
from climate.core.record import record

END_OF_TIME = datetime.max.replace(tzinfo=UTC)


@record(frozen=True, slots=True)
class Window:
    """A half-open span ``[start, end)`` of aware UTC times; raises InvalidDate if empty."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        """Refuse naive times and empty or reversed spans."""
        if self.start.tzinfo is None or self.end.tzinfo is None:
            raise TypeError("a window needs aware times")
        if self.end <= self.start:
            raise InvalidDate("End date must be later than start date.")

    def overlaps(self, other: "Window") -> bool:
        """Tell whether the two share an instant."""
        return self.start < other.end and other.start < self.end

    def contains(self, other: "Window") -> bool:
        """Tell whether ``other`` lies inside this window, borders included."""
        return self.start <= other.start and other.end <= self.end

    def busy(self, cleaning: timedelta) -> "Window":
        """Return the span a resource is taken for: the window and ``cleaning`` time after it.

        Stored with every allocation, it keeps the gap on both sides: nothing may start before
        this lease's cleaning is over, and this lease's cleaning must fit before the next start.
        """
        return Window(self.start, later(self.end, cleaning))


def minute_of(moment: datetime) -> datetime:
    """Return when the minute began."""
    return moment.replace(second=0, microsecond=0)


def later(moment: datetime, span: timedelta) -> datetime:
    """Return the moment ``span`` later, at most the end of time: calendars end in 9999."""
    return END_OF_TIME if END_OF_TIME - moment < span else moment + span
