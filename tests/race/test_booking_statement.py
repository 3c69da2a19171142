"""The single statement that books hosts: what happens between its search and its locks."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import sqlalchemy as sa

from climate.core.errors import ClimateError
from climate.db.resources import booking_statement
from climate.manager.admission import admission
from climate.manager.leases import create
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


@pytest.fixture
def runtimes(database_url: str) -> Iterator[tuple[Runtime, Runtime]]:
    """Return the runtimes of two processes, with one host."""
    made = tuple(kinds.make_runtime(database_url, ManualClock(NOON)) for _ in range(2))
    kinds.register(made[0].database, [kinds.host()])
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
            patch.setattr(create, "book_at_once", lambda *_, **__: False)
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


@pytest.mark.parametrize("error", [1, admission._ATTEMPTS_AT_ONCE])
def test_after_lost_races_a_transaction_books(
    runtimes: tuple[Runtime, Runtime], monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    mine, _ = runtimes
    lost = iter([True] * error)
    run = mine.database.run_at_once

    def lose(statement: str, values: Any) -> Any:
        if next(lost, False):
            return run("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '23P01'; END $$", {})
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
