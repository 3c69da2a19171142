"""The benchmark against Blazar is fair: both services have the same bookings."""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from benchmarks.blazar.bookings import (
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
from climate.db.engine.database import Database
from tests.support.cases import each_case

HOSTS = 7


@pytest.fixture
def store(sqlite_url: str) -> Iterator[Store]:
    database = Database(sqlite_url)
    yield climate_store(database)
    database.dispose()


def in_climate(workload: Book) -> list[tuple[int, Window]]:
    allocations = of_climate(workload)["allocations"]
    return [
        (row["resource_id"] - 1, Window(row["start_at"], row["busy_until"])) for row in allocations
    ]


def in_blazar(workload: Book) -> list[tuple[int, Window]]:
    rows = of_blazar(workload)
    hosts = {host["id"]: number for number, host in enumerate(rows["computehosts"])}
    leases = {row["id"]: Window(row["start_date"], row["end_date"]) for row in rows["leases"]}
    allocations = rows["computehost_allocations"]
    return [(hosts[row["compute_host_id"]], leases[row["reservation_id"]]) for row in allocations]


def test_both_services_have_the_same_bookings() -> None:
    workload = book(HOSTS)

    assert len(in_climate(workload)) == workload.bookings == PER_HOST * HOSTS
    assert set(in_climate(workload)) == set(in_blazar(workload))


def test_a_host_is_free_for_every_request() -> None:
    workload = book(HOSTS)
    busy = in_climate(workload)

    for number in range(workload.room):
        slot = workload.slot(number)
        free = HOSTS - sum(window.overlaps(slot) for _, window in busy)
        requests = sum(workload.slot(other) == slot for other in range(workload.room))
        assert requests <= free


def test_clients_use_separate_slots_unless_they_race() -> None:
    workload = book(HOSTS)
    apart = [next(Slots(workload, 0, 4).of(client)) for client in range(4)]
    together = [next(Slots(workload, 0, 4, same=True).of(client)) for client in range(4)]

    assert len(set(apart)) == 4
    assert set(together) == {apart[0]}


def test_the_rows_can_be_stored_and_removed(store: Store) -> None:
    assert store.is_empty()
    store.fill(book(HOSTS))

    assert store.count_double() == 0
    assert len(store.clear(hosts=False)) > 0
    assert not store.is_empty()
    store.clear(hosts=True)
    assert store.is_empty()


@each_case("begin, double", [(3, 0), (2, 1), (1, 1)])
def test_counts_double_bookings(begin: int, double: int) -> None:
    engine = sa.create_engine("sqlite://")
    held = f"SELECT 1 AS host, 1 AS begin, 3 AS until UNION ALL SELECT 1, {begin}, 4"

    assert Store(engine, [], of_blazar, held).count_double() == double
    engine.dispose()
