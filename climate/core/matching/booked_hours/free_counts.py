"""How many resources are free over time. All times are microseconds since 1970-01-01 UTC."""

from collections import Counter
from collections.abc import Iterable, Iterator

from climate.core.matching.booked_hours.bookings import ResourceCalendar

# Start, end (exclusive), number of free resources.
Step = tuple[int, int, int]


def changes(calendars: Iterable[ResourceCalendar], start: int, end: int) -> Counter[int]:
    """Return how much the number of free resources changes at each time in [start, end).

    Bookings from before ``start`` count as a change at ``start``.
    """
    begins: list[int] = []
    ends: list[int] = []
    for calendar in calendars:
        first, last = calendar.edges(start, end)
        begins += first
        ends += last
    free = Counter(ends)
    for moment, count in Counter(begins).items():
        free[max(moment, start)] -= count
    return Counter({moment: change for moment, change in free.items() if change and moment < end})


def steps(total: int, changed: Counter[int], start: int, end: int) -> Iterator[Step]:
    """Yield (start, end, free): the spans in [start, end) with an equal number of free resources.

    ``total`` is the number of resources, and ``changed`` is the result of ``changes``.
    """
    since, free = start, total
    for moment in sorted(changed):
        if moment > since:
            yield since, moment, free
        since, free = moment, free + changed[moment]
    yield since, end, free


def least(levels: Iterable[Step], start: int, count: int, resolution: int) -> list[int]:
    """Return the lowest number of free resources in each of ``count`` buckets from ``start`` on.

    A bucket is ``resolution`` microseconds long. ``levels`` is the result of ``steps``.
    """
    buckets: list[int | None] = [None] * count
    for begin, end, free in levels:
        for number in range((begin - start) // resolution, -(-(end - start) // resolution)):
            lowest = buckets[number]
            buckets[number] = free if lowest is None else min(lowest, free)
    return [lowest or 0 for lowest in buckets]
