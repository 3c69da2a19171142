"""Bookings in memory, against brute force over a list of bookings and the rules of the calendar."""

import random
from array import array
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from climate.core.matching import calendar
from climate.core.matching.booked_hours.booked_hours import BookedHours
from climate.core.matching.booked_hours.booking_change import (
    UNKNOWN_OWNER,
    BookingChange,
    ResourceBookings,
    ResourceSpans,
    ResourceState,
)
from climate.core.matching.calendar import Booking, Timeline
from climate.core.matching.query import (
    COMPARE,
    And,
    Compare,
    Contains,
    Everything,
    In,
    Not,
    Operand,
    Or,
    Query,
    matches,
)
from climate.core.matching.requirement import Requirement
from climate.core.window import END_OF_TIME, Window

DAWN = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = 60_000_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
FOREVER = (END_OF_TIME - DAWN) // timedelta(microseconds=1)
# A time at which no block of hours begins.
BASE = 1_900_000_000_000_000 // HOUR * HOUR + 3 * HOUR

# Start, end, owner, whether it is a share.
Row = tuple[int, int, int, bool]
seeds = given(seed=st.integers(0, 2**32))


def moment(number: int) -> datetime:
    return DAWN + timedelta(microseconds=number)


def number_of(moment: datetime) -> int:
    return (moment - DAWN) // timedelta(microseconds=1)


def bookings_of(resource_id: int, rows: Iterable[Row], *, is_shared: bool) -> ResourceBookings:
    kept = sorted(row[:3] for row in rows if row[3] == is_shared)
    return ResourceBookings(
        resource_id,
        is_shared,
        array("q", [start for start, _, _ in kept]),
        array("q", [end for _, end, _ in kept]),
        array("i", [owner for _, _, owner in kept]),
    )


def spans_of(resource_id: int, rows: Iterable[Row], *, is_shared: bool) -> ResourceSpans:
    all_of = bookings_of(resource_id, rows, is_shared=is_shared)
    return ResourceSpans(resource_id, is_shared, all_of.starts, all_of.ends)


def state(resource_id: int, *, is_reservable: bool = True, **properties: str) -> ResourceState:
    return ResourceState(resource_id, "physical:host", is_reservable, properties)


def requirement(needed: int) -> Requirement:
    return Requirement("physical:host", needed, needed, Everything())


