"""Search for windows in which a lease would fit, and that the limits of the requester allow.

A search locks and reserves nothing, so another request may book an offered window first. If there
are very many resources of a type, the search examines only a sample of them. The offered windows
are then still correct, but the search may miss earlier ones.

If climate creates resources before the start, the lease also needs its capacity for the *lead*: the
search looks for times at which the lead can begin. If less than the lead is left until a start, the
capacity must be free from now on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import reduce
from itertools import chain, islice

from sqlalchemy.orm import Session

from climate.core.errors import InvalidDate, InvalidInput, LimitExceeded, SearchTooLong
from climate.core.matching import calendar
from climate.core.matching.calendar import Starts
from climate.core.matching.requirement import Requirement
from climate.core.window import MAX_SPAN, Margins, Window, later, second_from
from climate.db import limits as rows
from climate.db.resources import calendar as bookings
from climate.manager.admission.admission import dry_run
from climate.manager.admission.at_once import calendar_view
from climate.manager.admission.availability import SAMPLE, check_span, matching
from climate.manager.admission.candidates import Demand
from climate.manager.admission.limits.limits import Guard, guard_without_lock
from climate.manager.admission.requirements import (
    NO_LEAD,
    ReservationRequest,
    check_queries,
    margins_of,
    needs_of,
    occupied_window,
)
from climate.manager.process.calendar_memory.view import CalendarView
from climate.manager.process.runtime import Runtime

# The number of requirements in a search, parts of stacks included: each costs as much as a search.
MAX_REQUIREMENTS = 20
# If another request books a window that was found, climate searches again, at most this often.
ATTEMPTS = 5
# The number of start times to try in each part of the span: this, divided by the number of
# requirements.
_TRIES = 200
# Most searches succeed early, so later weeks are examined only if the first ones have no window.
_CHUNKS = (timedelta(days=7), timedelta(days=28))
# The search ends after so many windows that limits forbid.
_MOST_FORBIDDEN = 50
# Start times to try in each range of starts, if limits forbid the earliest one.
_TRIES_OF_OFFER = 20


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
    ``deadline``, a reading of the monotonic clock ``clock.elapsed`` in seconds. The lease
    also needs its capacity for the ``margins`` before its start and after its end.
    """

    requirements: Sequence[Requirement]
    length: timedelta
    within: Window
    deadline: float
    margins: Margins

    @property
    def lead(self) -> timedelta:
        """How long before its start the lease needs its capacity."""
        return self.margins.lead

    def first_start(self, now: datetime) -> datetime:
        """Return the earliest possible start, a whole second."""
        return second_from(max(self.within.start, now))

    @property
    def last_start(self) -> datetime:
        """The latest possible start."""
        return self.within.end - self.length

    def at_once(self, now: datetime) -> Window | None:
        """Return the first window if less than the lead is left until its start; else None."""
        start = self.first_start(now)
        is_near = start - self.lead < now and start <= self.last_start
        return Window(start, start + self.length) if is_near else None

    def lead_starts(self, now: datetime) -> Starts:
        """Return the first and the last time at which the lead can begin."""
        return max(self.first_start(now) - self.lead, now), self.last_start - self.lead

    @property
    def occupied(self) -> timedelta:
        """How long the lease occupies resources, with its lead and the cleaning."""
        return self.lead + self.length + self.margins.cleaning


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
    with runtime.database.read() as session:
        margins = margins_of(runtime, session, requests, requirements, runtime.clock.now())
        query = window_search(runtime, requirements, length, within, margins=margins)
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
    margins: Margins,
) -> Window | None:
    """Return the earliest window in ``within`` in which all requirements fit; None if none does.

    The parameters and errors are those of ``window_search``.
    """
    query = window_search(runtime, requirements, length, within, margins=margins)
    view = calendar_view(runtime, requirements)
    if view is not None:
        found = _remembered(runtime, view, query, 1)
    else:
        found = list(islice(offers(runtime, session, query), 1))
    return found[0].window if found else None


def _remembered(
    runtime: Runtime, view: CalendarView, query: WindowSearch, limit: int
) -> list[Offer]:
    """Return what ``search`` returns, from the calendar in memory: it examines all resources."""
    (requirement,) = query.requirements
    now, found = runtime.clock.now(), []
    if window := query.at_once(now):
        occupied = occupied_window(window, now, query.margins)
        if view.has_enough(requirement, occupied):
            found.append(Offer(window, window.start))
    for first, last in view.openings(requirement, query.occupied, query.lead_starts(now), limit):
        start = first + query.lead
        found.append(Offer(Window(start, start + query.length), last + query.lead))
    return found[:limit]


