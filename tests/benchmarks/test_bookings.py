"""The benchmark against Blazar compares like with like: both services have the same bookings."""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from benchmarks.bookings import (
    PER_HOST,
    Book,
    Slots,
    Store,
    book,
    climate_store,
    of_blazar,
    of_climate,
)
from climate.core.window import Window
from climate.db.engine import Database
from tests.support.cases import each_case

HOSTS = 7


@pytest.fixture
def mine(sqlite_url: str) -> Iterator[Store]:
    database = Database(sqlite_url)
    yield climate_store(database)
    database.dispose()


def in_climate(given: Book) -> list[tuple[int, Window]]:
    found = of_climate(given)["allocations"]
    return [(one["resource_id"] - 1, Window(one["start_at"], one["busy_until"])) for one in found]


def in_blazar(given: Book) -> list[tuple[int, Window]]:
    rows = of_blazar(given)
    hosts = {host["id"]: number for number, host in enumerate(rows["computehosts"])}
    leases = {one["id"]: Window(one["start_date"], one["end_date"]) for one in rows["leases"]}
    found = rows["computehost_allocations"]
    return [(hosts[one["compute_host_id"]], leases[one["reservation_id"]]) for one in found]


def test_both_services_have_the_same_bookings() -> None:
    given = book(HOSTS)

    assert len(in_climate(given)) == given.bookings == PER_HOST * HOSTS
    assert set(in_climate(given)) == set(in_blazar(given))


def test_a_host_is_free_for_every_request() -> None:
    given = book(HOSTS)
    busy = in_climate(given)

    for number in range(given.room):
        slot = given.slot(number)
        free = HOSTS - sum(window.overlaps(slot) for _, window in busy)
        asked = sum(given.slot(other) == slot for other in range(given.room))
        assert asked <= free


def test_clients_use_separate_slots_unless_they_race() -> None:
    given = book(HOSTS)
    apart = [next(Slots(given, 0, 4).of(client)) for client in range(4)]
    together = [next(Slots(given, 0, 4, same=True).of(client)) for client in range(4)]

    assert len(set(apart)) == 4
    assert set(together) == {apart[0]}


def test_the_rows_can_be_stored_and_removed(mine: Store) -> None:
    assert mine.is_empty()
    mine.fill(book(HOSTS))

    assert mine.count_double() == 0
    assert len(mine.clear(hosts=False)) > 0
    assert not mine.is_empty()
    mine.clear(hosts=True)
    assert mine.is_empty()


@each_case("begin, double", [(3, 0), (2, 1), (1, 1)])
def test_counts_double_bookings(begin: int, double: int) -> None:
    engine = sa.create_engine("sqlite://")
    held = f"SELECT 1 AS host, 1 AS begin, 3 AS until UNION ALL SELECT 1, {begin}, 4"

    assert Store(engine, [], of_blazar, held).count_double() == double
    engine.dispose()