class World:
    """Random resources with random bookings: in ``memory``, and as lists of rows by resource id."""

    def __init__(self, seed: int, *, changes: int = 30) -> None:
        self.dice = random.Random(seed)  # noqa: S311 - not a secret
        self.memory = BookedHours()
        self.unread: list[BookingChange] = []
        self.unit = self.dice.choice([HOUR, 10 * MINUTE, 7 * MINUTE + 1])
        self.rows: dict[int, list[Row]] = {}
        for resource_id in range(1, self.dice.choice([1, 2, 4, 17]) + 1):
            self.memory.put_resource(state(resource_id))
            self.rows[resource_id] = []
            for _ in range(self.dice.randrange(8)):
                self.rows[resource_id] += self._new_rows(resource_id)
        ids = list(self.rows)
        self.dice.shuffle(ids)
        for resource_id in ids:
            self.put(resource_id)
        for _ in range(self.dice.randrange(changes)):
            self.change()
            if self.dice.random() < 0.3:
                self.catch_up()
        self.catch_up()

    def put(self, resource_id: int) -> None:
        for is_shared in (True, False):
            rows = self.rows[resource_id]
            self.memory.put_bookings(bookings_of(resource_id, rows, is_shared=is_shared))

    def change(self) -> None:
        """Change the bookings of a resource, in one of the possible ways."""
        resource_id = self.dice.choice(list(self.rows))
        rows = self.rows[resource_id]
        kind = self.dice.random()
        if kind < 0.45:
            for row in self._new_rows(resource_id):
                rows.append(row)
                self.apply(resource_id, row, is_added=True)
        elif kind < 0.9 and rows:
            row = rows.pop(self.dice.randrange(len(rows)))
            self.apply(resource_id, row, is_added=False)
        elif kind < 0.95:
            self.catch_up()
            self.rows[resource_id] = rows[::2]
            self.put(resource_id)
        else:
            self.catch_up()
            del self.rows[resource_id]
            self.memory.drop_resource(resource_id)
            self.memory.put_resource(state(resource_id + 1000))
            self.rows[resource_id + 1000] = []

    def moment(self) -> int:
        return BASE + self.dice.randrange(250) * self.unit + self.dice.choice([0, 0, 0, 1, -1])

    def window(self) -> tuple[int, int]:
        start = self.moment()
        return start, start + self.length()

    def length(self) -> int:
        many = self.dice.randrange(1, 60) * self.unit
        return self.dice.choice([many, many, many, 1, MINUTE, 5 * DAY, 30 * DAY, 3000 * DAY])

    @property
    def everything(self) -> int:
        return self.memory.matching(Everything())

    def timelines(self) -> list[Timeline]:
        return [
            Timeline(
                {},
                [
                    Booking(moment(start), moment(end), "VCPU" if is_shared else None, 1)
                    for start, end, _, is_shared in rows
                ],
            )
            for rows in self.rows.values()
        ]

    def free(self, start: int, end: int) -> set[int]:
        return {
            resource_id
            for resource_id, rows in self.rows.items()
            if not any(row[0] < end and start < row[1] for row in rows)
        }

    def apply(self, resource_id: int, row: Row, *, is_added: bool) -> None:
        start, end, owner, is_shared = row
        self.unread.append(BookingChange(resource_id, start, end, is_shared, owner, is_added))

    def catch_up(self) -> None:
        """Apply the changes as a feed returns them: the added bookings come first."""
        assert self.memory.apply(sorted(self.unread, key=lambda change: not change.is_added)) == []
        self.unread.clear()

    def _new_rows(self, resource_id: int) -> list[Row]:
        start, length = self.moment(), self.length()
        end = FOREVER if self.dice.random() < 0.03 else start + length
        rows = self.rows.setdefault(resource_id, [])
        before = [row for row in rows if row[0] < end and start < row[1]]
        owner = self.dice.randrange(1, 3)
        if self.dice.random() < 0.4:
            # One row for each resource class.
            is_free = not any(not row[3] for row in before)
            return [(start, end, owner, True)] * self.dice.choice([1, 3]) if is_free else []
        if before and self.dice.random() < 0.5:
            # Begins when another booking ends.
            start = max(row[1] for row in before)
            end = start + length
            before = [row for row in rows if row[0] < end and start < row[1]]
        return [] if before or end > FOREVER else [(start, end, owner, False)]


@seeds
def test_finds_the_free_resources_of_a_window(seed: int) -> None:
    world = World(seed)
    for _ in range(12):
        start, end = world.window()
        free = world.free(start, end)
        mask = world.memory.free(world.everything, start, end)
        assert set(world.memory.ids(mask)) == free
        enough = world.dice.randrange(5)
        some = world.memory.free(world.everything, start, end, enough)
        assert set(world.memory.ids(some)) <= free
        assert some.bit_count() >= min(enough, len(free))


@seeds
def test_finds_the_starts_that_the_calendar_finds(seed: int) -> None:
    world = World(seed)
    timelines = world.timelines()
    for _ in range(4):
        first, length = world.moment(), world.length()
        last = first + world.dice.choice([0, 1, HOUR, 100 * HOUR, 400 * HOUR, 3000 * DAY])
        needed = world.dice.randrange(len(world.rows) + 3)
        expected = calendar.starts(
            requirement(needed),
            timelines,
            timedelta(microseconds=length),
            (moment(first), moment(last)),
        )
        arguments = world.everything, needed, length, first, last
        openings = list(world.memory.openings(*arguments))
        assert openings == [(number_of(a), number_of(b)) for a, b in expected]
        assert world.memory.earliest(*arguments) == next((a for a, _ in openings), None)


