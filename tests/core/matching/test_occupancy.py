"""The intervals of a calendar's row, compared second by second with a simple model."""

import math
from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from climate.core.matching.occupancy import Interval, Kind, Occupied, Row, intervals

LENGTH = 24
CAPACITY = {"VCPU": 7, "MEMORY_MB": 4}
ANONYMOUS = (Kind.TAKEN, Kind.HELD, Kind.CLEANING)
seconds = st.integers(-6, LENGTH + 6)
lengths = st.integers(1, 8)
whole_bookings = st.lists(
    st.tuples(seconds, lengths, st.sampled_from([*ANONYMOUS, Kind.OWN]), st.integers(0, 3)),
    max_size=8,
)
share_bookings = st.lists(
    st.tuples(
        seconds, lengths, st.sampled_from(sorted(CAPACITY)), st.integers(1, 3), st.booleans()
    ),
    max_size=8,
)
since = st.none() | st.integers(0, LENGTH + 2)


def whole(drawn: Sequence[tuple[int, int, Kind, int]]) -> list[Occupied]:
    """Return bookings that do not overlap; own leases end up to 3 seconds before their cleaning."""
    found: list[Occupied] = []
    for number, (start, length, kind, cleaning) in enumerate(drawn):
        end = start + length
        if all(end <= other.start or other.end <= start for other in found):
            lease = f"lease-{number}" if kind is Kind.OWN else None
            found.append(Occupied(start, end, kind, lease, max(start, end - cleaning)))
    return found


def shares(drawn: Sequence[tuple[int, int, str, int, bool]]) -> list[Occupied]:
    return [
        Occupied(
            start,
            start + length,
            Kind.OWN if own else Kind.TAKEN,
            f"share-{number}" if own else None,
            start + length,
            name,
            amount,
        )
        for number, (start, length, name, amount, own) in enumerate(drawn)
    ]


def covers(found: Sequence[Interval], at: int, which: Callable[[Interval], bool]) -> list[Interval]:
    return [item for item in found if which(item) and item.start <= at < item.end]


def present(items: Sequence[Occupied], at: int) -> list[Occupied]:
    return [item for item in items if item.start <= at < item.end]


@given(drawn=whole_bookings, unbookable=since)
def test_each_second_of_a_whole_resource_has_what_occupies_it(
    drawn: list[tuple[int, int, Kind, int]], unbookable: int | None
) -> None:
    items = whole(drawn)
    found = intervals(Row(LENGTH, items, {}, unbookable))
    for at in range(LENGTH):
        shown = covers(found, at, lambda _: True)
        booked = present(items, at)
        if not booked:
            is_blocked = unbookable is not None and at >= unbookable
            assert [item.kind for item in shown] == [Kind.NOT_BOOKABLE] * is_blocked
            continue
        [item], [interval] = booked, shown
        if item.lease is None:
            assert interval.lease is None
            # A run of several kinds is taken: its kinds would show where a lease ends.
            assert interval.kind in {item.kind, Kind.TAKEN}
        elif at < item.lease_end:
            assert (interval.kind, interval.lease) == (Kind.OWN, item.lease)
        else:
            assert (interval.kind, interval.lease) == (Kind.CLEANING, None)


@given(drawn=whole_bookings)
def test_no_edge_tells_bookings_of_others_apart(drawn: list[tuple[int, int, Kind, int]]) -> None:
    """Two anonymous intervals never touch, whatever their kinds are."""
    others = [item for item in whole(drawn) if item.lease is None]
    found = intervals(Row(LENGTH, others, {}))
    edges = {item.start for item in found} & {item.end for item in found}
    assert not edges


@given(drawn=share_bookings, unbookable=since)
def test_each_second_of_a_shared_resource_has_the_taken_tenths(
    drawn: list[tuple[int, int, str, int, bool]], unbookable: int | None
) -> None:
    items = shares(drawn)
    found = intervals(Row(LENGTH, items, CAPACITY, unbookable))
    for at in range(LENGTH):
        booked = present(items, at)
        parts = [
            sum(item.amount for item in booked if item.resource_class == name) / capacity
            for name, capacity in CAPACITY.items()
        ]
        part = max(parts)
        tenths = 10 if part >= 1 else min(9, math.ceil(part * 10 - 1e-9))
        shown = covers(found, at, lambda item: item.kind is Kind.SHARED)
        assert [item.tenths for item in shown] == ([tenths] if tenths else [])
        own = {item.lease for item in covers(found, at, lambda item: item.kind is Kind.OWN)}
        assert own == {item.lease for item in booked if item.lease}
        blocked = covers(found, at, lambda item: item.kind is Kind.NOT_BOOKABLE)
        assert bool(blocked) == (not booked and unbookable is not None and at >= unbookable)


@given(drawn=whole_bookings, shared=share_bookings)
def test_intervals_are_sorted_inside_the_window_and_not_empty(
    drawn: list[tuple[int, int, Kind, int]], shared: list[tuple[int, int, str, int, bool]]
) -> None:
    found = intervals(Row(LENGTH, whole(drawn) + shares(shared), CAPACITY, preparing=[(2, 9)]))
    assert [item.start for item in found] == sorted(item.start for item in found)
    assert all(0 <= item.start < item.end <= LENGTH for item in found)


def test_a_host_is_made_ready_where_nothing_else_is() -> None:
    items = [Occupied(4, 6), Occupied(9, 12, Kind.OWN, "lease", 12)]
    found = intervals(Row(LENGTH, items, {}, preparing=[(3, 9)]))
    prepared = [(item.start, item.end) for item in found if item.kind is Kind.PREPARING]
    assert prepared == [(3, 4), (6, 9)]
