"""DELETE /v1/leases/ID: before the start, while active, after the end, in ERROR, and twice."""

from typing import Any

from tests.support.failing_cloud import break_cloud
from tests.support.service import Story, host_reservation


def delete(story: Story, lease: dict[str, Any]) -> None:
    """Delete the lease; the answer has no body."""
    response = story.call("DELETE", f"/v1/leases/{lease['id']}")
    assert response.status_code == 204, response.get_data(as_text=True)
    assert response.get_data() == b""
    assert "Content-Type" not in response.headers


def assert_gone(story: Story, lease: dict[str, Any]) -> None:
    """Check that nothing is left of the lease but what was told about it."""
    path = f"/v1/leases/{lease['id']}"
    for method, body in (("GET", None), ("PUT", {"name": "new"}), ("DELETE", None)):
        message = story.refused(404, method, path, body)
        assert message == f"Object with {{'lease_id': '{lease['id']}'}} not found"
    assert lease["id"] not in [one["id"] for one in story.ok("GET", "/v1/leases")["leases"]]
    assert story.hosts_of(lease["id"]) == []
    assert story.cloud.pool_hosts(lease["reservations"][0]["id"]) == []
    assert story.told(lease["id"])[-1] == "lease.delete"
    assert story.published(lease["id"])[-1]["payload"]["status"] == "DELETING"


def test_a_lease_that_has_not_started_is_gone_at_once(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.reserve(60, 120, reservations=[host_reservation(4, 4)])
    delete(story, lease)
    assert_gone(story, lease)
    assert story.told(lease["id"]) == ["lease.create", "lease.delete"]
    story.reserve(60, 120, reservations=[host_reservation(4, 4)])
    story.at(60)
    assert story.told(lease["id"]) == ["lease.create", "lease.delete"]


def test_a_lease_whose_start_is_due_and_not_begun_is_gone_at_once(story: Story) -> None:
    lease = story.reserve(0, 120)
    delete(story, lease)
    assert_gone(story, lease)
    assert story.cloud.effects() == []


def test_an_active_lease_is_ended_first(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.reserve(0, 120, reservations=[host_reservation(4, 4)])
    story.run()
    delete(story, lease)
    assert story.lease(lease["id"])["status"] == "DELETING"
    story.refused(409, "POST", "/v1/leases", story.lease_body(0, 60))
    story.run()
    assert_gone(story, lease)
    assert story.told(lease["id"])[-2:] == ["lease.event.end_lease", "lease.delete"]
    story.reserve(0, 60, reservations=[host_reservation(4, 4)])


def test_a_second_delete_of_a_lease_that_is_ending_is_as_good_as_the_first(story: Story) -> None:
    lease = story.reserve(0, 120)
    story.run()
    delete(story, lease)
    delete(story, lease)
    assert story.lease(lease["id"])["status"] == "DELETING"
    story.run()
    assert_gone(story, lease)
    assert story.told(lease["id"]).count("lease.delete") == 1


def test_a_lease_that_is_being_deleted_cannot_be_changed(story: Story) -> None:
    lease = story.reserve(0, 120)
    story.run()
    delete(story, lease)
    path = f"/v1/leases/{lease['id']}"
    assert "DELETING" in story.refused(409, "PUT", path, {"end_date": story.date(300)})


def test_a_deleted_lease_neither_warns_nor_keeps_images(story: Story) -> None:
    asked = host_reservation(before_end="snapshot")
    events = [{"event_type": "mine", "event_date": story.date(90)}]
    lease = story.reserve(0, 120, reservations=[asked], events=events)
    story.run()
    (host,) = story.cloud.pool_hosts(lease["reservations"][0]["id"])
    story.cloud.boot_server(host, "vm")
    delete(story, lease)
    story.at(120)
    assert story.told(lease["id"])[2:] == ["lease.event.end_lease", "lease.delete"]
    assert "snapshot" not in [effect["effect"] for effect in story.cloud.effects()]


def test_a_lease_that_is_over_is_gone_at_once(story: Story) -> None:
    lease = story.reserve(0, 60)
    story.run()
    story.at(60)
    delete(story, lease)
    assert_gone(story, lease)
    assert story.told(lease["id"]).count("lease.event.end_lease") == 1


def test_a_lease_in_error_is_cleaned_up_first(make_story: Any) -> None:
    story = make_story(manager__event_max_retries=0)
    story.register(4)
    break_cloud(story, "sim-4")
    lease = story.reserve(0, 120, reservations=[host_reservation(4, 4)])
    story.run()
    assert story.lease(lease["id"])["status"] == "ERROR"
    break_cloud(story)
    delete(story, lease)
    story.run()
    assert_gone(story, lease)


def test_a_lease_whose_start_is_tried_again_starts_no_more(story: Story) -> None:
    break_cloud(story, "add_host")
    lease = story.reserve(0, 120)
    story.run()
    assert story.lease(lease["id"])["status"] == "STARTING"
    delete(story, lease)
    break_cloud(story)
    story.run()
    assert_gone(story, lease)
    story.at(10)
    assert "add_host" not in [effect["effect"] for effect in story.cloud.effects()]


def test_a_deleted_lease_whose_end_fails_stays_until_it_succeeds(make_story: Any) -> None:
    story = make_story(manager__event_max_retries=1)
    story.register(1)
    lease = story.reserve(0, 120)
    story.run()
    break_cloud(story, "remove_host")
    delete(story, lease)
    for _ in range(5):
        story.at(1)
        assert story.lease(lease["id"])["status"] == "DELETING"
    delete(story, lease)
    break_cloud(story)
    story.at(5)
    assert_gone(story, lease)


def test_a_lease_whose_end_is_tried_again_can_be_deleted(make_story: Any) -> None:
    story = make_story(manager__event_max_retries=0)
    story.register(1)
    lease = story.reserve(0, 60)
    story.run()
    break_cloud(story, "remove_host")
    story.at(60)
    assert story.lease(lease["id"])["status"] == "ERROR"
    break_cloud(story)
    delete(story, lease)
    story.run()
    assert_gone(story, lease)


def test_a_lease_that_never_was_cannot_be_deleted(story: Story) -> None:
    message = story.refused(404, "DELETE", "/v1/leases/nope")
    assert message == "Object with {'lease_id': 'nope'} not found"
