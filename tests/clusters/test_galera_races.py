"""Requests race for the same thing through three Galera nodes.

First two transactions commit at the same moment, with and without certification. Then many requests
race at once.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.orm import Session

from climate.core.errors import Contention
from climate.core.lease.lifecycle import EventStatus
from climate.core.lease.model import HOST
from climate.core.limits import Scope
from climate.db import limits
from climate.db.engine import advisory_lock
from climate.db.engine.database import Database, is_transient
from climate.db.events import queue
from climate.db.leases import leases
from climate.db.resources import allocations, resources
from climate.db.tables import bulk
from climate.db.tables.leases import EventRow, ResourceRow
from tests.clusters.testbed import GaleraNode
from tests.conftest import NOON
from tests.race.crowd import at_work
from tests.support import allocation_guard
from tests.support.event_queue import add_lease
from tests.support.service import Story, host_reservation, hosts

# Servers start and stop: a busy machine needs more than the usual limit.
pytestmark = pytest.mark.timeout(300)

REQUESTS = 24
ROUNDS = 8
# Without certification a race must be lost; otherwise the test repeats it.
TRIES = 20
LIMIT = 5
ONLY_ONE = '["==", "$hypervisor_hostname", "sim-1"]'
PARTY = limits.Party(Scope.PROJECT, "project")


def _host(session: Session) -> int:
    """Return the id of a host; the nodes of a cluster number in steps."""
    return int(session.scalar(sa.select(sa.func.min(ResourceRow.id))) or 0)


# Each locks rows that the transaction does not change otherwise.
LOCKS: dict[str, Callable[[Session], object]] = {
    "a resource to book": lambda session: allocations.lock(session, [_host(session)], wait=True),
    "a resource to change": lambda session: resources.get(session, HOST, _host(session), lock=True),
    "a lease for an event": lambda session: leases.find_some(session, ["a"], lock=True),
    "a lease for an outcome": lambda session: leases.lock_unchanged(
        session, leases.find_some(session, ["a"]).values(), patient=True
    ),
    "a claimed event": lambda session: queue.is_mine(session, "a start", "manager", 1),
    "a limit": lambda session: limits.lock(session, [PARTY]),
}


@pytest.fixture
def stories(galera: list[GaleraNode], request: pytest.FixtureRequest) -> Iterator[list[Story]]:
    """Return a service on each node; ten hosts are registered. A parameter has options."""
    options = getattr(request, "param", {})
    with ExitStack() as stack:
        made = [stack.enter_context(at_work(node.url("climate"), **options)) for node in galera]
        made[0].register(10)
        yield made


@pytest.fixture
def databases(stories: list[Story]) -> list[Database]:
    """Return the database of each service; the start of the lease "a" is claimed."""
    first = stories[0].runtime.database
    add_lease(first, "a", 600, 700)
    claimed = {"status": EventStatus.IN_PROGRESS.value, "owner": "manager", "attempt": 1}
    claim = sa.update(EventRow).where(EventRow.id == "a start").values(claimed)
    first.write(lambda session: session.execute(claim))
    first.write(lambda session: limits.lock(session, [PARTY]))
    return [story.runtime.database for story in stories]


@pytest.fixture(params=[True, False], ids=["certified", "uncertified"])
def certified(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Return whether transactions change what they lock."""
    if not request.param:
        monkeypatch.setattr(bulk, "is_galera", lambda _: False)
    return bool(request.param)


def commits(databases: list[Database], work: Callable[[Session, int], object]) -> int:
    """Run ``work`` on two nodes, then commit both at the same moment; return how many did."""
    together = threading.Barrier(2)

    def transact(number: int) -> bool:
        with Session(databases[number].engine) as session:
            try:
                work(session, number)
                together.wait(60)
                session.commit()
            except exc.OperationalError as error:
                if not is_transient(error):
                    raise
                return False
        return True

    with ThreadPoolExecutor(2) as pool:
        return sum(pool.map(transact, range(2)))


def test_of_two_transactions_that_lock_the_same_row_one_commits(
    databases: list[Database], *, certified: bool
) -> None:
    """Without certification both do."""

    def locking(name: str) -> Callable[[Session, int], None]:
        def work(session: Session, number: int) -> None:
            assert LOCKS[name](session)
            row = {"name": f"{name} {number}"}
            session.execute(sa.text("INSERT INTO advisory_locks (name) VALUES (:name)"), row)

        return work

    found = {name: commits(databases, locking(name)) for name in LOCKS}
    assert found == dict.fromkeys(LOCKS, 1 if certified else 2)


