"""Shares of hosts: cases that the stateful test found."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from sqlalchemy.orm import Session

from climate.core.errors import NotEnoughResources
from climate.core.lease.model import Lease
from climate.core.lease.schedule import UPDATE
from climate.db.resources import resources
from climate.manager.events.dispatcher import Dispatcher
from climate.manager.leases import healing
from climate.manager.leases.delete import delete_lease
from climate.manager.process.runtime import Runtime
from tests.conftest import NOON
from tests.race.engine import kinds
from tests.race.engine.bookings import Bookings, violations
from tests.race.engine.requests import change, instances, reserve
from tests.support import rows
from tests.support.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture
def runtime(sqlite_url: str, clock: ManualClock) -> Iterator[Runtime]:
    made = kinds.make_runtime(sqlite_url, clock, cleaning=timedelta(minutes=5))
    kinds.register(made.database, [kinds.host(), kinds.host()])
    yield made
    made.close()


def units(runtime: Runtime, lease: Lease) -> list[int]:
    """Return how many units the lease has on each of its resources, most first."""
    present = rows.dump(runtime.database)
    assert violations(present, runtime.clock.now(), runtime.settings.cleaning_time) == []
    books = Bookings(present)
    [one] = books.reservations_of(lease.id)
    needs = kinds.requirement(one["resource_type"], one["params"])
    return sorted(books.units(one["id"], needs).values(), reverse=True)


def fail(runtime: Runtime, *ids: int) -> None:
    """Let resources fail, and heal the leases."""

    def work(session: Session) -> None:
        resources.set_reservable(session, ids, runtime.clock.now(), reservable=False)

    runtime.database.write(work)
    healing.heal_all(runtime, ids)


def ids_of(runtime: Runtime, lease: Lease) -> list[int]:
    books = Bookings(rows.dump(runtime.database))
    return sorted({item.resource for item in books.of[lease.reservations[0].id]})


def test_a_running_lease_keeps_the_share_that_it_added(
    runtime: Runtime, clock: ManualClock
) -> None:
    lease = reserve(runtime, instances(1, vcpus=2), start=0)
    Dispatcher(runtime, "manager").run_due()
    change(runtime, lease, min=1, max=3, layout="together")
    assert units(runtime, lease) == [3]
    clock.advance(60)
    change(runtime, lease, end=5)
    assert units(runtime, lease) == [3]


def test_a_larger_share_of_the_same_host_is_handed_over_again(
    runtime: Runtime,
) -> None:
    lease = reserve(runtime, instances(1, vcpus=2), start=0)
    Dispatcher(runtime, "manager").run_due()
    assert change(runtime, lease, vcpus=4).event(UPDATE) is not None


def test_a_lease_keeps_the_share_that_replaced_a_failed_host(
    runtime: Runtime, clock: ManualClock
) -> None:
    other = reserve(runtime, instances(2, vcpus=7, layout="apart"), start=0)
    lease = reserve(runtime, instances(1, 2, vcpus=1), start=0)
    assert units(runtime, lease) == [1, 1]
    delete_lease(runtime, other.id)
    Dispatcher(runtime, "manager").run_due()
    fail(runtime, ids_of(runtime, lease)[0])
    assert units(runtime, lease) == [2]
    clock.advance(60)
    change(runtime, lease, end=5)
    assert units(runtime, lease) == [2]


def test_units_together_cannot_grow_on_a_failed_host(runtime: Runtime, clock: ManualClock) -> None:
    lease = reserve(runtime, instances(1, vcpus=1, layout="together"), start=0)
    Dispatcher(runtime, "manager").run_due()
    clock.advance(60)
    with runtime.database.read() as session:
        everything = [host.id for host in resources.find_all(session, kinds.HOST)]
    fail(runtime, *everything)
    before = rows.dump(runtime.database)
    with pytest.raises(NotEnoughResources):
        change(runtime, lease, min=2, max=2)
    assert rows.dump(runtime.database) == before


def test_an_exclusive_share_has_its_hosts_alone(runtime: Runtime) -> None:
    reserve(runtime, instances(3, vcpus=1, exclusive=True), start=2)
    assert units(runtime, reserve(runtime, instances(2, vcpus=1), start=2)) == [2]
    with pytest.raises(NotEnoughResources):
        reserve(runtime, instances(9, vcpus=1), start=2)
    with pytest.raises(NotEnoughResources):
        reserve(runtime, instances(1, vcpus=1, exclusive=True), start=2)
    assert units(runtime, reserve(runtime, instances(1, vcpus=8, exclusive=True), start=4)) == [1]


def test_an_exclusive_share_fills_a_host_before_it_uses_the_next(runtime: Runtime) -> None:
    assert units(runtime, reserve(runtime, instances(10, vcpus=1, exclusive=True))) == [8, 2]


def test_exclusive_reservations_of_one_lease_have_different_hosts(runtime: Runtime) -> None:
    alone = instances(2, vcpus=1, exclusive=True)
    lease = reserve(runtime, alone, instances(3, vcpus=1), start=2)
    books = Bookings(rows.dump(runtime.database))
    first, second = ({item.resource for item in books.of[each.id]} for each in lease.reservations)
    assert len(first) == len(second) == 1
    assert first != second
    with pytest.raises(NotEnoughResources):
        reserve(runtime, alone, instances(3, vcpus=1), alone, start=8)


def test_an_exclusive_reservation_grows_on_its_host(runtime: Runtime, clock: ManualClock) -> None:
    lease = reserve(runtime, instances(2, vcpus=1, exclusive=True), start=0)
    Dispatcher(runtime, "manager").run_due()
    clock.advance(60)
    change(runtime, lease, min=8, max=8)
    assert units(runtime, lease) == [8]
    change(runtime, lease, min=9, max=9)
    assert units(runtime, lease) == [8, 1]


def test_a_lease_becomes_exclusive_on_another_host_if_its_own_is_shared(runtime: Runtime) -> None:
    lease, other = (reserve(runtime, instances(1, vcpus=2), start=2) for _ in range(2))
    own = ids_of(runtime, lease)
    if own != ids_of(runtime, other):
        change(runtime, other, vcpus=1)
    change(runtime, lease, exclusive=True)
    assert units(runtime, lease) == [1]
    assert ids_of(runtime, lease) != ids_of(runtime, other)


def test_a_failed_host_of_an_exclusive_share_is_replaced_by_an_empty_one(
    runtime: Runtime, clock: ManualClock
) -> None:
    lease = reserve(runtime, instances(2, vcpus=1, exclusive=True), start=0)
    Dispatcher(runtime, "manager").run_due()
    [failed] = ids_of(runtime, lease)
    fail(runtime, failed)
    assert units(runtime, lease) == [2]
    assert ids_of(runtime, lease) != [failed]
    clock.advance(60)
    change(runtime, lease, end=5)
    assert units(runtime, lease) == [2]


@pytest.mark.parametrize("grows_alone", [True, False])
def test_a_reservation_does_not_grow_onto_the_host_of_an_exclusive_one(
    runtime: Runtime, grows_alone: bool
) -> None:
    """Both are in one lease, so the change has deleted the bookings of both."""
    growing = instances(3, vcpus=1, exclusive=grows_alone)
    lease = reserve(runtime, growing, instances(3, vcpus=1, exclusive=not grows_alone), start=0)
    Dispatcher(runtime, "manager").run_due()
    change(runtime, lease, min=8, max=8)
    with pytest.raises(NotEnoughResources):
        change(runtime, lease, min=9, max=9)
