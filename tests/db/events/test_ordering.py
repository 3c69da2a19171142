"""The order in which events may run, as a rule in the data."""

import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from climate.core.schedule import BEFORE_END, BEFORE_START, UPDATE
from climate.db.engine import Database
from climate.db.tables import LeaseRow
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


def test_events_are_claimed_in_the_order_they_are_due(database: Database) -> None:
    for name, start in (("late", 3), ("early", 1), ("middle", 2)):
        add_lease(database, name, start, 60)
    assert claim(database, 2) == ["early start", "middle start"]
    assert claim(database, 3) == ["late start"]


def test_nothing_is_claimed_before_it_is_due(database: Database) -> None:
    add_lease(database, "a", 1, 2)
    assert claim(database, 0.99) == []
    assert claim(database, 1) == ["a start"]


def test_an_end_waits_until_the_start_is_over(database: Database) -> None:
    add_lease(database, "a", 1, 2)
    assert claim(database, 5) == ["a start"]
    assert claim(database, 5) == []
    assert finish(database, "a start", 5)
    assert claim(database, 5) == ["a end"]


def test_all_overdue_actions_of_a_lease_run_one_after_the_other(database: Database) -> None:
    add_lease(database, "a", 1, 60)
    add_event(database, "a", BEFORE_END, 1)  # a lease that is shorter than the notice
    add_event(database, "a", UPDATE, 30)
    ran = []
    while found := claim(database, 90):
        assert len(found) == 1
        ran += found
        finish(database, found[0], 90)
    assert ran == ["a start", "a before_end", "a update", "a end"]


def test_heads_ups_and_users_events_neither_wait_nor_block(database: Database) -> None:
    add_lease(database, "a", 1, 60)
    add_event(database, "a", BEFORE_START, 0)
    add_event(database, "a", "coffee", 1)
    assert set(claim(database, 1)) == {"a before_start", "a start", "a coffee"}
    add_event(database, "a", "tea", 2)
    assert claim(database, 2) == ["a tea"]


def test_a_start_waits_for_the_end_of_the_lease_that_had_its_host(database: Database) -> None:
    host, other = add_hosts(database, 2)
    add_lease(database, "first", 0, 10, [host])
    add_lease(database, "second", 10, 20, [host, other])
    assert claim(database, 0) == ["first start"]
    finish(database, "first start", 0)
    assert claim(database, 10) == ["first end"]
    assert claim(database, 10) == []
    finish(database, "first end", 10)
    assert claim(database, 10) == ["second start"]


def test_a_start_waits_even_if_the_previous_lease_did_not_start_yet(database: Database) -> None:
    [host] = add_hosts(database, 1)
    add_lease(database, "first", 0, 10, [host])
    add_lease(database, "second", 10, 20, [host])
    ran = []
    while found := claim(database, 30):
        assert len(found) == 1
        ran += found
        finish(database, found[0], 30)
    assert ran == ["first start", "first end", "second start", "second end"]


def test_a_start_waits_while_the_end_before_it_is_tried_again(database: Database) -> None:
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


def test_an_update_waits_for_the_end_of_the_lease_that_had_a_new_host(database: Database) -> None:
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


def test_leases_on_other_hosts_are_not_delayed(database: Database) -> None:
    host, other = add_hosts(database, 2)
    add_lease(database, "slow", 0, 10, [host])
    add_lease(database, "next", 10, 20, [host])
    add_lease(database, "elsewhere", 0, 10, [other])
    add_lease(database, "after it", 10, 20, [other])
    assert claim(database, 0) == ["elsewhere start", "slow start"]
    finish(database, "elsewhere start", 0)
    finish(database, "slow start", 0)
    assert claim(database, 10) == ["elsewhere end", "slow end"]
    finish(database, "elsewhere end", 10)
    assert claim(database, 10) == ["after it start"]


def test_a_host_that_is_never_given_back_does_not_hold_up_leases_on_other_hosts(
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


def test_an_end_overtakes_a_start_that_failed(database: Database) -> None:
    add_lease(database, "a", 0, 10)
    assert claim(database, 0) == ["a start"]
    fail(database, "a start", 0, again=1)
    assert claim(database, 20) == ["a end"]
    assert claim(database, 20) == []


def test_what_follows_a_start_that_failed_waits_until_it_is_repeated(database: Database) -> None:
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
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_whatever_fails_actions_of_a_lease_run_one_at_a_time_and_all_of_them_run(
    database: Database, failures: list[bool], notice: float, change: float
) -> None:
    with database.engine.begin() as connection:
        connection.execute(sa.delete(LeaseRow))
    add_lease(database, "a", 0, 10)
    add_event(database, "a", BEFORE_END, notice)
    add_event(database, "a", UPDATE, change)
    outcomes = iter(failures)
    for now in range(0, 60, 2):
        found = claims(database, now)
        assert len(found) <= 1, "two actions of one lease at once"
        for event_id, attempt in found:
            if next(outcomes, False):
                fail(database, event_id, now, now + 2 ** min(attempt, 3), attempt)
            else:
                finish(database, event_id, now, attempt=attempt)
    ids = ["a start", "a before_end", "a update", "a end"]
    assert {state(database, id_)[0] for id_ in ids} == {"DONE"}
