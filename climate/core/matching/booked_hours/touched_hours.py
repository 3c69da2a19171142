"""Which resources have a booking in an hour: a set of resources for each hour, as one big integer.

Each resource has a *place*, a small number. A *mask* is an integer whose bit ``n`` stands for the
resource at place ``n``. So one ``|`` of two masks unites two sets of thousands of resources, in a
fraction of a microsecond.

Hours are grouped into blocks of 8, 64, 512, ... hours, as in a segment tree. A long span of hours
consists of few blocks, so a search over years reads a few masks instead of thousands. A long
booking is stored as few blocks, too.

An hour is *ragged* for a resource if one of its bookings starts or ends within the hour. A resource
that is touched in an hour that is not ragged is booked during the whole hour. So only ragged hours
need a look at the exact bookings.

Hours and their numbers count from 1970-01-01 UTC. Times are microseconds since then.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress, count, groupby

Mask = int
# A block: its level, and its number among the blocks of this level. Level 0: one hour.
Block = tuple[int, int]
# A span of time [start, end).
Span = tuple[int, int]

HOUR = 3_600_000_000
#: A block has 2 ** BITS blocks of the level below.
BITS = 3
CHILDREN = 1 << BITS
MAX_LEVEL = 8
_LEVELS = range(MAX_LEVEL + 1)
# Bookings up to this number of hours are stored by the hour, which makes loading faster.
_SHORT = 128
# Loading uses tables of this size, and sets bits one by one for fewer than _FEW resources.
_TABLE_ROWS = 256
_TABLE_HOURS = 16_000
_FEW = 16
# Converts the digits of a binary number to truth values.
_TRUTH = bytes.maketrans(b"01", b"\0\1")
# Stands for a mask that must be computed again.
_STALE = -1


def blocks(start: int, end: int) -> list[Block]:
    """Return the blocks in which a booking from ``start`` to ``end`` is stored.

    The blocks contain exactly the hours that the booking overlaps. A block above level 0 contains
    only hours that are booked from their start to their end.
    """
    first, last = start // HOUR, -(-end // HOUR)
    if last - first <= _SHORT:
        return [(0, hour) for hour in range(first, last)]
    inner = _largest(first + 1, last - 1)
    edges = [(0, first), (0, last - 1)]
    return edges + [(level, block) for level, numbers in inner for block in numbers]


def places(mask: Mask) -> Iterator[int]:
    """Yield the places in a mask, lowest first."""
    bits = f"{mask:b}"
    if mask.bit_count() > len(bits) >> 3:
        # Many bits: faster than searching each one.
        yield from compress(count(), reversed(bits.encode().translate(_TRUTH)))
        return
    highest = len(bits) - 1
    at = bits.rfind("1")
    while at >= 0:
        yield highest - at
        at = bits.rfind("1", 0, at)


def mask_of(places: Iterable[int]) -> Mask:
    """Return the mask of these places."""
    numbers = list(places)
    cells = bytearray((max(numbers, default=0) >> 3) + 1)
    for place in numbers:
        cells[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(cells, "little")


def without(mask: Mask, other: Mask) -> Mask:
    """Return the places in ``mask`` that are not in ``other``."""
    # Three times as fast as ``mask & ~other``, which computes with a negative integer.
    return mask ^ (mask & other)


class TouchedHours:
    """For each hour, the mask of the resources that have a booking which overlaps the hour."""

    def __init__(self) -> None:
        # By level: block -> places with a booking that is stored in this block.
        self._stored: list[dict[int, Mask]] = [{} for _ in _LEVELS]
        # By level: block -> places with a booking that is stored in or below this block.
        self._touched = [self._stored[0], *({} for _ in _LEVELS[1:])]
        self._ragged: dict[int, Mask] = {}
        # The levels above 0 in which bookings are stored.
        self._upper: list[int] = []

    def ragged(self, hour: int) -> Mask:
        """Return the resources for which the hour is ragged, and perhaps some others."""
        return self._ragged.get(hour, 0)

    def add(self, bookings: Iterable[tuple[Span, Sequence[int]]]) -> None:
        """Store bookings: each item has a span, and the places that are booked in this span.

        Setting a bit creates a new integer. So each block is changed once for all bookings.
        """
        numbers: dict[Block, list[int]] = defaultdict(list)
        marked: dict[int, list[int]] = defaultdict(list)
        short: dict[int, list[Span]] = defaultdict(list)
        for (start, end), booked in bookings:
            first, last = start // HOUR, -(-end // HOUR)
            if last - first <= _SHORT:
                for place in booked:
                    short[place].append((first, last))
            else:
                for block in blocks(start, end):
                    numbers[block] += booked
            for hour in _ragged_hours((start, end)):
                marked[hour] += booked
        self._mark_ragged(marked)
        masks: list[dict[int, Mask]] = [{} for _ in _LEVELS]
        masks[0] = _by_hour(short)
        for (level, number), booked in numbers.items():
            masks[level][number] = masks[level].get(number, 0) | mask_of(booked)
        self._unite(masks)

    def load(self, bookings: Mapping[int, Iterable[Span]]) -> None:
        """Store the bookings of many resources, given by place.

        This is several times faster than ``add``.
        """
        marked: dict[int, list[int]] = defaultdict(list)
        # The highest place first: the masks have their final size at once.
        ordered = sorted(bookings, reverse=True)
        for _, group in groupby(ordered, lambda place: place // _TABLE_ROWS):
            of_group = {place: list(bookings[place]) for place in group}
            if len(of_group) < _FEW:
                self.add((span, [place]) for place, spans in of_group.items() for span in spans)
                continue
            self._load_table(of_group)
            for place, spans in of_group.items():
                for hour in chain.from_iterable(map(_ragged_hours, spans)):
                    marked[hour].append(place)
        self._mark_ragged(marked)

    def remove(self, place: int, removed: Iterable[Block]) -> None:
        """Clear blocks in which no booking of the resource at ``place`` is stored any more."""
        bit = 1 << place
        for level, block in removed:
            stored = self._stored[level]
            mask = stored.get(block, 0)
            if mask & bit:
                stored[block] = mask ^ bit
                if mask == bit:
                    del stored[block]
                self._invalidate_above(level, block)

    def forget_before(self, hour: int) -> None:
        """Forget the hours before ``hour``."""
        for past in [known for known in self._ragged if known < hour]:
            del self._ragged[past]
        for level in _LEVELS:
            for known in (self._stored[level], self._touched[level]):
                for block in [block for block in known if (block + 1) << BITS * level <= hour]:
                    del known[block]
        self._upper = [level for level in _LEVELS[1:] if self._stored[level]]

    def within(self, first: int, last: int) -> Mask:
        """Return the resources with a booking that overlaps the hours from ``first`` to ``last``.

        ``last`` is exclusive.
        """
        if first >= last:
            return 0
        mask = 0
        for level in self._upper:
            stored, shift = self._stored[level], BITS * level
            mask |= stored.get(first >> shift, 0) | stored.get(last - 1 >> shift, 0)
        for level, numbers in _largest(first, last):
            touched = self._touched[level]
            for block in numbers:
                known = touched.get(block, 0)
                mask |= known if known >= 0 else self._computed(level, block)
        return mask

    def filled(self, level: int, block: int) -> Mask:
        """Return resources that are booked during the whole block.

        Only long bookings count; so not all such resources are in the result.
        """
        mask = 0
        for upper in self._upper:
            if upper >= level:
                mask |= self._stored[upper].get(block >> BITS * (upper - level), 0)
        return mask

    def each(self, first: int, last: int) -> list[Mask]:
        """Return the resources with a booking in each of the hours from ``first`` to ``last``."""
        hours = self._stored[0]
        masks = [hours.get(hour, 0) for hour in range(first, last)]
        for level in self._upper:
            stored, shift = self._stored[level], BITS * level
            masks = [mask | stored.get(first + n >> shift, 0) for n, mask in enumerate(masks)]
        return masks

    def _computed(self, level: int, block: int) -> Mask:
        mask = self._touched[level].get(block, 0)
        if mask != _STALE:
            return mask
        mask = self._stored[level].get(block, 0)
        for child in range(block << BITS, (block + 1) << BITS):
            mask |= self._computed(level - 1, child)
        self._touched[level][block] = mask
        return mask

    def _mark_ragged(self, marked: Mapping[int, Iterable[int]]) -> None:
        """Mark hours as ragged for places, given by hour.

        A mark stays when its booking is removed. It only causes an unnecessary look.
        """
        for hour, numbers in marked.items():
            self._ragged[hour] = self._ragged.get(hour, 0) | mask_of(numbers)

    def _unite(self, masks: Sequence[Mapping[int, Mask]]) -> None:
        """Add masks to the stored ones, by level and block, and to those of all blocks above."""
        below: dict[int, Mask] = {}
        for level, added in enumerate(masks):
            stored, touched = self._stored[level], self._touched[level]
            for block, mask in added.items():
                stored[block] = stored.get(block, 0) | mask
                below[block] = below.get(block, 0) | mask
            if added and level and level not in self._upper:
                self._upper.append(level)
            above: dict[int, Mask] = {}
            for block, mask in below.items():
                known = touched.get(block, 0)
                if known != _STALE:
                    touched[block] = known | mask
                above[block >> BITS] = above.get(block >> BITS, 0) | mask
            below = above

    def _invalidate_above(self, level: int, block: int) -> None:
        for upper in range(max(level, 1), len(_LEVELS)):
            parent = block >> BITS * (upper - level)
            # All larger blocks are stale as well.
            if self._touched[upper].get(parent) == _STALE:
                return
            self._touched[upper][parent] = _STALE

    def _load_table(self, bookings: Mapping[int, Sequence[Span]]) -> None:
        """Store the bookings of up to _TABLE_ROWS neighbouring places.

        Most go through a table of resources and hours, which is filled by resource and read by
        hour. Setting the bits of masks one by one would create a new integer each time.
        """
        rows, others = _sorted_out(bookings)
        self.add((span, [place]) for place, span in others)
        if not rows:
            return
        first_place, first_hour = min(bookings), min(first for _, first, _ in rows)
        width = max(last for _, _, last in rows) - first_hour
        # A character for each resource and hour. The row of the highest place comes first.
        cells = bytearray(b"0") * (_TABLE_ROWS * width)
        for place, first, last in rows:
            row = (_TABLE_ROWS - 1 - place + first_place) * width - first_hour
            cells[row + first : row + last] = b"1" * (last - first)
        hours = self._stored[0]
        for hour in range(first_hour, first_hour + width):
            if mask := int(cells[hour - first_hour :: width], 2):
                hours[hour] = hours.get(hour, 0) | mask << first_place
        for hour in range(first_hour, first_hour + width + CHILDREN, CHILDREN):
            self._invalidate_above(0, hour)


def _by_hour(booked: Mapping[int, list[Span]]) -> dict[int, Mask]:
    """Return the mask of each hour in which a place is booked, from ranges of hours by place.

    Passing through the hours in order takes two changes of a mask for each range. Setting the bit
    in each hour of each range would take several times as long.
    """
    changes: dict[int, list[int]] = defaultdict(list)
    for place, ranges in booked.items():
        for first, last in united(sorted(ranges)):  # so no two changes of a place are in one hour
            changes[first].append(place)
            changes[last].append(place)
    masks: dict[int, Mask] = {}
    mask, before = 0, 0
    for hour in sorted(changes):
        if mask:
            masks |= dict.fromkeys(range(before, hour), mask)
        mask ^= mask_of(changes[hour])
        before = hour
    return masks


def united(spans: Iterable[Span]) -> list[Span]:
    """Return the spans, sorted by start, with those that overlap or touch joined."""
    joined: list[Span] = []
    for start, end in spans:
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return joined


def _ragged_hours(span: Span) -> list[int]:
    """Return the hours within which a booking starts or ends."""
    return [moment // HOUR for moment in span if moment % HOUR]


def _sorted_out(
    bookings: Mapping[int, Sequence[Span]],
) -> tuple[list[tuple[int, int, int]], list[tuple[int, Span]]]:
    """Return (place, first hour, last hour) of bookings for a table, and the other bookings."""
    rows, others = [], []
    for place, spans in bookings.items():
        for start, end in spans:
            first, last = start // HOUR, -(-end // HOUR)
            if last - first <= _SHORT:
                rows.append((place, first, last))
            else:
                others.append((place, (start, end)))
    limit = min((first for _, first, _ in rows), default=0) + _TABLE_HOURS
    late = [(place, (first * HOUR, last * HOUR)) for place, first, last in rows if last > limit]
    return [row for row in rows if row[2] <= limit], others + late


def _largest(first: int, last: int) -> Iterator[tuple[int, range]]:
    """Yield the largest possible blocks that together contain the hours [first, last), by level."""
    for level in _LEVELS:
        parents = range(-(-first // CHILDREN), last >> BITS)
        if not parents or level == MAX_LEVEL:
            yield level, range(first, last)
            return
        yield level, range(first, parents.start << BITS)
        yield level, range(parents.stop << BITS, last)
        first, last = parents.start, parents.stop
