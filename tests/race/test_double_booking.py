"""Sixteen processes request the same hosts: none is booked twice, none is left free."""

from collections import Counter
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from climate.db.engine.database import Database
from climate.db.tables.leases import LeaseRow
from tests.race import crowd as crowds
from tests.race.booking import (
    ADMITTED,
    Outcomes,
    book,
    book_and_change,
    book_by_locks,
    same_window,
)
from tests.race.crowd import Crowd
from tests.race.databases import PROOF, postgresql_first
from tests.support import allocation_guard as guard
from tests.support.event_queue import add_hosts

HOSTS = 5
REFUSED = "Refusal"
# Processes race; a scenario that must show a race is repeated until one was seen.
TRIES = 8


@pytest.fixture
def unguarded(unguarded_url: str) -> Iterator[Database]:
    made = Database(unguarded_url)
    yield made
    made.dispose()


def _book(crowd: Crowd, database: Database, *, protected: bool, first: int = 1) -> Outcomes:
    """Let each process create six leases within a day."""
    url = database.engine.url.render_as_string(hide_password=False)
    return sum(crowd.do(book, url, 6, first, protected), Counter())


def _leases(database: Database) -> int:
    with database.read() as session:
        return session.scalar(sa.select(sa.func.count()).select_from(LeaseRow)) or 0


def test_overlapping_requests_never_share_a_host(crowd: Crowd, database: Database) -> None:
    add_hosts(database, HOSTS)
    outcomes = _book(crowd, database, protected=True)
    assert guard.overlaps(database) == []
    assert _leases(database) == outcomes[ADMITTED] > 0
    assert set(outcomes) == {ADMITTED, REFUSED}


@PROOF
def test_locks_alone_prevent_double_booking(crowd: Crowd, unguarded: Database) -> None:
    add_hosts(unguarded, HOSTS)
    url = unguarded.engine.url.render_as_string(hide_password=False)
    outcomes = sum(crowd.do(book_by_locks, url, 6), Counter())
    assert guard.overlaps(unguarded) == []
    assert _leases(unguarded) == outcomes[ADMITTED] > 0


@PROOF
def test_the_schema_alone_prevents_double_booking(crowd: Crowd, database: Database) -> None:
    add_hosts(database, HOSTS)
    outcomes = _book(crowd, database, protected=False)
    assert guard.overlaps(database) == []
    assert _leases(database) == outcomes[ADMITTED] > 0


def test_without_locks_and_schema_hosts_are_booked_twice(crowd: Crowd, unguarded: Database) -> None:
    add_hosts(unguarded, HOSTS)
    for attempt in range(TRIES):
        _book(crowd, unguarded, protected=False, first=1 + 48 * attempt)
        if guard.overlaps(unguarded):
            return
    pytest.fail("no overlap was seen, so this stress proves nothing")


@postgresql_first
def test_changed_and_deleted_leases_never_share_a_host(
    crowd: Crowd, database_url: str, database: Database
) -> None:
    add_hosts(database, HOSTS)
    outcomes = sum(crowd.do(book_and_change, database_url, 12), Counter())
    assert guard.overlaps(database) == []
    assert _leases(database) == outcomes[ADMITTED] - outcomes["deleted"] > 0
    assert outcomes["changed"] > 0
    assert set(outcomes) == {ADMITTED, REFUSED, "changed", "deleted"}


def test_every_host_of_one_window_is_booked_once(
    crowd: Crowd, database_url: str, database: Database
) -> None:
    hosts = add_hosts(database, crowds.SIZE * 2)
    outcomes = sum(crowd.do(same_window, database_url, 3), Counter())
    assert sorted(host for host, _, _ in guard.bookings(database)) == hosts
    assert outcomes == {ADMITTED: crowds.SIZE * 2, REFUSED: crowds.SIZE}


def test_no_host_is_left_free_by_requests_of_up_to_three(
    crowd: Crowd, database_url: str, database: Database
) -> None:
    hosts = add_hosts(database, crowds.SIZE)
    outcomes = sum(crowd.do(same_window, database_url, 1, 3), Counter())
    assert sorted(host for host, _, _ in guard.bookings(database)) == hosts
    assert _leases(database) == outcomes[ADMITTED]
    assert set(outcomes) == {ADMITTED, REFUSED}
