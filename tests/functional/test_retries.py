"""What has failed for good and is tried on, at a slow pace: starts until the end, ends for ever."""

from typing import Any

import pytest

from climate.manager.audit import audit
from climate.manager.dispatcher import Dispatcher
from climate.manager.events import run
from climate.manager.pace import Pace
from climate.plugins.simulated_journal import SimulatedFailure
from tests.conftest import MakeStory
from tests.functional.fragile import break_cloud
from tests.service import Story, host_reservation

START, END = "start_lease", "end_lease"


def shown(story: Story, lease: dict[str, Any]) -> tuple[str, str, dict[str, str]]:
    """Return the status of the lease, of its reservation, and of its events by type."""
    now = story.lease(lease["id"])
    (reservation,) = now["reservations"]
    events = {one["event_type"]: one["status"] for one in now["events"]}
    return now["status"], reservation["status"], events


def told(story: Story, lease: dict[str, Any], kind: str) -> list[str]:
    """Return what the notifications about a kind of event said the lease was in."""
    return [
        one["payload"]["status"]
        for one in story.published(lease["id"])
        if one["event_type"] == f"lease.event.{kind}"
    ]


def wait(story: Story, seconds: float, step: float = 1) -> None:
    """Let time pass, running what is due."""
    for _ in range(int(seconds / step)):
        story.clock.advance(step)
        story.run()


def failed_start(story: Story, minutes: float = 240, **fields: Any) -> dict[str, Any]:
    """Return a lease of all four hosts whose start has failed for good, at sim-4."""
    wish = host_reservation(4, 4, **fields)
    lease = story.reserve(0, minutes, reservations=[wish])
    break_cloud(story, "sim-4")
    story.run()
    wait(story, 40)
    assert shown(story, lease)[:2] == ("ERROR", "error")
    return lease


def test_a_start_that_failed_for_good_succeeds_when_the_cloud_works(
    story_everywhere: Story,
) -> None:
    story = story_everywhere
    lease = failed_start(story)
    wait(story, 600, step=10)
    assert told(story, lease, START) == ["ERROR"]
    assert shown(story, lease)[2][START] == "ERROR"
    break_cloud(story)
    wait(story, 70)
    status, reservation, events = shown(story, lease)
    assert (status, reservation, events[START]) == ("ACTIVE", "active", "DONE")
    assert told(story, lease, START) == ["ERROR", "ACTIVE"]
    assert len(story.cloud.pool_hosts(lease["reservations"][0]["id"])) == 4
    story.at(240)
    assert shown(story, lease)[0] == "TERMINATED"


def test_a_start_that_failed_once_more_is_left_alone_for_a_while(story: Story) -> None:
    failed_start(story)
    wait(story, 60)
    assert story.run() == 0
    assert story.at(0.5) == 0
    assert story.at(1) == 1


def test_another_manager_goes_on_where_one_has_left(story: Story) -> None:
    lease = failed_start(story)
    story.dispatcher = Dispatcher(story.runtime, "manager-2")
    break_cloud(story)
    story.at(2)
    assert shown(story, lease)[0] == "ACTIVE"


