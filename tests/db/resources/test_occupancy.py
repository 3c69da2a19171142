"""Sums over the bookings of many resources, by the database, against the rules in Python."""

import datetime as dt
from collections.abc import Sequence

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.orm import Session

from climate.core.lease.model import HOST, Inventory
from climate.core.matching import calendar
from climate.core.matching.calendar import Booking, Timeline
from climate.core.matching.calendar_rows import RowFilter
from climate.core.matching.occupancy import filled, peaks
from climate.core.matching.query import Compare, Everything, Operand, Query
from climate.core.matching.requirement import EXCLUSIVE, Layout, Requirement
from climate.core.window import Window
from climate.db.engine.database import Database
from climate.db.resources import allocations, capacity
from climate.db.resources.occupancy import availability, sums
from climate.db.resources.occupancy import bookings as page_bookings
from climate.db.resources.occupancy import rows as calendar_rows
from climate.db.tables.leases import AllocationRow, ResourceProperty, ResourceRow
from tests.conftest import NOON
from tests.support.event_queue import add_lease

MINUTE = dt.timedelta(minutes=1)
CAPACITY: tuple[dict[str, int], ...] = (
    {"VCPU": 8, "MEMORY_MB": 1000},
    {"VCPU": 16, "MEMORY_MB": 900},
    {},
)
WINDOW = Window(NOON, NOON + 300 * MINUTE)
WHOLE = Requirement(HOST, 1, 1, Everything())
REQUIREMENTS = (
    WHOLE,
    Requirement(HOST, 1, 1, Everything(), {"VCPU": 3, "MEMORY_MB": 100}),
    Requirement(HOST, 1, 1, Everything(), {"VCPU": 3}, Layout.APART),
)


@pytest.fixture
def hosts(database: Database) -> list[int]:
    """Return the ids of three hosts with ``CAPACITY``."""
    rows = [
        {"type": HOST, "external_id": f"host-{n}", "reservable": True, "created_at": NOON}
        for n in range(3)
    ]
    with database.engine.begin() as connection:
        connection.execute(sa.insert(ResourceRow), rows)
        ids = list(connection.scalars(sa.select(ResourceRow.id).order_by(ResourceRow.id)))

    def work(session: Session) -> None:
        for id_, amounts in zip(ids, CAPACITY, strict=True):
            stored = {name: Inventory(total) for name, total in amounts.items()}
            capacity.store(session, id_, stored)

    database.write(work)
    return ids


minutes = st.integers(-60, 360)
lengths = st.integers(1, 120)
#: Which host, when, for how long; and how much of which class.
wholes = st.lists(st.tuples(st.integers(0, 2), minutes, lengths), max_size=12)
shares = st.lists(
    st.tuples(
        st.integers(0, 1),
        minutes,
        lengths,
        st.sampled_from(["VCPU", "MEMORY_MB"]),
        st.integers(1, 5),
    ),
    max_size=12,
)


def bookings(
    whole: Sequence[tuple[int, int, int]], shared: Sequence[tuple[int, int, int, str, int]]
) -> list[list[Booking]]:
    """Return bookings by host of which no whole one overlaps another."""
    by_host: list[list[Booking]] = [[], [], []]
    drawn = [
        *((host, start, length, None, 0) for host, start, length in whole),
        *shared,
    ]
    for host, start, length, name, amount in drawn:
        window = Window(NOON + start * MINUTE, NOON + (start + length) * MINUTE)
        clash = any(
            window.overlaps(Window(other.start, other.end)) and None in (name, other.resource_class)
            for other in by_host[host]
        )
        if not clash:
            by_host[host].append(Booking(window.start, window.end, name, amount))
    return by_host


def store(database: Database, hosts: Sequence[int], by_host: Sequence[Sequence[Booking]]) -> None:
    rows = [
        {
            "resource_id": id_,
            "start_at": booking.start,
            "busy_until": booking.end,
            "resource_class": booking.resource_class,
            "amount": booking.amount if booking.resource_class else None,
        }
        for id_, bookings in zip(hosts, by_host, strict=True)
        for booking in bookings
    ]
    with database.engine.begin() as connection:
        connection.execute(sa.delete(AllocationRow))
        if rows:
            connection.execute(sa.insert(AllocationRow), rows)


