"""Events that failed for good are retried slowly: starts until the end, ends for ever."""

from datetime import timedelta
from typing import Any

import pytest

from climate.manager.audit.cloud import audit
from climate.manager.events.dispatcher import Dispatcher
from climate.manager.events.queue import BatchSizeEstimator
from climate.manager.events.runner import run
from climate.plugins.simulated_journal import SimulatedFailure
from tests.conftest import MakeStory
from tests.support.failing_cloud import break_cloud
from tests.support.service import Story, host_reservation

START, END = "start_lease", "end_lease"


def shown(story: Story, lease: dict[str, Any]) -> tuple[str, str, dict[str, str]]:
    """Return the status of the lease, of its reservation, and of its events by type."""
    current = story.lease(lease["id"])
    (reservation,) = current["reservations"]
    events = {event["event_type"]: event["status"] for event in current["events"]}
    return current["status"], reservation["status"], events


def notified(story: Story, lease: dict[str, Any], kind: str) -> list[str]:
    """Return the lease's status in each notification about a kind of event."""
    return [
        item["payload"]["status"]
        for item in story.published(lease["id"])
        if item["event_type"] == f"lease.event.{kind}"
    ]


def wait(story: Story, seconds: float, step: float = 10) -> None:
    """Let time pass, and run due events after each step."""
    story.until(story.clock.now() + timedelta(seconds=seconds), step)


def failed_start(story: Story, minutes: float = 240) -> dict[str, Any]:
    """Return a lease of all four hosts whose start failed for good at sim-4."""
    lease = story.reserve(0, minutes, reservations=[host_reservation(4, 4)])
    break_cloud(story, "sim-4")
    story.run()
    wait(story, 40, step=2)
    assert shown(story, lease)[:2] == ("ERROR", "error")
    return lease


def test_a_failed_start_succeeds_when_the_cloud_works(story: Story) -> None:
    lease = failed_start(story)
    (difference,) = audit(story.runtime)
    assert difference.description.startswith(f"start_lease of lease {lease['id']} failed: ")
    wait(story, 600)
    assert notified(story, lease, START) == ["ERROR"]
    assert shown(story, lease)[2][START] == "ERROR"
    break_cloud(story)
    wait(story, 70)
    status, reservation, events = shown(story, lease)
    assert (status, reservation, events[START]) == ("ACTIVE", "active", "DONE")
    assert notified(story, lease, START) == ["ERROR", "ACTIVE"]
    assert audit(story.runtime) == []
    assert len(story.cloud.pool_hosts(lease["reservations"][0]["id"])) == 4
    story.at(240)
    assert shown(story, lease)[0] == "TERMINATED"


def test_a_failed_start_is_retried_once_a_minute_by_any_manager(story: Story) -> None:
    lease = failed_start(story)
    wait(story, 60)
    assert story.run() == 0
    assert story.at(0.5) == 0
    assert story.at(1) == 1
    story.dispatcher = Dispatcher(story.runtime, "manager-2")
    break_cloud(story)
    story.at(2)
    assert shown(story, lease)[0] == "ACTIVE"


def test_a_failed_start_is_retried_without_fast_retries(make_story: MakeStory) -> None:
    story = make_story(manager__event_max_retries=0)
    story.register(1)
    break_cloud(story, "add_host")
    lease = story.reserve(0, 60)
    story.run()
    assert shown(story, lease)[0] == "ERROR"
    assert story.at(0.5) == 0
    break_cloud(story)
    story.at(1)
    assert shown(story, lease)[0] == "ACTIVE"


