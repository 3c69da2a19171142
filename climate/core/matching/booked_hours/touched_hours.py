"""Which resources have a booking in an hour: a set of resources for each hour, as one big integer.

Each resource has a *place*, a small number. A *mask* is an integer whose bit ``n`` stands for the
resource at place ``n``. So one ``|`` of two masks unites two sets of thousands of resources, in a
fraction of a microsecond.

Hours are grouped into blocks of 8, 64, 512, ... hours, as in a segment tree. A long span of hours
consists of few blocks, so a search over years reads a few masks instead of thousands. A long
booking is stored as few blocks, too.

Hours and their numbers count from 1970-01-01 UTC. Times are microseconds since then.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

Mask = int
# A block: its level, and its number among the blocks of this level. Level 0: one hour.
Block = tuple[int, int]
# A span of time [start, end).
Span = tuple[int, int]

HOUR = 3_600_000_000
#: A block has 2 ** BITS blocks of the level below.
BITS = 3
_CHILDREN = 1 << BITS
MAX_LEVEL = 8
_LEVELS = range(MAX_LEVEL + 1)
# Bookings up to this number of hours are stored by the hour, which makes loading faster.
_SHORT = 128
# Loading uses tables of this size, and sets bits one by one for fewer than _FEW resources.
_TABLE_ROWS = 256
_TABLE_HOURS = 16_064
# A table begins this long before the first booking of its first row: later rows may begin earlier.
_HOURS_BEFORE = 200
_FEW = 16
# Stands for a mask that must be computed again.
_STALE = -1


def blocks(start: int, end: int) -> list[Block]:
    """Return the blocks in which a booking from ``start`` to ``end`` is stored.

    The blocks contain exactly the hours that the booking overlaps.
    """
    first, last = start // HOUR, -(-end // HOUR)
    if last - first <= _SHORT:
        return [(0, hour) for hour in range(first, last)]
    return list(_largest(first, last))


def places(mask: Mask) -> Iterator[int]:
    """Yield the places in a mask, lowest first."""
    bits = f"{mask:b}"
    highest = len(bits) - 1
    at = bits.rfind("1")
    while at >= 0:
        yield highest - at
        at = bits.rfind("1", 0, at)


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

    def add(self, place: int, added: Iterable[Block]) -> None:
        """Store a booking, or several, of the resource at ``place``."""
        bit = 1 << place
        parent = None
        for level, block in added:
            stored = self._stored[level]
            stored[block] = stored.get(block, 0) | bit
            if level or block >> BITS != parent:
                self._mark_above(level, block, bit)
                parent = block >> BITS

    def load(self, bookings: Mapping[int, Iterable[Span]]) -> None:
        """Store the bookings of many resources, given by place.

        This is several times faster than ``add``.
        """
        for _, group in groupby(sorted(bookings), lambda place: place // _TABLE_ROWS):
            numbers = list(group)
            if len(numbers) >= _FEW:
                self._load_table({place: bookings[place] for place in numbers})
                continue
            for place in numbers:
                for span in bookings[place]:
                    self.add(place, blocks(*span))

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
        for level in _LEVELS:
            for known in (self._stored[level], self._touched[level]):
                for block in [block for block in known if (block + 1) << BITS * level <= hour]:
                    del known[block]

    def within(self, first: int, last: int) -> Mask:
        """Return the resources with a booking that overlaps the hours from ``first`` to ``last``.

        ``last`` is exclusive.
        """
        if first >= last:
            return 0
        mask = self._stored_above(first)
        if last - first > 1:
            mask |= self._stored_above(last - 1)
        for level, block in _largest(first, last):
            touched = self._touched[level].get(block, 0)
            mask |= touched if touched >= 0 else self._computed(level, block)
        return mask

    def _stored_above(self, hour: int) -> Mask:
        """Return the places whose bookings are stored in larger blocks that contain the hour."""
        mask = 0
        for level in _LEVELS[1:]:
            if stored := self._stored[level]:
                mask |= stored.get(hour >> BITS * level, 0)
        return mask

    def _computed(self, level: int, block: int) -> Mask:
        mask = self._touched[level].get(block, 0)
        if mask != _STALE:
            return mask
        mask = self._stored[level].get(block, 0)
        for child in range(block << BITS, (block + 1) << BITS):
            mask |= self._computed(level - 1, child)
        self._touched[level][block] = mask
        return mask

    def _mark_above(self, level: int, block: int, bit: Mask) -> None:
        for upper in range(max(level, 1), len(_LEVELS)):
            touched, parent = self._touched[upper], block >> BITS * (upper - level)
            mask = touched.get(parent, 0)
            # All larger blocks have the bit as well, or are stale as well.
            if mask == _STALE or mask & bit:
                return
            touched[parent] = mask | bit

    def _invalidate_above(self, level: int, block: int) -> None:
        for upper in range(max(level, 1), len(_LEVELS)):
            parent = block >> BITS * (upper - level)
            # All larger blocks are stale as well.
            if self._touched[upper].get(parent) == _STALE:
                return
            self._touched[upper][parent] = _STALE

    def _load_table(self, bookings: Mapping[int, Iterable[Span]]) -> None:
        table = _Table(min(bookings))
        for place, spans in bookings.items():
            for span in table.fill(place, spans):
                self.add(place, blocks(*span))
        hours = self._stored[0]
        parents = set()
        for hour, mask in table.masks():
            hours[hour] = hours.get(hour, 0) | mask
            parents.add(hour >> BITS)
        for parent in parents:
            self._invalidate_above(0, parent << BITS)


class _Table:
    """A table of resources and hours, which is filled by resource and read by hour.

    It makes loading faster: setting the bits of masks one by one creates a new integer each time.
    """

    def __init__(self, first_place: int) -> None:
        self._first_place = first_place
        self._first_hour = 0
        self._used_hours = 0
        # A character for each resource and hour. The row of the highest place comes first.
        self._cells = bytearray()

    def fill(self, place: int, bookings: Iterable[Span]) -> list[Span]:
        """Set the hours of a resource; return the bookings that do not fit into the table."""
        others = []
        row = (_TABLE_ROWS - 1 - place + self._first_place) * _TABLE_HOURS
        for start, end in bookings:
            if not self._cells:
                self._cells = bytearray(b"0") * (_TABLE_ROWS * _TABLE_HOURS)
                self._first_hour = start // HOUR - _HOURS_BEFORE
            first, last = start // HOUR - self._first_hour, -(-end // HOUR) - self._first_hour
            if first < 0 or last > _TABLE_HOURS or last - first > _SHORT:
                others.append((start, end))
                continue
            self._cells[row + first : row + last] = b"1" * (last - first)
            self._used_hours = max(self._used_hours, last)
        return others

    def masks(self) -> Iterator[tuple[int, Mask]]:
        """Yield each hour with bookings, and its mask."""
        for hour in range(self._used_hours):
            if mask := int(self._cells[hour::_TABLE_HOURS], 2):
                yield self._first_hour + hour, mask << self._first_place


def _largest(first: int, last: int) -> Iterator[Block]:
    """Yield the largest possible blocks that together contain the hours [first, last)."""
    level = 0
    while first < last:
        if level == MAX_LEVEL:
            yield from ((level, block) for block in range(first, last))
            return
        while first & (_CHILDREN - 1) and first < last:
            yield level, first
            first += 1
        while last & (_CHILDREN - 1) and first < last:
            last -= 1
            yield level, last
        first >>= BITS
        last >>= BITS
        level += 1
