"""The events table as a queue: who gets what, and who is done with it."""

import datetime as dt
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.schedule import RELENTLESS, rank
from climate.db import events, line
from climate.db.engine import Database
from climate.db.tables import EventRow
from tests.support.event_queue import add_lease, at, claim, claims, fail, finish, state

SECOND = dt.timedelta(seconds=1)


def _add_many(database: Database, count: int) -> set[str]:
    """Add events that wait for nothing; return their ids."""
    add_lease(database, "a", 1000, 2000)
    rows = [
        {
            "id": f"event-{number}",
            "lease_id": "a",
            "kind": "told",
            "rank": rank("told"),
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


@pytest.mark.parametrize("limit", [1, 3])
def test_claimers_at_work_together_get_every_event_once(database_url: str, limit: int) -> None:
    crowd = 6
    databases = [Database(database_url) for _ in range(crowd)]
    waiting = _add_many(databases[0], 120)
    together = threading.Barrier(crowd)

    def work(number: int) -> list[str]:
        mine: list[str] = []
        together.wait(20)
        while len(Counter(mine)) < len(waiting):
            found = claim(databases[number], 1, f"claimer-{number}", limit)
            for event_id in found:
                assert finish(databases[number], event_id, 1, owner=f"claimer-{number}")
            mine += found
            if not found and not _is_due(databases[number]):
                break
        return mine

    with ThreadPoolExecutor(crowd) as threads:
        found = [done.result(60) for done in [threads.submit(work, n) for n in range(crowd)]]
    for database in databases:
        database.dispose()
    assert Counter(event for mine in found for event in mine) == Counter(waiting)


def _is_due(database: Database) -> bool:
    with database.read() as session:
        return bool(line.waiting(session, at(1), 1))


@pytest.mark.parametrize("backend", ["postgresql", "mariadb"], indirect=True)
def test_while_one_claims_another_gets_the_next_and_does_not_wait(database: Database) -> None:
    _add_many(database, 5)
    with Session(database.engine) as mine, Session(database.engine) as theirs:
        ids = [f"event-{number}" for number in range(4)]
        first = events.claim(mine, "me", at(1), at(2), ids[:2])
        second = events.claim(theirs, "they", at(1), at(2), ids)
        assert [id_ for id_, _, _ in first] == ["event-0", "event-1"]
        assert [id_ for id_, _, _ in second] == ["event-2", "event-3"]
        theirs.commit()
        mine.commit()
    assert claim(database, 1) == ["event-4"]


def test_a_claim_takes_no_more_than_its_limit(database: Database) -> None:
    _add_many(database, 5)
    assert claim(database, 1, limit=2) == ["event-0", "event-1"]
    assert claim(database, 1, limit=2) == ["event-2", "event-3"]
    assert claim(database, 1, limit=2) == ["event-4"]
    assert claim(database, 1, limit=2) == []


def test_a_claim_is_written_with_owner_and_attempt(database: Database) -> None:
    add_lease(database, "a", 0, 10)
    assert claims(database, 0) == [("a start", 1)]
    assert state(database, "a start") == ("IN_PROGRESS", "me", 1)


def seen(database: Database) -> dict[str, events.Held]:
    """Return all claims as they are."""
    with database.read() as session:
        return events.claimed(session)


def reap(database: Database, stale: dict[str, events.Held]) -> int:
    """Take claims back; return how many."""
    return database.write(lambda session: events.reap(session, stale))


def test_a_claim_that_has_expired_goes_to_the_next_with_a_new_attempt(database: Database) -> None:
    add_lease(database, "a", 0, 10)
    claim(database, 0, "dead")
    assert reap(database, seen(database)) == 1
    assert state(database, "a start") == ("UNDONE", None, 1)
    assert claims(database, 6, "alive") == [("a start", 2)]


def test_a_claim_that_is_kept_does_not_expire(database: Database) -> None:
    add_lease(database, "a", 0, 10)
    claim(database, 0, "busy")
    before = seen(database)
    database.write(lambda session: events.extend(session, "busy", ["a start"], at(20)))
    assert reap(database, before) == 0
    assert state(database, "a start") == ("IN_PROGRESS", "busy", 1)


def test_nobody_keeps_a_claim_that_is_not_his(database: Database) -> None:
    add_lease(database, "a", 0, 10)
    claim(database, 0, "dead")
    before = seen(database)
    database.write(lambda session: events.extend(session, "other", ["a start"], at(20)))
    assert reap(database, before) == 1


# SQLite has one writer at a time.
@pytest.mark.parametrize("backend", ["postgresql", "mariadb"], indirect=True)
def test_a_claim_that_somebody_is_in_the_middle_of_holds_up_no_other(database: Database) -> None:
    """Nor is it taken: whoever has locked it is at its beginning or its end, or frozen there."""
    for name in ("a", "b"):
        add_lease(database, name, 0, 10)
    claim(database, 0, "busy", 2)
    with database.engine.begin() as connection:
        mine = sa.select(EventRow.id).where(EventRow.id == "a start").with_for_update()
        connection.execute(mine)
        kept = database.write(
            lambda session: events.extend(session, "busy", ["a start", "b start"], at(20))
        )
        assert kept == {"b start": 1}
        assert reap(database, seen(database)) == 1
    assert state(database, "a start") == ("IN_PROGRESS", "busy", 1)
    assert state(database, "b start") == ("UNDONE", None, 1)


@pytest.mark.parametrize(
    ("owner", "attempt"), [("dead", 1), ("alive", 1), ("dead", 2), ("alive", 3), ("nobody", 2)]
)
def test_the_result_of_whoever_lost_the_claim_is_dropped(
    database: Database, owner: str, attempt: int
) -> None:
    add_lease(database, "a", 0, 10)
    claim(database, 0, "dead")
    reap(database, seen(database))
    claim(database, 6, "alive")
    assert not finish(database, "a start", 7, owner=owner, attempt=attempt)
    assert state(database, "a start") == ("IN_PROGRESS", "alive", 2)
    assert finish(database, "a start", 7, owner="alive", attempt=2)
    assert state(database, "a start") == ("DONE", None, 2)


def test_a_claim_that_was_reaped_is_not_ours_even_if_nobody_took_it(database: Database) -> None:
    add_lease(database, "a", 0, 10)
    claim(database, 0, "slow")
    reap(database, seen(database))
    assert not database.write(lambda session: events.is_mine(session, "a start", "slow", 1))
    assert not finish(database, "a start", 7, owner="slow")
    assert state(database, "a start") == ("UNDONE", None, 1)


def test_a_moved_event_is_taken_from_whoever_is_at_it(database: Database) -> None:
    add_lease(database, "a", 0, 10)
    claim(database, 0)
    database.write(lambda session: events.rearm(session, "a start", at(8), at(1)))
    assert not finish(database, "a start", 2)
    assert claim(database, 7) == []
    assert claims(database, 8) == [("a start", 2)]


def test_who_stops_hands_back_his_claims_and_only_his(database: Database) -> None:
    for name in ("a", "b", "c"):
        add_lease(database, name, 0, 10)
    mine = claim(database, 0, "stopping", limit=2)
    theirs = claim(database, 0, "staying", limit=1)
    assert database.write(lambda session: events.hand_back(session, "stopping")) == 2
    assert state(database, theirs[0]) == ("IN_PROGRESS", "staying", 1)
    assert claims(database, 0, "staying") == [(id_, 2) for id_ in mine]


def test_what_is_done_is_not_handed_back(database: Database) -> None:
    add_lease(database, "a", 0, 10)
    claim(database, 0)
    finish(database, "a start", 0)
    assert database.write(lambda session: events.hand_back(session, "me")) == 0
    assert state(database, "a start") == ("DONE", None, 1)


def test_giving_way_leaves_an_event_as_it_was_before_the_claim(database: Database) -> None:
    add_lease(database, "a", 0, 10)
    claim(database, 0)
    database.write(lambda session: events.give_way(session, "a start", "me", 1))
    assert state(database, "a start") == ("UNDONE", None, 0)
    assert claims(database, 0) == [("a start", 1)]


def test_the_next_run_is_that_of_the_first_open_event_still_to_come(database: Database) -> None:
    def next_run(after: float) -> dt.datetime | None:
        with database.read() as session:
            return events.next_run(session, at(after))

    add_lease(database, "a", 1, 10)
    add_lease(database, "b", 2, 20)
    assert next_run(0) == at(1)
    assert next_run(1) == at(2)
    claim(database, 2)
    assert next_run(0) == at(10)
    finish(database, "b start", 2, status="UNDONE", again=3)
    assert next_run(0) == at(3)
    assert next_run(20) is None


def test_what_somebody_is_at_or_has_done_is_not_dropped(database: Database) -> None:
    add_lease(database, "a", 0, 10)
    add_lease(database, "b", 1, 10)
    assert claim(database, 0) == ["a start"]
    assert finish(database, "a start", 1)
    assert claim(database, 1) == ["b start"]
    everything = ["a start", "a end", "b start", "b end"]
    database.write(lambda session: events.drop(session, everything))
    with database.read() as session:
        assert set(session.scalars(sa.select(EventRow.id))) == {"a start", "b start"}


def test_what_is_tried_again_is_hurried_and_what_is_not_due_is_not(database: Database) -> None:
    add_lease(database, "a", 1, 60)
    assert claim(database, 1) == ["a start"]
    fail(database, "a start", 1, again=9)
    database.write(lambda session: events.hurry(session, "a", RELENTLESS, at(0.9)))
    assert claim(database, 0.95) == []
    assert claim(database, 1) == ["a start"]  # as that was due, if not yet where it was said
    fail(database, "a start", 1, again=9, attempt=2)
    database.write(lambda session: events.hurry(session, "a", RELENTLESS, at(2)))
    assert claim(database, 2) == ["a start"]
    finish(database, "a start", 2, attempt=3)
    assert claim(database, 59.9) == []
    assert claim(database, 60) == ["a end"]
