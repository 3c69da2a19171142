import itertools
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from climate.core.errors import InvalidDate
from climate.core.window import END_OF_TIME, Window

NINE = datetime(2030, 1, 15, 9, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
TICK = timedelta(microseconds=1)


def at(hour: float) -> datetime:
    return NINE + (hour - 9) * HOUR


def window(start: float, end: float) -> Window:
    return Window(at(start), at(end))


def instants(interval: Window, first: int = 0, last: int = 24) -> set[int]:
    """Return the whole hours in the window, by a check of each."""
    return {hour for hour in range(first, last) if interval.start <= at(hour) < interval.end}


# Windows of whole hours within a day: small enough to check every instant.
edges = st.integers(0, 23)
windows = st.tuples(edges, edges).filter(lambda p: p[0] < p[1]).map(lambda p: window(*p))
moments = st.datetimes(timezones=st.just(UTC))
calendar = st.tuples(moments, moments).filter(lambda p: p[0] < p[1]).map(lambda p: Window(*p))
cleanings = st.timedeltas(timedelta(0), timedelta(days=400_000))


class TestValidity:
    @pytest.mark.parametrize("end", [9, 8.5], ids=["empty", "reversed"])
    def test_rejects_an_end_before_the_start(self, end: float) -> None:
        with pytest.raises(
            InvalidDate,
            match=r"^End date must be later than start date\. .* is not after .* UTC\.$",
        ):
            window(9, end)

    @pytest.mark.parametrize(
        ("start", "end"),
        [(NINE.replace(tzinfo=None), at(10)), (NINE, at(10).replace(tzinfo=None))],
        ids=["start", "end"],
    )
    def test_rejects_a_naive_time(self, start: datetime, end: datetime) -> None:
        with pytest.raises(TypeError, match="aware"):
            Window(start, end)

    def test_accepts_a_microsecond(self) -> None:
        assert Window(NINE, NINE + TICK).end == NINE + TICK

    def test_accepts_the_whole_calendar(self) -> None:
        whole = Window(datetime.min.replace(tzinfo=UTC), END_OF_TIME)
        assert whole.contains(window(9, 10))

    def test_equal_instants_in_another_zone_are_the_same_window(self) -> None:
        zone = timezone(timedelta(hours=2))
        assert Window(NINE.astimezone(zone), at(10).astimezone(zone)) == window(9, 10)


class TestOverlap:
    def test_windows_that_touch_do_not_overlap(self) -> None:
        assert not window(9, 10).overlaps(window(10, 11))
        assert not window(10, 11).overlaps(window(9, 10))

    def test_a_shared_microsecond_is_an_overlap(self) -> None:
        assert window(9, 10).overlaps(Window(at(10) - TICK, at(11)))

    @given(windows, windows)
    def test_overlap_means_a_shared_instant(self, first: Window, other: Window) -> None:
        assert first.overlaps(other) == bool(instants(first) & instants(other))

    @given(calendar, calendar)
    def test_overlap_is_symmetric(self, first: Window, other: Window) -> None:
        assert first.overlaps(other) == other.overlaps(first)

    @given(calendar)
    def test_overlap_is_reflexive(self, first: Window) -> None:
        assert first.overlaps(first)


class TestContaining:
    def test_borders_are_included(self) -> None:
        assert window(9, 12).contains(window(9, 10))
        assert window(9, 12).contains(window(11, 12))
        assert window(9, 12).contains(window(9, 12))

    @given(windows, windows)
    def test_containing_means_having_all_instants_of_the_other(
        self, first: Window, other: Window
    ) -> None:
        assert first.contains(other) == (instants(first) >= instants(other))

    @given(calendar, calendar)
    def test_a_contained_window_overlaps(self, first: Window, other: Window) -> None:
        assert first.overlaps(other) or not first.contains(other)


class TestBusy:
    def test_cleaning_follows_the_window(self) -> None:
        assert window(9, 10).busy(2 * HOUR) == window(9, 12)

    def test_without_cleaning_the_busy_window_is_the_window(self) -> None:
        assert window(9, 10).busy(timedelta(0)) == window(9, 10)

    @given(windows, windows, st.integers(0, 5))
    def test_cleaning_keeps_the_gap_on_both_sides(
        self, first: Window, other: Window, hours: int
    ) -> None:
        gaps = [b.start - a.end for a, b in itertools.permutations((first, other))]
        apart = any(gap >= hours * HOUR for gap in gaps)
        assert first.busy(hours * HOUR).overlaps(other.busy(hours * HOUR)) != apart

    def test_a_window_that_ends_with_the_calendar_is_busy_to_its_end(self) -> None:
        last = Window(NINE, datetime(9999, 12, 31, 23, 59, tzinfo=UTC))
        assert last.busy(HOUR) == Window(NINE, END_OF_TIME)
        assert Window(NINE, END_OF_TIME).busy(HOUR).end == END_OF_TIME

    def test_cleaning_that_just_fits_into_the_calendar_is_kept_whole(self) -> None:
        assert Window(NINE, END_OF_TIME - HOUR).busy(HOUR).end == END_OF_TIME
        assert Window(NINE, END_OF_TIME - HOUR - TICK).busy(HOUR).end == END_OF_TIME - TICK

    @given(calendar, cleanings)
    def test_contains_the_window_and_stays_in_the_calendar(
        self, first: Window, cleaning: timedelta
    ) -> None:
        busy = first.busy(cleaning)
        assert busy.start == first.start
        assert busy.end == END_OF_TIME or busy.end - first.end == cleaning
        assert busy.contains(first)
