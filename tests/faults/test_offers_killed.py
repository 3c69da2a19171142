"""A process is killed while it accepts an offer: the acceptance holds, or the offer is open."""

import time
from multiprocessing.connection import Connection
from typing import Any

import pytest
import sqlalchemy as sa

from climate.api.v2.offers import views
from climate.manager.audit.invariants import violations
from tests.race.crowd import at_work
from tests.support.process import FORKSERVER
from tests.support.rows import dump

pytestmark = pytest.mark.faults

KEY = {"Idempotency-Key": "key"}
NIGHTLY = pytest.mark.nightly(reason="PostgreSQL shows the same in CI")
# More statements than an acceptance has.
_ENOUGH = 40


def _stop_at(number: int, url: str, path: str, seen: Connection) -> None:
    """Accept an offer, but stop before the statement ``number``, or else before the answer."""
    with at_work(url) as story:
        left = [number]

        def stop(what: str) -> None:
            seen.send(what)
            time.sleep(1_000)

        def count(*_arguments: Any) -> None:
            left[0] -= 1
            if left[0] == 0:
                stop("statement")

        engine = story.runtime.database.engine
        sa.event.listen(engine, "before_cursor_execute", count)
        sa.event.listen(engine, "commit", count)
        pytest.MonkeyPatch().setattr(views, "created", lambda _body: stop("answer"))
        story.call("POST", path, headers=KEY)


def _kill_at(number: int, url: str, path: str) -> str:
    """Kill a process that accepts an offer; return where it was."""
    ours, theirs = FORKSERVER.Pipe()
    process = FORKSERVER.Process(target=_stop_at, args=(number, url, path, theirs), daemon=True)
    process.start()
    place: str = ours.recv()
    process.kill()
    process.join()
    ours.close()
    theirs.close()
    return place


@pytest.mark.parametrize(
    "backend",
    ["postgresql", *(pytest.param(item, marks=NIGHTLY) for item in ("sqlite", "mariadb"))],
    indirect=True,
)
def test_a_repeated_acceptance_returns_the_same_lease_after_a_kill(database_url: str) -> None:
    with at_work(database_url) as story:
        story.register(1)
        made = story.ok("POST", "/v2/offers", story.asking())
        path = f"/v2/offers/{made['id']}/accept"
        found = dump(story.runtime.database)
        number = 1
        while dump(story.runtime.database) == found:
            place = _kill_at(number, database_url, path)
            number += 1
            assert number < _ENOUGH
        assert number > 5, f"the first change was seen at {place} {number}"
        again = story.call("POST", path, headers=KEY)
        assert (again.status_code, again.get_json()["id"]) == (201, made["id"])
        story.at(6)
        assert len(story.hosts_of(made["id"])) == 1
        assert list(violations(story.runtime.store)) == []
