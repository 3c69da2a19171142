"""Changes of a lease's dates, at ten seconds past noon (the present minute is 12:00)."""

import dataclasses
import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from climate.core.change import (
    Change,
    changed_notices,
    changed_window,
    check_changeable,
    check_resource_type,
    has_started,
    moved,
)
from climate.core.errors import ClimateError, Conflict, InvalidDate, LeaseBusy
from climate.core.lease import Lease
from climate.core.lifecycle import STABLE_LEASE, LeaseStatus
from climate.core.schedule import BEFORE_END, BEFORE_START, Anchor, Notice
from climate.core.window import END_OF_TIME, Window
from tests.support.cases import each_case

NOON = datetime(2030, 1, 15, 12, 0, tzinfo=UTC)
NOW = NOON + timedelta(seconds=10)
PENDING, ACTIVE, ERROR = LeaseStatus.PENDING, LeaseStatus.ACTIVE, LeaseStatus.ERROR
HEADS_UP = Notice(BEFORE_START, Anchor.START, -600)
WARNING = Notice(BEFORE_END, Anchor.END, -900)


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def span(start: float, end: float) -> Window:
    return Window(at(start), at(end))


def lease(start: float, end: float, status: LeaseStatus = PENDING) -> Lease:
    """Return a lease from ``start`` to ``end``, in minutes after noon."""
    return Lease(
        id="lease-1",
        name="mine",
        user_id="user-1",
        project_id="project-1",
        window=span(start, end),
        status=status,
        degraded=False,
        notices=(HEADS_UP, WARNING),
        reservations=(),
        events=(),
        created_at=NOON - timedelta(days=1),
        updated_at=None,
    )


def to(start: float | None = None, end: float | None = None) -> Change:
    return Change(start=None if start is None else at(start), end=None if end is None else at(end))


def refusal(present: Lease, change: Change, now: datetime = NOW) -> str:
    with pytest.raises(InvalidDate) as caught:
        changed_window(present, change, now)
    return caught.value.message


class TestChangeability:
    @each_case("status", LeaseStatus)
    def test_a_lease_can_be_renamed_while_no_operation_runs(self, status: LeaseStatus) -> None:
        if status in STABLE_LEASE:
            check_changeable(lease(60, 120, status), only_name=True)
        else:
            with pytest.raises(LeaseBusy, match=status.value):
                check_changeable(lease(60, 120, status), only_name=True)

    @each_case("status", LeaseStatus)
    def test_everything_else_can_change_until_the_lease_has_ended(
        self, status: LeaseStatus
    ) -> None:
        if status in STABLE_LEASE - {LeaseStatus.TERMINATED}:
            check_changeable(lease(60, 120, status), only_name=False)
        else:
            with pytest.raises(ClimateError):
                check_changeable(lease(60, 120, status), only_name=False)

    def test_a_busy_lease_is_a_conflict_and_an_ended_one_a_bad_request(self) -> None:
        with pytest.raises(LeaseBusy) as busy:
            check_changeable(lease(0, 60, LeaseStatus.STARTING), only_name=False)
        with pytest.raises(InvalidDate) as over:
            check_changeable(lease(-60, -1, LeaseStatus.TERMINATED), only_name=False)
        assert (busy.value.status, over.value.status) == (409, 400)

    def test_rejects_a_change_of_the_resource_type(self) -> None:
        check_resource_type("physical:host", None)
        check_resource_type("physical:host", "physical:host")
        with pytest.raises(Conflict, match="from physical:host"):
            check_resource_type("physical:host", "virtual:instance")


class TestHasStarted:
    def test_a_pending_lease_starts_at_its_start(self) -> None:
        assert not has_started(lease(1, 60), NOW)
        assert not has_started(lease(0, 60), NOON - timedelta(microseconds=1))
        assert has_started(lease(0, 60), NOON)

    @each_case("status", sorted(set(LeaseStatus) - {PENDING}))
    def test_a_lease_in_any_other_status_has_started(self, status: LeaseStatus) -> None:
        assert has_started(lease(60, 120, status), NOW)


