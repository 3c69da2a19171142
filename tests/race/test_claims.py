"""Many managers share one queue: each event runs once, and events of a lease run in order."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from climate.core.lease.lifecycle import OPEN_EVENT
from climate.core.lease.schedule import END, START
from climate.db.tables.leases import EventRow, LeaseRow
from climate.manager.claims import Batch, Claim
from climate.manager.events import runner as events
from climate.manager.events.queue import BatchSizeEstimator
from tests.race.crowd import Crowd, at_work, wait_for_all
from tests.race.databases import postgresql_first
from tests.support.process import eventually
from tests.support.service import Story

HOSTS, TURNS = 3, 3


@pytest.fixture
def journal(tmp_path: Path) -> str:
    """Return the path of the cloud that all processes share."""
    return str(tmp_path / "cloud")


@pytest.fixture
def here(database_url: str, journal: str) -> Iterator[Story]:
    """Return the service in this process, with hosts."""
    with at_work(database_url, simulated__journal=journal) as story:
        story.register(HOSTS)
        yield story


def _manage(number: int, url: str, journal: str) -> int:
    """Process due events at each change of hosts; return how many this process claimed."""
    with at_work(url, simulated__journal=journal, simulated__delay=0.005) as story:
        story.dispatcher._owner = f"manager-{number}"
        count = 0

        def run() -> bool:
            nonlocal count
            count += story.run()
            # An event whose lease another manager had locked is due again 50 ms later.
            story.clock.advance(0.05)
            return not _due_events(story)

        for minutes in (1, *[60] * TURNS):
            story.clock.advance(60 * minutes)
            wait_for_all()
            eventually(run, "all that is due is over")
        return count


def _due_events(story: Story) -> int:
    query = sa.select(sa.func.count()).where(
        EventRow.status.in_(OPEN_EVENT), EventRow.due_at <= story.clock.now()
    )
    with story.runtime.database.read() as session:
        return session.scalar(query) or 0


def _attempts(story: Story) -> Counter[int]:
    with story.runtime.database.read() as session:
        return Counter(session.scalars(sa.select(EventRow.attempt)))


def _claim_both(story: Story, lease_id: str) -> dict[str, Claim]:
    """Claim a repeated start and the end of a lease at the same time."""
    found = {}
    with story.runtime.database.engine.begin() as connection:
        starting = sa.update(LeaseRow).where(LeaseRow.id == lease_id).values(status="STARTING")
        connection.execute(starting)
        for kind, attempt in ((START, 2), (END, 1)):
            claim = {"status": "IN_PROGRESS", "owner": f"{kind} manager", "attempt": attempt}
            mine = (EventRow.lease_id == lease_id, EventRow.kind == kind)
            connection.execute(sa.update(EventRow).where(*mine).values(**claim))
            event_id = connection.scalars(sa.select(EventRow.id).where(*mine)).one()
            found[kind] = Claim(event_id, lease_id, f"{kind} manager", attempt)
    return found


def _done(story: Story) -> list[str]:
    return [effect["effect"] for effect in story.cloud.effects()]


@postgresql_first
def test_managers_run_each_event_once_and_hosts_change_hands_in_order(
    crowd: Crowd, database_url: str, journal: str, here: Story
) -> None:
    for turn in range(TURNS):
        for _ in range(HOSTS):
            here.reserve(60 * turn + 1, 60 * turn + 61)
    ran = crowd.do(_manage, database_url, journal)
    # A manager claims an event again if another one had locked its lease.
    assert sum(ran) >= sum(_attempts(here).values())
    assert _attempts(here).keys() == {1}, "an event failed or was run twice"
    pools = defaultdict(list)
    for effect in here.cloud.effects():
        if "host" in effect:
            pools[effect["host"]].append((effect["effect"], effect["pool"]))
    assert len(pools) == HOSTS
    for changes in pools.values():
        assert [what for what, _ in changes] == ["add_host", "remove_host"] * TURNS
        assert [pool for _, pool in changes[::2]] == [pool for _, pool in changes[1::2]]
    leases = here.ok("GET", "/v1/leases")["leases"]
    assert {lease["status"] for lease in leases} == {"TERMINATED"}
    for lease in leases:
        # Managers' clocks jump one after the other, so some see others' events as late.
        types = [what for what in here.event_types(lease["id"]) if what != "lease.catch_up"]
        assert types[-3:] == [
            "lease.event.start_lease",
            "lease.event.before_end_lease",
            "lease.event.end_lease",
        ]


def test_an_end_is_requeued_if_the_start_is_claimed_at_the_same_time(here: Story) -> None:
    lease = here.reserve(0, 60)
    claims = _claim_both(here, lease["id"])
    events.run(here.runtime, Batch([claims[END]]), BatchSizeEstimator())
    assert _done(here) == []
    events.run(here.runtime, Batch([claims[START]]), BatchSizeEstimator())
    assert here.lease(lease["id"])["status"] == "ACTIVE"
    here.at(60)
    assert here.lease(lease["id"])["status"] == "TERMINATED"
    assert _done(here) == ["ensure_pool", "add_host", "remove_host", "delete_pool"]


def test_a_repeated_start_is_requeued_if_the_end_is_claimed_at_the_same_time(
    here: Story,
) -> None:
    lease = here.reserve(0, 60)
    claims = _claim_both(here, lease["id"])
    events.run(here.runtime, Batch([claims[START]]), BatchSizeEstimator())
    events.run(here.runtime, Batch([claims[END]]), BatchSizeEstimator())
    here.at(60)
    assert here.lease(lease["id"])["status"] == "TERMINATED"
    assert _done(here) == []
