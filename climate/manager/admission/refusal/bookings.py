"""The bookings that a refusal asks about: in the database, or in the calendar in memory.

``Bookings`` is the interface. The calendar in memory answers for leases with one requirement for
whole resources, and examines all resources. SQL queries answer for every lease. To limit their
cost, they examine only a sample of the matching resources.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Protocol

from sqlalchemy.orm import Session

from climate.core.errors import SearchTooLong
from climate.core.matching import calendar
from climate.core.matching.packing import Units
from climate.core.matching.requirement import Requirement
from climate.core.matching.selection import Preference
from climate.core.window import Window, later
from climate.db.resources import calendar as stored
from climate.db.resources.calendar import Blocker
from climate.manager.admission.admission import InsufficientResources, dry_run
from climate.manager.admission.availability import matching
from climate.manager.admission.candidates import Demand
from climate.manager.admission.window_search import WindowSearch, offers
from climate.manager.process.calendar_memory.view import CalendarView
from climate.manager.process.runtime import Runtime

# Resources in a sample (at least twice the required number).
_SAMPLE = 50
# Bookings of other projects that an explanation reads.
_MAX_BOOKINGS = 1000

Taken = Mapping[int, Sequence[Window]]


class Bookings(Protocol):
    """Questions about bookings. The windows include cleaning time."""

    @property
    def runtime(self) -> Runtime:
        """The runtime of the process."""

    @property
    def session(self) -> Session:
        """The session for further questions to the database."""

    def blockers(
        self, requirement: Requirement, occupied: Window, project_id: str, limit: int
    ) -> tuple[list[Blocker], Taken]:
        """Return who has booked matching resources in a window.

        The first item contains up to ``limit`` leases of the project. The second item contains
        bookings of other projects, by resource id.
        """

    def lasting(self, requirement: Requirement, occupied: Window) -> datetime | None:
        """Return until when enough resources stay free from the start of the window on.

        The result is at most the end of the window. None if too few are free at its start.
        """

    def earliest(self, query: WindowSearch) -> Window | None:
        """Return the earliest window for a lease; None if there is none, or no time to search."""

    def choose(self, demands: Sequence[Demand], occupied: Window) -> tuple[Units, ...] | None:
        """Return the units that a lease would get; None if too few are free."""


@dataclass(frozen=True, slots=True)
class StoredBookings:
    """Bookings in the database, as the transaction of ``session`` sees them.

    ``preference`` says which resources come first. ``ids`` are the resources to examine (None: a
    sample of those that match a requirement).
    """

    runtime: Runtime
    session: Session
    preference: Preference
    ids: Sequence[int] | None = None

    @classmethod
    def about(
        cls, runtime: Runtime, session: Session, shortage: InsufficientResources
    ) -> "StoredBookings":
        """Return the bookings to examine for this error."""
        ids = list(shortage.in_use) if shortage.in_use else None
        return cls(runtime, session, runtime.preference(), ids)

    def blockers(
        self, requirement: Requirement, occupied: Window, project_id: str, limit: int
    ) -> tuple[list[Blocker], Taken]:
        """Implement Bookings.blockers."""
        ids = self._sample(requirement)
        if not ids:
            return [], {}
        own = stored.blockers(self.session, ids, occupied, project_id, limit)
        of_others: dict[int, list[Window]] = defaultdict(list)
        for id_, window in stored.taken_by_others(
            self.session, ids, occupied, project_id, _MAX_BOOKINGS
        ):
            of_others[id_].append(window)
        return own, of_others

    def lasting(self, requirement: Requirement, occupied: Window) -> datetime | None:
        """Implement Bookings.lasting."""
        ids = self._sample(requirement)
        timelines = stored.timelines(self.session, requirement, ids, occupied)
        return calendar.lasting(requirement, timelines, occupied.start, occupied.end)

    def earliest(self, query: WindowSearch) -> Window | None:
        """Implement Bookings.earliest."""
        sample = max(map(_sample_size, query.requirements))
        with suppress(SearchTooLong):
            for offer in islice(offers(self.runtime, self.session, query, sample), 1):
                return offer.window
        return None

    def choose(self, demands: Sequence[Demand], occupied: Window) -> tuple[Units, ...] | None:
        """Implement Bookings.choose."""
        return dry_run(self.session, demands, occupied, self.preference)

    def _sample(self, requirement: Requirement) -> Sequence[int]:
        if self.ids is not None:
            return self.ids
        size = _sample_size(requirement)
        return matching(self.session, requirement, self.preference, size)


@dataclass(frozen=True, slots=True)
class RememberedBookings:
    """Bookings in memory, for a lease with one requirement for whole resources.

    ``session`` reads the names of the requester's own leases, and only if there are any.
    ``rotation`` is a fraction from 0 to 1 that says which resources come first.
    """

    runtime: Runtime
    session: Session
    view: CalendarView
    rotation: float

    def blockers(
        self, requirement: Requirement, occupied: Window, project_id: str, limit: int
    ) -> tuple[list[Blocker], Taken]:
        """Implement Bookings.blockers."""
        sample = self.view.sample(requirement, _sample_size(requirement), self.rotation)
        ids, of_others = self.view.blockers(sample, occupied, project_id, _MAX_BOOKINGS)
        if not ids:
            return [], of_others
        own = stored.blockers(self.session, ids, occupied, project_id, limit)
        # The copy does not know which leases are held. Windows that are listed twice do no harm.
        for id_, window in stored.taken_by_others(
            self.session, ids, occupied, project_id, _MAX_BOOKINGS
        ):
            of_others[id_].append(window)
        return own, of_others

    def lasting(self, requirement: Requirement, occupied: Window) -> datetime | None:
        """Implement Bookings.lasting."""
        return self.view.lasting(requirement, occupied)

    def earliest(self, query: WindowSearch) -> Window | None:
        """Implement Bookings.earliest."""
        (requirement,) = query.requirements
        now = self.runtime.clock.now()
        found = self.view.earliest(requirement, query.occupied, query.lead_starts(now))
        if found is None:
            return None
        start = found + query.lead
        return Window(start, later(start, query.length))

    def choose(self, demands: Sequence[Demand], occupied: Window) -> tuple[Units, ...] | None:
        """Implement Bookings.choose."""
        (demand,) = demands
        ids = self.view.choose(demand.requirement, occupied, self.rotation)
        return None if ids is None else (dict.fromkeys(ids, 1),)


def _sample_size(requirement: Requirement) -> int:
    return max(_SAMPLE, 2 * requirement.minimum)
