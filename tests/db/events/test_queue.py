"""The events table as a queue: claims, their expiry, and results of stale owners."""

import datetime as dt
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.schedule import RELENTLESS, rank
from climate.db.engine.database import Database
from climate.db.events import queue as event_queue
from climate.db.events import queue as events
from climate.db.events import waiting as line
from climate.db.tables.leases import EventRow
from tests.support.backends import on_servers, on_sqlite
from tests.support.event_queue import add_lease, at, claim, claims, fail, finish, state

SECOND = dt.timedelta(seconds=1)


def _add_many(database: Database, count: int) -> set[str]:
    """Add events that wait for nothing; return their ids."""
    add_lease(database, "a", 1000, 2000)
    rows = [
        {
            "id": f"event-{number}",
            "lease_id": "a",
            "kind": "user_event",
            "rank": rank("user_event"),
            "due_at": at(0) + number * SECOND / 1000,
            "run_at": at(0) + number * SECOND / 1000,
            "status": "UNDONE",
            "attempt": 0,
            "created_at": at(0),
        }
        for number in range(count)
    ]
    with database.engine.begin() as connection:
        connection.execute(sa.insert(EventRow), rows)
    return {str(row["id"]) for row in rows}


def test_concurrent_claimers_claim_every_event_exactly_once(database_url: str) -> None:
    databases = [Database(database_url) for _ in range(6)]
    waiting = _add_many(databases[0], 60)
    together = threading.Barrier(len(databases))

    def work(number: int) -> list[str]:
        owner, done = f"claimer-{number}", []
        together.wait(20)
        while True:
            claimed = claim(databases[number], 1, owner, limit=1 + number % 3)
            for event_id in claimed:
                assert finish(databases[number], event_id, 1, owner=owner)
            done += claimed
            if not claimed and not _is_due(databases[number]):
                return done

    with ThreadPoolExecutor(len(databases)) as threads:
        futures = [threads.submit(work, number) for number in range(len(databases))]
        done = [future.result(60) for future in futures]
    for database in databases:
        database.dispose()
    assert Counter(event for events_ in done for event in events_) == Counter(waiting)


def _is_due(database: Database) -> bool:
    with database.read() as session:
        return bool(line.pending(session, at(1), 1))


@on_servers
def test_a_second_claimer_skips_locked_events_without_waiting(database: Database) -> None:
    _add_many(database, 5)
    with Session(database.engine) as first_session, Session(database.engine) as other:
        ids = [f"event-{number}" for number in range(4)]
        first = events.claim(first_session, "me", at(1), at(2), ids[:2])
        second = events.claim(other, "they", at(1), at(2), ids)
        assert [id_ for id_, _, _ in first] == ["event-0", "event-1"]
        assert [id_ for id_, _, _ in second] == ["event-2", "event-3"]
        other.commit()
        first_session.commit()
    assert claim(database, 1) == ["event-4"]


@on_sqlite
def test_claims_at_most_the_limit_in_order(database: Database) -> None:
    _add_many(database, 5)
    assert claim(database, 1, limit=2) == ["event-0", "event-1"]
    assert claim(database, 1, limit=2) == ["event-2", "event-3"]
    assert claim(database, 1, limit=2) == ["event-4"]
    assert claim(database, 1, limit=2) == []


@on_sqlite
def test_a_claim_stores_owner_and_attempt(database: Database) -> None:
    add_lease(database, "a", 0, 10)
    assert claims(database, 0) == [("a start", 1)]
    assert state(database, "a start") == ("IN_PROGRESS", "me", 1)


def claimed(database: Database) -> dict[str, events.Held]:
    with database.read() as session:
        return event_queue.claimed(session)


def reclaim(database: Database, stale: dict[str, events.Held]) -> int:
    """Reclaim claims; return how many."""
    return database.write(lambda session: events.reclaim(session, stale))


def test_an_expired_claim_is_reclaimed_with_a_new_attempt(database: Database) -> None:
    add_lease(database, "a", 0, 10)
    claim(database, 0, "dead")
    assert reclaim(database, claimed(database)) == 1
    assert state(database, "a start") == ("UNDONE", None, 1)
    assert claims(database, 6, "alive") == [("a start", 2)]


@pytest.mark.parametrize(("renewed_by", "status"), [("owner", "IN_PROGRESS"), ("other", "UNDONE")])
def test_only_a_renewal_by_the_owner_extends_a_claim(
    database: Database, renewed_by: str, status: str
) -> None:
    add_lease(database, "a", 0, 10)
    claim(database, 0, "owner")
    before = claimed(database)
    database.write(lambda session: events.extend(session, renewed_by, ["a start"], at(20)))
    assert reclaim(database, before) == (status == "UNDONE")
    assert state(database, "a start")[0] == status


@on_servers
def test_a_locked_claim_delays_neither_renewal_nor_reclaim_of_others(database: Database) -> None:
    """Nor is it reclaimed: its owner is starting or finishing the event, or is frozen."""
    for name in ("a", "b"):
        add_lease(database, name, 0, 10)
    claim(database, 0, "busy", 2)
    with database.engine.begin() as connection:
        lock = sa.select(EventRow.id).where(EventRow.id == "a start").with_for_update()
        connection.execute(lock)
        renewed = database.write(
            lambda session: events.extend(session, "busy", ["a start", "b start"], at(20))
        )
        assert renewed == {"b start": 1}
        assert reclaim(database, claimed(database)) == 1
    assert state(database, "a start") == ("IN_PROGRESS", "busy", 1)
    assert state(database, "b start") == ("UNDONE", None, 1)


