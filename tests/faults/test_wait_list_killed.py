"""A process is killed while it places waiting leases: the next process continues."""

import time
from collections import Counter
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import pytest
import sqlalchemy as sa

from climate.db.tables.leases import ALLOCATIONS, RESERVATIONS
from climate.manager.audit.invariants import violations
from climate.manager.wait_list.passes import place_waiting
from tests.race.crowd import at_work
from tests.support.process import FORKSERVER
from tests.support.service import Story, hosts
from tests.support.waiting import waiting

pytestmark = pytest.mark.faults

NIGHTLY = pytest.mark.nightly(reason="kills a process at each statement of a pass")
RULES = {"wait_list__promises": 2}
# More statements than a pass has.
_ENOUGH = 400
_BOOKED = sa.select(RESERVATIONS.c.lease_id).join(
    ALLOCATIONS, ALLOCATIONS.c.reservation_id == RESERVATIONS.c.id
)
# The hosts of the leases: two have promises, one will get one, one fits beside them.
SIZES = [3, 3, 2, 1]


def _free_room(story: Story) -> list[str]:
    """Let leases wait, and delete the lease for which they wait; return their ids."""
    reservations = [hosts(4, 4)]
    blocking = story.ok("POST", "/v2/leases", story.asking(0, 60, reservations=reservations))
    ids = [story.ok("POST", "/v2/leases", waiting(size, 30))["id"] for size in SIZES]
    story.ok("DELETE", f"/v2/leases/{blocking['id']}")
    return ids


def _stop_at(number: int, url: str, seen: Connection) -> None:
    """Run a pass, but stop before its statement ``number`` (a commit counts as one)."""
    with at_work(url, **RULES) as story:
        left = [number]

        def count(*_arguments: Any) -> None:
            left[0] -= 1
            if left[0] == 0:
                seen.send("there")
                time.sleep(1_000)

        engine = story.runtime.database.engine
        sa.event.listen(engine, "before_cursor_execute", count)
        sa.event.listen(engine, "commit", count)
        place_waiting(story.runtime)
        seen.send("done")


def _is_killed_at(number: int, url: str) -> bool:
    """Kill a process at that statement; return whether it had reached it."""
    ours, theirs = FORKSERVER.Pipe()
    process = FORKSERVER.Process(target=_stop_at, args=(number, url, theirs), daemon=True)
    process.start()
    there: bool = ours.recv() == "there"
    process.kill()
    process.join()
    ours.close()
    theirs.close()
    return there


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("backend", "step"),
    [
        ("postgresql", 9),
        *(pytest.param(item, 1, marks=NIGHTLY) for item in ("sqlite", "postgresql", "mariadb")),
    ],
    indirect=["backend"],
)
def test_the_next_process_places_what_a_killed_one_left(database_url: str, step: int) -> None:
    with at_work(database_url, **RULES) as story:
        story.register(4)
        number, is_killed = 1, True
        while is_killed:
            ids = _free_room(story)
            is_killed = _is_killed_at(number, database_url)
            story.clock.advance(30)  # the turn of the killed process expires
            place_waiting(story.runtime)
            _check_all_are_booked(story, ids, number)
            for id_ in ids:
                story.ok("DELETE", f"/v2/leases/{id_}")
            story.clock.set(story.clock.now() - timedelta(seconds=30))
            number += step
            assert number < _ENOUGH
        assert number > 50


def _check_all_are_booked(story: Story, ids: list[str], number: int) -> None:
    assert list(violations(story.runtime.store)) == [], f"killed at statement {number}"
    with story.runtime.database.read() as session:
        booked = Counter(session.scalars(_BOOKED))
    assert [booked[id_] for id_ in ids] == SIZES, f"killed at statement {number}"
    for id_ in ids:
        types = Counter(story.event_types(id_))
        assert (types["lease.promised"], types["lease.create"]) == (1, 1)
