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
from climate.core.matching.occupancy import peaks
from climate.core.matching.query import Compare, Everything, Operand
from climate.core.matching.requirement import Layout, Requirement
from climate.core.window import Window
from climate.db.engine.database import Database
from climate.db.resources import allocations, capacity
from climate.db.resources.occupancy import availability
from climate.db.tables.leases import AllocationRow, ResourceRow
from tests.conftest import NOON

MINUTE = dt.timedelta(minutes=1)
CAPACITY = ({"VCPU": 8, "MEMORY_MB": 1000}, {"VCPU": 16, "MEMORY_MB": 900}, {})
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
    for query, ids, expected in [
        (Everything(), None, (3, 2)),
        (Everything(), hosts[:1], (1, 1)),
        (Compare("==", "rack", Operand("r1")), None, (0, 0)),
    ]:
        requirement = Requirement(HOST, 1, 1, query)
        with database.read() as session:
            taken = availability.taken(session, [requirement], WINDOW, 3600, ids)
        assert (taken.units, max(peaks(taken.buckets, 3600, 3600))) == expected
