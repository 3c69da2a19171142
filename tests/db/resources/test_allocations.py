"""Which resources are free: the probe against a look at every booking."""

import datetime as dt
import threading
import time

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from climate.core.query import Everything
from climate.core.requirement import Requirement
from climate.core.window import Window
from climate.db import allocations, fitting
from climate.db.engine import Database
from climate.db.tables import AllocationRow, ResourceRow
from tests.conftest import NOON

HOST = "physical:host"
HOSTS = Requirement(HOST, 1, 1, Everything())


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
    hour = dt.timedelta(hours=1)
    return Window(NOON + start * hour, NOON + end * hour)


def _book(database: Database, *booked: tuple[int, Window]) -> None:
    """Replace all bookings."""
    rows = [
        {"resource_id": host, "start_at": window.start, "busy_until": window.end}
        for host, window in booked
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


@pytest.mark.parametrize(
    ("window", "is_free"),
    [
        ((8, 10), True),
        ((12, 14), True),
        ((8, 11), False),
        ((11, 14), False),
        ((10, 12), False),
        ((11, 12), False),
        ((9, 13), False),
    ],
)
def test_a_host_is_free_right_up_to_a_booking_and_from_its_end(
    database: Database, hosts: list[int], window: tuple[int, int], is_free: bool
) -> None:
    _book(database, (hosts[0], _window(10, 12)))
    assert (hosts[0] in _candidates(database, _window(*window))) is is_free


@pytest.mark.parametrize("microseconds", [-1, 0, 1])
def test_a_microsecond_decides(database: Database, hosts: list[int], microseconds: int) -> None:
    _book(database, (hosts[0], _window(10, 12)))
    start = _window(12, 14).start + dt.timedelta(microseconds=microseconds)
    asked = Window(start, _window(12, 14).end)
    assert (hosts[0] in _candidates(database, asked)) is (microseconds >= 0)


@given(
    slots=st.lists(st.sets(st.integers(0, 9)), min_size=5, max_size=5),
    start=st.integers(0, 9),
    length=st.integers(1, 4),
    rotation=st.floats(0, 0.999),
)
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_the_probe_finds_exactly_the_hosts_without_a_booking_in_the_way(
    database: Database,
    hosts: list[int],
    slots: list[set[int]],
    start: int,
    length: int,
    rotation: float,
) -> None:
    asked = _window(start, start + length)
    booked = [
        (host, _window(slot, slot + 1))
        for host, mine in zip(hosts, slots, strict=False)
        for slot in mine
    ]
    _book(database, *booked)
    expected = [
        host for host in hosts if not any(h == host and w.overlaps(asked) for h, w in booked)
    ]
    assert sorted(_candidates(database, asked, rotation=rotation)) == expected
    with database.read() as session:
        assert allocations.still_free(session, HOSTS, asked, hosts) == set(expected)


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_no_more_candidates_than_asked_for_wherever_the_search_begins(
    database: Database, hosts: list[int], limit: int
) -> None:
    found = [_candidates(database, _window(0, 1), limit, step / 20) for step in range(20)]
    assert {len(set(ids)) for ids in found} == {limit}
    assert {ids[0] for ids in found} == set(hosts)


@pytest.mark.parametrize("backend", ["postgresql", "mariadb"], indirect=True)
def test_a_host_that_somebody_else_has_locked_is_a_candidate_and_not_ours(
    database: Database, hosts: list[int]
) -> None:
    with database.engine.connect() as other:
        query = sa.select(ResourceRow.id).where(ResourceRow.id == hosts[1]).with_for_update()
        other.execute(query)
        assert _candidates(database, _window(0, 1)) == hosts
        mine = database.write(lambda session: allocations.lock(session, hosts, wait=False))
    assert mine == set(hosts) - {hosts[1]}


@pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
@pytest.mark.parametrize("rotation", [0.0, 0.5, 0.99])
def test_hosts_are_found_and_locked_at_once_but_for_those_that_others_have(
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


@pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
@pytest.mark.parametrize(
    ("meanwhile", "is_there"),
    [
        (_in_service(reservable=True), True),
        (_in_service(reservable=False), True),
        (sa.delete(ResourceRow), False),
    ],
)
def test_that_somebody_changed_a_host_while_hosts_were_looked_for_is_told(
    database: Database,
    hosts: list[int],
    meanwhile: sa.Update | sa.Delete,
    is_there: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The statement sees hosts as they were when it began, and is made to take its time here."""
    first = hosts[0]
    slow = sa.select(sa.func.pg_sleep(1.0)).scalar_subquery().is_not(None)
    fit = fitting._free
    monkeypatch.setattr(fitting, "_free", lambda wanted: [slow, *fit(wanted)])
    statement = fitting.some_locked.__wrapped__(fitting.shape(HOSTS), 12)

    def change() -> None:
        time.sleep(0.4)
        with database.engine.begin() as connection:
            connection.execute(meanwhile.where(ResourceRow.id == first))

    rival = threading.Thread(target=change)
    rival.start()
    monkeypatch.setattr(fitting, "some_locked", lambda *_: statement)
    grabbed = database.write(
        lambda session: allocations.grab(
            session, HOSTS, _window(0, 1), limit=12, locking=12, rotation=0.0
        )
    )
    rival.join()
    assert grabbed.changed == ([first] if is_there else [])
    assert sorted(grabbed.locked) == (hosts if is_there else hosts[1:])
