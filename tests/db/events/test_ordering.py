"""Events wait for each other: within a lease, and for the end of the lease that used a host."""

import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from climate.core.lease.schedule import BEFORE_END, BEFORE_START, UPDATE
from climate.db.engine.database import Database
from climate.db.tables.leases import LeaseRow
from tests.support.backends import on_sqlite
from tests.support.event_queue import (
    add_event,
    add_hosts,
    add_lease,
    claim,
    claims,
    fail,
    finish,
    state,
)


@on_sqlite
def test_claims_events_in_the_order_they_are_due(database: Database) -> None:
    for name, start in (("late", 3), ("early", 1), ("middle", 2)):
        add_lease(database, name, start, 60)
    assert claim(database, 2) == ["early start", "middle start"]
    assert claim(database, 3) == ["late start"]


@on_sqlite
def test_claims_nothing_before_it_is_due(database: Database) -> None:
    add_lease(database, "a", 1, 2)
    assert claim(database, 0.99) == []
    assert claim(database, 1) == ["a start"]


@on_sqlite
def test_an_end_waits_for_the_start(database: Database) -> None:
    add_lease(database, "a", 1, 2)
    assert claim(database, 5) == ["a start"]
    assert claim(database, 5) == []
    assert finish(database, "a start", 5)
    assert claim(database, 5) == ["a end"]


@on_sqlite
def test_overdue_actions_of_a_lease_run_one_at_a_time_in_order(database: Database) -> None:
    add_lease(database, "a", 1, 60)
    add_event(database, "a", BEFORE_END, 1)  # the lease is shorter than the lead time
    add_event(database, "a", UPDATE, 30)
    ran = []
    while claimed := claim(database, 90):
        assert len(claimed) == 1
        ran += claimed
        finish(database, claimed[0], 90)
    assert ran == ["a start", "a before_end", "a update", "a end"]


@on_sqlite
def test_reminders_and_user_events_neither_wait_nor_block(database: Database) -> None:
    add_lease(database, "a", 1, 60)
    add_event(database, "a", BEFORE_START, 0)
    add_event(database, "a", "coffee", 1)
    assert set(claim(database, 1)) == {"a before_start", "a start", "a coffee"}
    add_event(database, "a", "tea", 2)
    assert claim(database, 2) == ["a tea"]


def test_a_start_waits_for_the_end_of_the_previous_lease_of_its_host(database: Database) -> None:
    host, other = add_hosts(database, 2)
    add_lease(database, "first", 0, 10, [host])
    add_lease(database, "second", 10, 20, [host, other])
    assert claim(database, 0) == ["first start"]
    finish(database, "first start", 0)
    assert claim(database, 10) == ["first end"]
    assert claim(database, 10) == []
    finish(database, "first end", 10)
    assert claim(database, 10) == ["second start"]


@on_sqlite
def test_a_start_waits_while_the_previous_end_is_retried(database: Database) -> None:
    [host] = add_hosts(database, 1)
    add_lease(database, "first", 0, 10, [host])
    add_lease(database, "second", 10, 20, [host])
    assert claim(database, 0) == ["first start"]
    finish(database, "first start", 0)
    assert claim(database, 10) == ["first end"]
    fail(database, "first end", 10, again=12)
    assert claim(database, 11) == []
    assert claims(database, 12) == [("first end", 2)]
    finish(database, "first end", 12, attempt=2)
    assert claim(database, 12) == ["second start"]


@on_sqlite
def test_an_update_waits_for_the_end_of_the_previous_lease_of_an_added_host(
    database: Database,
) -> None:
    host, other = add_hosts(database, 2)
    add_lease(database, "first", 0, 10, [host])
    add_lease(database, "grown", 5, 20, [other])
    assert claim(database, 5) == ["first start", "grown start"]
    finish(database, "first start", 5)
    finish(database, "grown start", 5)
    add_lease(database, "more of grown", 10, 20, [host])
    add_event(database, "more of grown", UPDATE, 9)
    assert claim(database, 9) == []
    assert claim(database, 10) == ["first end"]
    assert claim(database, 10) == []
    finish(database, "first end", 10)
    assert claim(database, 10) == ["more of grown update"]


@on_sqlite
def test_a_host_that_is_never_released_does_not_delay_leases_on_other_hosts(
    database: Database,
) -> None:
    stuck, fine = add_hosts(database, 2)
    add_lease(database, "hanging", 0, 10, [stuck])
    add_lease(database, "waiting", 10, 20, [stuck, fine])
    add_lease(database, "innocent", 20, 30, [fine])
    ran = []
    for now in range(40):
        for event_id, attempt in claims(database, now):
            ran.append(event_id)
            if event_id == "hanging end":
                fail(database, event_id, now, now + 5, attempt)
            else:
                finish(database, event_id, now, attempt=attempt)
    assert "innocent start" in ran


@on_sqlite
def test_an_end_overtakes_a_failed_start(database: Database) -> None:
    add_lease(database, "a", 0, 10)
    assert claim(database, 0) == ["a start"]
    fail(database, "a start", 0, again=1)
    assert claim(database, 20) == ["a end"]
    assert claim(database, 20) == []


@on_sqlite
def test_events_after_a_failed_start_wait_for_its_retry(database: Database) -> None:
    add_lease(database, "a", 0, 10)
    add_event(database, "a", BEFORE_END, 0)
    assert claim(database, 0) == ["a start"]
    fail(database, "a start", 0, again=5)
    assert claim(database, 1) == []
    assert claims(database, 5) == [("a start", 2)]
    finish(database, "a start", 5, attempt=2)
    assert claim(database, 5) == ["a before_end"]


@given(
    failures=st.lists(st.booleans(), max_size=8),
    notice=st.sampled_from([0, 8]),
    change=st.sampled_from([0, 5, 10]),
)
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_all_actions_of_a_lease_run_one_at_a_time_whichever_fail(
    database: Database, failures: list[bool], notice: float, change: float
) -> None:
    with database.engine.begin() as connection:
        connection.execute(sa.delete(LeaseRow))
    add_lease(database, "a", 0, 10)
    add_event(database, "a", BEFORE_END, notice)
    add_event(database, "a", UPDATE, change)
    outcomes = iter(failures)
    for now in range(0, 60, 2):
        claimed = claims(database, now)
        assert len(claimed) <= 1, "two actions of one lease at once"
        for event_id, attempt in claimed:
            if next(outcomes, False):
                fail(database, event_id, now, now + 2 ** min(attempt, 3), attempt)
            else:
                finish(database, event_id, now, attempt=attempt)
    ids = ["a start", "a before_end", "a update", "a end"]
    assert {state(database, id_)[0] for id_ in ids} == {"DONE"}
