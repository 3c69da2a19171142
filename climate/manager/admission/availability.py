"""Availability: the free capacity over a span, and windows in which a lease would fit.

A search for windows locks and reserves nothing, so another request may book an offered window
first. If there are very many resources of a type, the search examines only a sample of them. The
offered windows are then still correct, but the search may miss earlier ones.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import reduce
from itertools import chain, groupby, islice
from operator import itemgetter

from sqlalchemy.orm import Session

from climate.core.errors import InvalidDate, InvalidInput, SearchTooLong
from climate.core.matching import calendar
from climate.core.matching import occupancy as occupancy_rules
from climate.core.matching.calendar import Starts, Step
from climate.core.matching.requirement import Layout, Requirement
from climate.core.matching.selection import Candidate, Preference, rank
from climate.core.window import MAX_SPAN, Window, later, second_from
from climate.db.resources import allocations, capacity, resources
from climate.db.resources import calendar as bookings
from climate.db.resources.occupancy import availability as occupancy
from climate.manager.admission.admission import calendar_view, dry_run, only_whole
from climate.manager.admission.candidates import Demand
from climate.manager.admission.requirements import (
    ReservationRequest,
    check_queries,
    needs_of,
    requirements_of,
)
from climate.manager.process.calendar_memory.view import CalendarView
from climate.manager.process.runtime import Runtime

# The number of buckets of a query: a month of 20 minutes, a week of 5.
MAX_BUCKETS = 2_200
# The number of resources of a type that a search for windows examines.
SAMPLE = 2_000
# The number of requirements in a search, parts of stacks included: each costs as much as a search.
MAX_REQUIREMENTS = 20
# If another request books a window that was found, climate searches again, at most this often.
ATTEMPTS = 5
# The number of start times to try in each part of the span: this, divided by the number of
# requirements.
_TRIES = 200
# Most searches succeed early, so later weeks are examined only if the first ones have no window.
_CHUNKS = (timedelta(days=7), timedelta(days=28))


@dataclass(frozen=True, slots=True)
class Offer:
    """A start and end (``window``) for which climate would accept the lease now.

    A lease of the same length may also fit at later start times, up to ``latest_start``. For these
    later times, climate has only compared the bookings; it has not tried to choose resources, so a
    lease may still be rejected.
    """

    window: Window
    latest_start: datetime


@dataclass(frozen=True, slots=True)
class WindowSearch:
    """The parameters of a search for windows in which all ``requirements`` fit at once.

    The windows have the duration ``length`` and lie in the span ``within``. The search gives up at
    ``deadline``, a reading of the monotonic clock ``clock.elapsed`` in seconds.
    """

    requirements: Sequence[Requirement]
    length: timedelta
    within: Window
    deadline: float


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
    if (span.end - span.start) / timedelta(seconds=resolution) > MAX_BUCKETS:
        raise InvalidInput(
            f"The window has more than {MAX_BUCKETS} buckets: request a shorter window or a"
            " coarser resolution"
        )


def search(
    runtime: Runtime,
    requests: Sequence[ReservationRequest],
    length: timedelta,
    within: Window,
    *,
    project_id: str,
    private: bool,
) -> Offer | None:
    """Return the earliest window of the duration ``length`` in which all requests fit at once.

    The window lies in the span ``within``; None if there is none. If ``private`` is true, the
    queries may name private properties (hidden from ordinary users).

    Raises InvalidDate, InvalidInput, InvalidQuery, SearchTooLong, UnsupportedResourceType.
    """
    requirements = needs_of(runtime.catalog, requests, project_id)
    query = window_search(runtime, requirements, length, within)
    with runtime.database.read() as session:
        check_queries(session, runtime.catalog, requirements, private=private)
        view = calendar_view(runtime, requirements)
        if view is not None:
            return next(iter(_remembered(runtime, view, query, 1)), None)
        return next(offers(runtime, session, query), None)


def earliest(
    runtime: Runtime,
    session: Session,
    requirements: Sequence[Requirement],
    length: timedelta,
    within: Window,
) -> Window | None:
    """Return the earliest window in ``within`` in which all requirements fit; None if none does.

    The parameters and errors are those of ``window_search``.
    """
    query = window_search(runtime, requirements, length, within)
    view = calendar_view(runtime, requirements)
    if view is not None:
        found = _remembered(runtime, view, query, 1)
    else:
        found = list(islice(offers(runtime, session, query), 1))
    return found[0].window if found else None


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


def _remembered(
    runtime: Runtime, view: CalendarView, query: WindowSearch, limit: int
) -> list[Offer]:
    """Return what ``search`` returns, from the calendar in memory: it examines all resources."""
    (requirement,) = query.requirements
    begin = second_from(max(query.within.start, runtime.clock.now()))
    last = query.within.end - query.length
    if begin > last:
        return []
    length = query.length + runtime.settings.cleaning_time
    found = view.openings(requirement, length, Window(begin, last), limit)
    return [Offer(Window(start, start + query.length), latest) for start, latest in found]


def window_search(
    runtime: Runtime,
    requirements: Sequence[Requirement],
    length: timedelta,
    within: Window,
    deadline: float | None = None,
) -> WindowSearch:
    """Return a search for windows that must end within ``[api] search_timeout``.

    ``deadline`` is the end of that time by the monotonic clock ``clock.elapsed``, in seconds (None:
    the time begins now).
    Raises InvalidDate if the windows do not fit into ``within``, or if this span is too long.
    Raises InvalidInput if there are too many requirements.
    """
    check_span(within)
    if not timedelta(0) < length <= within.end - within.start:
        raise InvalidDate("The duration must be more than nothing and fit between start and end")
    if len(requirements) > MAX_REQUIREMENTS:
        raise InvalidInput(
            f"A search has at most {MAX_REQUIREMENTS} reservations (parts of stacks count), not"
            f" {len(requirements)}: search for fewer, or create the lease with a fixed start"
        )
    if deadline is None:
        deadline = runtime.clock.elapsed() + runtime.settings.search_timeout
    return WindowSearch(requirements, length, within, deadline)


def offers(
    runtime: Runtime, session: Session, query: WindowSearch, sample: int = SAMPLE
) -> Iterator[Offer]:
    """Yield windows in which climate would accept a lease now, the earliest first.

    ``query`` states what the lease requires and how long it is. The function examines at most
    ``sample`` resources per requirement. Raises SearchTooLong.
    """
    begin = second_from(max(query.within.start, runtime.clock.now()))
    preference = runtime.preference()
    ids = [
        matching(session, requirement, preference, limit=sample)
        for requirement in query.requirements
    ]
    demands = [
        Demand(reservation_id=str(index), requirement=requirement)
        for index, requirement in enumerate(query.requirements)
    ]
    cleaning = runtime.settings.cleaning_time
    occupied = query.length + cleaning
    latest_before = None
    for part in _parts(begin, query.within.end - query.length):
        for first, latest in _starts(session, query.requirements, ids, occupied, part):
            start = second_from(first)
            check_time(runtime, query)
            is_new = first != latest_before and start <= latest
            latest_before = latest
            window = Window(start, start + query.length)
            with_cleaning = window.busy(cleaning)
            if is_new and dry_run(session, demands, with_cleaning, preference) is not None:
                yield Offer(window, latest)


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


def _starts(
    session: Session,
    requirements: Sequence[Requirement],
    ids: Sequence[Sequence[int]],
    occupied: timedelta,
    part: Starts,
) -> list[Starts]:
    """Return the start times in ``part`` at which each requirement, taken alone, fits.

    ``part`` and the items of the result are ranges: pairs (first start, latest start). ``ids``
    contains the ids of the matching resources for each requirement. ``occupied`` is the duration of
    the lease plus cleaning time.

    If there are several requirements, they may not fit together at a returned time, so the caller
    must try each time. To keep the tries few, the function returns single moments instead of whole
    ranges in this case: the start of each range, and the ends of bookings within the range.
    Capacity becomes free only at these moments. The function returns a limited number of them.
    """
    span = Window(part[0], later(part[1], occupied))
    timelines = [
        bookings.timelines(session, requirement, matching_ids, span)
        for requirement, matching_ids in zip(requirements, ids, strict=True)
    ]
    starts_of_each = (
        calendar.starts(requirement, own_timelines, occupied, part)
        for requirement, own_timelines in zip(requirements, timelines, strict=True)
    )
    starts = reduce(calendar.both, starts_of_each, [part])
    if len(requirements) <= 1:  # none: a stack without servers, volumes and addresses
        return starts
    ends = {b.end for timeline in chain.from_iterable(timelines) for b in timeline.bookings}
    moments = {first for first, _ in starts}.union(
        end for first, latest in starts for end in ends if first <= end <= latest
    )
    tries = max(1, _TRIES // len(requirements))
    return [(moment, moment) for moment in sorted(moments)][:tries]


def check_time(runtime: Runtime, query: WindowSearch) -> None:
    """Raise SearchTooLong if the search has reached its deadline."""
    if runtime.clock.elapsed() > query.deadline:
        seconds = runtime.settings.search_timeout
        raise SearchTooLong(
            f"The search has taken more than {seconds:g} seconds: search for fewer reservations,"
            " with shorter expressions, or in a shorter span"
        )


def check_span(span: Window) -> None:
    """Raise InvalidDate if a span is longer than a query may cover (``MAX_SPAN``, 366 days)."""
    if span.end - span.start > MAX_SPAN:
        latest = f"{later(span.start, MAX_SPAN):%Y-%m-%dT%H:%M:%SZ}"
        raise InvalidDate(
            f"A query can cover at most {MAX_SPAN.days} days: here, it can end by {latest}"
        )


def _parts(begin: datetime, last: datetime) -> Iterator[Starts]:
    """Yield consecutive ranges of start times from ``begin`` to ``last``, the first ones short.

    The first range covers 7 days, the second 28 days, the third the remaining time. The search
    examines one range after the other.
    """
    for length in (*_CHUNKS, MAX_SPAN):
        if begin > last:
            return
        yield begin, min(later(begin, length), last)
        begin = later(begin, length)
