import itertools
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from climate.core.lease.schedule import (
    ACTIONS,
    BEFORE_END,
    BEFORE_START,
    END,
    START,
    UPDATE,
    Anchor,
    Notice,
    Planned,
    plan,
    rank,
)
from climate.core.window import END_OF_TIME, Window
from tests.support.cases import each_case

NOON = datetime(2030, 1, 15, 12, 0, tzinfo=UTC)
DAWN = datetime.min.replace(tzinfo=UTC)
MINUTE = 60.0
HOUR = 60 * MINUTE
# One hour, from one o'clock on.
LEASE = Window(NOON + timedelta(hours=1), NOON + timedelta(hours=2))


def at(minutes: float) -> datetime:
    """Return the time ``minutes`` after noon."""
    return NOON + timedelta(minutes=minutes)


def reminder(lead: float) -> Notice:
    return Notice(BEFORE_START, Anchor.START, -lead)


def before_end(lead: float) -> Notice:
    return Notice(BEFORE_END, Anchor.END, -lead)


def due(notices: Sequence[Notice], now: datetime = NOON, window: Window = LEASE) -> list[float]:
    """Return when the events except start and end are due, in minutes after noon."""
    planned = plan(window, notices, now)
    return [
        (event.due_at - NOON) / timedelta(minutes=1)
        for event in planned
        if event.kind not in {START, END}
    ]


class TestStartAndEnd:
    def test_are_planned_at_the_dates_of_the_lease(self) -> None:
        assert plan(LEASE, [], NOON) == (Planned(START, at(60)), Planned(END, at(120)))

    def test_are_planned_even_if_the_dates_have_passed(self) -> None:
        assert plan(LEASE, [], at(600)) == (Planned(START, at(60)), Planned(END, at(120)))


def user_event(anchor: Anchor, offset: float) -> Notice:
    return Notice("a", anchor, offset)


# Notices, the present in minutes after noon, and when their events are due.
DUE = [
    # Reminders: each its lead time before the start; the overdue ones become one that is due now.
    ([reminder(MINUTE), reminder(10 * MINUTE)], 0, [50, 59]),
    ([reminder(2 * HOUR), reminder(1.5 * HOUR), reminder(10 * MINUTE)], 0, [0, 50]),
    ([reminder(HOUR), reminder(2 * HOUR)], 0, [0]),
    ([reminder(MINUTE), reminder(MINUTE)], 0, [59]),
    *(([reminder(HOUR), reminder(MINUTE)], now, []) for now in (60, 61, 600)),
    # Before the end: its lead time before the end, but not before the start.
    ([before_end(15 * MINUTE)], 0, [105]),
    ([before_end(2 * HOUR)], 0, [60]),
    # User events: relative to their anchor, also before the present, and not after the end.
    ([user_event(Anchor.START, 10 * MINUTE), user_event(Anchor.END, -10 * MINUTE)], 0, [70, 110]),
    ([user_event(Anchor.START, -90 * MINUTE)], 0, [-30]),
    ([user_event(Anchor.START, 2 * HOUR)], 0, [120]),
]


@each_case("notices, now, expected", DUE)
def test_notices_are_due_relative_to_the_dates_of_the_lease(
    notices: list[Notice], now: float, expected: list[float]
) -> None:
    assert due(notices, at(now)) == expected


def test_a_reminder_is_due_until_a_microsecond_before_the_start() -> None:
    now = LEASE.start - timedelta(microseconds=1)
    assert plan(LEASE, [reminder(HOUR), reminder(MINUTE)], now)[0] == Planned(BEFORE_START, now)


def test_user_events_move_with_the_lease() -> None:
    later = Window(LEASE.start + timedelta(days=1), LEASE.end + timedelta(days=1))
    assert due([user_event(Anchor.START, 10 * MINUTE)], window=later) == [24 * 60 + 70]


@each_case(
    "notice, kinds",
    [
        (before_end(HOUR), [START, BEFORE_END, END]),
        (user_event(Anchor.END, 0), [START, "a", END]),
    ],
)
def test_events_of_one_instant_are_between_start_and_end(notice: Notice, kinds: list[str]) -> None:
    assert [event.kind for event in plan(LEASE, [notice], NOON)] == kinds


