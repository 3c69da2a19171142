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