def make_exclusive(by_host: Sequence[list[Booking]]) -> None:
    """Mark the first share of each host as exclusive if nothing else overlaps it."""
    for booked in by_host:
        for share in [item for item in booked if item.resource_class][:1]:
            window = Window(share.start, share.end)
            if sum(window.overlaps(Window(item.start, item.end)) for item in booked) == 1:
                booked.append(Booking(share.start, share.end, EXCLUSIVE, 1))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(whole=wholes, shared=shares, resolution=st.sampled_from([300, 420, 3600, 86400]))
def test_the_least_free_units_of_each_bucket_are_those_of_the_steps(
    database: Database,
    hosts: list[int],
    whole: list[tuple[int, int, int]],
    shared: list[tuple[int, int, int, str, int]],
    resolution: int,
) -> None:
    by_host = bookings(whole, shared)
    make_exclusive(by_host)
    store(database, hosts, by_host)
    length = int((WINDOW.end - WINDOW.start).total_seconds())
    for requirement in REQUIREMENTS:
        with database.read() as session:
            ids = allocations.matching(session, requirement, limit=None, rotation=0)
            taken = availability.taken(session, [requirement], WINDOW, resolution, None)
        timelines = [
            Timeline(amounts, booked)
            for id_, amounts, booked in zip(hosts, CAPACITY, by_host, strict=True)
            if id_ in ids
        ]
        steps = calendar.free_over(requirement, timelines, WINDOW)
        expected = []
        for start in range(0, length, resolution):
            bucket = Window(
                NOON + dt.timedelta(seconds=start),
                min(NOON + dt.timedelta(seconds=start + resolution), WINDOW.end),
            )
            expected.append(min(step.free for step in steps if step.window.overlaps(bucket)))
        found = [taken.units - peak for peak in peaks(taken.buckets, length, resolution)]
        assert found == expected


def test_only_given_and_matching_resources_count(database: Database, hosts: list[int]) -> None:
    store(database, hosts, bookings([(0, 0, 60), (1, 0, 60)], []))
    cases: list[tuple[Query, list[int] | None, tuple[int, int]]] = [
        (Everything(), None, (3, 2)),
        (Everything(), hosts[:1], (1, 1)),
        (Compare("==", "rack", Operand("r1")), None, (0, 0)),
    ]
    for query, ids, expected in cases:
        requirement = Requirement(HOST, 1, 1, query)
        with database.read() as session:
            taken = availability.taken(session, [requirement], WINDOW, 3600, ids)
        assert (taken.units, max(peaks(taken.buckets, 3600, 3600))) == expected


