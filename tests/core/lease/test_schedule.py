import itertools
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from climate.core.schedule import (
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


def heads_up(lead: float) -> Notice:
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


class TestReminders:
    def test_each_is_due_its_lead_time_before_the_start(self) -> None:
        assert due([heads_up(MINUTE), heads_up(10 * MINUTE)]) == [50, 59]

    def test_overdue_reminders_become_one_that_is_due_now(self) -> None:
        leads = [heads_up(2 * HOUR), heads_up(1.5 * HOUR), heads_up(10 * MINUTE)]
        assert due(leads) == [0, 50]

    def test_a_reminder_due_now_is_combined_with_the_overdue_ones(self) -> None:
        assert due([heads_up(HOUR), heads_up(2 * HOUR)]) == [0]

    def test_reminders_for_the_same_time_are_one(self) -> None:
        assert due([heads_up(MINUTE), heads_up(MINUTE)]) == [59]

    @each_case("now", [60, 61, 600])
    def test_there_is_none_after_the_start(self, now: float) -> None:
        assert due([heads_up(HOUR), heads_up(MINUTE)], at(now)) == []

    def test_there_is_one_a_microsecond_before_the_start(self) -> None:
        now = LEASE.start - timedelta(microseconds=1)
        assert plan(LEASE, [heads_up(HOUR), heads_up(MINUTE)], now)[0] == Planned(BEFORE_START, now)


class TestBeforeEnd:
    def test_is_due_its_lead_time_before_the_end(self) -> None:
        assert due([before_end(15 * MINUTE)]) == [105]

    def test_is_never_due_before_the_start(self) -> None:
        assert due([before_end(2 * HOUR)]) == [60]

    def test_follows_a_start_of_the_same_instant(self) -> None:
        kinds = [event.kind for event in plan(LEASE, [before_end(HOUR)], NOON)]
        assert kinds == [START, BEFORE_END, END]


class TestUserEvents:
    def test_are_relative_to_their_anchor(self) -> None:
        notices = [Notice("a", Anchor.START, 10 * MINUTE), Notice("b", Anchor.END, -10 * MINUTE)]
        assert due(notices) == [70, 110]

    def test_move_with_the_lease(self) -> None:
        later = Window(LEASE.start + timedelta(days=1), LEASE.end + timedelta(days=1))
        assert due([Notice("a", Anchor.START, 10 * MINUTE)], window=later) == [24 * 60 + 70]

    def test_may_precede_the_start_and_the_present(self) -> None:
        assert due([Notice("a", Anchor.START, -90 * MINUTE)]) == [-30]

    def test_are_due_at_the_end_at_the_latest(self) -> None:
        assert due([Notice("a", Anchor.START, 2 * HOUR)]) == [120]

    def test_precede_an_end_of_the_same_instant(self) -> None:
        kinds = [event.kind for event in plan(LEASE, [Notice("z", Anchor.END, 0)], NOON)]
        assert kinds == [START, "z", END]


class TestOffsetsBeyondTheCalendar:
    """A lease may move by thousands of years, and its notices with it."""

    EARLY = Window(datetime(1, 1, 2, tzinfo=UTC), datetime(1, 1, 3, tzinfo=UTC))
    LATE = Window(datetime(9999, 12, 30, tzinfo=UTC), END_OF_TIME)

    @each_case("lead", [48 * HOUR, 1e11, 1e30])
    def test_a_reminder_before_the_calendar_is_due_now(self, lead: float) -> None:
        assert plan(self.EARLY, [heads_up(lead)], DAWN)[0] == Planned(BEFORE_START, DAWN)
        assert due([heads_up(1e11), heads_up(MINUTE)]) == [0, 59]

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
    st.builds(heads_up, offsets.filter(lambda lead: lead > 0)),
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
    heads_ups = [start + round(item.offset) for item in requested if item.kind == BEFORE_START]
    if now < start:
        coming = sorted({second for second in heads_ups if second > now})
        missed = [now] if any(second <= now for second in heads_ups) else []
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
