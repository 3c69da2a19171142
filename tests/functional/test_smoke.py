"""The life of a lease from request to end, on every database."""

from tests.support.service import Story, host_reservation


def test_a_lease_lives_from_request_to_end(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.reserve(120, 240, reservations=[host_reservation(1, 2)])
    assert lease["status"] == "PENDING"
    assert len(story.hosts_of(lease["id"])) == 2
    for minutes in (60, 50, 9, 1):
        story.at(minutes)
    assert story.lease(lease["id"])["status"] == "ACTIVE"
    assert len(story.cloud.pool_hosts(lease["reservations"][0]["id"])) == 2
    story.at(60)
    story.at(60)
    ended = story.lease(lease["id"])
    assert ended["status"] == "TERMINATED"
    assert ended["reservations"][0]["status"] == "deleted"
    assert story.cloud.pool_hosts(lease["reservations"][0]["id"]) == []
    assert story.told(lease["id"]) == [
        "lease.create",
        "lease.event.before_start_lease",
        "lease.event.before_start_lease",
        "lease.event.before_start_lease",
        "lease.event.start_lease",
        "lease.event.before_end_lease",
        "lease.event.end_lease",
    ]


def test_an_active_lease_is_updated_and_deleted(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.reserve(0, 240)
    story.run()
    body = {"reservations": [{"id": lease["reservations"][0]["id"], "min": 2, "max": 3}]}
    story.ok("PUT", f"/v1/leases/{lease['id']}", body)
    story.run()
    assert len(story.cloud.pool_hosts(lease["reservations"][0]["id"])) == 3
    story.ok("PUT", f"/v1/leases/{lease['id']}", {"end_date": story.date(60)})
    story.ok("DELETE", f"/v1/leases/{lease['id']}")
    assert story.lease(lease["id"])["status"] == "DELETING"
    story.run()
    story.refused(404, "GET", f"/v1/leases/{lease['id']}")
    assert story.told(lease["id"])[-1] == "lease.delete"
