"""When something is free: pure, on the bookings of resources.

A start at ``t`` is possible for ``length`` if nothing blocks any instant of ``[t, t + length)``.
What is blocked during ``[x, y)`` rules out the starts in the open interval ``(x - length, y)``, so
possible starts form closed intervals. How many units of a requirement a resource has room for is
counted in levels: it has room for ``u`` of them at ``t`` if ``t`` is a possible start of level
``u``. Counting the intervals of all resources that cover a start tells how many units fit then.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from climate.core.requirement import Layout, Requirement
from climate.core.window import Window

# Possible starts, both ends included.
Starts = tuple[datetime, datetime]
Span = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class Booking:
    """A resource taken as a whole (no class), or an amount of one of its classes."""

    start: datetime
    end: datetime
    resource_class: str | None = None
    amount: int = 0


@dataclass(frozen=True, slots=True)
class Timeline:
    """What a resource has to share, by class, and who has it when."""

    capacity: Mapping[str, int]
    bookings: Sequence[Booking]


@dataclass(frozen=True, slots=True)
class Step:
    """How many units fit at any instant of a window."""

    window: Window
    free: int


def starts(
    requirement: Requirement, timelines: Iterable[Timeline], length: timedelta, within: Starts
) -> list[Starts]:
    """Return when ``requirement.minimum`` units could start for ``length``, soonest first."""
    levels = [
        opening
        for timeline in timelines
        for level in _levels(requirement, timeline)
        for opening in _openings(_blocked(requirement, timeline, level), length, within)
    ]
    together = requirement.layout is Layout.TOGETHER and not requirement.is_whole
    needed = min(1, requirement.minimum) if together else requirement.minimum
    return [within] if needed <= 0 else _covered(levels, needed)


def lasting(
    requirement: Requirement, timelines: Iterable[Timeline], start: datetime, horizon: datetime
) -> datetime | None:
    """Return until when ``requirement.minimum`` units that start now can stay, None if not at all.

    Nothing is known of the time after ``horizon``, which is the most that is returned.
    """
    ends = sorted(
        (
            end
            for timeline in timelines
            for level in _levels(requirement, timeline)
            for begin, end in _gaps(_blocked(requirement, timeline, level), Window(start, horizon))
            if begin == start
        ),
        reverse=True,
    )
    together = requirement.layout is Layout.TOGETHER and not requirement.is_whole
    needed = 1 if together else requirement.minimum
    return ends[needed - 1] if len(ends) >= needed > 0 else None


def both(some: Sequence[Starts], others: Sequence[Starts]) -> list[Starts]:
    """Return the starts that are among both."""
    found = ((max(one[0], other[0]), min(one[1], other[1])) for one in some for other in others)
    return sorted(pair for pair in found if pair[0] <= pair[1])


def free_over(requirement: Requirement, timelines: Iterable[Timeline], span: Window) -> list[Step]:
    """Return how many units fit at each instant of ``span``, whatever comes before and after."""
    deltas: dict[datetime, int] = defaultdict(int, {span.start: 0, span.end: 0})
    for timeline in timelines:
        for level in range(1, _room(requirement, timeline) + 1):
            for begin, end in _gaps(_blocked(requirement, timeline, level), span):
                deltas[begin] += 1
                deltas[end] -= 1
    free = 0
    steps: list[Step] = []
    for begin, end in itertools.pairwise(sorted(deltas)):
        free += deltas[begin]
        if steps and steps[-1].free == free:
            steps[-1] = Step(Window(steps[-1].window.start, end), free)
        else:
            steps.append(Step(Window(begin, end), free))
    return steps


def _room(requirement: Requirement, timeline: Timeline) -> int:
    """Return how many units the resource holds when nobody has any of it."""
    if requirement.is_whole:
        return 1
    rooms = (
        timeline.capacity.get(name, 0) // amount for name, amount in requirement.amounts.items()
    )
    return min(1, *rooms) if requirement.layout is Layout.APART else min(rooms)


def _levels(requirement: Requirement, timeline: Timeline) -> Sequence[int]:
    """Return the numbers of units that matter on one resource."""
    room = min(_room(requirement, timeline), requirement.minimum)
    if requirement.layout is Layout.TOGETHER and not requirement.is_whole:
        return [room] if room == requirement.minimum else []
    return range(1, room + 1)


def _blocked(requirement: Requirement, timeline: Timeline, level: int) -> list[Span]:
    """Return the spans in which fewer than ``level`` units fit, in order and merged."""
    found = [
        (one.start, one.end)
        for one in timeline.bookings
        if one.resource_class is None or requirement.is_whole
    ]
    for name, amount in requirement.amounts.items():
        found += _above(timeline, name, timeline.capacity.get(name, 0) - level * amount)
    return _merged(sorted(found))


def _above(timeline: Timeline, name: str, limit: int) -> Iterator[Span]:
    """Yield the spans in which more than ``limit`` of a class is taken."""
    steps: dict[datetime, int] = defaultdict(int)
    for one in timeline.bookings:
        if one.resource_class == name:
            steps[one.start] += one.amount
            steps[one.end] -= one.amount
    taken = 0
    for begin, end in itertools.pairwise(sorted(steps)):
        taken += steps[begin]
        if taken > limit:
            yield begin, end


def _merged(spans: Sequence[Span]) -> list[Span]:
    merged: list[Span] = []
    for begin, end in spans:
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def _openings(blocked: Sequence[Span], length: timedelta, within: Starts) -> Iterator[Starts]:
    """Yield the possible starts between what is blocked."""
    earliest, last = within
    for begin, end in blocked:
        if earliest <= min(begin - length, last):
            yield earliest, min(begin - length, last)
        earliest = max(earliest, end)
    if earliest <= last:
        yield earliest, last


def _gaps(blocked: Sequence[Span], span: Window) -> Iterator[Span]:
    """Yield what of ``span`` is not blocked."""
    begin = span.start
    for start, end in blocked:
        if begin < min(start, span.end):
            yield begin, min(start, span.end)
        begin = max(begin, end)
    if begin < span.end:
        yield begin, span.end


def _covered(intervals: Sequence[Starts], needed: int) -> list[Starts]:
    """Return where at least ``needed`` of the closed intervals meet."""
    # At one instant an interval begins before another ends: both hold there.
    edges = sorted(
        itertools.chain(((begin, 0) for begin, _ in intervals), ((end, 1) for _, end in intervals))
    )
    found: list[Starts] = []
    count, since = 0, None
    for at, ends in edges:
        count += -1 if ends else 1
        if count == needed and not ends:
            since = at
        elif ends and count == needed - 1 and since is not None:
            found.append((since, at))
            since = None
    return found
