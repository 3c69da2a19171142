"""Availability: how much capacity is free over a span of time."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter

from sqlalchemy.orm import Session

from climate.core.errors import InvalidDate, InvalidInput
from climate.core.matching import calendar
from climate.core.matching import occupancy as occupancy_rules
from climate.core.matching.calendar import Step
from climate.core.matching.requirement import Layout, Requirement
from climate.core.matching.selection import Candidate, Preference, rank
from climate.core.window import MAX_SPAN, Window, later
from climate.db.resources import allocations, capacity, resources
from climate.db.resources import calendar as bookings
from climate.db.resources.occupancy import availability as occupancy
from climate.manager.admission.at_once import only_whole
from climate.manager.admission.requirements import (
    ReservationRequest,
    check_queries,
    requirements_of,
)
from climate.manager.process.calendar_memory.view import CalendarView
from climate.manager.process.runtime import Runtime

# The number of buckets of a query: a month of 20 minutes, a week of 5.
MAX_BUCKETS = 2_200
# The number of resources of a type that a search for windows examines.
SAMPLE = 2_000


def free_over(
    runtime: Runtime, request: ReservationRequest, span: Window, *, project_id: str, private: bool
) -> list[Step]:
    """Return how many units of the requested kind are free at each time in ``span``.

    A unit is a host, an instance, and so on, depending on the resource type. Only resources that
    the project may book are counted. The result is a list of consecutive steps. A step is a window
    and the number of units that are free throughout it. If ``private`` is true, the query may name
    private properties (hidden from ordinary users).

    A lease over two steps may not fit even if each step has a free unit, because these units can be
    on different resources. Call ``search`` to find windows that fit.

    Raises InvalidDate, InvalidInput, InvalidQuery, UnsupportedResourceType.
    """
    parts = _counted_parts(runtime, request, span, project_id)
    with runtime.database.read() as session:
        check_queries(session, runtime.catalog, parts, private=private)
        preference = Preference(selection=runtime.selection)
        timelines = [
            timeline
            for part in parts
            for timeline in bookings.timelines(
                session, part, matching(session, part, preference), span
            )
        ]
        return calendar.in_whole_seconds(calendar.free_over(parts[0], timelines, span))


@dataclass(frozen=True, slots=True)
class LeastFree:
    """The number of units that match a request (``units``), and how many of these are free.

    The time is divided into buckets of equal length, for example an hour. The number for a bucket
    is the lowest number of free units at any time in it. ``steps`` are in the order of time. A step
    joins consecutive buckets with the same number.
    """

    units: int
    steps: Sequence[Step]


def least_free(
    runtime: Runtime,
    request: ReservationRequest,
    span: Window,
    resolution: int,
    *,
    project_id: str,
    private: bool,
) -> LeastFree:
    """Return the lowest number of free units in each bucket of ``resolution`` seconds of ``span``.

    A unit is a host, an instance, and so on; the numbers include only units that match the request.
    Consecutive buckets with the same number become one step. The database computes the numbers, so
    the number of rows that it returns depends only on the number of buckets.

    Raises the errors of ``free_over``. Raises InvalidInput if there are too many buckets, or if the
    request demands that all its units are on one resource.
    """
    parts = _counted_parts(runtime, request, span, project_id)
    _check_buckets(parts[0], span, resolution)
    with runtime.database.snapshot() as session:
        check_queries(session, runtime.catalog, parts, private=private)
        preference = Preference(selection=runtime.selection)
        ids = None  # the database selects, unless operators' filters do
        if runtime.selection.rejects:
            ids = [id_ for part in parts for id_ in matching(session, part, preference)]
        taken = occupancy.taken(session, parts, span, resolution, ids)
    length, size = int((span.end - span.start).total_seconds()), timedelta(seconds=resolution)
    peaks = occupancy_rules.peaks(taken.buckets, length, resolution)
    steps = []
    for peak, run in groupby(enumerate(peaks), key=itemgetter(1)):
        numbers = [number for number, _ in run]
        first, last = (later(span.start, n * size) for n in (numbers[0], numbers[-1] + 1))
        steps.append(Step(Window(first, min(last, span.end)), taken.units - peak))
    return LeastFree(taken.units, steps)


def _counted_parts(
    runtime: Runtime, request: ReservationRequest, span: Window, project_id: str
) -> tuple[Requirement, ...]:
    """Return the requirements of a request, after a check that its units can be counted.

    Raises InvalidDate if ``span`` is too long. Raises InvalidInput if the resource type has no
    units, for example a stack.
    """
    check_span(span)
    parts = requirements_of(runtime.catalog, request, project_id)
    if not parts[0].maximum:
        raise InvalidInput(
            f"A {request.resource_type} is no unit of anything: search for windows in which it fits"
        )
    return parts


def _check_buckets(part: Requirement, span: Window, resolution: int) -> None:
    if part.layout is Layout.TOGETHER and not part.is_whole:
        raise InvalidInput(
            "Units that must be on one resource cannot be counted in buckets: leave out the"
            " resolution, or the affinity"
        )
    if part.exclusive:
        raise InvalidInput(
            "Units on hosts of their own (match: open) cannot be counted in buckets: leave out the"
            " resolution, or match"
        )
    if (span.end - span.start) / timedelta(seconds=resolution) > MAX_BUCKETS:
        raise InvalidInput(
            f"The window has more than {MAX_BUCKETS} buckets: request a shorter window or a"
            " coarser resolution"
        )


@dataclass(frozen=True, slots=True)
class FreeRoom:
    """Until when requirements stay satisfied from ``start`` on, at most until ``horizon``.

    Requirements that differ only in their minimum share what is read from the database. The
    calendar in memory reads new bookings once.
    """

    runtime: Runtime
    session: Session
    start: datetime
    horizon: datetime
    _known: dict[str, list[tuple[datetime, int]]] = field(default_factory=dict)
    _views: dict[str, CalendarView | None] = field(default_factory=dict)

    def lasts_until(self, requirements: Sequence[Requirement]) -> datetime | None:
        """Return until when each requirement, taken alone, stays satisfied; None if one is not."""
        only = only_whole(self.runtime, requirements)
        view = None if only is None else self._view(only.resource_type)
        if only is not None and view is not None:
            return view.lasting(only, Window(self.start, self.horizon))
        untils = [
            calendar.units_lasting(self._runs(part), calendar.units_counted(part))
            for part in requirements
        ]
        known = [min(until, self.horizon) for until in untils if until is not None]
        return min(known, default=self.horizon) if len(known) == len(untils) else None

    def _view(self, resource_type: str) -> CalendarView | None:
        if resource_type not in self._views:
            self._views[resource_type] = self.runtime.calendar.view(resource_type)
        return self._views[resource_type]

    def _runs(self, part: Requirement) -> list[tuple[datetime, int]]:
        like = replace(part, minimum=part.minimum if part.layout is Layout.TOGETHER else 1)
        key = repr(replace(like, maximum=0))
        if key not in self._known:
            preference = self.runtime.preference(packs=True)
            ids = matching(self.session, part, preference, limit=SAMPLE)
            span = Window(self.start, self.horizon)
            timelines = bookings.timelines(self.session, part, ids, span)
            self._known[key] = calendar.free_runs(part, timelines, self.start)
        return self._known[key]


def matching(
    session: Session, requirement: Requirement, preference: Preference, limit: int | None = None
) -> Sequence[int]:
    """Return the ids of resources that match a requirement and that the operator's filters accept.

    Booked resources are included. ``preference`` contains the filters, and decides which resources
    come first. The function examines at most ``limit`` matching resources (None: all).
    """
    ids = allocations.matching(session, requirement, limit=limit, rotation=preference.rotation)
    selection = preference.selection
    if not selection.rejects:
        return ids
    records = resources.find_some(session, ids)
    needs_amounts = bool(requirement.amounts or selection.screens)
    inventories = capacity.find_some(session, ids) if needs_amounts else {}
    free = {
        id_: {name: inventory.capacity for name, inventory in totals.items()}
        for id_, totals in inventories.items()
        if requirement.amounts
    }
    candidates = [
        Candidate(records[id_], free.get(id_, {}), inventories.get(id_, {}))
        for id_ in ids
        if id_ in records
    ]
    passing = rank(candidates, requirement, selection.filters, (), selection.screens)
    return [candidate.resource.id for candidate in passing]


def check_span(span: Window) -> None:
    """Raise InvalidDate if a span is longer than a query may cover (``MAX_SPAN``, 366 days)."""
    if span.end - span.start > MAX_SPAN:
        latest = f"{later(span.start, MAX_SPAN):%Y-%m-%dT%H:%M:%SZ}"
        raise InvalidDate(
            f"A query can cover at most {MAX_SPAN.days} days: here, it can end by {latest}"
        )
