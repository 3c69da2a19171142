"""When a resource is occupied, in the form in which a calendar shows it. Pure.

A calendar shows either exact intervals, or buckets. Buckets are spans of equal length; for each of
them, the calendar shows which fraction of it is occupied. Times are whole seconds from the start of
the calendar's window. If the viewer may not see a lease, its bookings are anonymous. Anonymous
bookings that touch are merged, so that the viewer cannot see where one lease ends and the next
begins.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from fractions import Fraction
from itertools import pairwise

from climate.core.record import record

#: The taken part of a shared resource is shown in this number of steps.
TENTHS = 10
# The digits of buckets that are always free, and of buckets that are never free.
_FREE, _FULL = 0, 9
_ALMOST = 1e-6


class Kind(IntEnum):
    """Why a resource is occupied during an interval. The numbers are part of the API."""

    TAKEN = 0
    OWN = 1
    CLEANING = 2
    NOT_BOOKABLE = 3
    HELD = 4
    PREPARING = 5
    SHARED = 6


@record(frozen=True, slots=True)
class Occupied:
    """A booking of a resource, from ``start`` to ``end``, including the cleaning time.

    If the viewer may see the lease, ``lease`` is its id, and the cleaning begins at ``lease_end``.
    Otherwise ``lease`` is None, and the viewer sees an interval of the kind ``kind``. The booking
    is for an ``amount`` of ``resource_class`` (None: for the whole resource).
    """

    start: int
    end: int
    kind: Kind = Kind.TAKEN
    lease: str | None = None
    lease_end: int = 0
    resource_class: str | None = None
    amount: int = 0


@record(frozen=True, slots=True)
class Interval:
    """An interval in which a resource is occupied, or cannot be booked.

    ``lease`` is set if the kind is OWN. If the kind is SHARED, ``tenths`` (1 to 10) is how much of
    the resource is taken.
    """

    start: int
    end: int
    kind: Kind
    lease: str | None = None
    tenths: int = 0


Span = tuple[int, int]


@record(frozen=True, slots=True)
class Row:
    """A resource in a calendar window of ``length`` seconds: its bookings and other facts.

    ``capacity`` is, for example, ``{"VCPU": 64}``. From ``unbookable_since`` on, the resource
    cannot be booked (None: it can always be booked). ``preparing`` contains the spans in which a
    provisioner prepares the host.
    """

    length: int
    occupied: Sequence[Occupied]
    capacity: Mapping[str, int]
    unbookable_since: int | None = None
    preparing: Sequence[Span] = ()


def intervals(row: Row) -> list[Interval]:
    """Return the intervals in which the resource is occupied or blocked, sorted by start.

    OWN, CLEANING and SHARED intervals may overlap if bookings are for parts of the resource.
    Intervals of other kinds do not overlap. NOT_BOOKABLE and PREPARING intervals only fill the gaps
    between bookings.
    """
    whole = [item for item in row.occupied if item.resource_class is None]
    shares = [item for item in row.occupied if item.resource_class is not None]
    found = [
        *_merged(item for item in whole if item.lease is None),
        *_named(row.occupied),
        *_shared(shares, row.capacity),
    ]
    gaps = list(_gaps(found, row.length))
    if row.unbookable_since is not None:
        blocked = (row.unbookable_since, row.length)
        found += [Interval(*span, Kind.NOT_BOOKABLE) for span in _common(gaps, blocked)]
        gaps = list(_common(gaps, (0, row.unbookable_since)))
    for preparing in row.preparing:
        found += [Interval(*span, Kind.PREPARING) for span in _common(gaps, preparing)]
    cut = (_cut(interval, row.length) for interval in found)
    return sorted(
        (interval for interval in cut if interval.start < interval.end),
        key=lambda interval: (interval.start, interval.kind, interval.end, interval.lease or ""),
    )


def _merged(items: Iterable[Occupied]) -> Iterator[Interval]:
    """Yield anonymous bookings as intervals; bookings that touch or overlap become one interval.

    An interval made of bookings of different kinds is TAKEN.
    """
    start, end, kind = 0, -1, Kind.TAKEN
    for item in sorted(items, key=lambda item: (item.start, item.end)):
        if item.start > end:
            if end >= 0:
                yield Interval(start, end, kind)
            start, end, kind = item.start, item.end, item.kind
        else:
            end = max(end, item.end)
            kind = kind if kind is item.kind else Kind.TAKEN
    if end >= 0:
        yield Interval(start, end, kind)


def _named(items: Iterable[Occupied]) -> Iterator[Interval]:
    """Yield the intervals of leases that the viewer may see, and of the cleaning after them."""
    spans = {
        (item.start, item.end, item.lease_end, item.lease)
        for item in items
        if item.lease is not None  # a share has an allocation for each resource class
    }
    for start, end, lease_end, lease in spans:
        yield Interval(start, min(end, lease_end), Kind.OWN, lease)
        yield Interval(max(start, lease_end), end, Kind.CLEANING)


def _shared(shares: Sequence[Occupied], capacity: Mapping[str, int]) -> Iterator[Interval]:
    """Yield intervals that say how many tenths of a shared resource are taken."""
    changes: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for item in shares:
        name = item.resource_class or ""
        changes[item.start].append((name, item.amount))
        changes[item.end].append((name, -item.amount))
    used: dict[str, int] = defaultdict(int)
    before: Interval | None = None
    for start, end in pairwise(sorted(changes)):
        for name, amount in changes[start]:
            used[name] += amount
        tenths = _tenths(used, capacity)
        if before is not None and (before.end, before.tenths) == (start, tenths):
            before = Interval(before.start, end, Kind.SHARED, tenths=tenths)
            continue
        if before is not None:
            yield before
        before = Interval(start, end, Kind.SHARED, tenths=tenths) if tenths else None
    if before is not None:
        yield before


def _tenths(used: Mapping[str, int], capacity: Mapping[str, int]) -> int:
    """Return how many tenths of a resource are taken, measured by its fullest resource class.

    ``used`` and ``capacity`` are, for example, ``{"VCPU": 4}``. The result is 10 only if that class
    is full, and at least 1 if anything is used.
    """
    part = max((_part(amount, capacity.get(name, 0)) for name, amount in used.items()), default=0)
    if part >= 1:
        return TENTHS
    return min(TENTHS - 1, -(-part.numerator * TENTHS // part.denominator)) if part else 0


def _part(amount: int, capacity: int) -> Fraction:
    if amount <= 0:
        return Fraction(0)
    return Fraction(amount, capacity) if capacity > amount else Fraction(1)


def _gaps(found: Iterable[Interval], length: int) -> Iterator[Span]:
    """Yield the spans of a window of ``length`` seconds that no interval in ``found`` covers."""
    end = 0
    for interval in sorted(found, key=lambda interval: interval.start):
        if interval.start > end:
            yield end, min(interval.start, length)
        end = max(end, interval.end)
        if end >= length:
            return
    yield end, length


def _common(spans: Iterable[Span], other: Span) -> Iterator[Span]:
    """Yield the parts of ``spans`` that are inside the span ``other``."""
    for start, end in spans:
        if max(start, other[0]) < min(end, other[1]):
            yield max(start, other[0]), min(end, other[1])


def _cut(interval: Interval, length: int) -> Interval:
    start, end = max(interval.start, 0), min(interval.end, length)
    return Interval(start, end, interval.kind, interval.lease, interval.tenths)


@record(frozen=True, slots=True)
class Bucket:
    """The changes of a running total, such as the number of booked hosts, in a span (bucket).

    ``number`` is the position of the bucket, from 0. ``total`` is the sum of the changes.
    ``highest`` is the highest running total right after a change. ``first`` is the time of the
    first change, in seconds from the start of the calendar's window.
    """

    number: int
    total: int
    highest: int
    first: int


def peaks(buckets: Iterable[Bucket], length: int, resolution: int) -> list[int]:
    """Return the highest running total in each bucket of ``resolution`` seconds.

    Before the first bucket, the total is 0. The buckets cover ``length`` seconds.
    """
    by_number = {bucket.number: bucket for bucket in buckets}
    level = 0
    found = []
    for number in range(_count(length, resolution)):
        bucket = by_number.get(number)
        if bucket is None:
            found.append(level)
            continue
        # The total from before lasts into the bucket, unless its first second has a step.
        lasts = bucket.first > number * resolution
        found.append(max(level, bucket.highest) if lasts else bucket.highest)
        level += bucket.total
    return found


@record(frozen=True, slots=True)
class Sums:
    """How bookings change the occupied amount of one resource class in a bucket (a span of time).

    A change is the begin of a booking (positive) or its end (negative).

    - ``name``: the row of the calendar, or the group of rows, to which the bookings belong.
    - ``resource_class``: ``""`` for bookings of whole resources, whose amount is 1.
    - ``number``: the position of the bucket, from 0.
    - ``delta``: the sum of the changes.
    - ``area``: the sum of (change times seconds from the change to the end of the bucket).
    - ``own``: the sum of the changes by the viewer's own bookings.
    - ``own_begins``: how many of the viewer's own bookings begin in the bucket.
    """

    name: str
    resource_class: str
    number: int
    delta: float
    area: float
    own: int
    own_begins: int


@record(frozen=True, slots=True)
class Filled:
    """How long a row of a calendar is occupied in each bucket (a span of time), in ``seconds``.

    ``own`` says, for each bucket, whether the viewer has a booking in the bucket.
    """

    seconds: Sequence[float]
    own: Sequence[bool]


def filled(sums: Iterable[Sums], length: int, resolution: int) -> dict[str, Filled]:
    """Return, for each row of a calendar, how many seconds of each bucket are occupied.

    The keys are names of rows. A bucket has ``resolution`` seconds, and all buckets together cover
    ``length`` seconds. A booking of a part is weighted: half a resource for 10 seconds gives 5
    seconds. If parts have several resource classes, the function uses only the fullest class. If a
    row is a single resource, the result is at most the length of the bucket.
    """
    by_row: dict[str, dict[str, list[Sums]]] = defaultdict(lambda: defaultdict(list))
    for item in sums:
        by_row[item.name][item.resource_class].append(item)
    found = {}
    for name, by_class in by_row.items():
        areas = {class_: _areas(items, length, resolution) for class_, items in by_class.items()}
        empty = [0.0] * _count(length, resolution)
        whole = areas.pop("", empty)
        shares = map(max, zip(*areas.values(), strict=True)) if areas else empty
        seconds = [a + b for a, b in zip(whole, shares, strict=True)]
        own = _presence([item for items in by_class.values() for item in items], length, resolution)
        found[name] = Filled(seconds, own)
    return found


def digits(seconds: Sequence[float], length: int, resolution: int, since: int | None) -> str:
    """Return a text with a digit for each bucket, such as ``"0059"``: 0 is always free, 9 never.

    ``seconds`` is how long each bucket of ``resolution`` seconds is occupied. All buckets together
    cover a window of ``length`` seconds. From ``since`` on (seconds from the start of the window;
    None: never), the resource cannot be booked, and is treated as occupied.
    """
    text = []
    for number, occupied in enumerate(seconds):
        start, end = number * resolution, min((number + 1) * resolution, length)
        if since is not None and since < end:
            occupied = min(occupied, max(0, since - start)) + end - max(since, start)  # noqa: PLW2901
        part = occupied / (end - start)
        # Sums of fractions are not exact.
        is_full, is_free = part > 1 - _ALMOST, part < _ALMOST
        digit = _FULL if is_full else _FREE if is_free else 1 + int(part * (_FULL - 1))
        text.append(str(min(digit, _FULL if is_full else _FULL - 1)))
    return "".join(text)


def _areas(items: Iterable[Sums], length: int, resolution: int) -> list[float]:
    """Return the sum of (amount times occupied seconds) for each bucket of ``resolution`` seconds.

    The buckets cover ``length`` seconds. ``items`` are of one row and one resource class.
    """
    by_number = {item.number: item for item in items}
    level = 0.0
    areas = []
    for number in range(_count(length, resolution)):
        item = by_number.get(number)
        areas.append(level * (min((number + 1) * resolution, length) - number * resolution))
        if item is not None:
            areas[-1] += item.area
            level += item.delta
    return areas


def _presence(items: Iterable[Sums], length: int, resolution: int) -> list[bool]:
    """Return, for each bucket of ``resolution`` seconds, whether the viewer has a booking in it.

    The buckets cover ``length`` seconds. ``items`` are of one row.
    """
    changes: dict[int, list[Sums]] = defaultdict(list)
    for item in items:
        changes[item.number].append(item)
    level = 0
    present = []
    for number in range(_count(length, resolution)):
        begins = sum(item.own_begins for item in changes[number])
        present.append(level > 0 or begins > 0)
        level += sum(item.own for item in changes[number])
    return present


def _count(length: int, resolution: int) -> int:
    """Return how many buckets of ``resolution`` seconds cover a window of ``length`` seconds."""
    return -(-length // resolution)
