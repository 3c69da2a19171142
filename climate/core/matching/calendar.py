"""When something is free: pure, on the bookings of resources.

A start at ``t`` is possible for ``length`` if nothing blocks any instant of ``[t, t + length)``.
What is blocked during ``[x, y)`` rules out the starts in the open interval ``(x - length, y)``, so
possible starts form closed intervals. How many units of a requirement a resource has room for goes
up and down with its bookings; every unit that stays free for a while is free for a run, and units
that come and go together are one run, so that there are as many runs as bookings, however small a
unit is. Counting the units whose starts cover an instant tells how many fit then.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from climate.core.matching.requirement import Layout, Requirement
from climate.core.window import END_OF_TIME, Window

_DAWN = datetime.min.replace(tzinfo=UTC)

# Possible starts, both ends included.
Starts = tuple[datetime, datetime]


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
    if requirement.minimum <= 0:
        return [within]
    openings = [
        opening
        for timeline in timelines
        for run in _runs(_needed(requirement, timeline))
        if (opening := _opening(run, length, within)) is not None
    ]
    return _covered(openings, 1 if _is_together(requirement) else requirement.minimum)


def lasting(
    requirement: Requirement, timelines: Iterable[Timeline], start: datetime, horizon: datetime
) -> datetime | None:
    """Return until when ``requirement.minimum`` units that start now can stay, None if not at all.

    Nothing is known of the time after ``horizon``, which is the most that is returned.
    """
    there = [
        run
        for timeline in timelines
        for run in _runs(_needed(requirement, timeline))
        if run.begin <= start < run.end
    ]
    missing = 1 if _is_together(requirement) else requirement.minimum
    for run in sorted(there, key=lambda run: run.end, reverse=True):
        missing -= run.units
        if missing <= 0:
            return min(run.end, horizon)
    return None


def both(some: Sequence[Starts], others: Sequence[Starts]) -> list[Starts]:
    """Return the starts that are among both."""
    found = ((max(one[0], other[0]), min(one[1], other[1])) for one in some for other in others)
    return sorted(pair for pair in found if pair[0] <= pair[1])


def free_over(requirement: Requirement, timelines: Iterable[Timeline], span: Window) -> list[Step]:
    """Return how many units fit at each instant of ``span``, whatever comes before and after.

    Of units that stay together, how many fit on the resource that has most room.
    """
    # At each moment: the room that there was on a resource until then, and what there is now.
    changes: dict[datetime, list[tuple[int, int]]] = defaultdict(list)
    changes.update({span.start: [], span.end: []})
    for timeline in timelines:
        before = 0
        for since, units in _units(requirement, timeline):
            if since < span.end:
                changes[max(since, span.start)].append((before, units))
                before = units
    rooms: Counter[int] = Counter()
    total = 0
    steps: list[Step] = []
    for begin, end in itertools.pairwise(sorted(changes)):
        for before, units in changes[begin]:
            total += units - before
            rooms.update({before: -1, units: 1} if before != units else {})
        free = max(+rooms, default=0) if _is_together(requirement) else total
        if steps and steps[-1].free == free:
            steps[-1] = Step(Window(steps[-1].window.start, end), free)
        else:
            steps.append(Step(Window(begin, end), free))
    return steps


def _is_together(requirement: Requirement) -> bool:
    return requirement.layout is Layout.TOGETHER and not requirement.is_whole


def _needed(requirement: Requirement, timeline: Timeline) -> Iterator[tuple[datetime, int]]:
    """Yield the same as ``_units``, but 1 or 0 where only all of them together are of use."""
    for since, units in _units(requirement, timeline):
        yield since, int(units >= requirement.minimum) if _is_together(requirement) else units


def _units(requirement: Requirement, timeline: Timeline) -> Iterator[tuple[datetime, int]]:
    """Yield how many units fit on a resource, and since when; in order, from the dawn of time."""
    taken: dict[str | None, int] = defaultdict(int)
    yield _DAWN, _room(requirement, timeline, taken)
    steps: dict[datetime, list[tuple[str | None, int]]] = defaultdict(list)
    for one in timeline.bookings:
        name = None if requirement.is_whole else one.resource_class
        amount = 1 if name is None else one.amount
        steps[one.start].append((name, amount))
        steps[one.end].append((name, -amount))
    for since in sorted(steps):
        for name, amount in steps[since]:
            taken[name] += amount
        yield since, _room(requirement, timeline, taken)


def _room(requirement: Requirement, timeline: Timeline, taken: Mapping[str | None, int]) -> int:
    """Return how many units fit beside what is taken, by class (None: of the whole resource)."""
    if taken.get(None):
        return 0
    if requirement.is_whole:
        return 1
    rooms = (
        (timeline.capacity.get(name, 0) - taken.get(name, 0)) // amount
        for name, amount in requirement.amounts.items()
    )
    room = max(0, min(rooms))
    return min(1, room) if requirement.layout is Layout.APART else room


@dataclass(frozen=True, slots=True)
class _Run:
    """Units that are free from ``begin`` to ``end``, and neither right before nor right after."""

    begin: datetime
    end: datetime
    units: int


def _runs(levels: Iterable[tuple[datetime, int]]) -> Iterator[_Run]:
    """Yield the runs of what ``levels`` says is free, and since when."""
    # What is free now, as it came: since when, and up to how many units.
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
    """Return the possible starts in a run, and how many units they are for."""
    first, last = max(run.begin, within[0]), within[1]
    if run.end < END_OF_TIME:
        last = min(run.end - length, last)
    return (first, last, run.units) if first <= last else None


def _covered(intervals: Sequence[tuple[datetime, datetime, int]], needed: int) -> list[Starts]:
    """Return where closed intervals meet that are for at least ``needed`` units together."""
    # At one instant an interval begins before another ends: both hold there.
    begins = ((begin, 0, units) for begin, _, units in intervals)
    ends = ((end, 1, -units) for _, end, units in intervals)
    found: list[Starts] = []
    count, since = 0, None
    for at, _, units in sorted(itertools.chain(begins, ends)):
        before, count = count, count + units
        if before < needed <= count:
            since = at
        elif count < needed <= before and since is not None:
            found.append((since, at))
    return found