def test_a_lease_stays_in_error_while_its_start_is_tried(
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


def test_the_audit_tells_why_a_start_fails_until_it_succeeds(story: Story) -> None:
    lease = failed_start(story)
    (difference,) = audit(story.runtime)
    assert difference.description.startswith(f"start_lease of lease {lease['id']} failed: ")
    break_cloud(story)
    story.at(2)
    assert audit(story.runtime) == []


def test_a_start_is_not_tried_once_the_end_has_begun(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = failed_start(story, 60)
    break_cloud(story, "sim-4", "remove_host")
    wait(story, 3600 + 600, step=10)  # the end fails as well
    status, _, events = shown(story, lease)
    assert (status, events[START], events[END]) == ("ERROR", "ERROR", "ERROR")
    break_cloud(story, "remove_host")
    tried = len(story.cloud.effects())
    wait(story, 600, step=10)
    assert [one for one in story.cloud.effects()[tried:] if one["effect"] == "add_host"] == []
    break_cloud(story)
    wait(story, 70)
    status, reservation, events = shown(story, lease)
    assert (status, reservation) == ("TERMINATED", "deleted")
    assert (events[START], events[END]) == ("ERROR", "DONE")
    assert story.cloud.pools() == {}


def test_a_start_that_begins_too_late_hands_nothing_over(story: Story) -> None:
    lease = failed_start(story, 60)
    break_cloud(story)
    effects = len(story.cloud.effects())
    story.clock.advance(60)
    (batch,) = story.dispatcher._claim()
    story.clock.advance(3600)
    run(story.runtime, batch, Pace())
    assert shown(story, lease)[2][START] == "ERROR"
    assert len(story.cloud.effects()) == effects
    story.run()
    assert shown(story, lease)[0] == "TERMINATED"


def test_a_start_that_was_never_tried_is_not_when_the_end_keeps_failing(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_pool: str) -> None:
        raise SimulatedFailure("close_pool is broken")

    story.reserve(0, 10, reservations=[host_reservation(4, 4)])
    second = story.reserve(10, 20)
    story.run()
    break_cloud(story, "remove_host")
    wait(story, 900, step=10)
    monkeypatch.setattr(story.cloud, "close_pool", fails)
    wait(story, 600, step=10)
    assert shown(story, second)[0] == "ERROR"
    break_cloud(story)
    monkeypatch.undo()
    wait(story, 70)
    status, _, events = shown(story, second)
    assert (status, events[START]) == ("TERMINATED", "ERROR")
    assert second["reservations"][0]["id"] not in str(story.cloud.effects())


def test_an_end_that_fails_is_told_though_the_start_had_failed(story: Story) -> None:
    lease = failed_start(story, 60)
    break_cloud(story, "remove_host", "add_host")
    wait(story, 3600 * 2, step=30)
    assert told(story, lease, START) == ["ERROR"]
    assert told(story, lease, END) == ["ERROR"]
    break_cloud(story)
    story.at(2)
    assert told(story, lease, END) == ["ERROR", "TERMINATED"]


def test_a_lease_in_error_is_deleted_while_its_start_waits(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = failed_start(story)
    story.ok("DELETE", f"/v1/leases/{lease['id']}")
    break_cloud(story)
    story.run()
    story.refused(404, "GET", f"/v1/leases/{lease['id']}")
    assert story.cloud.pools() == {}
    assert story.told(lease["id"])[-1] == "lease.delete"
    wait(story, 120, step=10)
    assert story.cloud.pools() == {}


@pytest.mark.parametrize("works", [True, False])
def test_a_lease_in_error_is_deleted_while_its_start_is_tried(
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
    assert told(story, lease, START)[0] == "ERROR"
    assert len(told(story, lease, START)) == (2 if works else 1)


def test_a_lease_in_error_is_prolonged_and_its_start_tried_on(story: Story) -> None:
    lease = failed_start(story, 60)
    story.ok("PUT", f"/v1/leases/{lease['id']}", {"end_date": story.date(180)})
    story.ok("PUT", f"/v1/leases/{lease['id']}", {"name": "renamed"})
    wait(story, 3600 * 2, step=30)
    assert shown(story, lease)[:2] == ("ERROR", "error")
    break_cloud(story)
    story.at(2)
    assert shown(story, lease)[0] == "ACTIVE"
    wait(story, 3600, step=30)
    assert shown(story, lease)[0] == "TERMINATED"


def test_a_lease_in_error_that_is_ended_now_is_not_started(story: Story) -> None:
    lease = failed_start(story)
    break_cloud(story)
    story.ok("PUT", f"/v1/leases/{lease['id']}", {"end_date": "now"})
    story.at(2)
    assert shown(story, lease)[0] == "TERMINATED"
    assert told(story, lease, START) == ["ERROR"]


def test_the_end_is_announced_when_the_lease_has_started_at_last(story: Story) -> None:
    lease = failed_start(story, 70)
    wait(story, 1200, step=10)
    assert told(story, lease, "before_end_lease") == []
    break_cloud(story)
    story.at(2)
    assert story.told(lease["id"])[-3:] == [
        "lease.event.start_lease",
        "lease.catch_up",  # the end was to be announced when the lease had not started
        "lease.event.before_end_lease",
    ]


def test_a_start_is_tried_on_without_fast_retries(make_story: MakeStory) -> None:
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
