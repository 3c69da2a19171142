from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from climate.core.lease.wait_list import FreeStep, may_start_earlier
from climate.core.window import Window

NOON = datetime(2030, 1, 15, 12, 0, tzinfo=UTC)
# The tests count whole hours after noon.
HOURS = 12


def at(hours: int) -> datetime:
    return NOON + timedelta(hours=hours)


@given(
    st.lists(st.integers(0, 4), min_size=HOURS, max_size=HOURS),
    st.integers(0, HOURS - 1),
    st.integers(1, 4),
    st.integers(0, HOURS),
    st.integers(1, 4),
)
def test_a_booking_may_start_earlier_if_enough_resources_are_free_for_as_long(
    free: list[int], start: int, length: int, begin: int, needed: int
) -> None:
    end = min(start + length, HOURS)
    steps: list[FreeStep] = [(at(hour), at(hour + 1), free[hour]) for hour in range(HOURS)]
    usable = [free[hour] + needed * (start <= hour < end) for hour in range(HOURS)]
    expected = any(
        min(usable[first : first + end - start]) >= needed for first in range(begin, start)
    )
    own = Window(at(start), at(end))
    assert may_start_earlier(steps, own, at(begin), needed, needed) == expected
