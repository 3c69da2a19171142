"""Free times of resources, against a check of every hour."""

import datetime as dt
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from climate.core.matching.calendar import (
    Booking,
    Starts,
    Step,
    Timeline,
    both,
    free_over,
    in_whole_seconds,
    lasting,
    starts,
)
from climate.core.matching.query import Everything
from climate.core.matching.requirement import EXCLUSIVE, Layout, Requirement
from climate.core.window import Window
from tests.conftest import NOON

HOUR = dt.timedelta(hours=1)
LAST = 12


def hour(number: float) -> dt.datetime:
    return NOON + number * HOUR


bookings = st.builds(
    lambda start, length, share, amount: Booking(
        hour(start), hour(start + length), "VCPU" if share else None, amount if share else 0
    ),
    st.integers(-3, LAST),
    st.integers(1, 6),
    st.booleans(),
    st.integers(1, 3),
)
timelines = st.lists(
    st.builds(
        Timeline,
        st.fixed_dictionaries({"VCPU": st.integers(0, 6)}),
        st.lists(bookings, max_size=4),
    ),
    max_size=3,
)
requirements = st.builds(
    lambda count, amount, layout: Requirement(
        "host", count, count, Everything(), {"VCPU": amount} if amount else {}, layout
    ),
    st.integers(1, 4),
    st.integers(0, 2),
    st.sampled_from(Layout),
)


def _units(requirement: Requirement, timeline: Timeline, begin: int, end: int) -> int:
    """Return how many units fit between two hours, by a check of each hour."""
    room = 100
    for number in range(begin, end):
        present = [b for b in timeline.bookings if b.start <= hour(number) < b.end]
        if any(b.resource_class is None or requirement.is_whole for b in present):
            return 0
        for name, amount in requirement.amounts.items():
            left = timeline.capacity[name] - sum(b.amount for b in present)
            room = min(room, max(0, left) // amount)
    apart = requirement.is_whole or requirement.layout is Layout.APART
    return min(room, 1) if apart else room


def _all(requirement: Requirement, units: list[int]) -> int:
    together = requirement.layout is Layout.TOGETHER and not requirement.is_whole
    return max(units, default=0) if together else sum(units)


def _fits(requirement: Requirement, resources: list[Timeline], begin: int, end: int) -> bool:
    units = [_units(requirement, timeline, begin, end) for timeline in resources]
    return _all(requirement, units) >= requirement.minimum


@given(requirement=requirements, resources=timelines, length=st.integers(1, 5))
def test_finds_exactly_the_starts_at_which_a_requirement_fits(
    requirement: Requirement, resources: list[Timeline], length: int
) -> None:
    result = starts(requirement, resources, length * HOUR, (hour(0), hour(LAST)))
    possible = {
        number
        for number in range(LAST + 1)
        if any(begin <= hour(number) <= end for begin, end in result)
    }
    assert possible == {
        number
        for number in range(LAST + 1)
        if _fits(requirement, resources, number, number + length)
    }
    assert result == sorted(result)


@given(requirement=requirements, resources=timelines)
def test_counts_the_free_units_of_each_hour(
    requirement: Requirement, resources: list[Timeline]
) -> None:
    steps = free_over(requirement, resources, Window(hour(0), hour(LAST)))
    assert steps[0].window.start == hour(0)
    assert steps[-1].window.end == hour(LAST)
    for number in range(LAST):
        free = [item.free for item in steps if item.window.start <= hour(number) < item.window.end]
        units = [_units(requirement, item, number, number + 1) for item in resources]
        assert free == [_all(requirement, units)]


@given(requirement=requirements, resources=timelines)
def test_finds_how_long_a_requirement_fits_from_now(
    requirement: Requirement, resources: list[Timeline]
) -> None:
    end = lasting(requirement, resources, hour(0), hour(LAST))
    lengths = [n for n in range(1, LAST + 1) if _fits(requirement, resources, 0, n)]
    assert end == (hour(max(lengths)) if lengths else None)


def test_a_gap_just_long_enough_is_a_start() -> None:
    resources = [Timeline({}, [Booking(hour(0), hour(2)), Booking(hour(5), hour(6))])]
    item = Requirement("host", 1, 1, Everything())
    assert starts(item, resources, 3 * HOUR, (hour(0), hour(4))) == [(hour(2), hour(2))]
    assert starts(item, resources, 2 * HOUR, (hour(0), hour(4))) == [(hour(2), hour(3))]
    assert starts(item, resources, 4 * HOUR, (hour(0), hour(4))) == []


def test_an_empty_requirement_can_always_start() -> None:
    nothing = Requirement("host", 0, 0, Everything())
    assert starts(nothing, [], HOUR, (hour(0), hour(4))) == [(hour(0), hour(4))]


def test_several_requirements_start_when_all_fit() -> None:
    suitable: list[Starts] = [(hour(0), hour(2)), (hour(4), hour(6))]
    assert both(suitable, [(hour(1), hour(5))]) == [(hour(1), hour(2)), (hour(4), hour(5))]
    assert both(suitable, [(hour(3), hour(3))]) == []


def test_steps_of_free_units_are_shown_in_whole_seconds() -> None:
    half, second = dt.timedelta(milliseconds=500), dt.timedelta(seconds=1)
    ended = [
        Booking(hour(0) - HOUR, hour(0) + half),
        Booking(hour(1) + half / 2, hour(1) + half),
        Booking(hour(2), hour(2) + half),
    ]
    item = Requirement("host", 1, 1, Everything())
    steps = free_over(item, [Timeline({}, ended)], Window(hour(0), hour(3)))
    assert in_whole_seconds(steps) == [
        Step(Window(hour(0), hour(0) + second), 0),
        Step(Window(hour(0) + second, hour(2)), 1),
        Step(Window(hour(2), hour(2) + second), 0),
        Step(Window(hour(2) + second, hour(3)), 1),
    ]


def test_counts_billions_of_units() -> None:
    most = 2**31 - 1
    resources = [Timeline({"MEMORY_MB": most}, [Booking(hour(1), hour(2), "MEMORY_MB", 5)])]
    tiny = Requirement("host", most, most, Everything(), {"MEMORY_MB": 1})
    steps = free_over(tiny, resources, Window(hour(0), hour(3)))
    assert [item.free for item in steps] == [most, most - 5, most]
    assert starts(tiny, resources, HOUR, (hour(0), hour(3))) == [
        (hour(0), hour(0)),
        (hour(2), hour(3)),
    ]


def test_an_exclusive_share_takes_its_resource_alone() -> None:
    mark = Booking(hour(1), hour(2), EXCLUSIVE, 1)
    small = Booking(hour(1), hour(2), "VCPU", 1)
    shared = Requirement("host", 1, 1, Everything(), {"VCPU": 1})
    alone = replace(shared, exclusive=True)
    for requirement, booked, free in (
        (shared, [small], 7),
        (shared, [small, mark], 0),
        (alone, [small], 0),
        (alone, [], 8),
    ):
        steps = free_over(requirement, [Timeline({"VCPU": 8}, booked)], Window(hour(1), hour(2)))
        assert [step.free for step in steps] == [free]
