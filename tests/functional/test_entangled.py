"""Changes of a lease while something else about it is under way, or keeps failing."""

from datetime import timedelta
from typing import Any

from climate.db import events
from tests.support.failing_cloud import break_cloud
from tests.support.service import Story, host_reservation


def grow(story: Story, lease: dict[str, Any], maximum: int) -> None:
    """Ask for more hosts for the lease's first reservation."""
    change = [{"id": lease["reservations"][0]["id"], "max": maximum}]
    story.ok("PUT", f"/v1/leases/{lease['id']}", {"reservations": change})


def status(story: Story, lease: dict[str, Any], kind: str) -> str:
    """Return the status of the lease's event of a kind."""
    return next(
        event["status"]
        for event in story.lease(lease["id"])["events"]
        if event["event_type"] == kind
    )


def test_a_lease_that_waits_for_one_more_host_still_ends_on_time(story: Story) -> None:
    stuck = story.reserve(0, 10)
    lease = story.reserve(0, 60, reservations=[host_reservation(3, 3)])
    story.run()
    break_cloud(story, "remove_host")
    story.at(15)  # the host of the first is booked for it no more, and cannot be taken back
    grow(story, lease, 4)
    story.at(1)
    assert status(story, lease, "update_lease") == "UNDONE"
    break_cloud(story)
    break_cloud(story, story.hosts_of(stuck["id"])[0], f"sim-{story.hosts_of(stuck['id'])[0]}")
    story.at(60)
    assert story.lease(lease["id"])["status"] == "TERMINATED"
    assert story.lease(stuck["id"])["status"] != "TERMINATED"


def test_no_dates_change_while_snapshots_are_taken(story: Story) -> None:
    lease = story.reserve(0, 120, reservations=[host_reservation(before_end="snapshot")])
    story.run()
    story.clock.advance(3600)
    until = story.clock.now() + timedelta(seconds=30)
    due = [event["id"] for event in story.lease(lease["id"])["events"]]
    claimed = story.runtime.database.write(
        lambda session: events.claim(session, "manager-2", story.clock.now(), until, due)
    )
    assert [one[1] for one in claimed] == [lease["id"]]
    assert status(story, lease, "before_end_lease") == "IN_PROGRESS"
    sooner = {"end_date": story.date(5)}
    assert "snapshots" in story.refused(409, "PUT", f"/v1/leases/{lease['id']}", sooner)
    story.ok("PUT", f"/v1/leases/{lease['id']}", {"name": "renamed"})


def test_a_before_end_that_failed_for_good_is_tried_again_when_the_lease_is_prolonged(
    story: Story,
) -> None:
    lease = story.reserve(0, 90, reservations=[host_reservation(before_end="snapshot")])
    story.run()
    story.cloud.boot_server("sim-" + story.hosts_of(lease["id"])[0], "server")
    break_cloud(story, "snapshot")
    story.until(story.clock.now() + timedelta(minutes=40))
    assert status(story, lease, "before_end_lease") == "ERROR"
    break_cloud(story)
    story.ok("PUT", f"/v1/leases/{lease['id']}", {"end_date": story.date(120)})
    assert status(story, lease, "before_end_lease") == "UNDONE"
    story.at(61)
    assert status(story, lease, "before_end_lease") == "DONE"
    assert "snapshot" in [effect["effect"] for effect in story.cloud.effects()]


def test_hosts_that_could_not_be_handed_over_are_asked_for_again(story: Story) -> None:
    lease = story.reserve(0, 240)
    story.run()
    break_cloud(story, "add_host")
    grow(story, lease, 2)
    story.until(story.clock.now() + timedelta(minutes=10))
    assert story.lease(lease["id"])["degraded"] is True
    break_cloud(story)
    grow(story, lease, 2)
    story.run()
    assert story.lease(lease["id"])["degraded"] is False
    assert len(story.cloud.pool_hosts(lease["reservations"][0]["id"])) == 2


def test_an_end_that_keeps_failing_is_announced_once_and_cannot_be_put_off(story: Story) -> None:
    lease = story.reserve(0, 60)
    story.run()
    break_cloud(story, "remove_host")
    story.until(story.clock.now() + timedelta(minutes=180))
    assert story.lease(lease["id"])["status"] == "ERROR"
    assert story.told(lease["id"]).count("lease.event.end_lease") == 1
    later = {"end_date": story.date(60)}
    assert "being ended" in story.refused(400, "PUT", f"/v1/leases/{lease['id']}", later)
    break_cloud(story)
    story.at(6)
    assert story.lease(lease["id"])["status"] == "TERMINATED"
    assert story.told(lease["id"]).count("lease.event.end_lease") == 2
