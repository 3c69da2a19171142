"""Questions to the calendar in memory, about whole resources, with times as ``datetime``."""

import threading
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice

from climate.core.matching.booked_hours.booked_hours import BookedHours
from climate.core.matching.booked_hours.booking_change import owner_hash
from climate.core.matching.calendar import Starts
from climate.core.matching.requirement import Requirement
from climate.core.window import Window

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)
_SECOND = 1_000_000
# Seconds for which a suggestion waits for a thread that changes the bookings.
_PATIENCE = 0.02


def ticks(moment: datetime) -> int:
    """Return the microseconds from 1970-01-01 UTC to ``moment``."""
    return (moment - _EPOCH) // _TICK


@lru_cache(4096)
def moment_of(count: int) -> datetime:
    """Return the time that is ``count`` microseconds after 1970-01-01 UTC."""
    return _EPOCH + count * _TICK


@dataclass(frozen=True, slots=True)
class CalendarView:
    """The resources of one type and their bookings, as of the call for the view, or later.

    Each method holds ``lock`` while it reads ``hours``. The methods take a requirement for whole
    resources. A resource matches if new leases can book it and its properties satisfy the query. It
    is free if neither a booking of the whole resource nor of a share overlaps the window.
    """

    hours: BookedHours
    lock: "threading.RLock"

    def count_matching(self, requirement: Requirement) -> int:
        """Return how many resources match, free or booked."""
        with self.lock:
            return self.hours.matching(requirement.condition).bit_count()

    def count_free(self, requirement: Requirement, window: Window) -> int:
        """Return how many resources match and are free in the window."""
        with self.lock:
            return self._free(requirement, window).bit_count()

    def has_enough(self, requirement: Requirement, window: Window) -> bool:
        """Return whether the minimum number of matching resources is free in the window."""
        least = requirement.minimum
        with self.lock:
            mask = self.hours.matching(requirement.condition)
            return self.hours.free(mask, *_span(window), enough=least).bit_count() >= least

    def choose(self, requirement: Requirement, window: Window, rotation: float) -> list[int] | None:
        """Return the ids of as many free resources as a lease would get; None if too few are free.

        ``rotation`` is a fraction from 0 to 1 that says where the search begins.
        """
        with self.lock:
            ids = self.hours.ids(self._free(requirement, window), requirement.maximum, rotation)
        return ids if len(ids) >= requirement.minimum else None

    def suggest(
        self, requirement: Requirement, window: Window, limit: int, rotation: float
    ) -> list[int] | None:
        """Return the ids of up to ``limit`` resources that are free in the window.

        If the result is shorter than ``limit``, no other resource is free. None if another thread
        has changed the bookings for some time, because the database then answers sooner.
        """
        if not self.lock.acquire(timeout=_PATIENCE):
            return None
        try:
            mask = self.hours.matching(requirement.condition)
            free = self.hours.free(mask, *_span(window), enough=limit)
            return self.hours.ids(free, limit, rotation)
        finally:
            self.lock.release()

    def sample(self, requirement: Requirement, limit: int, rotation: float) -> list[int]:
        """Return the ids of up to ``limit`` matching resources, free or booked."""
        with self.lock:
            return self.hours.ids(self.hours.matching(requirement.condition), limit, rotation)

    def earliest(
        self, requirement: Requirement, length: timedelta, within: Starts
    ) -> datetime | None:
        """Return the earliest start of a booking with this ``length`` (cleaning time included).

        ``within`` contains the first and the last possible start. The result is a whole second.
        None if there is none.
        """
        with self.lock:
            mask = self.hours.matching(requirement.condition)
            needed, duration = requirement.minimum, length // _TICK
            start, last = _whole_second(ticks(within[0])), ticks(within[1])
            while start <= last:
                found = self.hours.earliest(mask, needed, duration, start, last)
                if found is None or (start := _whole_second(found)) == found:
                    return None if found is None else moment_of(found)
        return None

    def openings(
        self, requirement: Requirement, length: timedelta, within: Starts, limit: int
    ) -> list[tuple[datetime, datetime]]:
        """Return the first ``limit`` ranges (first start, last start) of possible starts.

        The parameters are those of ``earliest``. The first start is a whole second.
        """
        with self.lock:
            found = self.hours.openings(
                self.hours.matching(requirement.condition),
                requirement.minimum,
                length // _TICK,
                *map(ticks, within),
            )
            ranges = ((_whole_second(first), last) for first, last in found)
            usable = islice(((first, last) for first, last in ranges if first <= last), limit)
            return [(moment_of(first), moment_of(last)) for first, last in usable]

    def lasting(self, requirement: Requirement, window: Window) -> datetime | None:
        """Return until when the minimum number stays free from the start of the window on.

        The result is at most the end of the window. None if too few are free at its start.
        """
        with self.lock:
            mask = self.hours.matching(requirement.condition)
            found = self.hours.lasting(mask, requirement.minimum, *_span(window))
        return None if found is None else moment_of(found)

    def free_steps(
        self, requirement: Requirement, window: Window
    ) -> list[tuple[datetime, datetime, int]]:
        """Return (start, end, free): how many matching resources are free in parts of the window.

        Neighbouring parts have different numbers. The result is empty if the window is.
        """
        start, end = _span(window)
        with self.lock:
            mask = self.hours.matching(requirement.condition)
            found = self.hours.free_steps(mask, start, end) if start < end else []
        return [(moment_of(first), moment_of(last), free) for first, last, free in found]

    def blockers(
        self, resource_ids: list[int], window: Window, project_id: str, limit: int
    ) -> tuple[list[int], dict[int, list[Window]]]:
        """Return resources that a project may have booked in the window, and bookings of others.

        The first item contains ids of resources. Only an SQL query can tell for sure whose bookings
        they are, because the copy has hashes of project ids. The second item contains bookings of
        other projects that overlap the window, by resource id. The function examines at most
        ``limit`` bookings.
        """
        own = owner_hash(project_id)
        perhaps_own: dict[int, None] = {}
        of_others: dict[int, list[Window]] = defaultdict(list)
        with self.lock:
            booked = list(islice(self.hours.bookings(resource_ids, *_span(window)), limit))
        for id_, start, end, owner, _ in booked:
            if owner == own:
                perhaps_own[id_] = None
            else:
                of_others[id_].append(Window(moment_of(start), moment_of(end)))
        return list(perhaps_own), of_others

    def _free(self, requirement: Requirement, window: Window) -> int:
        return self.hours.free(self.hours.matching(requirement.condition), *_span(window))


def _whole_second(count: int) -> int:
    """Return the first whole second at or after a time."""
    return -(-count // _SECOND) * _SECOND


def _span(window: Window) -> tuple[int, int]:
    return ticks(window.start), ticks(window.end)
