"""Free capacity of shared resources: the query against a count of every hour."""

import datetime as dt

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.orm import Session

from climate.core.lease.model import HOST, Inventory
from climate.core.matching.query import Everything
from climate.core.matching.requirement import Requirement
from climate.core.window import Window
from climate.db.engine.database import Database
from climate.db.resources import allocations, capacity
from climate.db.tables.leases import AllocationRow, ResourceRow
from tests.conftest import NOON
from tests.support.backends import on_sqlite

HOUR = dt.timedelta(hours=1)
CLASSES = ("VCPU", "MEMORY_MB")
Share = tuple[int, str, int, int, int]


@pytest.fixture
def hosts(database: Database) -> list[int]:
    """Return the ids of three hosts: 8 VCPU, 16 VCPU (for one 9 at most), nothing."""
    rows = [
        {"type": HOST, "external_id": f"host-{n}", "reservable": True, "created_at": NOON}
        for n in range(3)
    ]
    with database.engine.begin() as connection:
        connection.execute(sa.insert(ResourceRow), rows)
        ids = list(connection.scalars(sa.select(ResourceRow.id).order_by(ResourceRow.id)))

    def work(session: Session) -> None:
        memory = Inventory(total=1024, reserved=24)
        capacity.store(session, ids[0], {"VCPU": Inventory(4, 0, 2.0), "MEMORY_MB": memory})
        sixteen = Inventory(16, 0, 1.0, 9)
        capacity.store(session, ids[1], {"VCPU": sixteen, "MEMORY_MB": memory})

    database.write(work)
    return ids


def _window(start: int, end: int) -> Window:
    return Window(NOON + start * HOUR, NOON + end * HOUR)


def _share(database: Database, *shares: Share) -> None:
    """Replace all bookings: (resource, class, amount, start, end)."""
    rows = [
        {
            "resource_id": resource,
            "start_at": NOON + start * HOUR,
            "busy_until": NOON + end * HOUR,
            "resource_class": name or None,
            "amount": amount if name else None,
        }
        for resource, name, amount, start, end in shares
    ]
    with database.engine.begin() as connection:
        connection.execute(sa.delete(AllocationRow))
        for row in rows:
            connection.execute(sa.insert(AllocationRow), row)


def _free(database: Database, hosts: list[int], window: Window) -> dict[int, dict[str, int]]:
    with database.read() as session:
        return capacity.free(session, hosts, CLASSES, window)


def _candidates(database: Database, amounts: dict[str, int], window: Window) -> list[int]:
    requirement = Requirement(HOST, 1, 1, Everything(), amounts)
    with database.read() as session:
        free = allocations.candidates(session, requirement, window, limit=None, rotation=0.5)
        assert allocations.still_free(session, requirement, window, free) == set(free)
        return sorted(free)


@on_sqlite
def test_capacity_is_the_unreserved_total_times_the_ratio(
    database: Database, hosts: list[int]
) -> None:
    assert _free(database, hosts, _window(0, 1)) == {
        hosts[0]: {"VCPU": 8, "MEMORY_MB": 1000},
        hosts[1]: {"VCPU": 16, "MEMORY_MB": 1000},
        hosts[2]: {},
    }


@on_sqlite
def test_shares_that_touch_are_not_added_up(database: Database, hosts: list[int]) -> None:
    _share(database, (hosts[0], "VCPU", 6, 0, 2), (hosts[0], "VCPU", 7, 2, 4))
    assert _free(database, hosts, _window(0, 4))[hosts[0]]["VCPU"] == 1
    assert _free(database, hosts, _window(0, 2))[hosts[0]]["VCPU"] == 2
    assert _free(database, hosts, _window(4, 9))[hosts[0]]["VCPU"] == 8


shares = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from(CLASSES),
        st.integers(1, 3),
        st.integers(0, 8),
        st.integers(1, 5),
    ),
    max_size=10,
)


@given(shares=shares, start=st.integers(0, 9), length=st.integers(1, 4))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_free_capacity_is_the_total_minus_the_peak_of_the_window(
    database: Database, hosts: list[int], shares: list[Share], start: int, length: int
) -> None:
    _share(database)
    total = _free(database, hosts, _window(0, 1))
    booked = [(hosts[h], name, amount, at, at + hours) for h, name, amount, at, hours in shares]
    _share(database, *booked)
    free = _free(database, hosts, _window(start, start + length))
    for host in hosts[:2]:
        for name in CLASSES:
            peak = max(
                sum(a for h, n, a, s, e in booked if (h, n) == (host, name) and s <= hour < e)
                for hour in range(start, start + length)
            )
            assert free[host][name] == total[host][name] - peak


@on_sqlite
def test_a_share_is_not_placed_on_a_resource_booked_whole(
    database: Database, hosts: list[int]
) -> None:
    _share(database, (hosts[1], "", 0, 0, 2))
    assert _candidates(database, {"VCPU": 1}, _window(1, 3)) == [hosts[0]]
    assert _candidates(database, {"VCPU": 1}, _window(2, 3)) == hosts[:2]


@on_sqlite
def test_a_whole_resource_is_not_placed_on_shares(database: Database, hosts: list[int]) -> None:
    _share(database, (hosts[1], "VCPU", 1, 0, 2), (hosts[1], "MEMORY_MB", 1, 4, 6))
    assert _candidates(database, {}, _window(1, 3)) == [hosts[0], hosts[2]]
    assert _candidates(database, {}, _window(5, 6)) == [hosts[0], hosts[2]]
    assert _candidates(database, {}, _window(2, 4)) == hosts


@on_sqlite
def test_only_resources_with_enough_capacity_are_candidates(
    database: Database, hosts: list[int]
) -> None:
    assert _candidates(database, {"VCPU": 9}, _window(0, 1)) == [hosts[1]]
    assert _candidates(database, {"VCPU": 9, "MEMORY_MB": 1001}, _window(0, 1)) == []
    assert _candidates(database, {"CUSTOM_GPU": 1}, _window(0, 1)) == []
    assert _candidates(database, {"VCPU": 10}, _window(0, 1)) == []


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"], indirect=True)
def test_the_schema_rejects_a_whole_booking_that_overlaps_a_share(
    database: Database, hosts: list[int]
) -> None:
    for first, second in (("", "VCPU"), ("VCPU", "")):
        with pytest.raises(sa.exc.IntegrityError, match="allocations_no_overlap"):
            _share(database, (hosts[0], first, 1, 0, 3), (hosts[0], second, 1, 2, 4))
        _share(database, (hosts[0], first, 1, 0, 3), (hosts[0], second, 1, 3, 4))


def test_the_schema_accepts_shares_that_overlap(database: Database, hosts: list[int]) -> None:
    _share(database, (hosts[0], "VCPU", 1, 0, 3), (hosts[0], "VCPU", 1, 0, 3))
    assert _free(database, hosts, _window(0, 3))[hosts[0]]["VCPU"] == 6