def test_the_lease_stays_in_error_while_its_start_is_retried(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = failed_start(story)
    seen = []

    def look(*_: object) -> None:
        seen.append(shown(story, lease))

    monkeypatch.setattr(story.cloud, "add_host", look)
    story.at(2)
    assert {(status, reservation) for status, reservation, _ in seen} == {("ERROR", "error")}
    assert seen[0][2][START] == "IN_PROGRESS"


def test_a_start_is_not_retried_after_the_end_began(story: Story) -> None:
    lease = failed_start(story, 60)
    break_cloud(story, "sim-4", "remove_host", "add_host")
    wait(story, 3600 + 600, step=30)
    status, _, events = shown(story, lease)
    assert (status, events[START], events[END]) == ("ERROR", "ERROR", "ERROR")
    assert notified(story, lease, START) == notified(story, lease, END) == ["ERROR"]
    break_cloud(story, "remove_host")
    count = len(story.cloud.effects())
    wait(story, 600)
    effects = [effect["effect"] for effect in story.cloud.effects()[count:]]
    assert "add_host" not in effects
    break_cloud(story)
    wait(story, 70)
    status, reservation, events = shown(story, lease)
    assert (status, reservation) == ("TERMINATED", "deleted")
    assert (events[START], events[END]) == ("ERROR", "DONE")
    assert notified(story, lease, END) == ["ERROR", "TERMINATED"]
    assert story.cloud.pools() == {}


def test_a_start_that_runs_after_the_end_hands_nothing_over(story: Story) -> None:
    lease = failed_start(story, 60)
    break_cloud(story)
    effects = len(story.cloud.effects())
    story.clock.advance(60)
    (batch,) = story.dispatcher._claim()
    story.clock.advance(3600)
    run(story.runtime, batch, BatchSizeEstimator())
    assert shown(story, lease)[2][START] == "ERROR"
    assert len(story.cloud.effects()) == effects
    story.run()
    assert shown(story, lease)[0] == "TERMINATED"


def test_a_start_that_was_never_tried_is_not_tried_when_the_end_keeps_failing(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_pool: str) -> None:
        raise SimulatedFailure("close_pool is broken")

    story.reserve(0, 10, reservations=[host_reservation(4, 4)])
    second = story.reserve(10, 20)
    story.run()
    break_cloud(story, "remove_host")
    wait(story, 900)
    monkeypatch.setattr(story.cloud, "close_pool", fail)
    wait(story, 600)
    assert shown(story, second)[0] == "ERROR"
    break_cloud(story)
    monkeypatch.undo()
    wait(story, 70)
    status, _, events = shown(story, second)
    assert (status, events[START]) == ("TERMINATED", "ERROR")
    assert second["reservations"][0]["id"] not in str(story.cloud.effects())


@pytest.mark.parametrize("works", [True, False])
def test_a_lease_in_error_is_deleted_while_its_start_is_retried(
    story: Story, works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = failed_start(story)
    if works:
        break_cloud(story)
    add_host = story.cloud.add_host

    def delete_first(pool: str, host: str) -> None:
        if story.lease(lease["id"])["status"] != "DELETING":
            story.ok("DELETE", f"/v1/leases/{lease['id']}")
        add_host(pool, host)

    monkeypatch.setattr(story.cloud, "add_host", delete_first)
    story.at(2)
    break_cloud(story)
    wait(story, 120)
    story.refused(404, "GET", f"/v1/leases/{lease['id']}")
    assert story.cloud.pools() == {}
    starts = notified(story, lease, START)
    assert starts[0] == "ERROR"
    assert len(starts) == (2 if works else 1)


def test_a_lease_in_error_that_is_prolonged_or_ended_follows_its_new_end(story: Story) -> None:
    lease = failed_start(story, 60)
    path = f"/v1/leases/{lease['id']}"
    story.ok("PUT", path, {"end_date": story.date(180)})
    story.ok("PUT", path, {"name": "renamed"})
    wait(story, 3600 * 2, step=600)
    assert shown(story, lease)[:2] == ("ERROR", "error")
    break_cloud(story)
    story.at(2)
    assert shown(story, lease)[0] == "ACTIVE"
    wait(story, 3600, step=600)
    assert shown(story, lease)[0] == "TERMINATED"
    ended = failed_start(story)
    break_cloud(story)
    story.ok("PUT", f"/v1/leases/{ended['id']}", {"end_date": "now"})
    story.at(2)
    assert shown(story, ended)[0] == "TERMINATED"
    assert notified(story, ended, START) == ["ERROR"]


def test_the_reminder_of_the_end_waits_for_the_start(story: Story) -> None:
    lease = failed_start(story, 70)
    wait(story, 1200, step=120)
    assert notified(story, lease, "before_end_lease") == []
    break_cloud(story)
    story.at(2)
    assert story.event_types(lease["id"])[-3:] == [
        "lease.event.start_lease",
        "lease.catch_up",
        "lease.event.before_end_lease",
    ]
