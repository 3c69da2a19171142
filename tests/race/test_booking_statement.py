"""The single statement that books hosts: what happens between its search and its locks."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from climate.core.errors import ClimateError
from climate.core.matching.requirement import Layout
from climate.db.engine.database import Database
from climate.db.engine.driver_statement import DriverStatement, convert
from climate.db.resources import booking_statement
from climate.db.resources.booking_statement import BookingPlan, Verdict
from climate.manager.admission import at_once
from climate.manager.admission.at_once import AtOnce
from climate.manager.leases import create
from climate.manager.leases.delete import delete_lease
from climate.manager.process.calendar_memory.memory import Use
from climate.manager.process.runtime import Runtime
from tests.conftest import NOON
from tests.race.engine import kinds
from tests.race.engine.bookings import violations
from tests.race.engine.requests import hosts, instances, reserve
from tests.support import rows
from tests.support.clock import ManualClock
from tests.support.service import Story, host_reservation

pytestmark = pytest.mark.parametrize("backend", ["postgresql"], indirect=True)

_KEY = 7_261_034
_LOCKS = "WHERE resources.id IN (SELECT id FROM candidates)"
_WAITS = sa.text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
_COMPARED = "AND candidates.version = locked.version"


@pytest.fixture(params=[Use.OFF, Use.ON], ids=["searched", "suggested"])
def runtimes(
    database_url: str, request: pytest.FixtureRequest
) -> Iterator[tuple[Runtime, Runtime]]:
    """Return the runtimes of two processes, with one host.

    The first one has the calendar in memory or not. So its statement tries the host that memory
    suggests, or searches for a host itself.
    """
    uses = request.param, Use.OFF
    made = [kinds.make_runtime(database_url, ManualClock(NOON), memory=use) for use in uses]
    kinds.register(made[0].database, [kinds.host()] * getattr(request.cls, "HOSTS", 1))
    if request.param is Use.ON:
        made[0].calendar.load()
    yield made[0], made[1]
    for runtime in made:
        runtime.close()


@pytest.fixture(autouse=True)
def _statement(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the statement wait for an advisory lock between its search and its locks."""
    paused = f"{_LOCKS} AND (SELECT pg_advisory_xact_lock_shared({_KEY}))::text IS NOT NULL"
    assert _LOCKS in booking_statement._TEXT
    monkeypatch.setattr(booking_statement, "_TEXT", booking_statement._TEXT.replace(_LOCKS, paused))
    booking_statement._statement.cache_clear()
    yield
    booking_statement._statement.cache_clear()


def book_while(mine: Runtime, other: Runtime, rival: Callable[[], object]) -> list[Any]:
    """Reserve the host; run ``rival`` between the search and the locks. Return the answers."""
    answers: list[Any] = []

    def ours() -> None:
        with suppress(ClimateError):
            answers.append(reserve(mine, hosts()))

    with other.database.engine.connect() as connection:
        connection.execute(sa.text(f"SELECT pg_advisory_lock({_KEY})"))
        thread = threading.Thread(target=ours)
        thread.start()
        while not connection.scalar(_WAITS):
            connection.rollback()
            assert thread.is_alive()
        with suppress(ClimateError):
            answers.append(rival())
        connection.execute(sa.text(f"SELECT pg_advisory_unlock({_KEY})"))
    thread.join(20)
    return answers


@pytest.mark.parametrize("want", [hosts(), instances(vcpus=1)], ids=["whole", "share"])
def test_a_host_that_is_booked_before_its_lock_is_not_booked_twice(
    runtimes: tuple[Runtime, Runtime], monkeypatch: pytest.MonkeyPatch, want: Any
) -> None:
    mine, other = runtimes

    def rival() -> object:
        with monkeypatch.context() as patch:  # the rival must not wait
            patch.setattr(create, "book_at_once", lambda *_, **__: AtOnce.UNDECIDED)
            return reserve(other, want)

    assert len(book_while(mine, other, rival)) == 1
    assert violations(rows.dump(mine.database), NOON) == []