class TestOffsetsBeyondTheCalendar:
    """A lease may move by thousands of years, and its notices with it."""

    EARLY = Window(datetime(1, 1, 2, tzinfo=UTC), datetime(1, 1, 3, tzinfo=UTC))
    LATE = Window(datetime(9999, 12, 30, tzinfo=UTC), END_OF_TIME)

    @each_case("lead", [48 * HOUR, 1e11, 1e30])
    def test_a_reminder_before_the_calendar_is_due_now(self, lead: float) -> None:
        assert plan(self.EARLY, [reminder(lead)], DAWN)[0] == Planned(BEFORE_START, DAWN)
        assert due([reminder(1e11), reminder(MINUTE)]) == [0, 59]

    @each_case("lead", [1e11, 1e30])
    def test_a_before_end_before_the_calendar_is_due_at_the_start(self, lead: float) -> None:
        assert due([before_end(lead)]) == [60]

    @each_case("offset", [72 * HOUR, 1e12, 1e30])
    def test_a_user_event_after_the_calendar_is_due_at_the_end(self, offset: float) -> None:
        result = plan(self.LATE, [Notice("a", Anchor.START, offset)], NOON)
        assert result[1:] == (Planned("a", END_OF_TIME), Planned(END, END_OF_TIME))

    @each_case("offset", [-1e11, -1e30])
    def test_a_user_event_before_the_calendar_is_due_at_its_beginning(self, offset: float) -> None:
        assert plan(LEASE, [Notice("a", Anchor.START, offset)], NOON)[0] == Planned("a", DAWN)


class TestRanks:
    ORDER = (BEFORE_START, START, UPDATE, "a user's own", BEFORE_END, END)

    def test_events_of_the_same_instant_have_an_order(self) -> None:
        for item, other in itertools.pairwise(self.ORDER):
            assert rank(item) < rank(other)

    def test_all_user_events_have_the_same_rank(self) -> None:
        assert rank("backup") == rank("zzz")

    def test_start_update_before_end_and_end_act_on_the_cloud(self) -> None:
        assert set(ACTIONS) == {START, UPDATE, BEFORE_END, END}


# Below, times are whole seconds after noon, so that none is out of range.

EDGES = {"start": Anchor.START, "end": Anchor.END}
seconds = st.integers(-7200, 7200)
offsets = st.one_of(seconds, st.integers(-(10**13), 10**13))
notices = st.one_of(
    st.builds(reminder, offsets.filter(lambda lead: lead > 0)),
    st.builds(before_end, offsets.filter(lambda lead: lead > 0)),
    st.builds(Notice, st.sampled_from(["backup", "mail"]), st.sampled_from(Anchor), offsets),
)
spans = st.tuples(seconds, seconds).filter(lambda pair: pair[0] < pair[1])


def moment(second: int) -> datetime:
    """Return the time ``second`` seconds after noon, or the beginning of the calendar."""
    first = round((DAWN - NOON).total_seconds())
    return DAWN if second <= first else NOON + timedelta(seconds=second)


def expected(span: tuple[int, int], requested: Sequence[Notice], now: int) -> list[tuple[int, str]]:
    """Return the expected plan, rule by rule, as sorted (second, kind)."""
    start, end = span
    result = [(start, START), (end, END)]
    reminders = [start + round(item.offset) for item in requested if item.kind == BEFORE_START]
    if now < start:
        coming = sorted({second for second in reminders if second > now})
        missed = [now] if any(second <= now for second in reminders) else []
        result += [(second, BEFORE_START) for second in missed + coming]
    for item in requested:
        second = round(item.offset) + (start if item.anchor is Anchor.START else end)
        if item.kind == BEFORE_END and (max(second, start), BEFORE_END) not in result:
            result.append((max(second, start), BEFORE_END))
        if item.kind in {"backup", "mail"} and (min(second, end), item.kind) not in result:
            result.append((min(second, end), item.kind))
    order = [BEFORE_START, START, "backup", "mail", BEFORE_END, END]
    return sorted(result, key=lambda event: (event[0], order.index(event[1])))


def planned(span: tuple[int, int], requested: Sequence[Notice], now: int) -> tuple[Planned, ...]:
    return plan(Window(moment(span[0]), moment(span[1])), requested, moment(now))


@given(spans, st.lists(notices, max_size=6), seconds)
def test_a_plan_follows_the_rules(span: tuple[int, int], requested: list[Notice], now: int) -> None:
    result = [(event.due_at, event.kind) for event in planned(span, requested, now)]
    wanted = [(moment(second), kind) for second, kind in expected(span, requested, now)]
    assert result == list(dict.fromkeys(wanted))


@given(spans, st.lists(notices, max_size=6), seconds, st.randoms(use_true_random=False))
def test_the_order_of_notices_does_not_matter(
    span: tuple[int, int], requested: list[Notice], now: int, rng: random.Random
) -> None:
    shuffled = rng.sample(requested, len(requested))
    assert planned(span, shuffled, now) == planned(span, requested, now)


@given(spans, st.lists(notices, max_size=6), seconds)
def test_ends_with_the_only_end(span: tuple[int, int], requested: list[Notice], now: int) -> None:
    result = planned(span, requested, now)
    assert result[-1] == Planned(END, moment(span[1]))
    assert [event.kind for event in result].count(END) == 1
    assert [event.kind for event in result].count(START) == 1