@seeds
def test_finds_how_long_resources_stay_free_as_the_calendar_does(seed: int) -> None:
    world = World(seed)
    timelines = world.timelines()
    for _ in range(6):
        start, horizon = world.moment(), world.moment() + world.dice.choice([0, 999 * DAY])
        needed = world.dice.randrange(len(world.rows) + 2)
        end = calendar.lasting(requirement(needed), timelines, moment(start), moment(horizon))
        expected = None if end is None else number_of(end)
        assert world.memory.lasting(world.everything, needed, start, horizon) == expected


@seeds
def test_counts_free_resources_as_the_calendar_does(seed: int) -> None:
    world = World(seed)
    for _ in range(3):
        start, end = world.window()
        steps = calendar.free_over(
            requirement(1), world.timelines(), Window(moment(start), moment(end))
        )
        expected = [
            (number_of(step.window.start), number_of(step.window.end), step.free) for step in steps
        ]
        assert world.memory.free_steps(world.everything, start, end) == expected


@seeds
def test_finds_the_least_number_of_free_resources_in_each_bucket(seed: int) -> None:
    world = World(seed)
    start = world.moment()
    end = start + world.dice.randrange(1, 200) * world.unit
    resolution = world.dice.choice([HOUR, 5 * HOUR, DAY])
    changes = {number for rows in world.rows.values() for row in rows for number in row[:2]}
    expected = []
    for begin in range(start, end, resolution):
        inside = {at for at in changes if begin < at < min(begin + resolution, end)} | {begin}
        expected.append(min(len(world.free(at, at + 1)) for at in inside))
    assert world.memory.least_free(world.everything, start, end, resolution) == expected


@seeds
def test_lists_the_bookings_of_a_window(seed: int) -> None:
    world = World(seed)
    for _ in range(10):
        start, end = world.window()
        ids = world.dice.sample(sorted(world.rows), world.dice.randrange(len(world.rows)))
        expected = {
            (resource_id, *row)
            for resource_id in ids
            for row in world.rows[resource_id]
            if row[0] < end and start < row[1]
        }
        listed = list(world.memory.bookings([*ids, 77_777], start, end))
        assert len(listed) == len(expected)
        assert set(listed) == expected


@seeds
def test_searches_only_the_resources_of_the_mask(seed: int) -> None:
    world = World(seed)
    start, end = world.window()
    mask = world.everything & world.dice.getrandbits(64)
    chosen = set(world.memory.ids(mask))
    assert set(world.memory.ids(world.memory.free(mask, start, end))) == chosen & world.free(
        start, end
    )
    assert world.memory.free_steps(mask, start, start + 1)[0][2] == len(
        chosen & world.free(start, start + 1)
    )
    assert world.memory.free(0, start, end) == 0
    assert world.memory.earliest(0, 1, HOUR, start, end) is None
    assert world.memory.lasting(0, 1, start, end) is None


@seeds
def test_answers_for_later_times_stay_the_same_after_forgetting(seed: int) -> None:
    world = World(seed)
    now = world.moment()
    world.memory.forget_before(now)
    for _ in range(10):
        start = now + world.dice.randrange(200) * world.unit
        end = start + world.length()
        assert set(world.memory.ids(world.memory.free(world.everything, start, end))) == world.free(
            start, end
        )
    for resource_id, rows in world.rows.items():
        for row in rows:
            world.apply(resource_id, row, is_added=False)
    world.catch_up()
    end = now + 5000 * DAY
    assert world.memory.free(world.everything, now, end) == world.everything
    assert list(world.memory.bookings(world.rows, now, end)) == []


@seeds
def test_notices_whether_memory_differs_from_the_rows(seed: int) -> None:
    world = World(seed)
    for resource_id, rows in world.rows.items():
        for is_shared in (False, True):
            kept = [row for row in rows if row[3] == is_shared]
            same = spans_of(resource_id, kept, is_shared=is_shared)
            assert not world.memory.differs(same, BASE - DAY)
            for other in (kept[1:], [*kept, kept[0]]) if kept else []:
                changed = spans_of(resource_id, other, is_shared=is_shared)
                assert world.memory.differs(changed, BASE - DAY)
                assert not world.memory.differs(changed, kept[0][1])


