"""Availability: what is free over a span, and windows that would be admitted now.

Nothing is locked or promised: another request may take an offered window first. Of a type with very
many resources only a sample is searched, so that an answer always costs about the same: an offer
would be admitted, but an earlier one may exist.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import islice

from sqlalchemy.orm import Session

from climate.core.errors import InvalidDate, InvalidInput
from climate.core.matching import calendar
from climate.core.matching.calendar import Starts, Step
from climate.core.matching.requirement import Requirement
from climate.core.matching.selection import Candidate, Preference, rank
from climate.core.window import Window, later
from climate.db.resources import allocations, capacity, resources
from climate.db.resources import calendar as bookings
from climate.manager.admission.admission import dry_run
from climate.manager.admission.candidates import Demand
from climate.manager.admission.requirements import (
    ReservationRequest,
    check_properties,
    needs_of,
    requirements_of,
)
from climate.manager.process.runtime import Runtime

# The longest span that is looked at.
MAX_SPAN = timedelta(days=366)
# Resources of a type that are looked at when windows are searched.
SAMPLE = 2_000
# What is tried together, in each part of the span: so many moments, the fewer the more there is.
_TRIES = 200
# Most searches are over soon: later weeks are looked at only if the first have nothing.
_CHUNKS = (timedelta(days=7), timedelta(days=28))


@dataclass(frozen=True, slots=True)
class Offer:
    """A window that would be admitted now; it may start as late as ``latest_start``."""

    window: Window
    latest_start: datetime


@dataclass(frozen=True, slots=True)
class Sought:
    """What is needed at once, for how long, and between when."""

    requirements: Sequence[Requirement]
    length: timedelta
    within: Window


def free_over(runtime: Runtime, request: ReservationRequest, span: Window) -> list[Step]:
    """Return how much of the request is free at each instant of ``span``.

    The unit is that of the request: hosts, instances. Each instant counts by itself; a lease over
    several of them may not fit, for which there is ``search``. Raises InvalidDate, InvalidQuery,
    UnsupportedResourceType.
    """
    _check(span)
    parts = requirements_of(runtime, request)
    if not parts[0].maximum:
        raise InvalidInput(
            f"A {request.resource_type} is no unit of anything: search for windows in which it fits"
        )
    with runtime.database.read() as session:
        check_properties(session, runtime, parts)
        preference = Preference(selection=runtime.selection)
        there = [
            timeline
            for part in parts
            for timeline in bookings.timelines(
                session, part, matching(session, part, preference), span
            )
        ]
        return calendar.free_over(parts[0], there, span)


def search(
    runtime: Runtime,
    requests: Sequence[ReservationRequest],
    length: timedelta,
    within: Window,
    limit: int,
) -> list[Offer]:
    """Return up to ``limit`` windows in which all requests fit for ``length``, soonest first.

    Raises InvalidDate, InvalidQuery, UnsupportedResourceType.
    """
    _check(within)
    if not timedelta(0) < length <= within.end - within.start:
        raise InvalidDate("The duration must be more than nothing and fit between start and end")
    requirements = needs_of(runtime, requests)
    with runtime.database.read() as session:
        check_properties(session, runtime, requirements)
        sought = Sought(requirements, length, within)
        return list(islice(offers(runtime, session, sought), limit))


def offers(
    runtime: Runtime, session: Session, sought: Sought, sample: int = SAMPLE
) -> Iterator[Offer]:
    """Yield windows in which what is sought would be admitted now, the earliest first."""
    begin = _ceil(max(sought.within.start, runtime.clock.now()))
    preference = runtime.preference()
    ids = [
        matching(session, requirement, preference, limit=sample)
        for requirement in sought.requirements
    ]
    demands = [
        Demand(reservation_id=str(index), requirement=requirement)
        for index, requirement in enumerate(sought.requirements)
    ]
    cleaning = runtime.settings.cleaning_time
    occupied = sought.length + cleaning
    latest_before = None
    for part in _parts(begin, sought.within.end - sought.length):
        for first, latest in _starts(session, sought.requirements, ids, occupied, part):
            start = _ceil(first)
            is_new = first != latest_before and start <= latest
            latest_before = latest
            window = Window(start, start + sought.length)
            with_cleaning = window.busy(cleaning)
            if is_new and dry_run(session, demands, with_cleaning, preference) is not None:
                yield Offer(window, latest)


def matching(
    session: Session, requirement: Requirement, preference: Preference, limit: int | None = None
) -> Sequence[int]:
    """Return up to ``limit`` resources that match, and that filters would pass if they are free.

    Admission would not choose the others, so they offer no window.
    """
    ids = allocations.matching(session, requirement, limit=limit, rotation=preference.rotation)
    if not preference.selection.filters:
        return ids
    known = resources.find_some(session, ids)
    has = capacity.find_some(session, ids) if requirement.amounts else {}
    candidates = [
        Candidate(known[id_], {name: one.capacity for name, one in has.get(id_, {}).items()})
        for id_ in ids
        if id_ in known
    ]
    passing = rank(candidates, requirement, preference.selection.filters, ())
    return [one.resource.id for one in passing]


def _starts(
    session: Session,
    requirements: Sequence[Requirement],
    ids: Sequence[Sequence[int]],
    occupied: timedelta,
    part: Starts,
) -> list[Starts]:
    """Return the starts in ``part`` that suit each requirement, were it alone.

    Of several they are single moments: there is more room when a booking ends, and only then.
    """
    span = Window(part[0], later(part[1], occupied))
    there = [
        bookings.timelines(session, requirement, some, span)
        for requirement, some in zip(requirements, ids, strict=True)
    ]
    found = (
        calendar.starts(requirement, timelines, occupied, part)
        for requirement, timelines in zip(requirements, there, strict=True)
    )
    suiting = reduce(calendar.both, found, [part])
    if len(requirements) == 1:
        return suiting
    ends = {one.end for timelines in there for timeline in timelines for one in timeline.bookings}
    moments = {first for first, _ in suiting}.union(
        end for first, latest in suiting for end in ends if first <= end <= latest
    )
    tries = max(1, _TRIES // len(requirements))
    return [(moment, moment) for moment in sorted(moments)][:tries]


def _check(span: Window) -> None:
    if span.end - span.start > MAX_SPAN:
        raise InvalidDate(f"At most {MAX_SPAN.days} days can be looked at, ask for less")


def _parts(begin: datetime, last: datetime) -> Iterator[Starts]:
    """Cut the possible starts into spans to look at one after the other."""
    for length in (*_CHUNKS, MAX_SPAN):
        if begin > last:
            return
        yield begin, min(later(begin, length), last)
        begin = later(begin, length)


def _ceil(moment: datetime) -> datetime:
    """Return the next whole second, which is what clients can say."""
    return datetime.fromtimestamp(math.ceil(moment.timestamp()), UTC)