def window_search(
    runtime: Runtime,
    requirements: Sequence[Requirement],
    length: timedelta,
    within: Window,
    deadline: float | None = None,
    margins: Margins | None = None,
) -> WindowSearch:
    """Return a search for windows that must end within ``[api] search_timeout``.

    ``deadline`` is the end of that time by the monotonic clock ``clock.elapsed``, in seconds (None:
    the time begins now). The lease also needs its capacity for the ``margins`` around its window
    (None: for the configured cleaning time).

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
    if margins is None:
        margins = Margins(NO_LEAD, runtime.settings.cleaning_time)
    return WindowSearch(requirements, length, within, deadline, margins)


def offers(
    runtime: Runtime, session: Session, query: WindowSearch, sample: int = SAMPLE
) -> Iterator[Offer]:
    """Yield windows in which climate would accept a lease now, the earliest first.

    ``query`` states what the lease requires and how long it is. The function examines at most
    ``sample`` resources per requirement. Raises SearchTooLong.
    """
    now, preference = runtime.clock.now(), runtime.preference()
    ids = [
        matching(session, requirement, preference, limit=sample)
        for requirement in query.requirements
    ]
    demands = [
        Demand(reservation_id=str(index), requirement=requirement)
        for index, requirement in enumerate(query.requirements)
    ]

    def fits(window: Window) -> bool:
        occupied = occupied_window(window, now, query.margins)
        return dry_run(session, demands, occupied, preference) is not None

    if (window := query.at_once(now)) and fits(window):
        yield Offer(window, window.start)
    latest_before = None
    for part in _parts(*query.lead_starts(now)):
        for first, latest in _starts(session, query.requirements, ids, query.occupied, part):
            start, latest_start = second_from(first + query.lead), latest + query.lead
            check_time(runtime, query)
            is_new = first != latest_before and start <= latest_start
            latest_before = latest
            window = Window(start, start + query.length)
            if is_new and fits(window):
                yield Offer(window, latest_start)


def _starts(
    session: Session,
    requirements: Sequence[Requirement],
    ids: Sequence[Sequence[int]],
    occupied: timedelta,
    part: Starts,
) -> list[Starts]:
    """Return the times in ``part`` from which on each requirement, taken alone, fits.

    ``part`` and the items of the result are ranges: pairs (first time, latest time). ``ids``
    contains the ids of the matching resources for each requirement. ``occupied`` is how long the
    lease occupies resources.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeker:
    """The user who searches. With ``sees_private``, the queries may name private properties."""

    project_id: str
    user_id: str
    roles: tuple[str, ...]
    sees_private: bool


@dataclass(frozen=True, slots=True)
class ForbiddenWindow:
    """A window in which the lease would fit, but that a limit forbids; ``reason`` is for people."""

    window: Window
    reason: str


@dataclass(frozen=True, slots=True)
class FoundWindows:
    """The result of a search: windows that the limits allow, and windows that they forbid."""

    windows: Sequence[Offer]
    forbidden: Sequence[ForbiddenWindow]


def search_allowed(
    runtime: Runtime,
    requests: Sequence[ReservationRequest],
    length: timedelta,
    within: Window,
    limit: int,
    seeker: Seeker,
) -> FoundWindows:
    """Return up to ``limit`` windows in which all requests fit at once, the earliest first.

    Windows that limits forbid are listed apart, also up to ``limit``. Raises the errors of
    ``availability.search``.
    """
    requirements = needs_of(runtime.catalog, requests, seeker.project_id)
    windows: list[Offer] = []
    forbidden: list[ForbiddenWindow] = []
    with runtime.database.read() as session:
        margins = margins_of(runtime, session, requests, requirements, runtime.clock.now())
        query = window_search(runtime, requirements, length, within, margins=margins)
        check_queries(session, runtime.catalog, requirements, private=seeker.sees_private)
        owner = (seeker.project_id, seeker.user_id)
        guard = guard_without_lock(session, runtime.settings.limits, *owner, seeker.roles)
        judge = _Judge(runtime, session, query, guard)
        for offer in offers(runtime, session, query):
            verdict = judge.allowed(offer)
            if isinstance(verdict, Offer):
                windows.append(verdict)
            else:
                forbidden.append(verdict)
            if len(windows) == limit or len(forbidden) == _MOST_FORBIDDEN:
                break
    return FoundWindows(windows, forbidden[:limit])


class _Judge:
    """Decides which offered windows the limits allow."""

    def __init__(
        self, runtime: Runtime, session: Session, query: WindowSearch, guard: Guard
    ) -> None:
        self._runtime, self._session, self._query, self._guard = runtime, session, query, guard
        self._now = runtime.clock.now()
        self._demands = [
            Demand(reservation_id=str(number), requirement=requirement)
            for number, requirement in enumerate(query.requirements)
        ]
        self._ends = self._ends_of_use() if guard.limits else []

    def _ends_of_use(self) -> list[datetime]:
        """Return when the requester's other leases end, or count less for a limit on hours."""
        within, period = self._query.within, self._guard.period
        parties = list(self._guard.limits)
        uses = rows.uses(self._session, parties, within.start - period, within.end, past_too=True)
        ends = {entry.use.end for entry in uses}
        spans = (timedelta(0), period - self._query.length, period)
        return sorted({end + span for end in ends for span in spans})

    def allowed(self, offer: Offer) -> Offer | ForbiddenWindow:
        """Return the earliest start in the offer that the limits allow, or why they forbid it."""
        if not self._guard.limits:
            return offer
        reason = ""
        for start in self._starts(offer):
            check_time(self._runtime, self._query)
            window = Window(start, start + self._query.length)
            try:
                if self._fits(window):
                    return replace(offer, window=window)
            except LimitExceeded as error:
                reason = reason or error.message
        return ForbiddenWindow(offer.window, reason)

    def _starts(self, offer: Offer) -> Iterator[datetime]:
        yield offer.window.start
        later = (end for end in self._ends if offer.window.start < end <= offer.latest_start)
        yield from (start for start, _ in zip(later, range(_TRIES_OF_OFFER), strict=False))

    def _fits(self, window: Window) -> bool:
        """Return whether resources are free in ``window``. Raises LimitExceeded."""
        self._guard.check_dates(None, window, self._now)
        self._guard.check_count(self._session, None, self._now)
        occupied = occupied_window(window, self._now, self._query.margins)
        preference = self._runtime.preference()
        units = dry_run(self._session, self._demands, occupied, preference)
        if units is None:
            return False
        taken = zip(self._query.requirements, units, strict=True)
        use = rows.use_of(self._session, taken, window.start, window.end)
        self._guard.check_use(self._session, None, window, [], [use])
        return True