def test_notices_a_long_booking_that_only_the_database_has() -> None:
    memory = BookedHours()
    memory.put_resource(state(1))
    late = (BASE + 12 * HOUR, BASE + 15 * HOUR, 5, False)
    memory.put_bookings(bookings_of(1, [late], is_shared=False))
    # It ends after a shorter booking that starts after it.
    others = [(BASE, BASE + 20 * HOUR, 5, False), (BASE + HOUR, BASE + 2 * HOUR, 5, False)]
    spans = spans_of(1, [*others, late], is_shared=False)
    assert memory.differs(spans, BASE + 10 * HOUR)


class TestApply:
    @pytest.fixture
    def memory(self) -> BookedHours:
        memory = BookedHours()
        memory.put_resource(state(1))
        return memory

    def change(self, *, is_added: bool, owner: int = 5, end: int = HOUR) -> BookingChange:
        return BookingChange(1, BASE, BASE + end, False, owner, is_added)

    def test_reports_the_removal_of_an_unknown_booking(self, memory: BookedHours) -> None:
        assert memory.apply([self.change(is_added=True)]) == []
        assert memory.apply([self.change(is_added=False, end=2 * HOUR)])
        assert memory.apply([self.change(is_added=False, owner=6)])
        assert memory.apply([self.change(is_added=False)]) == []
        assert memory.apply([self.change(is_added=False)])

    def test_the_owner_may_be_unknown_at_the_removal(self, memory: BookedHours) -> None:
        memory.apply([self.change(is_added=True)])
        assert memory.apply([self.change(is_added=False, owner=UNKNOWN_OWNER)]) == []
        assert memory.free(1, BASE, BASE + HOUR) == 1

    def test_ignores_unknown_resources(self) -> None:
        memory = BookedHours()
        assert memory.apply([self.change(is_added=True)]) == []
        assert memory.apply([self.change(is_added=False)]) == []
        memory.put_bookings(bookings_of(1, [(BASE, BASE + 1, 1, False)], is_shared=False))
        memory.drop_resource(1)
        memory.put_resource(state(1))
        assert memory.free(1, BASE, BASE + HOUR) == 1

    def test_ignores_forgotten_bookings(self, memory: BookedHours) -> None:
        memory.forget_before(BASE + DAY)
        assert memory.apply([self.change(is_added=True)]) == []
        assert memory.apply([self.change(is_added=False)]) == []
        assert memory.apply([self.change(is_added=False)]) == []


class TestIds:
    @pytest.fixture
    def memory(self) -> BookedHours:
        memory = BookedHours()
        for resource_id in range(100, 110):
            memory.put_resource(state(resource_id))
        return memory

    def test_begin_at_a_rotated_place(self, memory: BookedHours) -> None:
        ids = list(range(100, 110))
        assert memory.ids(memory.matching(Everything()), None) == ids
        assert memory.ids(memory.matching(Everything()), None, 0.3) == ids[3:] + ids[:3]
        assert memory.ids(memory.matching(Everything()), 8, 0.99) == [109, *ids[:7]]

    def test_of_neighbours_begin_at_different_ones(self, memory: BookedHours) -> None:
        """Otherwise most callers would get the same hosts of a rack first."""
        rack = memory.matching(Everything()) & 0b11100000
        assert [memory.ids(rack, 1, rotation) for rotation in (0.0, 0.4, 0.8)] == [
            [105],
            [106],
            [107],
        ]
        assert memory.ids(0b1000010, 1, 0.5) == [106]

    def test_are_of_the_resources_that_use_the_places_now(self, memory: BookedHours) -> None:
        memory.drop_resource(104)
        assert 104 not in memory.ids(memory.matching(Everything()))
        memory.put_resource(state(7))
        assert memory.ids(memory.matching(Everything())) == [
            100,
            101,
            102,
            103,
            7,
            *range(105, 110),
        ]