def occupied(booked: Sequence[Booking], capacity: dict[str, int], minute: int) -> float:
    """Return the part of a host that is occupied in a minute, of its fullest class."""
    at = NOON + minute * MINUTE
    present = [item for item in booked if item.start <= at < item.end]
    if any(item.resource_class is None for item in present):
        return 1.0
    used = {
        name: sum(item.amount for item in present if item.resource_class == name)
        for name in ("VCPU", "MEMORY_MB")
    }
    return max((used[name] / capacity[name] for name in used if used[name]), default=0.0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(whole=wholes, shared=shares, resolution=st.sampled_from([300, 420, 3600, 86400]))
def test_the_sums_of_buckets_are_those_of_their_minutes(
    database: Database,
    hosts: list[int],
    whole: list[tuple[int, int, int]],
    shared: list[tuple[int, int, int, str, int]],
    resolution: int,
) -> None:
    one_class = [item for item in shared if item[3] == "VCPU"]
    by_host = bookings(whole, one_class)
    store(database, hosts, by_host)
    length = int((WINDOW.end - WINDOW.start).total_seconds())
    with database.read() as session:
        found = sums.of_resources(session, hosts, WINDOW, resolution, "project")
        of_all = sums.of_types(session, [HOST], WINDOW, resolution)
    by_name = filled(found, length, resolution)
    total = [0.0] * -(-length // resolution)
    for id_, booked, amounts in zip(hosts, by_host, CAPACITY, strict=True):
        minutes = [occupied(booked, amounts, minute) for minute in range(length // 60)]
        expected = [
            60 * sum(minutes[first : first + resolution // 60])
            for first in range(0, len(minutes), resolution // 60)
        ]
        # Shares that exceed the capacity, which no admission allows, add up.
        if max(minutes, default=0.0) <= 1:
            shown = by_name[str(id_)].seconds if str(id_) in by_name else [0.0] * len(expected)
            assert shown == pytest.approx(expected, abs=1e-6)
        total = [before + more for before, more in zip(total, expected, strict=True)]
    hours = filled(of_all, length, resolution).get(HOST)
    assert list(hours.seconds if hours else [0.0] * len(total)) == pytest.approx(total, abs=1e-6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(whole=wholes, shared=shares)
def test_a_page_has_exactly_the_bookings_in_its_window(
    database: Database,
    hosts: list[int],
    whole: list[tuple[int, int, int]],
    shared: list[tuple[int, int, int, str, int]],
) -> None:
    by_host = bookings(whole, shared)
    store(database, hosts, by_host)
    with database.read() as session:
        found = page_bookings.find(session, hosts[:2], WINDOW, None, 1_000)
    expected = [
        (id_, item.start, item.end, item.resource_class, item.amount)
        for id_, booked in zip(hosts[:2], by_host, strict=False)
        for item in booked
        if WINDOW.overlaps(Window(item.start, item.end))
    ]
    key = [(s.resource_id, s.start, s.end, s.resource_class, s.amount) for s in found]
    assert sorted(key, key=str) == sorted(expected, key=str)
    assert all(span.is_deleted and span.lease is None for span in found)


def test_groups_and_pages_have_the_same_order(database: Database, hosts: list[int]) -> None:
    values = {hosts[0]: "b", hosts[1]: "B"}
    rows = [
        {"resource_id": id_, "name": "rack", "value": value, "native": False}
        for id_, value in values.items()
    ]
    with database.engine.begin() as connection:
        connection.execute(sa.insert(ResourceProperty), rows)
    store(database, hosts, bookings([(0, -10, 20)], [(1, -10, 20, "VCPU", 1)]))
    wanted = RowFilter(resource_type=HOST, query=Everything(), group_by="rack", part="HOST")
    with database.read() as session:
        groups = calendar_rows.groups(session, wanted, NOON, 10)
        page = calendar_rows.page(session, wanted, 0, 10)
        assert calendar_rows.count(session, wanted) == (3, 3)
    found = [(group.name, group.first, group.rows, group.free_now) for group in groups]
    assert found == [("B", 0, 1, 0), ("b", 1, 1, 0), (None, 2, 1, 1)]
    assert [row.id for row in page] == [hosts[1], hosts[0], hosts[2]]


def test_the_occupied_part_of_projects(database: Database, hosts: list[int]) -> None:
    """A lease that was deleted has no project; one type of resource has no part in another."""
    store(database, hosts, bookings([(0, 0, 60)], []))
    with database.read() as session:
        assert sums.of_projects(session, HOST, WINDOW, 3600) == []
        assert sums.of_values(session, "no:such", "rack", WINDOW, 3600) == []
        assert sums.count_types(session, [HOST, "no:such"]) == {HOST: 3}
        assert sums.count_values(session, HOST, "rack", 5) == {"": 3}


def test_projects_occupy_what_is_cleaned_after_their_leases(
    database: Database, hosts: list[int]
) -> None:
    """The lease "past" ended an hour before the window; its host is cleaned until 12:30."""
    add_lease(database, "past", -120, -60, hosts[:1])
    add_lease(database, "present", 60, 90, hosts[1:2])
    cleaned = sa.update(AllocationRow).where(AllocationRow.reservation_id == "past")
    with database.engine.begin() as connection:
        connection.execute(cleaned.values(busy_until=NOON + 30 * MINUTE))
    with database.read() as session:
        found = sums.of_projects(session, HOST, WINDOW, 3600)
    minutes = [value / 60 for value in filled(found, 300 * 60, 3600)["project"].seconds]
    assert minutes == [30, 30, 0, 0, 0]
