"""Rules that compute when enough resources are free for a requirement. Pure.

A lease of a given ``length`` can start at ``t`` if nothing is booked at any instant of ``[t, t +
length)``. A booking during ``[x, y)`` rules out the starts in the open interval ``(x - length,
y)``. So the possible starts form closed intervals.

If leases share resources, the number of units that are free on a resource changes over time. Units
that are free from the same time to the same time form a *run*, and the functions compute with runs
instead of single units. This keeps the cost low if a resource has many small units, because the
number of runs depends only on the number of bookings. A lease can start at ``t`` if the runs that
stay free during ``[t, t + length)`` have enough units together.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import attrgetter

from climate.core.matching.requirement import EXCLUSIVE, Layout, Requirement
from climate.core.window import END_OF_TIME, Window, second_from

_DAWN = datetime.min.replace(tzinfo=UTC)
_start_of = attrgetter("start")

# An interval of possible starts, both ends included.
Starts = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class Booking:
    """A booking of a resource from ``start`` to ``end``.

    The booking is for an ``amount`` of ``resource_class``, such as 4 VCPU. If ``resource_class`` is
    None, the booking is for the whole resource. If it is EXCLUSIVE, nobody but the same ``owner``
    (the id of a reservation) can have a part of the resource.
    """

    start: datetime
    end: datetime
    resource_class: str | None = None
    amount: int = 0
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """A resource: its capacity, such as ``{"VCPU": 64}``, and its bookings."""

    capacity: Mapping[str, int]
    bookings: Sequence[Booking]


@dataclass(frozen=True, slots=True)
class Step:
    """A window of time during which the number of free units stays the same."""

    window: Window
    free: int


def starts(
    requirement: Requirement, timelines: Iterable[Timeline], length: timedelta, within: Starts
) -> list[Starts]:
    """Return the intervals of time in which a lease of this ``length`` could start, sorted.

    ``within`` is the interval to search. At each time in the result, the minimum number of units of
    the requirement is free, and stays free for ``length``.
    """
    if requirement.minimum <= 0:
        return [within]
    openings = [
        opening
        for run in _runs(requirement, timelines)
        if (opening := _opening(run, length, within)) is not None
    ]
    return _covered(openings, 1 if _is_together(requirement) else requirement.minimum)


def lasting(
    requirement: Requirement, timelines: Iterable[Timeline], start: datetime, horizon: datetime
) -> datetime | None:
    """Return the time until which enough units stay free from ``start`` on.

    "Enough" is the minimum number of units of the requirement. Returns None if fewer units are free
    at ``start``. Bookings after ``horizon`` are unknown, so the result is at most ``horizon``.
    """
    until = units_lasting(free_runs(requirement, timelines, start), units_counted(requirement))
    return None if until is None else min(until, horizon)


def free_runs(
    requirement: Requirement, timelines: Iterable[Timeline], start: datetime
) -> list[tuple[datetime, int]]:
    """Return pairs (end, number of units): how many units, free at ``start``, are free until when.

    The latest end is first. The result is the same for all minimums of the requirement, unless all
    its units must be on one resource.
    """
    present = (run for run in _runs(requirement, timelines) if run.begin <= start < run.end)
    return sorted(((run.end, run.units) for run in present), reverse=True)


def units_lasting(runs: Iterable[tuple[datetime, int]], count: int) -> datetime | None:
    """Return until when ``count`` units stay free; None if fewer are free. For ``free_runs``."""
    for end, units in runs:
        count -= units
        if count <= 0:
            return end
    return None


def units_counted(requirement: Requirement) -> int:
    """Return the number of units that ``free_runs`` must have for the requirement."""
    return 1 if _is_together(requirement) else requirement.minimum


def both(left: Sequence[Starts], right: Sequence[Starts]) -> list[Starts]:
    """Return the start times that are in both lists of intervals, as a sorted list of intervals."""
    overlaps = ((max(a[0], b[0]), min(a[1], b[1])) for a in left for b in right)
    return sorted(pair for pair in overlaps if pair[0] <= pair[1])


def free_over(requirement: Requirement, timelines: Iterable[Timeline], span: Window) -> list[Step]:
    """Return how many units of the requirement are free during ``span``, in steps.

    If all units must be on one resource (layout TOGETHER), the result is the number on the resource
    that has the most free units at the time.
    """
    # By moment: the number of units that fit on a resource before and after it.
    changes: dict[datetime, list[tuple[int, int]]] = defaultdict(list)
    changes.update({span.start: [], span.end: []})
    for timeline in timelines:
        before = 0
        for since, units in _units(requirement, timeline):
            if since < span.end:
                changes[max(since, span.start)].append((before, units))
                before = units
    fitting: Counter[int] = Counter()
    total = 0
    steps: list[Step] = []
    for begin, end in itertools.pairwise(sorted(changes)):
        for before, units in changes[begin]:
            total += units - before
            fitting.update({before: -1, units: 1} if before != units else {})
        free = max(+fitting, default=0) if _is_together(requirement) else total
        if steps and steps[-1].free == free:
            steps[-1] = Step(Window(steps[-1].window.start, end), free)
        else:
            steps.append(Step(Window(begin, end), free))
    return steps


def in_whole_seconds(steps: Iterable[Step]) -> list[Step]:
    """Return steps whose times are rounded up to whole seconds; none has the length zero.

    A lease that ends at once leaves a booking that ends within a second.
    """
    rounded: list[Step] = []
    for step in steps:
        start, end = second_from(step.window.start), second_from(step.window.end)
        if rounded and rounded[-1].free == step.free:
            rounded[-1] = Step(Window(rounded[-1].window.start, end), step.free)
        elif start < end:
            rounded.append(Step(Window(start, end), step.free))
    return rounded


def _is_together(requirement: Requirement) -> bool:
    return requirement.layout is Layout.TOGETHER and not requirement.is_whole


def _units(requirement: Requirement, timeline: Timeline) -> Iterator[tuple[datetime, int]]:
    """Yield pairs (time, number of units that fit on the resource from this time on), in order.

    The first pair has the earliest possible datetime. Each further pair has a time at which a
    booking begins or ends.
    """
    taken: dict[str | None, int] = defaultdict(int)
    yield _DAWN, _room(requirement, timeline, taken)
    steps: dict[datetime, list[tuple[str | None, int]]] = defaultdict(list)
    for booking in timeline.bookings:
        blocks = requirement.is_alone or booking.resource_class == EXCLUSIVE
        name = None if blocks else booking.resource_class
        amount = 1 if name is None else booking.amount
        steps[booking.start].append((name, amount))
        steps[booking.end].append((name, -amount))
    for since in sorted(steps):
        for name, amount in steps[since]:
            taken[name] += amount
        yield since, _room(requirement, timeline, taken)


def _room(requirement: Requirement, timeline: Timeline, taken: Mapping[str | None, int]) -> int:
    """Return how many more units of the requirement fit on a resource.

    ``taken`` is what bookings use already, such as ``{"VCPU": 4}``. The key None counts bookings of
    the whole resource.
    """
    if taken.get(None):
        return 0
    if requirement.is_whole:
        return 1
    fitting = (
        (timeline.capacity.get(name, 0) - taken.get(name, 0)) // amount
        for name, amount in requirement.amounts.items()
    )
    count = max(0, min(fitting))
    return min(1, count) if requirement.layout is Layout.APART else count


@dataclass(frozen=True, slots=True)
class _Run:
    """A run: a number of units that are free exactly from ``begin`` to ``end``."""

    begin: datetime
    end: datetime
    units: int


def _runs(requirement: Requirement, timelines: Iterable[Timeline]) -> Iterator[_Run]:
    """Yield the runs of all resources: groups of units that are free over exactly the same time.

    If all units must be on one resource (layout TOGETHER), each run counts as one unit. Such a run
    lasts while the minimum number of units fits on the resource.
    """
    for timeline in timelines:
        if requirement.is_whole:
            yield from _gaps(timeline)
            continue
        levels = _units(requirement, timeline)
        if _is_together(requirement):
            levels = ((since, int(units >= requirement.minimum)) for since, units in levels)
        yield from _runs_of(levels)


def _gaps(timeline: Timeline) -> Iterator[_Run]:
    """Yield the runs of a whole resource. This is the same as ``_runs_of``, and faster."""
    begin = _DAWN
    for booking in sorted(timeline.bookings, key=_start_of):
        if booking.start < booking.end:
            if begin < booking.start:
                yield _Run(begin, booking.start, 1)
            begin = max(begin, booking.end)
    if begin < END_OF_TIME:
        yield _Run(begin, END_OF_TIME, 1)


def _runs_of(levels: Iterable[tuple[datetime, int]]) -> Iterator[_Run]:
    # Open runs: since when, and up to how many units.
    stack: list[tuple[datetime, int]] = [(_DAWN, 0)]
    for since, units in itertools.chain(levels, [(END_OF_TIME, 0)]):
        while stack[-1][1] > units:
            begin, top = stack.pop()
            below = max(units, stack[-1][1])
            yield _Run(begin, since, top - below)
            if below > stack[-1][1]:
                stack.append((begin, below))
        if units > stack[-1][1]:
            stack.append((since, units))


def _opening(run: _Run, length: timedelta, within: Starts) -> tuple[datetime, datetime, int] | None:
    """Return the first and the last possible start in a run, and the run's number of units.

    The starts are inside ``within``. Returns None if the run has no start in ``within`` for a lease
    of this ``length``.
    """
    first, last = max(run.begin, within[0]), within[1]
    if run.end < END_OF_TIME:
        last = min(run.end - length, last)
    return (first, last, run.units) if first <= last else None


def _covered(intervals: Sequence[tuple[datetime, datetime, int]], needed: int) -> list[Starts]:
    """Return the spans in which the intervals together have at least ``needed`` units.

    Each interval is a tuple: begin, end, number of units.
    """
    # Intervals are closed: at the same instant, begins come before ends.
    begins = ((begin, 0, units) for begin, _, units in intervals)
    ends = ((end, 1, -units) for _, end, units in intervals)
    covered: list[Starts] = []
    count, since = 0, None
    for at, _, units in sorted(itertools.chain(begins, ends)):
        before, count = count, count + units
        if before < needed <= count:
            since = at
        elif count < needed <= before and since is not None:
            covered.append((since, at))
    return covered
