"""The exact bookings of one resource. All times are microseconds since 1970-01-01 UTC."""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import le, lt

from climate.core.matching.booked_hours.booking_change import (
    UNKNOWN_OWNER,
    ResourceBookings,
    ResourceSpans,
)
from climate.core.matching.booked_hours.touched_hours import Span, united

# A booking: start, end, owner.
Row = tuple[int, int, int]

# Stands for empty columns, which would otherwise use much of the memory. It is never changed.
_EMPTY = array("q")


class BookingList:
    """Bookings of one kind (whole or shares) of one resource, sorted by start, end and owner.

    Equal bookings are stored once, with their number. A share has an equal booking for each
    resource class.
    """

    __slots__ = ("_latest", "counts", "ends", "owners", "starts")

    def __init__(self) -> None:
        self.starts = self.ends = self.owners = _EMPTY
        # How many equal bookings an item stands for. Empty while each stands for one.
        self.counts = _EMPTY
        # The latest end of the bookings up to each one. It is ``ends`` itself if no bookings
        # overlap, and None if it must be computed again.
        self._latest: array[int] | None = None

    def __len__(self) -> int:
        return len(self.starts)

    def replace(self, bookings: ResourceBookings) -> None:
        """Replace all bookings."""
        self._latest = None
        if all(map(lt, bookings.starts, bookings.starts[1:])):
            self.starts, self.ends = bookings.starts[:], bookings.ends[:]
            self.owners, self.counts = bookings.owners[:], _EMPTY
            return
        counted = _counted(bookings)
        rows = sorted(counted)
        self.starts = array("q", (start for start, _, _ in rows))
        self.ends = array("q", (end for _, end, _ in rows))
        self.owners = array("i", (owner for _, _, owner in rows))
        self.counts = array("I", map(counted.__getitem__, rows))

    def add(self, row: Row) -> None:
        """Add a booking."""
        at = self._position(row)
        if self._has(at, row):
            self._make_counts()
            self.counts[at] += 1
            return
        self._latest = None
        if not self.starts:
            self.starts, self.ends, self.owners = array("q"), array("q"), array("i")
        self.starts.insert(at, row[0])
        self.ends.insert(at, row[1])
        self.owners.insert(at, row[2])
        if self.counts:
            self.counts.insert(at, 1)

    def remove(self, row: Row) -> bool:
        """Remove one booking; return False if it is not in the list."""
        at = self._position(row)
        if not self._has(at, row):
            similar = self._similar(row)
            if similar is None:
                return False
            at = similar
        if self.counts and self.counts[at] > 1:
            self.counts[at] -= 1
            return True
        self._latest = None
        for column in self._columns():
            del column[at]
        return True

    def forget_before(self, moment: int) -> None:
        """Forget the bookings that have ended at ``moment``."""
        past = bisect_right(self._latest_ends(), moment)
        if past:
            for column in self._columns():
                del column[:past]
            self._latest = None

    def is_free(self, start: int, end: int) -> bool:
        """Return whether no booking overlaps [start, end)."""
        before = bisect_left(self.starts, end)
        return not before or self._latest_ends()[before - 1] <= start

    def overlapping(self, start: int, end: int) -> Iterator[Row]:
        """Yield the bookings that overlap [start, end), without repeating equal ones."""
        for at in self._range(start, end):
            if self.ends[at] > start:
                yield self._row(at)

    def edges(self, start: int, end: int) -> tuple[Sequence[int], Sequence[int]]:
        """Return the starts and the ends of the spans in which bookings overlap [start, end).

        The spans are disjoint and in order.
        """
        if not self.starts:
            return (), ()
        near = self._range(start, end)
        starts, ends = self.starts[near.start : near.stop], self.ends[near.start : near.stop]
        if self._latest is self.ends:
            return starts, ends
        return separate(united(zip(starts, ends, strict=True)))

    def next_start(self, moment: int) -> int | None:
        """Return the start of the first booking that starts at ``moment`` or later."""
        at = bisect_left(self.starts, moment)
        return self.starts[at] if at < len(self.starts) else None

    def all_spans(self) -> Iterator[Span]:
        """Yield start and end of each booking, without repeating equal ones."""
        return zip(self.starts, self.ends, strict=True)

    def differs(self, spans: ResourceSpans, moment: int) -> bool:
        """Return whether bookings and spans that end after ``moment`` have different times."""
        if self._latest_ends() is self.ends and not self.counts:
            kept, same = bisect_right(self.ends, moment), bisect_right(spans.ends, moment)
            is_same = self.starts[kept:] == spans.starts[same:]
            if is_same and self.ends[kept:] == spans.ends[same:]:
                return max(spans.ends[:same], default=moment) > moment
        return self._spans_after(moment) != Counter(
            span for span in zip(spans.starts, spans.ends, strict=True) if span[1] > moment
        )

    def _spans_after(self, moment: int) -> Counter[Span]:
        """Return how many bookings have the same times, of those that end after ``moment``."""
        counted: Counter[Span] = Counter()
        for at, span in enumerate(self.all_spans()):
            if span[1] > moment:
                counted[span] += self.counts[at] if self.counts else 1
        return counted

    def _columns(self) -> list["array[int]"]:
        columns = [self.starts, self.ends, self.owners]
        return [*columns, self.counts] if self.counts else columns

    def _row(self, at: int) -> Row:
        return self.starts[at], self.ends[at], self.owners[at]

    def _has(self, at: int, row: Row) -> bool:
        return at < len(self.starts) and self._row(at) == row

    def _position(self, row: Row) -> int:
        """Return where the booking is, or would be, in the list."""
        at = bisect_left(self.starts, row[0])
        while at < len(self.starts) and self._row(at) < row:
            at += 1
        return at

    def _similar(self, row: Row) -> int | None:
        """Return the position of a booking with the same times, if one owner is unknown."""
        start, end, owner = row
        at = bisect_left(self.starts, start)
        while at < len(self.starts) and self.starts[at] == start:
            if self.ends[at] == end and UNKNOWN_OWNER in (owner, self.owners[at]):
                return at
            at += 1
        return None

    def _range(self, start: int, end: int) -> range:
        """Return positions that contain all bookings which overlap [start, end)."""
        first = bisect_right(self._latest_ends(), start)
        return range(first, max(first, bisect_left(self.starts, end)))

    def _latest_ends(self) -> "array[int]":
        if self._latest is None:
            is_disjoint = all(map(le, self.ends, self.starts[1:]))
            self._latest = self.ends if is_disjoint else array("q", accumulate(self.ends, max))
        return self._latest

    def _make_counts(self) -> None:
        if not self.counts:
            self.counts = array("I", [1]) * len(self.starts)