class TestLeaseBeforeItsStart:
    def test_an_empty_change_keeps_the_window(self) -> None:
        assert changed_window(lease(60, 120), Change(), NOW) == span(60, 120)

    @each_case("start, end", [(90, None), (None, 90), (30, 45), (600, 700), (None, 61), (0, None)])
    def test_moves_to_any_window_that_is_not_in_the_past(
        self, start: float | None, end: float | None
    ) -> None:
        result = changed_window(lease(60, 120), to(start, end), NOW)
        assert result == span(60 if start is None else start, 120 if end is None else end)

    def test_may_start_in_the_present_minute(self) -> None:
        assert changed_window(lease(60, 120), to(0), NOW).start == NOON

    @each_case("start", [-1, -600])
    def test_rejects_a_start_before_the_present_minute(self, start: float) -> None:
        assert refusal(lease(60, 120), to(start)).startswith("Start date")

    @each_case("start, end", [(None, 60), (None, 59), (120, None), (90, 80), (None, -1), (None, 0)])
    def test_rejects_an_end_before_the_start(self, start: float | None, end: float | None) -> None:
        assert "date must be later" in refusal(lease(60, 120), to(start, end))

    def test_rejects_an_end_in_the_past(self) -> None:
        change = Change(start=NOON, end=NOW - timedelta(seconds=1))
        assert "End date" in refusal(lease(60, 120), change)

    def test_may_move_to_the_end_of_the_calendar(self) -> None:
        change = Change(start=END_OF_TIME - timedelta(minutes=1), end=END_OF_TIME)
        assert changed_window(lease(60, 120), change, NOW).end == END_OF_TIME


class TestLeaseAfterItsStart:
    @each_case("start", [-1, 0, 1, -61, 600])
    def test_rejects_another_start(self, start: float) -> None:
        assert "start date" in refusal(lease(-60, 60, ACTIVE), to(start))

    def test_rejects_another_start_in_the_minute_of_its_start(self) -> None:
        assert "start date" in refusal(lease(0, 60), to(5))

    def test_accepts_its_own_start(self) -> None:
        assert changed_window(lease(-60, 60, ACTIVE), to(-60, 90), NOW) == span(-60, 90)

    @each_case("status, end", itertools.product((PENDING, ACTIVE, ERROR), (1, 59, 61, 6000)))
    def test_its_end_may_move_anywhere_in_the_future(self, status: LeaseStatus, end: float) -> None:
        assert changed_window(lease(-60, 60, status), to(end=end), NOW) == span(-60, end)

    def test_an_end_in_the_present_minute_means_now(self) -> None:
        assert changed_window(lease(-60, 60, ACTIVE), to(end=0), NOW) == Window(at(-60), NOW)

    def test_an_end_now_does_not_extend_an_overdue_lease(self) -> None:
        assert changed_window(lease(-60, 0, ACTIVE), to(end=0), NOW) == span(-60, 0)

    @each_case("end", [-1, -30, -60, -90])
    def test_rejects_an_end_in_the_past(self, end: float) -> None:
        assert "End date" in refusal(lease(-60, 60, ACTIVE), to(end=end))

    def test_may_end_in_the_minute_of_its_start(self) -> None:
        assert changed_window(lease(0, 60, ACTIVE), to(end=0), NOW) == Window(NOON, NOW)

    def test_may_end_in_that_minute_if_it_started_within_it(self) -> None:
        started = 5 / 60
        result = changed_window(lease(started, 60, ACTIVE), to(end=0), NOW)
        assert result == Window(at(started), NOW)

    def test_rejects_an_end_at_the_instant_of_its_start(self) -> None:
        assert "End date" in refusal(lease(0, 60, ACTIVE), to(end=0), NOON)


class TestRequestThatTookAMinute:
    """The request arrived at ten seconds past noon and is processed a minute later."""

    def after(self, present: Lease, start: float | None = None, end: float | None = None) -> Window:
        request = dataclasses.replace(to(start, end), asked_at=NOW)
        return changed_window(present, request, NOW + timedelta(minutes=1))

    def test_now_means_the_time_of_the_request(self) -> None:
        assert self.after(lease(60, 120), start=0) == span(0, 120)
        ended_now = Window(at(-60), NOW + timedelta(minutes=1))
        assert self.after(lease(-60, 60, ACTIVE), end=0) == ended_now

    @each_case("status", [PENDING, ACTIVE])
    def test_a_start_now_keeps_the_start_of_a_lease_that_started_meanwhile(
        self, status: LeaseStatus
    ) -> None:
        assert self.after(lease(1, 60, status), start=0) == span(1, 60)
        with pytest.raises(InvalidDate, match="start date"):
            self.after(lease(1, 60, status), start=-1)

    @each_case("status", [PENDING, ACTIVE])
    def test_rejects_an_end_before_the_start_as_at_the_request(self, status: LeaseStatus) -> None:
        with pytest.raises(InvalidDate, match="End date"):
            self.after(lease(1, 60, status), end=0.5)

    def test_rejects_a_change_of_a_lease_that_ended_meanwhile(self) -> None:
        with pytest.raises(InvalidDate, match="has ended"):
            self.after(lease(-60, 0.9, ACTIVE), end=60)


