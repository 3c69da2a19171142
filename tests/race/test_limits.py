"""Sixteen processes create leases for one project or one user: limits are never exceeded."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from sqlalchemy.orm import Session

from climate.core.errors import LimitExceeded, NotEnoughResources
from climate.core.lease.change import Change
from climate.core.limits import Scope
from climate.db import limits as rows
from climate.db.engine.database import Database
from climate.db.limits import Party
from climate.manager.admission.requirements import ReservationRequest
from climate.manager.leases.create import LeaseRequest, Owner, create_lease
from climate.manager.leases.reservation_changes import LeaseChange
from climate.manager.leases.update import update_lease
from climate.manager.process.runtime import Runtime
from tests.conftest import NOON
from tests.race import crowd as crowds
from tests.race.booking import HostRequest
from tests.race.crowd import Crowd, at_work, wait_for_all
from tests.race.databases import postgresql_first
from tests.support import allocation_guard as guard
from tests.support import servers
from tests.support.event_queue import add_hosts

HOSTS = 2 * crowds.SIZE
ALLOWED = 5
OTHER_LIMITS = ("project_leases", "project_host_hours", "user_hosts")
TRIES = 8

Outcomes = Counter[str]


def _create(runtime: Runtime, owner: Owner, first: int) -> str:
    begin = runtime.clock.now() + timedelta(hours=first)
    wanted = ReservationRequest(resource_type="physical:host", params=HostRequest().params())
    end = begin + timedelta(hours=1)
    request = LeaseRequest(name="lease", start=begin, end=end, reservations=(wanted,))
    return create_lease(runtime, owner, request).id


def create(number: int, url: str, limit: str, first: int, guarded: bool) -> Outcomes:
    """Create leases of one host, every other process for its own project (as the same user)."""
    outcomes: Outcomes = Counter()
    project = f"project-{number}" if limit.startswith("user") else "project"
    options = {f"limits__{limit}": ALLOWED, "limits__enabled": True}
    with _lock(active=guarded), at_work(url, **options) as story:
        wait_for_all()
        try:
            _create(story.runtime, Owner(user_id="user", project_id=project), first)
            outcomes["admitted"] += 1
        except LimitExceeded:
            outcomes["refused"] += 1
    return outcomes


def create_and_prolong(_number: int, url: str) -> Outcomes:
    """Create leases hour after hour, and extend each into the next hour."""
    outcomes: Outcomes = Counter()
    owner = Owner(user_id="user", project_id="project")
    options = {"limits__project_hosts": ALLOWED, "limits__user_leases": 3 * ALLOWED}
    with at_work(url, limits__enabled=True, **options) as story:
        wait_for_all()
        for hour in range(1, 5):
            try:
                made = _create(story.runtime, owner, hour)
                outcomes["admitted"] += 1
                end = story.clock.now() + timedelta(hours=hour + 2)
                update_lease(story.runtime, made, LeaseChange(dates=Change(end=end)))
                outcomes["prolonged"] += 1
            except (LimitExceeded, NotEnoughResources) as error:
                outcomes[type(error).__name__] += 1
    return outcomes


@contextmanager
def _lock(*, active: bool) -> Iterator[None]:
    """Remove the lock of the project and the user, unless ``active``."""
    kept = rows.lock
    if not active:
        rows.lock = rows.overrides  # what it returns, without the lock
    try:
        yield
    finally:
        rows.lock = kept


@pytest.mark.parametrize(
    ("backend", "limit"),
    [
        *((backend, "project_hosts") for backend in servers.BACKENDS),
        *(
            ("postgresql", limit)
            for limit in ("project_leases", "project_host_hours", "user_hosts")
        ),
    ],
    indirect=["backend"],
)
def test_exactly_the_limit_is_admitted(
    crowd: Crowd, database_url: str, database: Database, limit: str
) -> None:
    add_hosts(database, HOSTS)
    outcomes = sum(crowd.do(create, database_url, limit, 1, True), Counter())
    assert outcomes == {"admitted": ALLOWED, "refused": crowds.SIZE - ALLOWED}
    assert len(guard.bookings(database)) == ALLOWED


# SQLite has one writer at a time, so there is no lock to remove.
@pytest.mark.parametrize("backend", ["postgresql", "mariadb"], indirect=True)
def test_without_the_lock_the_limit_is_exceeded(
    crowd: Crowd, database_url: str, database: Database
) -> None:
    add_hosts(database, HOSTS)
    for attempt in range(TRIES):
        first = 1 + 2 * attempt
        outcomes = sum(crowd.do(create, database_url, "project_hosts", first, False), Counter())
        if outcomes["admitted"] > ALLOWED:
            return
    pytest.fail("no race was seen, so this stress proves nothing")


@pytest.mark.parametrize("backend", ["postgresql", "mariadb"], indirect=True)
def test_a_project_does_not_wait_for_another(database: Database) -> None:
    parties = [Party(Scope.PROJECT, name) for name in "abc"]

    def lock_all(session: Session) -> None:
        rows.lock(session, [parties[1]])
        for other in (parties[0], parties[2]):
            database.write(lambda another: rows.lock(another, [other]))  # noqa: B023

    for party in parties:
        database.write(lambda session: rows.lock(session, [party]))  # noqa: B023
    database.write(lock_all)


@postgresql_first
def test_concurrent_extensions_respect_the_limit(
    crowd: Crowd, database_url: str, database: Database
) -> None:
    add_hosts(database, HOSTS)
    outcomes = sum(crowd.do(create_and_prolong, database_url), Counter())
    assert outcomes["admitted"] > 0
    assert outcomes["prolonged"] > 0
    with database.read() as session:
        found = rows.uses(session, [Party(Scope.PROJECT, "project")], NOON)
        assert rows.count_leases(session, Party(Scope.USER, "user"), NOON) <= 3 * ALLOWED
    for hour in range(1, 8):
        moment = NOON + timedelta(hours=hour)
        at_once = sum(item.use.hosts for item in found if item.use.start <= moment < item.use.end)
        assert at_once <= ALLOWED