NAMES = ["vcpus", "gpu", "host"]
VALUES = ["", "null", "4", "4.0", "16", "1e1", "yes", "no", "x86_64", "-1"]
operands = st.builds(Operand, st.sampled_from(VALUES))
names = st.sampled_from([*NAMES, "other"])
queries = st.recursive(
    st.one_of(
        st.just(Everything()),
        st.builds(
            Compare,
            st.sampled_from(sorted(COMPARE)),
            names,
            st.one_of(operands, st.just(Operand("4"))),
            st.just("either"),
        ),
        st.builds(
            Compare,
            st.sampled_from(sorted(COMPARE)),
            names,
            operands,
            st.just("text"),
        ),
        st.builds(
            Compare,
            st.sampled_from(sorted(COMPARE)),
            names,
            st.just(Operand("4")),
            st.just("number"),
        ),
        st.builds(In, names, st.lists(operands, max_size=3).map(tuple)),
        st.builds(Contains, names, st.sampled_from(["e", "x86", "4"])),
    ),
    lambda parts: st.one_of(
        st.builds(And, st.lists(parts, max_size=3).map(tuple)),
        st.builds(Or, st.lists(parts, max_size=3).map(tuple)),
        st.builds(Not, parts),
    ),
    max_leaves=5,
)
states = st.builds(
    lambda resource_id, is_reservable, properties: ResourceState(
        resource_id, "physical:host", is_reservable, properties
    ),
    st.integers(1, 6),
    st.booleans(),
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES)),
)


@given(
    changes=st.lists(st.one_of(states, st.integers(1, 6)), max_size=15),
    asked=st.lists(queries, min_size=1, max_size=4),
)
def test_finds_the_resources_that_match_a_query(
    changes: list[ResourceState | int], asked: list[Query]
) -> None:
    """The same queries are repeated after each change, so that cached results would show."""
    memory, present = BookedHours(), dict[int, ResourceState]()
    for change in changes:
        if isinstance(change, ResourceState):
            memory.put_resource(change)
            present[change.resource_id] = change
        else:
            memory.drop_resource(change)
            present.pop(change, None)
        for query in asked:
            found = {id_: item for id_, item in present.items() if matches(query, item.properties)}
            assert set(memory.ids(memory.matching(query, failing_too=True))) == set(found)
            reservable = {id_ for id_, item in found.items() if item.is_reservable}
            assert set(memory.ids(memory.matching(query))) == reservable


def test_finds_values_that_many_resources_have() -> None:
    memory = BookedHours()
    for number in range(300):
        memory.put_resource(state(number, vcpus=str(number % 3), host=f"host-{number}"))
    is_large = Compare(">=", "vcpus", Operand("1"))
    assert memory.matching(is_large).bit_count() == 200
    is_one = Compare("==", "host", Operand("host-7"))
    assert memory.ids(memory.matching(And((is_large, is_one)))) == [7]


def test_keeps_the_bookings_of_a_resource_that_changes() -> None:
    memory = BookedHours()
    memory.put_resource(state(1, gpu="no"))
    memory.apply([BookingChange(1, BASE, BASE + DAY, False, 1, True)])
    memory.put_resource(state(1, is_reservable=False, gpu="yes"))
    mask = memory.matching(Compare("==", "gpu", Operand("yes")), failing_too=True)
    assert mask == 1
    assert memory.matching(Everything()) == 0
    assert memory.free(mask, BASE + HOUR, BASE + 2 * HOUR) == 0


def test_finds_the_first_opening_without_searching_the_others() -> None:
    """The search ends in the year 9999."""
    memory = BookedHours()
    memory.put_resource(state(1))
    starts = array("q", range(BASE, BASE + 2_000 * DAY, DAY))
    ends = array("q", (start + HOUR for start in starts))
    owners = array("i", [1]) * len(starts)
    memory.put_bookings(ResourceBookings(1, False, starts, ends, owners))
    openings = memory.openings(1, 1, HOUR, BASE, FOREVER)
    assert list(islice(openings, 2)) == [
        (BASE + n * DAY + HOUR, BASE + (n + 1) * DAY - HOUR) for n in (0, 1)
    ]
    assert memory.earliest(1, 1, 2 * DAY, BASE, FOREVER) == starts[-1] + HOUR
