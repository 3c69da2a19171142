"""Sixteen processes run passes, direct requests, deletions and expiries of the same wait list."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from climate.core.errors import NotEnoughResources, NotFound
from climate.core.lease.lifecycle import LeaseStatus
from climate.db.engine.database import Database
from climate.db.tables.leases import ALLOCATIONS, LEASES, RESERVATIONS
from climate.db.tables.notifications import OutboxRow
from climate.db.tables.waiting import WAITS
from climate.manager.admission.requirements import ReservationRequest
from climate.manager.audit.invariants import violations
from climate.manager.leases.create import LeaseRequest, Owner, create_lease
from climate.manager.leases.delete import delete_lease
from climate.manager.process.runtime import Runtime
from climate.manager.wait_list import passes
from climate.manager.wait_list.waiting import WaitRequest, wait_for_lease
from tests.race.booking import HostRequest
from tests.race.crowd import Crowd, at_work, wait_for_all
from tests.support import allocation_guard as guard
from tests.support import servers
from tests.support.event_queue import add_hosts

POOL = "physical:host"
HOSTS, WAITING = 4, 32
OWNER = Owner(user_id="user", project_id="project")
LENGTH = timedelta(minutes=30)
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


def faults(database: Database, waiting: list[str]) -> list[str]:
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
        elif booked[id_] != (status[id_] != LeaseStatus.WAITING):
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
