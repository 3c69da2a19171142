"""The schema rejects overlapping allocations, whatever the code above it does."""

import datetime as dt
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import DBAPIError

from climate.db.engine.database import Database, is_transient
from climate.db.tables.leases import AllocationRow, ResourceRow
from tests.conftest import NOON
from tests.support import allocation_guard, servers

Interval = tuple[int, int]
# Relative to an allocation from 10 to 20.
OVERLAPPING = [
    *((10, 20), (9, 11), (19, 21), (12, 15), (0, 30), (10, 11), (19, 20), (0, 20), (10, 30)),
]
TOUCHING = [(0, 10), (9, 10), (20, 21), (20, 30)]


@pytest.fixture
def hosts(database: Database) -> list[int]:
    return _add_hosts(database)


@pytest.fixture
def unguarded(backend: str, tmp_path: Path) -> Iterator[Database]:
    """Return a database of each kind without the guard."""
    url = servers.create(backend) if backend != "sqlite" else f"sqlite:///{tmp_path}/open.sqlite"
    servers.migrate(url)
    database = Database(url)
    allocation_guard.drop(database)
    yield database
    database.dispose()


def _add_hosts(database: Database) -> list[int]:
    names = ["first", "second"]
    rows = [
        {"type": "physical:host", "external_id": name, "reservable": True, "created_at": NOON}
        for name in names
    ]
    with database.engine.begin() as connection:
        connection.execute(sa.insert(ResourceRow), rows)
        query = sa.select(ResourceRow.id).order_by(ResourceRow.external_id)
        return list(connection.scalars(query))


def _at(tick: int) -> dt.datetime:
    """Return a time; two ticks differ by the precision that every database keeps."""
    return NOON + dt.timedelta(microseconds=tick)


def _book(database: Database, host: int, *intervals: Interval) -> None:
    """Write allocations without admission."""
    rows = [
        {"resource_id": host, "start_at": _at(start), "busy_until": _at(end)}
        for start, end in intervals
    ]
    with database.engine.begin() as connection:
        connection.execute(sa.insert(AllocationRow), rows)


def _move(database: Database, host: int, old: Interval, new: Interval, to: int) -> None:
    with database.engine.begin() as connection:
        connection.execute(
            sa.update(AllocationRow)
            .where(AllocationRow.resource_id == host, AllocationRow.start_at == _at(old[0]))
            .values(resource_id=to, start_at=_at(new[0]), busy_until=_at(new[1]))
        )


def _clear(database: Database) -> None:
    with database.engine.begin() as connection:
        connection.execute(sa.delete(AllocationRow))


def _booked(database: Database) -> list[tuple[int, int, int]]:
    tick = dt.timedelta(microseconds=1)
    return sorted(
        (host, (start - NOON) // tick, (end - NOON) // tick)
        for host, start, end in allocation_guard.bookings(database)
    )


def test_rejects_an_overlapping_insert_as_a_lost_race(
    database: Database, hosts: list[int], subtests: pytest.Subtests
) -> None:
    _book(database, hosts[0], (10, 20))
    for other in OVERLAPPING:
        with subtests.test(other=other):
            with pytest.raises(DBAPIError) as error:
                _book(database, hosts[0], other)
            assert is_transient(error.value)
            assert _booked(database) == [(hosts[0], 10, 20)]


def test_rejects_an_overlapping_update_as_a_lost_race(
    database: Database, hosts: list[int], subtests: pytest.Subtests
) -> None:
    _book(database, hosts[0], (10, 20), (50, 60))
    for other in OVERLAPPING:
        with subtests.test(other=other):
            with pytest.raises(DBAPIError) as error:
                _move(database, hosts[0], (50, 60), other, hosts[0])
            assert is_transient(error.value)
            assert _booked(database) == [(hosts[0], 10, 20), (hosts[0], 50, 60)]


def test_rejects_a_move_to_an_occupied_host_as_a_lost_race(
    database: Database, hosts: list[int]
) -> None:
    _book(database, hosts[0], (10, 20))
    _book(database, hosts[1], (15, 25))
    with pytest.raises(DBAPIError) as error:
        _move(database, hosts[1], (15, 25), (15, 25), hosts[0])
    assert is_transient(error.value)


def test_accepts_allocations_that_touch(
    database: Database, hosts: list[int], subtests: pytest.Subtests
) -> None:
    for other in TOUCHING:
        with subtests.test(other=other):
            _clear(database)
            _book(database, hosts[0], (10, 20))
            _book(database, hosts[0], other)
            touching = sorted([(hosts[0], 10, 20), (hosts[0], *other)])
            assert _booked(database) == touching
            _clear(database)
            _book(database, hosts[0], (10, 20), (50, 60))
            _move(database, hosts[0], (50, 60), other, hosts[0])
            assert _booked(database) == touching


def test_an_allocation_may_move_within_its_own_window(database: Database, hosts: list[int]) -> None:
    _book(database, hosts[0], (10, 20))
    _move(database, hosts[0], (10, 20), (12, 25), hosts[0])
    assert _booked(database) == [(hosts[0], 12, 25)]


def test_rejects_an_empty_or_reversed_window_without_a_retry(
    database: Database, hosts: list[int]
) -> None:
    for reversed_ in [(10, 10), (11, 10)]:
        with pytest.raises(DBAPIError) as error:
            _book(database, hosts[0], reversed_)
        assert not is_transient(error.value)
    assert _booked(database) == []


INTERVALS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 12), st.integers(1, 6)), min_size=2, max_size=12
)


@given(requests=INTERVALS)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_accepts_exactly_the_allocations_that_overlap_no_earlier_one(
    database: Database, hosts: list[int], requests: Sequence[tuple[int, int, int]]
) -> None:
    _clear(database)
    accepted: list[tuple[int, int, int]] = []
    for index, start, length in requests:
        host, end = hosts[index], start + length
        if all(host != h or end <= s or e <= start for h, s, e in accepted):
            accepted.append((host, start, end))
            _book(database, host, (start, end))
        else:
            with pytest.raises(DBAPIError):
                _book(database, host, (start, end))
    assert _booked(database) == sorted(accepted)
    assert allocation_guard.overlaps(database) == []


def test_without_the_guard_overlaps_are_stored(unguarded: Database) -> None:
    host, other = _add_hosts(unguarded)
    _book(unguarded, host, (10, 20), (15, 25))
    _book(unguarded, other, (10, 20), (50, 60))
    _move(unguarded, other, (50, 60), (0, 11), other)
    assert len(allocation_guard.overlaps(unguarded)) == 2
