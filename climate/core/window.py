"""``Window``: a span of time that contains its start, but not its end. All times are aware UTC.

Windows that touch do not overlap. So one lease can end at 09:00:00, and the next lease can start at
the same time.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from climate.core.errors import InvalidDate
from climate.core.record import record

END_OF_TIME = datetime.max.replace(tzinfo=UTC)
# The longest lease that v2 accepts, and the longest span of a query.
MAX_SPAN = timedelta(days=366)


def shown(time: datetime) -> str:
    """Return a UTC time as error messages show it."""
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def starts_in_the_past(start: datetime, now: datetime) -> InvalidDate:
    """Return the error for a start that has passed."""
    return InvalidDate(
        f"Start date must be later than current date: {shown(start)} is before {shown(now)}."
        " To start at once, send now."
    )


def ends_too_early(end: datetime, earliest: datetime) -> InvalidDate:
    """Return the error for an end that is not after the start and the current time."""
    return InvalidDate(
        "End date must be later than current and start date:"
        f" {shown(end)} is not after {shown(earliest)}."
    )


@record(frozen=True, slots=True)
class Window:
    """A half-open span ``[start, end)`` of aware UTC times; raises InvalidDate if it is empty."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start.tzinfo is None or self.end.tzinfo is None:
            raise TypeError("a window needs aware times")
        if self.end <= self.start:
            # Clients of Blazar look for the first sentence.
            raise InvalidDate(
                "End date must be later than start date."
                f" {shown(self.end)} is not after {shown(self.start)}."
            )

    def overlaps(self, other: "Window") -> bool:
        """Return whether the windows have an instant in common."""
        return self.start < other.end and other.start < self.end

    def contains(self, other: "Window") -> bool:
        """Return whether ``other`` lies inside this window; it may have the same start or end."""
        return self.start <= other.start and other.end <= self.end

    def busy(self, cleaning: timedelta) -> "Window":
        """Return the window of a lease, prolonged at its end by the time for ``cleaning``.

        A resource is booked for this longer window, so that no lease starts before the cleaning is
        done.
        """
        return Window(self.start, later(self.end, cleaning))


@record(frozen=True, slots=True)
class Margins:
    """How long before its start (``lead``) and after its end a lease occupies resources."""

    lead: timedelta
    cleaning: timedelta


def merged(windows: Iterable[Window], most: int) -> list[Window]:
    """Return at most ``most`` windows, in order, that together contain all the given windows.

    Windows that overlap or touch are joined. If more than ``most`` windows are left, those with the
    smallest gaps between them are joined as well.
    """
    joined: list[Window] = []
    for window in sorted(windows, key=lambda window: window.start):
        if joined and window.start <= joined[-1].end:
            joined[-1] = Window(joined[-1].start, max(joined[-1].end, window.end))
        else:
            joined.append(window)
    gaps = sorted(later.start - earlier.end for earlier, later in pairwise(joined))
    if len(joined) <= most:
        return joined
    closed = gaps[len(joined) - most - 1]
    result = joined[:1]
    for window in joined[1:]:
        if window.start - result[-1].end <= closed:
            result[-1] = Window(result[-1].start, window.end)
        else:
            result.append(window)
    return result


def in_words(window: Window) -> str:
    """Return the window for a message, such as ``from 2030-01-15 13:00 to 2030-01-15 14:00:30``.

    The times are in UTC. Seconds are left out where they are 0.
    """
    return f"from {_in_words(window.start)} to {_in_words(window.end)}"


def _in_words(moment: datetime) -> str:
    utc = moment.astimezone(UTC)
    return f"{utc:%Y-%m-%d %H:%M:%S}" if utc.second else f"{utc:%Y-%m-%d %H:%M}"


def minute_of(moment: datetime) -> datetime:
    """Return the start of the minute that contains ``moment``."""
    return moment.replace(second=0, microsecond=0)


def second_from(moment: datetime) -> datetime:
    """Return ``moment`` rounded up to a whole second, the precision of the API."""
    whole = moment.replace(microsecond=0)
    return whole if whole == moment else later(whole, timedelta(seconds=1))


def later(moment: datetime, span: timedelta) -> datetime:
    """Return ``moment + span``, but at most END_OF_TIME, because datetimes end in the year 9999."""
    return END_OF_TIME if END_OF_TIME - moment < span else moment + span
