"""What the schema itself refuses, whoever writes and whatever he believes."""

import datetime as dt
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import DBAPIError

from climate.db.engine import Database, is_transient
from climate.db.tables import AllocationRow, ResourceRow
from tests import servers
from tests.conftest import NOON
from tests.support import allocation_guard as guard

Interval = tuple[int, int]


@pytest.fixture
def hosts(database: Database) -> list[int]:
    """Return the ids of two hosts in ``database``."""
    return _hosts(database)


@pytest.fixture
def unguarded(backend: str, tmp_path: Path) -> Iterator[Database]:
    """Return a database of each kind whose guard was taken out."""
    url = servers.create(backend) if backend != "sqlite" else f"sqlite:///{tmp_path}/open.sqlite"
    servers.migrate(url)
    made = Database(url)
    guard.drop(made)
    yield made
    made.dispose()


def _hosts(database: Database) -> list[int]:
    names = ["one", "two"]
    rows = [
        {"type": "physical:host", "external_id": name, "reservable": True, "created_at": NOON}
        for name in names
    ]
    with database.engine.begin() as connection:
        connection.execute(sa.insert(ResourceRow), rows)
        found = connection.execute(sa.select(ResourceRow.external_id, ResourceRow.id)).all()
    return [dict(tuple(row) for row in found)[name] for name in names]


def _at(tick: int) -> dt.datetime:
    """Return a moment; the smallest step that a database keeps lies between two ticks."""
    return NOON + dt.timedelta(microseconds=tick)


def _take(database: Database, host: int, *intervals: Interval) -> None:
    """Write allocations behind the back of admission."""
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


def _taken(database: Database) -> list[tuple[int, int, int]]:
    tick = dt.timedelta(microseconds=1)
    return sorted(
        (host, (start - NOON) // tick, (end - NOON) // tick)
        for host, start, end in guard.taken(database)
    )


OVERLAPPING = pytest.mark.parametrize(
    "other",
    [(10, 20), (9, 11), (19, 21), (12, 15), (0, 30), (10, 11), (19, 20), (0, 20), (10, 30)],
)
TOUCHING = pytest.mark.parametrize("other", [(0, 10), (9, 10), (20, 21), (20, 30)])


@OVERLAPPING
def test_an_overlapping_insert_is_refused_as_a_lost_race(
    database: Database, hosts: list[int], other: Interval
) -> None:
    _take(database, hosts[0], (10, 20))
    with pytest.raises(DBAPIError) as refusal:
        _take(database, hosts[0], other)
    assert is_transient(refusal.value)
    assert _taken(database) == [(hosts[0], 10, 20)]


@OVERLAPPING
def test_an_overlapping_update_is_refused_as_a_lost_race(
    database: Database, hosts: list[int], other: Interval
) -> None:
    _take(database, hosts[0], (10, 20), (50, 60))
    with pytest.raises(DBAPIError) as refusal:
        _move(database, hosts[0], (50, 60), other, hosts[0])
    assert is_transient(refusal.value)
    assert _taken(database) == [(hosts[0], 10, 20), (hosts[0], 50, 60)]


def test_a_move_to_a_host_that_is_taken_is_refused_as_a_lost_race(
    database: Database, hosts: list[int]
) -> None:
    _take(database, hosts[0], (10, 20))
    _take(database, hosts[1], (15, 25))
    with pytest.raises(DBAPIError) as refusal:
        _move(database, hosts[1], (15, 25), (15, 25), hosts[0])
    assert is_transient(refusal.value)


@TOUCHING
def test_touching_allocations_are_allowed(
    database: Database, hosts: list[int], other: Interval
) -> None:
    _take(database, hosts[0], (10, 20))
    _take(database, hosts[0], other)
    assert _taken(database) == sorted([(hosts[0], 10, 20), (hosts[0], *other)])


@TOUCHING
def test_an_allocation_may_be_moved_up_to_another(
    database: Database, hosts: list[int], other: Interval
) -> None:
    _take(database, hosts[0], (10, 20), (50, 60))
    _move(database, hosts[0], (50, 60), other, hosts[0])
    assert _taken(database) == sorted([(hosts[0], 10, 20), (hosts[0], *other)])


def test_an_allocation_is_not_in_its_own_way(database: Database, hosts: list[int]) -> None:
    _take(database, hosts[0], (10, 20))
    _move(database, hosts[0], (10, 20), (12, 25), hosts[0])
    assert _taken(database) == [(hosts[0], 12, 25)]


def test_two_hosts_may_be_taken_at_the_same_time(database: Database, hosts: list[int]) -> None:
    _take(database, hosts[0], (10, 20))
    _take(database, hosts[1], (10, 20))
    assert len(_taken(database)) == 2


@pytest.mark.parametrize("backwards", [(10, 10), (11, 10)])
def test_an_empty_or_reversed_allocation_is_refused_and_not_tried_again(
    database: Database, hosts: list[int], backwards: Interval
) -> None:
    with pytest.raises(DBAPIError) as refusal:
        _take(database, hosts[0], backwards)
    assert not is_transient(refusal.value)
    assert _taken(database) == []


INTERVALS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 12), st.integers(1, 6)), min_size=2, max_size=12
)


@given(asked=INTERVALS)
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_what_is_accepted_is_exactly_what_overlaps_nothing_before_it(
    database: Database, hosts: list[int], asked: Sequence[tuple[int, int, int]]
) -> None:
    with database.engine.begin() as connection:
        connection.execute(sa.delete(AllocationRow))
    expected: list[tuple[int, int, int]] = []
    for index, start, length in asked:
        host, end = hosts[index], start + length
        if all(host != h or end <= s or e <= start for h, s, e in expected):
            expected.append((host, start, end))
            _take(database, host, (start, end))
        else:
            with pytest.raises(DBAPIError):
                _take(database, host, (start, end))
    assert _taken(database) == sorted(expected)
    assert guard.overlaps(database) == []


def test_without_the_guard_overlaps_get_in(unguarded: Database) -> None:
    host, other = _hosts(unguarded)
    _take(unguarded, host, (10, 20), (15, 25))
    _take(unguarded, other, (10, 20), (50, 60))
    _move(unguarded, other, (50, 60), (0, 11), other)
    assert len(guard.overlaps(unguarded)) == 2