def test_the_result_of_a_stale_owner_or_attempt_is_dropped(database: Database) -> None:
    add_lease(database, "a", 0, 10)
    claim(database, 0, "dead")
    reclaim(database, claimed(database))
    claim(database, 6, "alive")
    stale = [("dead", 1), ("alive", 1), ("dead", 2), ("alive", 3), ("nobody", 2)]
    accepted = [
        (owner, attempt)
        for owner, attempt in stale
        if finish(database, "a start", 7, owner=owner, attempt=attempt)
    ]
    assert accepted == []
    assert state(database, "a start") == ("IN_PROGRESS", "alive", 2)
    assert finish(database, "a start", 7, owner="alive", attempt=2)
    assert state(database, "a start") == ("DONE", None, 2)


@on_sqlite
def test_a_reclaimed_claim_is_lost_even_before_the_next_claim(database: Database) -> None:
    add_lease(database, "a", 0, 10)
    claim(database, 0, "slow")
    reclaim(database, claimed(database))
    assert not database.write(lambda session: events.is_mine(session, "a start", "slow", 1))
    assert not finish(database, "a start", 7, owner="slow")
    assert state(database, "a start") == ("UNDONE", None, 1)


@on_sqlite
def test_rescheduling_an_event_revokes_its_claim(database: Database) -> None:
    add_lease(database, "a", 0, 10)
    claim(database, 0)
    database.write(lambda session: event_queue.reschedule(session, "a start", at(8), at(1)))
    assert not finish(database, "a start", 2)
    assert claim(database, 7) == []
    assert claims(database, 8) == [("a start", 2)]


@on_sqlite
def test_a_stopping_manager_releases_only_its_own_claims(database: Database) -> None:
    for name in ("a", "b", "c"):
        add_lease(database, name, 0, 10)
    stopped = claim(database, 0, "stopping", limit=2)
    others = claim(database, 0, "staying", limit=1)
    assert database.write(lambda session: events.release(session, "stopping")) == 2
    assert state(database, others[0]) == ("IN_PROGRESS", "staying", 1)
    assert claims(database, 0, "staying") == [(id_, 2) for id_ in stopped]


@on_sqlite
def test_an_executed_event_is_not_released(database: Database) -> None:
    add_lease(database, "a", 0, 10)
    claim(database, 0)
    finish(database, "a start", 0)
    assert database.write(lambda session: event_queue.release(session, "me")) == 0
    assert state(database, "a start") == ("DONE", None, 1)


@on_sqlite
def test_requeueing_restores_the_event_as_it_was_before_the_claim(database: Database) -> None:
    add_lease(database, "a", 0, 10)
    claim(database, 0)
    database.write(lambda session: event_queue.requeue(session, "a start", "me", 1))
    assert state(database, "a start") == ("UNDONE", None, 0)
    assert claims(database, 0) == [("a start", 1)]


@on_sqlite
def test_several_claims_are_requeued_together_but_not_those_that_are_lost(
    database: Database,
) -> None:
    for lease_id in "ab":
        add_lease(database, lease_id, 0, 10)
    claim(database, 0)
    of_me = [("a start", 1), ("b start", 2)]  # the second attempt is not mine
    database.write(lambda session: event_queue.requeue_all(session, "me", of_me))
    assert state(database, "a start") == ("UNDONE", None, 0)
    assert state(database, "b start") == ("IN_PROGRESS", "me", 1)


@on_sqlite
def test_the_next_run_is_that_of_the_first_future_open_event(database: Database) -> None:
    def next_run(after: float) -> dt.datetime | None:
        with database.read() as session:
            return event_queue.next_run(session, at(after))

    add_lease(database, "a", 1, 10)
    add_lease(database, "b", 2, 20)
    assert next_run(0) == at(1)
    assert next_run(1) == at(2)
    claim(database, 2)
    assert next_run(0) == at(10)
    finish(database, "b start", 2, status="UNDONE", again=3)
    assert next_run(0) == at(3)
    assert next_run(20) is None


@on_sqlite
def test_claimed_and_executed_events_are_not_cancelled(database: Database) -> None:
    add_lease(database, "a", 0, 10)
    add_lease(database, "b", 1, 10)
    assert claim(database, 0) == ["a start"]
    assert finish(database, "a start", 1)
    assert claim(database, 1) == ["b start"]
    everything = ["a start", "a end", "b start", "b end"]
    database.write(lambda session: event_queue.cancel(session, everything))
    with database.read() as session:
        assert set(session.scalars(sa.select(EventRow.id))) == {"a start", "b start"}


@on_sqlite
def test_run_now_advances_a_pending_retry_but_no_event_that_is_not_due(database: Database) -> None:
    add_lease(database, "a", 1, 60)
    assert claim(database, 1) == ["a start"]
    fail(database, "a start", 1, again=9)
    database.write(lambda session: event_queue.run_now(session, "a", RELENTLESS, at(0.9)))
    assert claim(database, 0.95) == []
    assert claim(database, 1) == ["a start"]  # due since then
    fail(database, "a start", 1, again=9, attempt=2)
    database.write(lambda session: event_queue.run_now(session, "a", RELENTLESS, at(2)))
    assert claim(database, 2) == ["a start"]
    finish(database, "a start", 2, attempt=3)
    assert claim(database, 59.9) == []
    assert claim(database, 60) == ["a end"]