@pytest.mark.parametrize("compares", [True, False])
def test_a_host_that_fails_before_its_lock_is_not_booked(
    runtimes: tuple[Runtime, Runtime], monkeypatch: pytest.MonkeyPatch, *, compares: bool
) -> None:
    if not compares:
        without = booking_statement._TEXT.replace(_COMPARED, "")
        monkeypatch.setattr(booking_statement, "_TEXT", without)

    def rival() -> object:
        with other.database.engine.begin() as connection:
            connection.execute(sa.text("UPDATE resources SET reservable = false"))
        return None

    mine, other = runtimes
    assert len(book_while(mine, other, rival)) == (1 if compares else 2)


def test_the_statement_books_a_lease_without_a_transaction(
    runtimes: tuple[Runtime, Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, _ = runtimes
    monkeypatch.setattr(mine.database, "write", pytest.fail)
    lease = reserve(mine, hosts())
    stored = rows.dump(mine.database)
    assert [row["id"] for row in stored["leases"]] == [lease.id]
    assert len(stored["allocations"]) == len(stored["outbox"]) == 1
    assert len(stored["events"]) == len(lease.events)
    with pytest.raises(ClimateError, match="at least 1 requested, 1 match the requirements, 0"):
        reserve(mine, hosts())
    assert rows.dump(mine.database) == stored


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[BookingPlan]:
    """Return a list that gets the plan of each statement."""
    book, made = booking_statement.book, list[BookingPlan]()

    def noting(database: Database, plan: BookingPlan) -> Verdict:
        made.append(plan)
        return book(database, plan)

    monkeypatch.setattr(booking_statement, "book", noting)
    return made


@pytest.mark.parametrize("runtimes", [Use.ON], indirect=True, ids=["suggested"])
class TestSuggestions:
    """The hosts that memory suggests to the statement, of three hosts."""

    HOSTS = 3

    def test_a_suggested_host_is_booked_without_a_search(
        self, runtimes: tuple[Runtime, Runtime], plans: list[BookingPlan]
    ) -> None:
        reserve(runtimes[0], hosts(2))
        assert [plan.among is not None for plan in plans] == [True]

    def test_suggestions_that_others_have_booked_are_replaced_by_newer_ones(
        self, runtimes: tuple[Runtime, Runtime], plans: list[BookingPlan]
    ) -> None:
        mine, other = runtimes
        reserve(other, hosts(2))
        plans.clear()
        reserve(mine, hosts(1))
        booked = {row["resource_id"] for row in rows.dump(mine.database)["allocations"]}
        assert len(booked) == 3

    def test_after_all_suggestions_were_booked_memory_refuses_the_lease(
        self, runtimes: tuple[Runtime, Runtime], plans: list[BookingPlan]
    ) -> None:
        mine, other = runtimes
        reserve(other, hosts(3))
        plans.clear()
        with pytest.raises(ClimateError, match="0 of them free"):
            reserve(mine, hosts(1))
        assert [plan.among is not None for plan in plans] == [True]

    def test_a_shortage_in_memory_is_reported_to_what_may_make_room(
        self,
        runtimes: tuple[Runtime, Runtime],
        plans: list[BookingPlan],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        mine, other = runtimes
        reserve(other, hosts(3))
        plans.clear()
        monkeypatch.setattr(mine.database, "write", pytest.fail)
        shortages: list[str] = []

        def note(*about: Any) -> None:
            shortages.append(str(about[2]))

        for _ in ("memory lacks the booking", "memory has it"):
            reserve(mine, hosts(1), on_shortage=note)
        assert len(plans) == 1
        assert len(shortages) == 2
        assert "0 of them free" in shortages[0]

    def test_a_lease_gets_its_maximum_although_a_suggested_host_is_booked(
        self, runtimes: tuple[Runtime, Runtime]
    ) -> None:
        mine, other = runtimes
        windows = range(1, 9)  # in each, the booked host is suggested with a probability of 2/3
        for start in windows:
            reserve(other, hosts(1), start=start)
            reserve(mine, hosts(1, 2), start=start)
        assert len(rows.dump(mine.database)["allocations"]) == 3 * len(windows)

    def test_a_lease_gets_all_free_hosts_if_they_are_fewer_than_its_maximum(
        self, runtimes: tuple[Runtime, Runtime], plans: list[BookingPlan]
    ) -> None:
        mine, other = runtimes
        reserve(other, hosts(1))
        plans.clear()
        reserve(mine, hosts(1, 3))
        assert [plan.among and len(plan.among) for plan in plans] == [3, 2]
        reserve(other, hosts(2), start=30)
        mine.calendar.view("physical:host")
        plans.clear()
        reserve(mine, hosts(1, 3), start=30)
        assert [plan.among and len(plan.among) for plan in plans] == [1]
        assert len(rows.dump(mine.database)["allocations"]) == 6

    def test_a_host_of_others_that_is_free_again_is_in_a_lease_with_fewer_than_its_maximum(
        self, runtimes: tuple[Runtime, Runtime], plans: list[BookingPlan]
    ) -> None:
        mine, other = runtimes
        ended = reserve(other, hosts(2))
        mine.calendar.view("physical:host")
        delete_lease(other, ended.id)
        plans.clear()
        reserve(mine, hosts(1, 2))
        assert [plan.among and len(plan.among) for plan in plans] == [3]

    def test_suggested_hosts_with_shares_of_others_are_replaced(
        self, runtimes: tuple[Runtime, Runtime], plans: list[BookingPlan]
    ) -> None:
        mine, other = runtimes
        windows = range(1, 9)  # in each, a host with a share is tried with a probability of 2/3
        for start in windows:
            reserve(other, instances(2, layout=Layout.APART.value, vcpus=1), start=start)
            plans.clear()
            reserve(mine, hosts(1), start=start)
            assert all(plan.among for plan in plans)
        booked = rows.dump(mine.database)["allocations"]
        used = {(row["resource_id"], row["start_at"]) for row in booked}
        assert len(used) == 3 * len(windows)

    def test_the_database_searches_while_another_thread_changes_memory(
        self, runtimes: tuple[Runtime, Runtime], plans: list[BookingPlan]
    ) -> None:
        changes, done = threading.Event(), threading.Event()

        def change_memory() -> None:
            with runtimes[0].calendar._using:
                changes.set()
                done.wait(20)

        thread = threading.Thread(target=change_memory)
        thread.start()
        changes.wait(20)
        reserve(runtimes[0], hosts(1))
        done.set()
        thread.join(20)
        assert [plan.among for plan in plans] == [None]

    def test_packed_hosts_are_searched_in_the_database(
        self, runtimes: tuple[Runtime, Runtime], plans: list[BookingPlan]
    ) -> None:
        packs = replace(runtimes[0].settings, packs_hosts=True)
        reserve(replace(runtimes[0], settings=packs), hosts(1))
        assert [plan.among for plan in plans] == [None]


@pytest.mark.parametrize(
    "error",
    [1, at_once._ATTEMPTS_AT_ONCE, at_once._ATTEMPTS_FROM_MEMORY + at_once._ATTEMPTS_AT_ONCE],
)
def test_after_lost_races_a_transaction_books(
    runtimes: tuple[Runtime, Runtime], monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    mine, _ = runtimes
    lost = iter([True] * error)
    run = mine.database.run_at_once

    def lose(statement: DriverStatement, values: Any) -> Any:
        if next(lost, False):
            return run(convert("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '23P01'; END $$"), {})
        return run(statement, values)

    monkeypatch.setattr(mine.database, "run_at_once", lose)
    reserve(mine, hosts())
    assert len(rows.dump(mine.database)["allocations"]) == 1


@pytest.mark.parametrize("value", ["x", "a' OR true", "50%", "%(most)s", "{most}", 'q"'])
def test_the_statement_decides_queries_with_lists_and_special_characters(
    story_everywhere: Story, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    story = story_everywhere
    host = story.ok("GET", "/v1/os-hosts")["hosts"][0]["id"]
    story.ok("PUT", f"/v1/os-hosts/{host}", {"rack": value})
    monkeypatch.setattr(story.runtime.database, "write", pytest.fail)
    either = ["or", ["in", "$rack", ["a", value, "7"]], ["==", "$rack", value]]
    wanted = host_reservation(resource_properties=json.dumps(either))
    story.reserve(reservations=[wanted])
    other = host_reservation(resource_properties=json.dumps(["in", "$rack", ["y", "8"]]))
    body = story.lease_body(180, 240, reservations=[other])
    assert "0 match the requirements" in story.refused(409, "POST", "/v1/leases", body)
