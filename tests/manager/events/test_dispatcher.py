"""The dispatcher: when it looks for due events, and who gets a worker next."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from climate.core.lease.model import Lease
from climate.db.events import waiting as event_waiting
from climate.plugins.base import NotYet
from tests.conftest import MakeStory
from tests.support import threads
from tests.support.service import Story

ALICE, EVE = "alice:alice-project:member", "eve:eve-project:member"


def test_an_event_that_becomes_due_during_a_query_sets_the_timer_to_its_time(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.reserve(60, 120)
    start = story.clock.now() + timedelta(minutes=60)
    story.clock.set(start - timedelta(seconds=0.001))
    story.run()
    dispatcher, alarms = story.dispatcher, []
    claim = dispatcher._claim

    def claim_slowly() -> Any:
        claimed = claim()
        story.clock.advance(0.005)
        return claimed

    def set_alarm(moment: datetime, _: object) -> None:
        alarms.append(moment)

    monkeypatch.setattr(dispatcher, "_claim", claim_slowly)
    monkeypatch.setattr(dispatcher._timer, "at", set_alarm)
    dispatcher._tick()
    assert alarms == [start]


def test_an_event_whose_worker_cannot_start_runs_after_its_claim_has_expired(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = story.reserve(60, 180)
    story.clock.advance(3600)
    threads.fail_once(monkeypatch, "event")
    with pytest.raises(RuntimeError, match="thread"):
        story.dispatcher._tick()
    assert story.dispatcher.pool.running == []
    for _ in range(2):  # a manager releases a claim that it has seen unchanged for the time-out
        story.dispatcher.upkeep.renew()
        story.clock.advance(story.runtime.settings.claim_timeout.total_seconds())
    story.dispatcher.upkeep.renew()
    story.run()
    assert story.lease(lease["id"])["status"] == "ACTIVE"


@pytest.fixture
def busy(make_story: MakeStory, monkeypatch: pytest.MonkeyPatch) -> Story:
    """Return a service with one worker, whose queries for waiting events take a second."""
    story, genuine = make_story(manager__workers="1"), event_waiting.pending
    story.register(6)

    def query_slowly(*given: Any, **more: Any) -> Any:
        story.clock.advance(1)
        return genuine(*given, **more)

    monkeypatch.setattr(event_waiting, "pending", query_slowly)
    return story


def reserve(story: Story, user: str, start: float = 60) -> str:
    return str(story.ok("POST", "/v2/leases", story.asking(start), token=user)["id"])


def test_a_newly_due_event_gets_the_next_worker_before_the_backlog_of_another_project(
    busy: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    backlog = [reserve(busy, ALICE) for _ in range(3)]
    newcomer = reserve(busy, EVE, 60 + 5 / 60)
    started: list[str] = []

    def start(lease: Lease, *_: object) -> dict[str, str]:
        started.append(lease.id)
        if len(started) == 1:
            busy.clock.advance(5)
        return {}

    monkeypatch.setattr(busy.runtime.plugins["physical:host"], "start", start)
    busy.at(60)
    assert started.index(newcomer) == 1
    assert sorted(started) == sorted([*backlog, newcomer])


def test_a_requeued_event_gets_a_worker_before_the_backlog_of_another_project_is_done(
    busy: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    backlog, waiting = [reserve(busy, ALICE) for _ in range(5)], reserve(busy, EVE)
    started: list[str] = []

    def start(lease: Lease, *_: object) -> dict[str, str]:
        started.append(lease.id)
        busy.clock.advance(1.5)
        if started.count(lease.id) == 1 and lease.id == waiting:
            raise NotYet("it boots")
        return {}

    monkeypatch.setattr(busy.runtime.plugins["physical:host"], "start", start)
    busy.at(60)
    assert sorted(started) == sorted([*backlog, waiting, waiting])
    assert started[-1] in backlog
