"""Changes of a lease's dates, at ten seconds past noon (the present minute is 12:00)."""

import dataclasses
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from climate.core.errors import ClimateError, Conflict, InvalidDate, LeaseBusy
from climate.core.lease.change import (
    Change,
    changed_notices,
    changed_window,
    check_changeable,
    check_resource_type,
    has_started,
    moved,
)
from climate.core.lease.lifecycle import STABLE_LEASE, LeaseStatus
from climate.core.lease.model import Lease
from climate.core.lease.schedule import BEFORE_END, BEFORE_START, Anchor, Notice
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
        if status in STABLE_LEASE | {LeaseStatus.WAITING}:
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


# A lease, a change, and the window after it or the words of the error.
BEFORE_ITS_START = [
    (lease(60, 120), Change(), span(60, 120)),
    (lease(60, 120), to(90), span(90, 120)),
    (lease(60, 120), to(end=90), span(60, 90)),
    (lease(60, 120), to(30, 45), span(30, 45)),
    (lease(60, 120), to(600, 700), span(600, 700)),
    (lease(60, 120), Change(duration=timedelta(hours=2)), span(60, 180)),
    (lease(60, 120), Change(start=at(30), duration=timedelta(hours=2)), span(30, 150)),
    (lease(60, 120), to(end=61), span(60, 61)),
    # The present minute is not in the past.
    (lease(60, 120), to(0), span(0, 120)),
    (lease(60, 120), to(-1), "Start date"),
    (lease(60, 120), to(-600), "Start date"),
    *((lease(60, 120), to(end=end), "date must be later") for end in (60, 59, -1, 0)),
    (lease(60, 120), to(120), "date must be later"),
    (lease(60, 120), to(90, 80), "date must be later"),
    (lease(60, 120), Change(start=NOON, end=NOW - timedelta(seconds=1)), "End date"),
    (
        lease(60, 120),
        Change(start=END_OF_TIME - timedelta(minutes=1), end=END_OF_TIME),
        Window(END_OF_TIME - timedelta(minutes=1), END_OF_TIME),
    ),
]
AFTER_START = [
    *((lease(-60, 60, ACTIVE), to(start), "start date") for start in (-1, 0, 1, -61, 600)),
    (lease(0, 60), to(5), "start date"),
    # Its own start may be repeated.
    (lease(-60, 60, ACTIVE), to(-60, 90), span(-60, 90)),
    *(
        (lease(-60, 60, status), to(end=end), span(-60, end))
        for status in (PENDING, ACTIVE, ERROR)
        for end in (1, 59, 61, 6000)
    ),
    # An end in the present minute means now, but does not extend an overdue lease.
    (lease(-60, 60, ACTIVE), to(end=0), Window(at(-60), NOW)),
    (lease(-60, 0, ACTIVE), to(end=0), span(-60, 0)),
    *((lease(-60, 60, ACTIVE), to(end=end), "End date") for end in (-1, -30, -60, -90)),
    # It may end in the minute of its start, also if it started later within it.
    (lease(0, 60, ACTIVE), to(end=0), Window(NOON, NOW)),
    (lease(5 / 60, 60, ACTIVE), to(end=0), Window(at(5 / 60), NOW)),
]
AFTER_END = [
    *(
        (lease(-60, -1, status), change, "has ended")
        for status in (PENDING, ACTIVE, ERROR)
        for change in (to(end=60), to(30, 60), to(end=0), Change())
    ),
    # Within the minute of its end it can still be extended.
    (lease(-60, 0, ACTIVE), to(end=60), span(-60, 60)),
]


@each_case("present, change, expected", [*BEFORE_ITS_START, *AFTER_START, *AFTER_END])
def test_accepts_or_rejects_new_dates(
    present: Lease, change: Change, expected: Window | str
) -> None:
    if isinstance(expected, Window):
        assert changed_window(present, change, NOW) == expected
    else:
        assert expected in refusal(present, change)


def test_rejects_an_end_at_the_instant_of_the_start() -> None:
    assert "End date" in refusal(lease(0, 60, ACTIVE), to(end=0), NOON)


# A request of ten seconds past noon that is processed a minute later.
A_MINUTE_LATER = [
    # Now means the time of the request.
    (lease(60, 120), to(0), span(0, 120)),
    (lease(-60, 60, ACTIVE), to(end=0), Window(at(-60), NOW + timedelta(minutes=1))),
    # The lease started meanwhile: a start now keeps its start.
    *((lease(1, 60, status), to(0), span(1, 60)) for status in (PENDING, ACTIVE)),
    *((lease(1, 60, status), to(-1), "start date") for status in (PENDING, ACTIVE)),
    *((lease(1, 60, status), to(end=0.5), "End date") for status in (PENDING, ACTIVE)),
    # The lease ended meanwhile.
    (lease(-60, 0.9, ACTIVE), to(end=60), "has ended"),
]


@each_case("present, change, expected", A_MINUTE_LATER)
def test_judges_dates_by_the_time_of_the_request(
    present: Lease, change: Change, expected: Window | str
) -> None:
    request, now = dataclasses.replace(change, asked_at=NOW), NOW + timedelta(minutes=1)
    if isinstance(expected, Window):
        assert changed_window(present, request, now) == expected
    else:
        assert expected in refusal(present, request, now)


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
        with pytest.raises(InvalidDate, match="A before_end_lease event must") as caught:
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
