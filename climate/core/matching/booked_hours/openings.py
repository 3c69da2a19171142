"""When enough resources are free for a lease: the possible starts, and how long a lease can last.

The meaning is that of ``climate.core.matching.calendar.starts`` and ``lasting``. All times are
microseconds since 1970-01-01 UTC. The search divides time into blocks of hours (see
``touched_hours``). For most blocks, counting resources in a few masks shows that a lease can start
at no time, or at any time, in the block. Exact times are needed only in the hours that are left.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from operator import or_

from climate.core.matching.booked_hours.bookings import ResourceCalendar
from climate.core.matching.booked_hours.touched_hours import (
    BITS,
    CHILDREN,
    HOUR,
    MAX_LEVEL,
    Block,
    Mask,
    Span,
    TouchedHours,
    places,
    without,
)
from climate.core.record import record

# The bookings of the resource at each place.
Calendars = Sequence[ResourceCalendar]


@record(frozen=True, slots=True)
class Search:
    """A search for the starts in [first, last] at which ``needed`` resources are free.

    They must be free for ``length`` microseconds, at least 1.
    """

    hours: TouchedHours
    calendars: Calendars
    needed: int
    length: int
    first: int
    last: int


def openings(search: Search, mask: Mask) -> Iterator[Span]:
    """Yield the largest ranges (first start, last start) of possible starts, in order.

    Both ends are possible starts. ``mask`` has the resources that count.
    """
    if search.first > search.last:
        return
    begin: int | None = None
    end = 0
    for piece in _pieces(search, mask):
        if begin is not None and piece[0] > end:
            yield begin, end
            begin = None
        begin, end = piece[0] if begin is None else begin, piece[1]
    if begin is not None:
        yield begin, end


def earliest(search: Search, mask: Mask) -> int | None:
    """Return the earliest possible start, or None."""
    if search.first > search.last:
        return None
    return next((begin for begin, _ in _pieces(search, mask)), None)


def _pieces(search: Search, mask: Mask) -> Iterator[Span]:
    """Yield ranges of possible starts, in order; ranges that follow each other may touch."""
    if search.needed <= 0:
        yield search.first, search.last
        return
    first, last = search.first // HOUR, search.last // HOUR
    level = 1
    while (last >> BITS * level) - (first >> BITS * level) > 1 << BITS:
        level += 1
    for block in range(first >> BITS * level, (last >> BITS * level) + 1):
        yield from _in_block(search, mask, (level, block), (0, 0))


def _in_block(search: Search, mask: Mask, at: Block, known: Span) -> Iterator[Span]:
    """Yield ranges of possible starts in a block of hours.

    ``mask`` has the resources that are free in the hours ``known``, during which each lease that
    starts in this block would run.
    """
    level, block = at
    begin = max(search.first, (block << BITS * level) * HOUR)
    end = min(search.last, (block + 1 << BITS * level) * HOUR)
    if begin > end or mask.bit_count() < search.needed:
        return
    # Leases from the block run during all of the hours ``inner``, and only during ``outer``.
    inner = _hour_after(end), (begin + search.length) // HOUR
    outer = begin // HOUR, _hour_after(end + search.length)
    if inner[0] < inner[1]:
        mask = without(mask, _touched_between(search.hours, inner, known))
        known = inner
    else:
        mask = without(mask, search.hours.filled(level, block))
    if mask.bit_count() < search.needed:
        return
    sure = without(mask, _touched_between(search.hours, outer, known))
    if sure.bit_count() >= search.needed:
        yield begin, end
    elif level == 1:
        yield from _in_hours(search, mask, block << BITS)
    else:
        for child in range(block << BITS, (block + 1) << BITS):
            yield from _in_block(search, mask, (level - 1, child), known)


def _in_hours(search: Search, mask: Mask, first: int) -> Iterator[Span]:
    """Yield ranges of possible starts in the hours of a block of level 1 that begins at ``first``.

    ``mask`` has the resources that are free in the hours which all leases from the block share.
    """
    inner, outer = search.length // HOUR, _hour_after(search.length)
    shared = max(0, inner - CHILDREN)
    # The hours of the block, and the hours in which its leases end, without those in between.
    hours = search.hours.each(first, first + CHILDREN)
    hours += search.hours.each(first + CHILDREN + shared, first + CHILDREN + outer + 1)
    for n in range(CHILDREN):
        # A lease that starts when a booked hour is over is found in the next hour.
        full = without(hours[n], search.hours.ragged(first + n))
        free = without(mask, reduce(or_, hours[n + 1 : n + inner - shared], full))
        missing = search.needed - free.bit_count()
        if missing > 0:
            continue
        edges = reduce(
            or_, hours[max(n + 1, n + inner - shared) : n + 1 + outer - shared], hours[n]
        )
        unsure = free & edges
        missing += unsure.bit_count()
        begin = max(search.first, (first + n) * HOUR)
        end = min(search.last, (first + n + 1) * HOUR)
        if begin > end:
            continue
        if missing <= 0:
            yield begin, end
            continue
        calendars = (search.calendars[place] for place in places(unsure))
        yield from covered(_runs(calendars, search.length, (begin, end)), missing)


def _touched_between(hours: TouchedHours, outer: Span, known: Span) -> Mask:
    """Return the resources touched in the hours ``outer``, without those in ``known``."""
    if known[0] >= known[1]:
        return hours.within(*outer)
    return hours.within(outer[0], known[0]) | hours.within(known[1], outer[1])


def _runs(calendars: Iterable[ResourceCalendar], length: int, within: Span) -> list[Span]:
    """Return the ranges of starts, ends included, at which a resource is free for ``length``."""
    first, last = within
    runs = []
    for calendar in calendars:
        free_since = first
        for start, end in zip(*calendar.edges(first, last + length), strict=True):
            if start - free_since >= length:
                runs.append((free_since, start - length))
            free_since = end
        if free_since <= last:
            runs.append((free_since, last))
    return runs


def covered(ranges: Iterable[Span], needed: int) -> Iterator[Span]:
    """Yield the largest ranges, ends included, in which at least ``needed`` ranges overlap."""
    edges: list[tuple[int, int]] = []
    for begin, end in ranges:
        # At the same time, a range begins before another one ends.
        edges += (begin, 0), (end, 1)
    edges.sort()
    count, since = 0, 0
    for moment, is_end in edges:
        if is_end:
            count -= 1
            if count == needed - 1:
                yield since, moment
        else:
            count += 1
            if count == needed:
                since = moment


def lasting(
    hours: TouchedHours, calendars: Calendars, free: Mask, needed: int, span: Span, horizon: int
) -> int | None:
    """Return until when ``needed`` resources of ``free`` stay free, at most ``horizon``.

    All resources of ``free`` are free during ``span``, and they are at least ``needed``. If the
    span does not end with an hour, fewer than ``needed`` stay free until the end of the hour.
    """
    start, end = span
    longer = 0
    if end % HOUR == 0:
        hour, free = _enough_until(hours, free, needed, end // HOUR, _hour_after(horizon))
        if hour * HOUR >= horizon:
            return horizon
        longer = without(free, hours.within(hour, hour + 1))
    starts = (calendars[place].next_start(start) for place in places(free ^ longer))
    latest = sorted((horizon if at is None else at for at in starts), reverse=True)
    return min(latest[needed - longer.bit_count() - 1], horizon)


def _enough_until(
    hours: TouchedHours, free: Mask, needed: int, hour: int, last: int
) -> tuple[int, Mask]:
    """Return the hour, at most ``last``, in which fewer than ``needed`` resources stay free.

    The second item has the resources of ``free`` that stay free from ``hour`` until then.
    """
    level = 0
    while hour < last:
        size = 1 << BITS * level
        mask = without(free, hours.within(hour, hour + size))
        if mask.bit_count() >= needed:
            free, hour = mask, hour + size
            level += level < MAX_LEVEL and not hour & ((size << BITS) - 1)
        elif level:
            level -= 1
        else:
            break
    return hour, free


def _hour_after(moment: int) -> int:
    """Return the first hour that starts at ``moment`` or later."""
    return -(-moment // HOUR)
