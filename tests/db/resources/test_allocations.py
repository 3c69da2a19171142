"""Free resources: the query against a search through every booking."""

import datetime as dt
import threading

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from climate.core.lease.model import HOST
from climate.core.matching.query import Everything
from climate.core.matching.requirement import Requirement
from climate.core.window import Window
from climate.db.engine.database import Database
from climate.db.resources import allocations, fitting
from climate.db.tables.leases import AllocationRow, ResourceRow
from tests.conftest import NOON
from tests.support.backends import on_postgresql, on_servers, on_sqlite
from tests.support.process import eventually

HOSTS = Requirement(HOST, 1, 1, Everything())
HOUR = dt.timedelta(hours=1)


@pytest.fixture
def hosts(database: Database) -> list[int]:
    """Return the ids of five hosts, with gaps between them."""
    rows = [
        {"type": HOST, "external_id": f"host-{n}", "reservable": n % 3 != 0, "created_at": NOON}
        for n in range(1, 8)
    ]
    with database.engine.begin() as connection:
        connection.execute(sa.insert(ResourceRow), rows)
        query = sa.select(ResourceRow.id).where(ResourceRow.reservable).order_by(ResourceRow.id)
        return list(connection.scalars(query))


def _window(start: int, end: int) -> Window:
    return Window(NOON + start * HOUR, NOON + end * HOUR)


def _book(database: Database, *bookings: tuple[int, Window]) -> None:
    rows = [
        {"resource_id": host, "start_at": window.start, "busy_until": window.end}
        for host, window in bookings
    ]
    with database.engine.begin() as connection:
        connection.execute(sa.delete(AllocationRow))
        if rows:
            connection.execute(sa.insert(AllocationRow), rows)


def _candidates(
    database: Database, busy: Window, limit: int = 100, rotation: float = 0.0
) -> list[int]:
    with database.read() as session:
        return allocations.candidates(session, HOSTS, busy, limit=limit, rotation=rotation)


def test_a_host_is_free_up_to_the_start_of_a_booking_and_from_its_end(
    database: Database, hosts: list[int]
) -> None:
    _book(database, (hosts[0], _window(10, 12)))
    tick = dt.timedelta(microseconds=1)
    expected = {
        _window(8, 10): True,
        _window(12, 14): True,
        _window(8, 11): False,
        _window(11, 14): False,
        _window(10, 12): False,
        _window(11, 12): False,
        _window(9, 13): False,
        Window(_window(12, 14).start - tick, _window(12, 14).end): False,
        Window(_window(12, 14).start + tick, _window(12, 14).end): True,
    }
    assert {window: hosts[0] in _candidates(database, window) for window in expected} == expected


@given(
    slots=st.lists(st.sets(st.integers(0, 9)), min_size=5, max_size=5),
    start=st.integers(0, 9),
    length=st.integers(1, 4),
    rotation=st.floats(0, 0.999),
)
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_candidates_are_exactly_the_hosts_without_an_overlapping_booking(
    database: Database,
    hosts: list[int],
    slots: list[set[int]],
    start: int,
    length: int,
    rotation: float,
) -> None:
    window = _window(start, start + length)
    bookings = [
        (host, _window(slot, slot + 1))
        for host, booked_slots in zip(hosts, slots, strict=False)
        for slot in booked_slots
    ]
    _book(database, *bookings)
    expected = [
        host for host in hosts if not any(h == host and w.overlaps(window) for h, w in bookings)
    ]
    assert sorted(_candidates(database, window, rotation=rotation)) == expected
    with database.read() as session:
        assert allocations.still_free(session, HOSTS, window, hosts) == set(expected)


@on_sqlite
def test_returns_as_many_candidates_as_requested_wherever_the_search_begins(
    database: Database, hosts: list[int]
) -> None:
    for limit in (1, 2, 3):
        pages = [_candidates(database, _window(0, 1), limit, step / 20) for step in range(20)]
        assert {len(set(ids)) for ids in pages} == {limit}
        assert {ids[0] for ids in pages} == set(hosts)


@on_servers
def test_a_host_locked_by_another_transaction_is_a_candidate_but_not_ours(
    database: Database, hosts: list[int]
) -> None:
    with database.engine.connect() as other:
        query = sa.select(ResourceRow.id).where(ResourceRow.id == hosts[1]).with_for_update()
        other.execute(query)
        assert _candidates(database, _window(0, 1)) == hosts
        locked = database.write(lambda session: allocations.lock(session, hosts, wait=False))
    assert locked == set(hosts) - {hosts[1]}


@on_postgresql
@pytest.mark.parametrize("rotation", [0.0, 0.5, 0.99])
def test_postgresql_finds_and_locks_in_one_statement_and_skips_locked_hosts(
    database: Database, hosts: list[int], rotation: float
) -> None:
    with database.engine.connect() as other:
        query = sa.select(ResourceRow.id).where(ResourceRow.id == hosts[1]).with_for_update()
        other.execute(query)
        grabbed = database.write(
            lambda session: allocations.grab(
                session, HOSTS, _window(0, 1), limit=12, locking=2, rotation=rotation
            )
        )
    assert set(grabbed.found) == set(hosts)
    assert grabbed.found[:2] == grabbed.locked
    assert hosts[1] not in grabbed.locked
    assert grabbed.changed == []


def _in_service(*, reservable: bool) -> sa.Update:
    return sa.update(ResourceRow).values(reservable=reservable)


PAUSE = 42
_WAITING = sa.text(
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = :key"
)


@on_postgresql
@pytest.mark.parametrize(
    ("change", "exists"),
    [
        (_in_service(reservable=True), True),
        (_in_service(reservable=False), True),
        (sa.delete(ResourceRow), False),
    ],
)
def test_postgresql_reports_a_host_that_changed_during_the_search(
    database: Database,
    hosts: list[int],
    change: sa.Update | sa.Delete,
    exists: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The statement has its snapshot and waits for an advisory lock until the change is stored."""
    first = hosts[0]
    pause = sa.select(sa.func.pg_advisory_xact_lock(PAUSE)).scalar_subquery().is_not(None)
    conditions = fitting._free
    monkeypatch.setattr(fitting, "_free", lambda wanted: [pause, *conditions(wanted)])
    monkeypatch.setattr(fitting, "available_versions", fitting.available_versions.__wrapped__)
    statement = fitting.available_locked.__wrapped__(fitting.shape(HOSTS), 12)
    monkeypatch.setattr(fitting, "available_locked", lambda *_: statement)
    results: list[allocations.Grabbed] = []

    def search() -> None:
        results.append(
            database.write(
                lambda session: allocations.grab(
                    session, HOSTS, _window(0, 1), limit=12, locking=12, rotation=0.0
                )
            )
        )

    searching = threading.Thread(target=search)
    with database.engine.connect() as holder:
        holder.execute(sa.select(sa.func.pg_advisory_xact_lock(PAUSE)))
        searching.start()
        with database.engine.connect() as watcher:
            eventually(lambda: watcher.scalar(_WAITING, {"key": PAUSE}), "the search waits")
        with database.engine.begin() as rival:
            rival.execute(change.where(ResourceRow.id == first))
    searching.join()
    [grabbed] = results
    assert grabbed.changed == ([first] if exists else [])
    assert sorted(grabbed.locked) == (hosts if exists else hosts[1:])