class ResourceCalendar:
    """The bookings of one resource: of the whole resource, and shares."""

    __slots__ = ("shares", "whole")

    def __init__(self) -> None:
        self.whole = BookingList()
        self.shares = BookingList()

    def of_kind(self, *, is_shared: bool) -> BookingList:
        """Return the shares, or the bookings of the whole resource."""
        return self.shares if is_shared else self.whole

    def is_free(self, start: int, end: int) -> bool:
        """Return whether no booking overlaps [start, end)."""
        return self.whole.is_free(start, end) and self.shares.is_free(start, end)

    def edges(self, start: int, end: int) -> tuple[Sequence[int], Sequence[int]]:
        """Return the starts and the ends of the spans in which bookings overlap [start, end).

        The spans are disjoint and in order.
        """
        whole, shares = self.whole.edges(start, end), self.shares.edges(start, end)
        if not shares[0]:
            return whole
        if not whole[0]:
            return shares
        spans = [span for edges in (whole, shares) for span in zip(*edges, strict=True)]
        return separate(united(sorted(spans)))

    def next_start(self, moment: int) -> int | None:
        """Return the start of the first booking that starts at ``moment`` or later."""
        starts = self.whole.next_start(moment), self.shares.next_start(moment)
        return min((start for start in starts if start is not None), default=None)

    def all_spans(self) -> Iterator[Span]:
        """Yield start and end of each booking."""
        yield from self.whole.all_spans()
        yield from self.shares.all_spans()


def separate(spans: list[Span]) -> tuple[list[int], list[int]]:
    """Return the starts and the ends of the spans."""
    return [start for start, _ in spans], [end for _, end in spans]


def _counted(bookings: ResourceBookings) -> Counter[Row]:
    return Counter(zip(bookings.starts, bookings.ends, bookings.owners, strict=True))