def test_of_two_transactions_that_book_a_host_one_commits(databases: list[Database]) -> None:
    assert [book_twice(databases, day) for day in range(TRIES)] == [1] * TRIES
    assert allocation_guard.overlaps(databases[2]) == []


def test_without_certification_both_commit_and_the_host_is_booked_twice(
    databases: list[Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the commits are apart in time, the first one aborts the second when it is applied."""
    monkeypatch.setattr(bulk, "is_galera", lambda _: False)
    for day in range(TRIES):
        if book_twice(databases, day) == 2:
            assert len(allocation_guard.overlaps(databases[2])) == 1
            return
    pytest.fail("no race was seen, so this proves nothing")


def book_twice(databases: list[Database], day: int) -> int:
    """Book one host for overlapping windows of a day through two nodes; return the commits."""

    def book(session: Session, number: int) -> None:
        host = _host(session)
        allocations.lock(session, [host], wait=True)
        begin = NOON + timedelta(days=day, minutes=number)
        row = {"resource_id": host, "reservation_id": "a", "start_at": begin}
        ours = {"busy_until": begin + timedelta(hours=1), "resource_class": None, "amount": None}
        allocations.take(session, [{**row, **ours}])

    return commits(databases, book)


def race(stories: list[Story], path: str, ask: Callable[[int], Any], **headers: str) -> list[Any]:
    """Send requests through all nodes at the same moment; return the answers."""
    together = threading.Barrier(REQUESTS)

    def send(number: int) -> Any:
        client = stories[number % 3].http.application.test_client()
        body = ask(number)
        together.wait(60)
        return client.post(path, json=body, headers=headers)

    with ThreadPoolExecutor(REQUESTS) as pool:
        return list(pool.map(send, range(REQUESTS)))


def codes(answers: list[Any]) -> Counter[int]:
    return Counter(answer.status_code for answer in answers)


def test_one_of_many_requests_gets_the_only_host(stories: list[Story]) -> None:
    for at in range(ROUNDS):

        def ask(number: int) -> Any:
            """Ask for sim-1, in windows that overlap and differ."""
            begin = 1000 * (at + 1) + number  # noqa: B023 - called in this round
            named = host_reservation(1, 1, resource_properties=ONLY_ONE)
            return stories[0].lease_body(begin, begin + 100, reservations=[named])

        assert codes(race(stories, "/v1/leases", ask)) == {201: 1, 409: REQUESTS - 1}
    assert allocation_guard.overlaps(stories[1].runtime.database) == []


@pytest.mark.parametrize(
    "stories", [{"limits__enabled": True, "limits__project_leases": LIMIT}], indirect=True
)
def test_a_limit_holds(stories: list[Story]) -> None:
    """One lease is there before, so the row of the limit exists: all can lock it."""
    for at in range(ROUNDS):
        token = f"user-{at}:project-{at}:member"
        body = stories[0].lease_body(1000 * at + 60, 1000 * at + 120)
        stories[0].ok("POST", "/v1/leases", body, token=token)
        answers = race(stories, "/v1/leases", lambda _: body, **{"X-Auth-Token": token})  # noqa: B023
        assert codes(answers) == {201: LIMIT - 1, 403: REQUESTS - LIMIT + 1}


def test_an_idempotency_key_creates_one_lease(stories: list[Story]) -> None:
    body = stories[0].asking(60, 120, reservations=[hosts()])
    answers = race(stories, "/v2/leases", lambda _: body, **{"Idempotency-Key": "the same"})
    assert codes(answers) == {201: REQUESTS}
    assert len({answer.get_json()["id"] for answer in answers}) == 1


def test_an_advisory_lock_has_one_holder_on_all_nodes(
    databases: list[Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advisory_lock, "WAIT", 0.5)
    first, second = (advisory_lock.AdvisoryLocks(database) for database in databases[:2])
    with first.hold("aggregate"), pytest.raises(Contention), second.hold("aggregate"):
        pass
    with second.hold("aggregate"):
        pass
