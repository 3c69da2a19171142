"""Deletion of a lease: at once before its start, else after its end, and only once."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from climate.manager.leases.delete import delete_lease
from tests.conftest import MakeStory
from tests.support.bodies import effect_names, pool_of
from tests.support.failing_cloud import break_cloud
from tests.support.process import eventually
from tests.support.service import Story, host_reservation

ALL_HOSTS = [host_reservation(4, 4)]


def delete(story: Story, lease: dict[str, Any]) -> None:
    story.ok("DELETE", f"/v1/leases/{lease['id']}")


def assert_gone(story: Story, lease: dict[str, Any]) -> list[str]:
    """Check that only notifications are left of the lease; return their types."""
    story.refused(404, "GET", f"/v1/leases/{lease['id']}")
    assert lease["id"] not in [shown["id"] for shown in story.ok("GET", "/v1/leases")["leases"]]
    assert story.hosts_of(lease["id"]) == []
    assert pool_of(story, lease) == []
    assert story.published(lease["id"])[-1]["payload"]["status"] == "DELETING"
    types = story.event_types(lease["id"])
    assert types[-1] == "lease.delete"
    assert types.count("lease.delete") == 1
    return types


def test_a_lease_that_has_not_started_is_deleted_at_once(story: Story) -> None:
    for start in (60, 0):  # in an hour, and due but not begun
        lease = story.reserve(start, 120, reservations=ALL_HOSTS)
        delete(story, lease)
        assert assert_gone(story, lease) == ["lease.create", "lease.delete"]
    story.reserve(60, 120, reservations=ALL_HOSTS)
    story.run()
    assert story.cloud.effects() == []
    story.at(60)
    assert story.event_types(lease["id"]) == ["lease.create", "lease.delete"]


def test_an_active_lease_ends_first_and_stays_unchanged_meanwhile(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.reserve(0, 120, reservations=ALL_HOSTS)
    story.run()
    for _ in range(2):  # a second request succeeds, too
        delete(story, lease)
        assert story.lease(lease["id"])["status"] == "DELETING"
    story.refused(409, "POST", "/v1/leases", story.lease_body(0, 60))
    path = f"/v1/leases/{lease['id']}"
    assert "DELETING" in story.refused(409, "PUT", path, {"end_date": story.date(300)})
    story.run()
    assert assert_gone(story, lease)[-2:] == ["lease.event.end_lease", "lease.delete"]
    story.reserve(0, 60, reservations=ALL_HOSTS)


def test_a_deleted_lease_sends_no_reminders_and_takes_no_snapshots(story: Story) -> None:
    reservation = host_reservation(before_end="snapshot")
    events = [{"event_type": "mine", "event_date": story.date(90)}]
    lease = story.reserve(0, 120, reservations=[reservation], events=events)
    story.run()
    (host,) = pool_of(story, lease)
    story.cloud.boot_server(host, "vm")
    delete(story, lease)
    story.at(120)
    assert story.event_types(lease["id"])[2:] == ["lease.event.end_lease", "lease.delete"]
    assert effect_names(story, "snapshot") == []


def test_a_lease_that_is_over_is_deleted_at_once(story: Story) -> None:
    lease = story.reserve(0, 60)
    story.run()
    story.at(60)
    delete(story, lease)
    assert assert_gone(story, lease).count("lease.event.end_lease") == 1


def test_a_lease_whose_start_failed_is_cleaned_up_and_starts_no_more(
    make_story: MakeStory,
) -> None:
    story = make_story(manager__event_max_retries=0)
    story.register(4)
    break_cloud(story, "sim-4")
    lease = story.reserve(0, 120, reservations=ALL_HOSTS)
    story.run()
    assert story.lease(lease["id"])["status"] == "ERROR"
    break_cloud(story)
    delete(story, lease)
    story.run()
    assert_gone(story, lease)
    story.at(10)
    assert effect_names(story, "add_host") == ["add_host"] * 3


def test_a_lease_whose_start_is_being_retried_starts_no_more(story: Story) -> None:
    break_cloud(story, "add_host")
    lease = story.reserve(0, 120)
    story.run()
    assert story.lease(lease["id"])["status"] == "STARTING"
    delete(story, lease)
    break_cloud(story)
    story.run()
    assert_gone(story, lease)
    story.at(10)
    assert effect_names(story, "add_host") == []


def test_a_lease_whose_end_fails_stays_until_the_end_succeeds(make_story: MakeStory) -> None:
    story = make_story(manager__event_max_retries=1)
    story.register(2)
    deleted, failed = story.reserve(0, 120), story.reserve(0, 60)
    story.run()
    break_cloud(story, "remove_host")
    delete(story, deleted)
    for _ in range(5):
        story.at(1)
        assert story.lease(deleted["id"])["status"] == "DELETING"
    delete(story, deleted)
    break_cloud(story)
    story.at(5)
    assert_gone(story, deleted)
    break_cloud(story, "remove_host")
    story.at(50)
    story.at(1)
    assert story.lease(failed["id"])["status"] == "ERROR"
    break_cloud(story)
    delete(story, failed)
    story.run()
    assert_gone(story, failed)


def test_one_request_waits_for_each_lease_and_a_limited_number_in_all(
    make_story: MakeStory,
) -> None:
    story = make_story(api__threads=8)  # so that two may wait
    story.register(3)
    leases = [story.reserve(0, 60)["id"] for _ in range(3)]
    story.run()

    with ThreadPoolExecutor(4) as pool:

        def delete_slowly(lease_id: str) -> Future[bool]:
            return pool.submit(delete_lease, story.runtime, lease_id, 60.0)

        waiting: list[Future[bool]] = []
        try:
            # The request for the same lease and the one for the last lease do not wait.
            for lease_id, other in zip(leases, (leases[0], leases[2]), strict=False):
                waiting.append(delete_slowly(lease_id))
                count = len(waiting)
                eventually(lambda: len(story.runtime.deletions._leases) == count, "it waits")  # noqa: B023
                assert not delete_slowly(other).result(timeout=20)
            assert not any(request.done() for request in waiting)
        finally:
            story.run()
        assert [request.result() for request in waiting] == [True, True]
    assert not story.runtime.deletions._leases, "the places are free again"