class TestLeaseAfterItsEnd:
    """Its manager was down, or cannot end it."""

    @each_case(
        "status, change",
        itertools.product((PENDING, ACTIVE, ERROR), (to(end=60), to(30, 60), to(end=0), Change())),
    )
    def test_rejects_every_change(self, status: LeaseStatus, change: Change) -> None:
        assert "has ended" in refusal(lease(-60, -1, status), change)

    def test_accepts_a_change_within_the_minute_of_its_end(self) -> None:
        assert changed_window(lease(-60, 0, ACTIVE), to(end=60), NOW) == span(-60, 60)


class TestNotices:
    def test_keep_their_offsets_when_only_dates_change(self) -> None:
        assert changed_notices(lease(60, 120), to(600, 700), span(600, 700)) == (HEADS_UP, WARNING)

    def test_an_explicit_before_end_replaces_the_previous_one(self) -> None:
        change = Change(before_end=at(100))
        assert changed_notices(lease(60, 120), change, span(60, 120)) == (
            HEADS_UP,
            Notice(BEFORE_END, Anchor.END, -1200),
        )

    def test_an_explicit_before_end_is_relative_to_the_new_end(self) -> None:
        change = Change(end=at(150), before_end=at(149))
        result = changed_notices(lease(60, 120), change, span(60, 150))
        assert result[-1] == Notice(BEFORE_END, Anchor.END, -60)

    @each_case("minutes", [60, 59, 150, 151])
    def test_rejects_a_before_end_outside_the_new_window(self, minutes: float) -> None:
        with pytest.raises(InvalidDate, match="before_end_date") as caught:
            changed_notices(lease(0, 600), Change(before_end=at(minutes)), span(60, 150))
        assert caught.value.status == 400


def test_a_moved_lease_differs_only_in_its_dates() -> None:
    before = lease(60, 120)
    after = moved(before, span(90, 150), (WARNING,), NOW)
    assert after == dataclasses.replace(
        before, window=span(90, 150), notices=(WARNING,), updated_at=NOW
    )


# A second implementation of the rules, in seconds after noon and without a Window.

seconds = st.integers(-300, 300)
minutes = st.integers(-5, 5).map(lambda minute: minute * 60)
dates = st.one_of(st.none(), minutes, seconds)
spans = st.tuples(minutes, minutes).filter(lambda pair: pair[0] < pair[1])


def allowed(
    present: tuple[int, int], change: tuple[int | None, int | None], now: int, *, active: bool
) -> tuple[int, int] | None:
    """Return the window after the change, None if the change is rejected."""
    minute = now - now % 60
    if present[1] < minute:
        return None
    start = present[0] if change[0] is None else change[0]
    end = present[1] if change[1] is None else change[1]
    if active or present[0] <= now:
        wanted = max(end, min(now, present[1]))
        return (start, wanted) if start == present[0] and start < wanted >= minute <= end else None
    return (start, end) if start >= minute and end > start and end > now else None


@given(spans, dates, dates, seconds, st.booleans())
def test_accepts_exactly_the_windows_that_the_contract_allows(
    present: tuple[int, int], start: int | None, end: int | None, now: int, active: bool
) -> None:
    def moment(second: int) -> datetime:
        return NOON + timedelta(seconds=second)

    request = Change(
        start=None if start is None else moment(start), end=None if end is None else moment(end)
    )
    before = lease(present[0] / 60, present[1] / 60, ACTIVE if active else PENDING)
    wanted = allowed(present, (start, end), now, active=active)
    if wanted is None:
        with pytest.raises(InvalidDate):
            changed_window(before, request, moment(now))
    else:
        result = changed_window(before, request, moment(now))
        assert result == Window(moment(wanted[0]), moment(wanted[1]))
