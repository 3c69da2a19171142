"""Sixteen processes run passes, direct requests, deletions and expiries of the same wait list."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from climate.core.errors import NotEnoughResources, NotFound
from climate.core.lease.lifecycle import LeaseStatus
from climate.db.engine.database import Database
from climate.db.leases import waits
from climate.db.tables.leases import ALLOCATIONS, LEASES, RESERVATIONS
from climate.db.tables.notifications import OutboxRow
from climate.db.tables.waiting import WAITS
from climate.manager.admission.requirements import ReservationRequest
from climate.manager.audit.invariants import violations
from climate.manager.leases.create import LeaseRequest, Owner, create_lease
from climate.manager.leases.delete import delete_lease
from climate.manager.process.runtime import Runtime
from climate.manager.wait_list import passes, placing
from climate.manager.wait_list.waiting import WaitRequest, wait_for_lease
from tests.conftest import NOON
from tests.race.booking import HostRequest
from tests.race.crowd import Crowd, at_work, wait_for_all
from tests.race.databases import PROOF
from tests.support import allocation_guard as guard
from tests.support import servers
from tests.support.event_queue import add_hosts

POOL = "physical:host"
HOSTS, WAITING = 4, 32
OWNER = Owner(user_id="user", project_id="project")
LENGTH = timedelta(minutes=30)
PROMISES = 4  # the default
TRIES = 8
SPARE = 32
FOREVER, SOON = WaitRequest(), WaitRequest(until=NOON + timedelta(seconds=10))
_BOOKED = sa.select(RESERVATIONS.c.lease_id).join(
    ALLOCATIONS, ALLOCATIONS.c.reservation_id == RESERVATIONS.c.id
)


def _request(runtime: Runtime, hosts: int = 1) -> LeaseRequest:
    now = runtime.clock.now()
    params = {**HostRequest().params(), "min": hosts, "max": hosts}
    wanted = ReservationRequest(resource_type=POOL, params=params)
    end = now + timedelta(days=1)
    return LeaseRequest(name="lease", start=now, end=end, reservations=(wanted,))


def fill(url: str) -> tuple[str, list[str]]:
    """Book all hosts, and let leases wait; every fourth of them for ten seconds only."""
    with at_work(url) as story:
        blocking = create_lease(story.runtime, OWNER, _request(story.runtime, HOSTS))
        waiting = []
        for number in range(WAITING):
            seconds = 10 if number % 4 == 0 else 3600
            until = story.clock.now() + timedelta(seconds=seconds)
            wait = WaitRequest(until=until, priority=number % 3)
            request = _request(story.runtime)
            waiting.append(wait_for_lease(story.runtime, OWNER, request, LENGTH, wait).id)
    return blocking.id, waiting


def mingle(number: int, url: str, waiting: list[str]) -> Counter[str]:
    """Do one of the four things that happen to a wait list, again and again."""
    done: Counter[str] = Counter()
    with at_work(url) as story:
        story.clock.advance(20)
        wait_for_all()
        for turn in range(4):
            if number % 4 == 0:
                done["placed"] += passes.run_pass(story.runtime, POOL)
            elif number % 4 == 1:
                done["expired"] += story.run()
            elif number % 4 == 2:
                done["direct"] += _direct(story.runtime)
            else:
                done["deleted"] += _delete(story.runtime, waiting[number * 2 + turn % 2])
    return done


def _direct(runtime: Runtime) -> bool:
    try:
        request = _request(runtime)
        create_lease(
            runtime, OWNER, LeaseRequest(**{**_fields(request), "end": request.start + LENGTH})
        )
    except NotEnoughResources:
        return False
    return True


def _fields(request: LeaseRequest) -> dict[str, Any]:
    return {"name": request.name, "start": request.start, "reservations": request.reservations}


def _delete(runtime: Runtime, lease_id: str) -> bool:
    try:
        return delete_lease(runtime, lease_id)
    except NotFound:
        return False


def told_about(database: Database, lease_id: str) -> set[str]:
    with database.read() as session:
        rows = session.scalars(sa.select(OutboxRow).where(OutboxRow.lease_id == lease_id))
        return {row.event_type for row in rows}


def faults(database: Database, waiting: list[str], hosts: int = 1) -> list[str]:
    """Return what is wrong with the leases that waited, and with the bookings."""
    wrong = [f"overlap {pair}" for pair in guard.overlaps(database)]
    with database.read() as session:
        status = dict(session.execute(sa.select(LEASES.c.id, LEASES.c.status)).all())
        booked = Counter(session.scalars(_BOOKED))
        entries = dict(session.execute(sa.select(WAITS.c.lease_id, WAITS.c.promised_start)).all())
    for id_ in waiting:
        if id_ not in status:
            if not told_about(database, id_) & {"lease.delete", "lease.not_admitted"}:
                wrong.append(f"{id_} is lost")
        elif booked[id_] != hosts * (status[id_] != LeaseStatus.WAITING):
            wrong.append(f"{id_} is {status[id_]}, and has {booked[id_]} hosts")
        elif (status[id_] == LeaseStatus.WAITING) != (entries.get(id_, 0) is None):
            wrong.append(f"{id_} is {status[id_]}, promised {entries.get(id_)}")
    return wrong


@pytest.mark.parametrize("backend", servers.BACKENDS, indirect=True)
def test_no_lease_is_lost_or_booked_twice(
    crowd: Crowd, database_url: str, database: Database
) -> None:
    add_hosts(database, HOSTS)
    blocking, waiting = fill(database_url)
    with at_work(database_url) as story:
        delete_lease(story.runtime, blocking)
    done = sum(crowd.do(mingle, database_url, waiting), Counter())
    assert done["placed"] + done["direct"] >= HOSTS
    assert faults(database, waiting) == []
    with at_work(database_url) as story:
        story.clock.advance(20)
        passes.place_waiting(story.runtime)
        assert list(violations(story.runtime.store)) == []


def occupy(url: str) -> tuple[list[str], list[str]]:
    """Book all hosts for two hours, in leases of 30 minutes; let wide leases wait for them."""
    with at_work(url) as story:
        now, request = story.clock.now(), _request(story.runtime)
        starts = [now + number * LENGTH for number in range(4) for _ in range(HOSTS)]
        booked = [_create(story.runtime, request, start) for start in starts]
        waiting = [
            wait_for_lease(
                story.runtime, OWNER, _request(story.runtime, 2), LENGTH, WaitRequest()
            ).id
            for _ in range(WAITING // 2)
        ]
    return booked, waiting


def _create(runtime: Runtime, request: LeaseRequest, start: datetime) -> str:
    dates = {"start": start, "end": start + LENGTH}
    return create_lease(runtime, OWNER, LeaseRequest(**{**_fields(request), **dates})).id


def compete(number: int, url: str, booked: list[str]) -> int:
    """Free hosts, book them, or place waiting leases; return the most promises seen at once."""
    most = 0
    with at_work(url) as story:
        wait_for_all()
        for turn in range(4):
            if number % 4 == 3:
                _delete(story.runtime, booked[number // 4 + 4 * turn])
            elif number % 4 == 2:
                _direct(story.runtime)
            else:
                passes.place_pool(story.runtime, POOL)
            with story.runtime.database.read() as session:
                most = max(most, len(waits.promised(session, POOL, NOON)))
    return most


def starts_told(database: Database, lease_id: str) -> list[str]:
    """Return the promised starts of a lease in the order in which its owner was told."""
    query = sa.select(OutboxRow).where(OutboxRow.lease_id == lease_id).order_by(OutboxRow.id)
    with database.read() as session:
        return [
            row.payload["start_date"]
            for row in session.scalars(query)
            if row.event_type in {"lease.promised", "lease.moved_forward"}
        ]


@pytest.mark.parametrize("backend", servers.BACKENDS, indirect=True)
def test_promises_are_few_and_only_become_earlier(
    crowd: Crowd, database_url: str, database: Database
) -> None:
    add_hosts(database, HOSTS)
    booked, waiting = occupy(database_url)
    assert max(crowd.do(compete, database_url, booked)) <= PROMISES
    told = [starts_told(database, id_) for id_ in waiting]
    assert any(len(starts) > 1 for starts in told)
    assert all(starts == sorted(starts, reverse=True) for starts in told)
    assert faults(database, waiting, hosts=2) == []
    with at_work(database_url) as story:
        passes.place_waiting(story.runtime)
        assert list(violations(story.runtime.store)) == []


@contextmanager
def _lock(*, active: bool) -> Iterator[None]:
    """Let ``placing`` read leases without a lock, unless ``active``."""
    kept = placing.locked
    if not active:
        placing.locked = placing._found
    try:
        yield
    finally:
        placing.locked = kept


def place(_number: int, url: str, guarded: bool) -> int:
    """Run a pass without the turn."""
    with _lock(active=guarded), at_work(url) as story:
        wait_for_all()
        return passes.run_pass(story.runtime, POOL)


def let_wait(url: str, wait: WaitRequest = FOREVER) -> list[str]:
    """Let leases wait for hosts that another lease has booked, and delete that one."""
    with at_work(url, wait_list__promises=0) as story:
        request = _request(story.runtime)
        blocking = create_lease(story.runtime, OWNER, _request(story.runtime, SPARE))
        waiting = [wait_for_lease(story.runtime, OWNER, request, LENGTH, wait).id for _ in range(8)]
        delete_lease(story.runtime, blocking.id)
    return waiting


def _hosts(database: Database, waiting: list[str]) -> list[int]:
    with database.read() as session:
        booked = Counter(session.scalars(_BOOKED))
    return [booked[id_] for id_ in waiting]


@pytest.mark.parametrize("backend", servers.BACKENDS, indirect=True)
def test_passes_without_a_turn_book_each_lease_once(
    crowd: Crowd, database_url: str, database: Database
) -> None:
    add_hosts(database, SPARE)
    waiting = let_wait(database_url)
    assert sum(crowd.do(place, database_url, True)) == len(waiting)
    assert _hosts(database, waiting) == [1] * len(waiting)


# SQLite has one writer at a time, so there is no lock to remove.
@PROOF
@pytest.mark.parametrize("backend", ["postgresql", "mariadb"], indirect=True)
def test_without_the_lock_of_the_lease_it_is_booked_twice(
    crowd: Crowd, database_url: str, database: Database
) -> None:
    add_hosts(database, SPARE)
    for _ in range(TRIES):
        waiting = let_wait(database_url)
        crowd.do(place, database_url, False)
        if max(_hosts(database, waiting)) > 1:
            return
        with at_work(database_url) as story:
            for id_ in waiting:
                delete_lease(story.runtime, id_)
    pytest.fail("no race was seen, so this stress proves nothing")


def expire_or_place(number: int, url: str, guarded: bool) -> Counter[str]:
    """Remove leases whose owners do not want to wait longer, or book them."""
    with _check(active=guarded), at_work(url) as story:
        story.clock.advance(20)
        wait_for_all()
        if number % 2:
            return Counter(expired=story.run())
        return Counter(placed=passes.run_pass(story.runtime, POOL))


@contextmanager
def _check(*, active: bool) -> Iterator[None]:
    """Let ``placing`` and ``expiry`` assume that a lease still waits, unless ``active``."""
    kept = placing._is_waiting
    if not active:
        placing._is_waiting = lambda lease: True
    try:
        yield
    finally:
        placing._is_waiting = kept


@pytest.mark.parametrize("backend", servers.BACKENDS, indirect=True)
def test_a_lease_is_either_booked_or_removed(
    crowd: Crowd, database_url: str, database: Database
) -> None:
    add_hosts(database, SPARE)
    waiting = let_wait(database_url, SOON)
    placed = crowd_of_both(crowd, database_url, guarded=True)
    with at_work(database_url) as story:  # the manager retries those that a pass had locked
        story.clock.advance(21)
        story.run()
    told = [told_about(database, id_) & {"lease.not_admitted", "lease.create"} for id_ in waiting]
    assert [len(types) for types in told] == [1] * len(waiting)
    assert placed == sum("lease.create" in types for types in told)
    assert faults(database, waiting) == []


@PROOF
@pytest.mark.parametrize("backend", ["postgresql", "mariadb"], indirect=True)
def test_without_the_check_a_lease_is_booked_again(
    crowd: Crowd, database_url: str, database: Database
) -> None:
    add_hosts(database, SPARE)
    for _ in range(TRIES):
        waiting = let_wait(database_url, SOON)
        placed = crowd_of_both(crowd, database_url, guarded=False)
        if placed > sum("lease.create" in told_about(database, id_) for id_ in waiting):
            return
    pytest.fail("no race was seen, so this stress proves nothing")


def crowd_of_both(crowd: Crowd, url: str, *, guarded: bool) -> int:
    """Let half of the processes remove leases, and the others book them; return how many."""
    return sum(crowd.do(expire_or_place, url, guarded), Counter())["placed"]
