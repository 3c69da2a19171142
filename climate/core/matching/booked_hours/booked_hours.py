"""``BookedHours``: the bookings of all resources of one resource type, in memory.

Times are integers: microseconds since 1970-01-01 UTC. Spans ``[start, end)`` contain their start,
but not their end. A mask is a set of resources, as an integer: the bit at the resource's place is
set (see ``touched_hours``). ``mask.bit_count()`` is the number of resources. Masks of different
queries can be combined with ``&`` and ``|``. A mask is valid until ``drop_resource`` is called,
because a later resource may use the place of a dropped one.

The class has no locks. While one thread changes the bookings, no other thread may use them. Reading
also changes the object, because results are cached.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import chain, islice

from climate.core.matching.booked_hours import free_counts
from climate.core.matching.booked_hours import openings as search
from climate.core.matching.booked_hours.booking_change import (
    BookingChange,
    ResourceBookings,
    ResourceSpans,
    ResourceState,
)
from climate.core.matching.booked_hours.bookings import ResourceCalendar
from climate.core.matching.booked_hours.properties import PropertyIndex
from climate.core.matching.booked_hours.touched_hours import (
    HOUR,
    Block,
    Mask,
    Span,
    TouchedHours,
    blocks,
    mask_of,
    places,
    without,
)
from climate.core.matching.query import Query

_NEVER = -(2**63)
# Hours for which ``lasting`` checks whether enough resources are free.
_SPANS = (64, 8, 1, 0)
# The places in which ``ids`` looks first.
_NEAR: Mask = (1 << 512) - 1


class BookedHours:
    """The resources of one resource type, and their bookings."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        # By place. Unused places have an empty calendar.
        self._ids: list[int] = []
        self._calendars: list[ResourceCalendar] = []
        self._unused: list[int] = []
        self._reservable: Mask = 0
        self._properties = PropertyIndex()
        self._touched = TouchedHours()
        # The places whose first bookings are not in ``_touched`` yet.
        self._pending: set[int] = set()
        self._forgotten = _NEVER

    def put_resource(self, state: ResourceState) -> None:
        """Add a resource without bookings, or change the state of a known one."""
        place = self._places.get(state.resource_id)
        if place is None:
            place = self._new_place(state.resource_id)
        self._properties.put(place, state.properties)
        self._reservable = without(self._reservable, 1 << place) | state.is_reservable << place

    def drop_resource(self, resource_id: int) -> None:
        """Remove a resource and its bookings. A later resource may use its place."""
        place = self._places.pop(resource_id, None)
        if place is None:
            return
        self._pending.discard(place)
        self._touched.remove(place, self._blocks(place))
        self._calendars[place] = ResourceCalendar()
        self._reservable = without(self._reservable, 1 << place)
        self._properties.drop(place)
        self._unused.append(place)

    def put_bookings(self, bookings: ResourceBookings) -> None:
        """Replace all bookings of one kind of a resource. Unknown resources are ignored."""
        place = self._places.get(bookings.resource_id)
        if place is None:
            return
        calendar = self._calendars[place]
        before = frozenset() if place in self._pending else self._blocks(place)
        booked = calendar.of_kind(is_shared=bookings.is_shared)
        booked.replace(bookings)
        booked.forget_before(self._forgotten)
        if before:
            after = self._blocks(place)
            self._hours.remove(place, before - after)
            self._hours.add((span, [place]) for span in calendar.all_spans())
        else:
            self._pending.add(place)

    def finish_loading(self) -> None:
        """Index the bookings that ``put_bookings`` has added.

        Otherwise the next call of another method does this, which takes 2 seconds after bookings of
        10,000 resources were added.
        """
        pending = {place: self._calendars[place].all_spans() for place in self._pending}
        self._pending.clear()
        self._touched.load(pending)

    def apply(self, changes: Iterable[BookingChange]) -> list[BookingChange]:
        """Add and remove bookings. Unknown resources and forgotten bookings are ignored.

        All added bookings must come before all removed ones. Returns the removals of bookings that
        are unknown: then memory differs from the database, and the caller must load it again.
        """
        known = [
            (self._places[change.resource_id], change)
            for change in changes
            if change.resource_id in self._places and change.end > self._forgotten
        ]
        self._add([(place, change) for place, change in known if change.is_added])
        return [
            change
            for place, change in known
            if not (change.is_added or self._is_removed(place, change))
        ]

    def _add(self, added: Iterable[tuple[int, BookingChange]]) -> None:
        by_span: dict[Span, list[int]] = defaultdict(list)
        for place, change in added:
            booked = self._calendars[place].of_kind(is_shared=change.is_shared)
            booked.add((change.start, change.end, change.owner))
            by_span[change.start, change.end].append(place)
        self._hours.add(by_span.items())

    def _is_removed(self, place: int, change: BookingChange) -> bool:
        """Remove a booking; return False if it is unknown."""
        booked = self._calendars[place].of_kind(is_shared=change.is_shared)
        if not booked.remove((change.start, change.end, change.owner)):
            return False
        self._hours.remove(place, self._blocks_left(place, change.start, change.end))
        return True

    def forget_before(self, moment: int) -> None:
        """Forget bookings that ended before the hour of ``moment``, so that memory stays bounded.

        Do not ask about times before this hour afterwards.
        """
        hour = moment // HOUR
        self._forgotten = max(self._forgotten, hour * HOUR)
        self._hours.forget_before(hour)
        for calendar in self._calendars:
            calendar.whole.forget_before(self._forgotten)
            calendar.shares.forget_before(self._forgotten)

    def matching(self, query: Query, *, failing_too: bool = False) -> Mask:
        """Return the resources that match the query and can be reserved.

        If ``failing_too`` is set, return resources that cannot be reserved, too.
        """
        mask = self._properties.matching(query)
        return mask if failing_too else mask & self._reservable

    def free(self, mask: Mask, start: int, end: int, enough: int | None = None) -> Mask:
        """Return the resources of ``mask`` without any booking that overlaps [start, end).

        If ``enough`` is given, the result may lack some of these resources, but has at least
        ``enough`` of them, if so many are free. This is faster.
        """
        first, last = start // HOUR, -(-end // HOUR)
        inner = -(-start // HOUR), end // HOUR
        mask = without(mask, self._hours.within(*inner))
        edges = [hour for hour in {first, last - 1} if not inner[0] <= hour < inner[1]]
        unsure = 0
        for hour in edges:
            touched = mask & self._hours.within(hour, hour + 1)
            ragged = touched & self._hours.ragged(hour)
            mask ^= touched ^ ragged
            unsure |= ragged
        unsure &= mask
        sure = mask ^ unsure
        if enough is not None and sure.bit_count() >= enough:
            return sure
        calendars = self._calendars
        return sure | mask_of(
            place for place in places(unsure) if calendars[place].is_free(start, end)
        )

    def ids(self, mask: Mask, limit: int | None = None, rotation: float = 0.0) -> list[int]:
        """Return the ids of up to ``limit`` resources of ``mask``.

        The list begins at the fraction ``rotation`` (0 to 1) of the way from the first to the last
        resource of the mask. So different callers get different resources, also if the mask has
        only neighbours, such as the hosts of a rack.
        """
        lowest = (mask & -mask).bit_length() - 1 if mask else 0
        first = lowest + int((mask.bit_length() - lowest) * rotation)
        low, high = mask & ((1 << first) - 1), mask >> first
        near = high & _NEAR
        if limit is not None and near.bit_count() >= limit:
            high = near  # the search reads fewer bits
        chosen = chain((first + place for place in places(high)), places(low))
        return [self._ids[place] for place in islice(chosen, limit)]

    def earliest(self, mask: Mask, needed: int, length: int, first: int, last: int) -> int | None:
        """Return the earliest start in [first, last] for a lease of ``length`` microseconds.

        The same ``needed`` resources of ``mask`` are free during the whole lease. The result is
        ``first`` or the end of a booking, or None if the lease cannot start by ``last``.
        """
        return search.earliest(self._search(needed, length, (first, last)), mask)

    def openings(
        self, mask: Mask, needed: int, length: int, first: int, last: int
    ) -> Iterator[Span]:
        """Yield the ranges (first start, last start) of all possible starts, in order.

        See ``earliest``. The meaning is that of ``climate.core.matching.calendar.starts`` for whole
        resources. The bookings must not change before the caller has read all ranges it needs.
        """
        return search.openings(self._search(needed, length, (first, last)), mask)

    def lasting(self, mask: Mask, needed: int, start: int, horizon: int) -> int | None:
        """Return the time until which ``needed`` resources stay free from ``start`` on.

        Returns None if fewer are free at ``start``. The result is at most ``horizon``. The meaning
        is that of ``climate.core.matching.calendar.lasting`` for whole resources.
        """
        needed = max(1, needed)
        next_hour = start // HOUR + 1
        # The longer the span, the fewer resources need an exact check.
        for end in (*((next_hour + hours) * HOUR for hours in _SPANS), start + 1):
            free = self.free(mask, start, end)
            if free.bit_count() >= needed:
                span = start, end
                return search.lasting(self._hours, self._calendars, free, needed, span, horizon)
        return None

    def bookings(
        self, resource_ids: Collection[int], start: int, end: int
    ) -> Iterator[tuple[int, int, int, int, bool]]:
        """Yield (resource id, start, end, owner, is_shared) of bookings that overlap [start, end).

        Equal shares (the resource classes of one lease) are reported once.
        """
        for resource_id in resource_ids:
            place = self._places.get(resource_id)
            if place is not None:
                for is_shared in (False, True):
                    booked = self._calendars[place].of_kind(is_shared=is_shared)
                    if booked:
                        for row in booked.overlapping(start, end):
                            yield resource_id, *row, is_shared

    def free_steps(self, mask: Mask, start: int, end: int) -> list[tuple[int, int, int]]:
        """Return (start, end, free): how many resources of ``mask`` are free during [start, end).

        Neighbouring steps have different numbers.
        """
        touched = mask & self._hours.within(start // HOUR, -(-end // HOUR))
        calendars = (self._calendars[place] for place in places(touched))
        changes = free_counts.changes(calendars, start, end)
        return list(free_counts.steps(mask.bit_count(), changes, start, end))

    def least_free(self, mask: Mask, start: int, end: int, resolution: int) -> list[int]:
        """Return the lowest number of free resources of ``mask`` in each bucket of [start, end).

        A bucket is ``resolution`` microseconds long; the last one may be shorter.
        """
        count = -(-(end - start) // resolution)
        return free_counts.least(self.free_steps(mask, start, end), start, count, resolution)

    def differs(self, spans: ResourceSpans, moment: int) -> bool:
        """Return whether memory has other bookings of this kind and resource than the database.

        ``spans`` has the times of all rows of the database that end after ``moment``. Owners are
        not compared.
        """
        place = self._places.get(spans.resource_id)
        if place is None:
            return True
        booked = self._calendars[place].of_kind(is_shared=spans.is_shared)
        return booked.differs(spans, max(moment, self._forgotten))

    @property
    def _hours(self) -> TouchedHours:
        if self._pending:
            self.finish_loading()
        return self._touched

    def _new_place(self, resource_id: int) -> int:
        if self._unused:
            place = self._unused.pop()
            self._ids[place] = resource_id
        else:
            place = len(self._ids)
            self._ids.append(resource_id)
            self._calendars.append(ResourceCalendar())
        self._places[resource_id] = place
        return place

    def _search(self, needed: int, length: int, within: Span) -> search.Search:
        return search.Search(self._hours, self._calendars, needed, length, *within)

    def _blocks(self, place: int) -> frozenset[Block]:
        spans = self._calendars[place].all_spans()
        return frozenset(block for span in spans for block in blocks(*span))

    def _blocks_left(self, place: int, start: int, end: int) -> set[Block]:
        """Return the blocks of a removed booking in which no other booking is stored."""
        first, last = start // HOUR * HOUR, -(-end // HOUR) * HOUR
        booked = self._calendars[place]
        gone = set(blocks(start, end))
        for kind in (booked.whole, booked.shares):
            for begin, finish, _ in kind.overlapping(first, last):
                gone.difference_update(blocks(begin, finish))
        return gone
