"""The life of leases when all goes well, when the cloud does not, and when users let go early."""

from typing import Any

from tests.conftest import MakeStory
from tests.support.failing_cloud import break_cloud
from tests.support.service import Story, host_reservation


def status(story: Story, lease: dict[str, Any]) -> str:
    """Return where a lease stands."""
    return str(story.lease(lease["id"])["status"])


def event(story: Story, lease: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the one event of a kind."""
    (found,) = [one for one in story.lease(lease["id"])["events"] if one["event_type"] == kind]
    return found


def effects(story: Story, *names: str) -> list[tuple[str, str]]:
    """Return what was done to which pool, in order."""
    done = story.cloud.effects()
    return [(one["effect"], one["pool"]) for one in done if one["effect"] in names]


def tries(story: Story, count: int) -> list[float]:
    """Return the seconds between the next ``count`` runs of whatever is tried again."""
    pauses: list[float] = []
    waited = 0.0
    while len(pauses) < count:
        story.clock.advance(0.5)
        waited += 0.5
        if story.run():
            pauses.append(waited)
            waited = 0.0
    return pauses


def reservation_of(lease: dict[str, Any]) -> str:
    """Return the id of the lease's first reservation, which names its pool."""
    return str(lease["reservations"][0]["id"])


def test_status_and_events_follow_the_life_of_a_lease(story: Story) -> None:
    lease = story.reserve(60, 180)
    seen = []
    for minutes in (0, 60, 60, 60):
        story.at(minutes)
        now = story.lease(lease["id"])
        done = [one["event_type"] for one in now["events"] if one["status"] == "DONE"]
        acted = [kind for kind in done if kind != "before_start_lease"]
        seen.append((now["status"], now["reservations"][0]["status"], acted))
    assert seen == [
        ("PENDING", "pending", []),
        ("ACTIVE", "active", ["start_lease"]),
        ("ACTIVE", "active", ["start_lease", "before_end_lease"]),
        ("TERMINATED", "deleted", ["start_lease", "before_end_lease", "end_lease"]),
    ]


def test_a_lease_that_was_missed_whole_is_ended_without_a_start(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.reserve(60, 180)
    story.at(300)
    assert status(story, lease) == "TERMINATED"
    assert effects(story, "add_host", "delete_pool") == []


def test_a_host_leaves_one_lease_before_it_enters_the_next(story_everywhere: Story) -> None:
    story = story_everywhere
    second = story.reserve(120, 180, reservations=[host_reservation(4, 4)])
    first = story.reserve(60, 120, reservations=[host_reservation(4, 4)])
    story.at(60)
    story.at(60)
    assert (status(story, first), status(story, second)) == ("TERMINATED", "ACTIVE")
    pools = effects(story, "ensure_pool", "delete_pool")
    assert pools[-2:] == [
        ("delete_pool", reservation_of(first)),
        ("ensure_pool", reservation_of(second)),
    ]


def test_the_next_lease_waits_for_an_end_that_fails(story: Story) -> None:
    first = story.reserve(0, 60, reservations=[host_reservation(4, 4)])
    second = story.reserve(60, 120, reservations=[host_reservation(4, 4)])
    story.run()
    break_cloud(story, "remove_host")
    story.at(60)
    assert status(story, first) == "TERMINATING"
    assert status(story, second) == "PENDING"
    break_cloud(story)
    story.at(1)
    assert (status(story, first), status(story, second)) == ("TERMINATED", "ACTIVE")


def test_servers_are_deleted_at_the_end(story: Story) -> None:
    lease = story.reserve(0, 60)
    story.run()
    (host,) = story.cloud.pool_hosts(reservation_of(lease))
    story.cloud.boot_server(host, "vm")
    story.at(60)
    assert story.cloud.servers(host) == []


def test_a_failed_start_is_tried_again_after_growing_pauses(make_story: Any) -> None:
    story = make_story(manager__event_max_retries=4)
    story.register(1)
    break_cloud(story, "add_host")
    lease = story.reserve(0, 240)
    story.run()
    assert status(story, lease) == "STARTING"
    assert event(story, lease, "start_lease")["status"] == "UNDONE"
    assert tries(story, 2) == [1.0, 2.0]
    break_cloud(story)
    assert tries(story, 1) == [4.0]
    assert status(story, lease) == "ACTIVE"
    assert story.told(lease["id"]).count("lease.event.start_lease") == 1


def test_a_start_that_keeps_failing_shows_as_error_and_is_told_once(make_story: Any) -> None:
    story = make_story(manager__event_max_retries=2)
    story.register(1)
    break_cloud(story, "add_host")
    lease = story.reserve(0, 240)
    story.run()
    assert tries(story, 2) == [1.0, 2.0]
    assert all(50 < pause < 70 for pause in tries(story, 3))
    failed = story.lease(lease["id"])
    assert failed["status"] == "ERROR"
    assert failed["reservations"][0]["status"] == "error"
    assert event(story, lease, "start_lease")["status"] == "ERROR"
    (told,) = [
        one
        for one in story.published(lease["id"])
        if one["event_type"] == "lease.event.start_lease"
    ]
    assert told["payload"]["status"] == "ERROR"


def test_a_lease_in_error_is_cleaned_up_at_its_end(make_story: Any) -> None:
    story = make_story(manager__event_max_retries=0)
    story.register(4)
    break_cloud(story, "sim-4")
    lease = story.reserve(0, 240, reservations=[host_reservation(4, 4)])
    story.run()
    assert status(story, lease) == "ERROR"
    assert len(story.cloud.pool_hosts(reservation_of(lease))) == 3
    break_cloud(story)
    story.at(240)
    ended = story.lease(lease["id"])
    assert ended["status"] == "TERMINATED"
    assert ended["reservations"][0]["status"] == "deleted"
    assert story.cloud.pool_hosts(reservation_of(lease)) == []


def test_a_start_that_fails_until_the_end_is_cleaned_up_then(story: Story) -> None:
    lease = story.reserve(0, 1)
    break_cloud(story, "add_host")
    story.run()
    story.at(1)
    story.at(1)
    assert status(story, lease) == "TERMINATED"
    shown = {one["event_type"]: one["status"] for one in story.lease(lease["id"])["events"]}
    assert shown["end_lease"] == "DONE"
    assert "UNDONE" not in shown.values()
    assert shown.get("start_lease") != "DONE"
    break_cloud(story)
    story.at(60)
    assert effects(story, "add_host") == []


def test_a_failed_end_shows_as_error_and_is_tried_for_ever(make_story: Any) -> None:
    story = make_story(manager__event_max_retries=1)
    story.register(1)
    lease = story.reserve(0, 60)
    story.run()
    break_cloud(story, "remove_host")
    story.at(60)
    assert status(story, lease) == "TERMINATING"
    assert tries(story, 1) == [1.0]
    assert status(story, lease) == "ERROR"
    assert all(50 < pause < 70 for pause in tries(story, 10))
    assert status(story, lease) == "ERROR"
    assert event(story, lease, "end_lease")["status"] == "ERROR"
    break_cloud(story)
    story.at(2)
    ended = story.lease(lease["id"])
    assert (ended["status"], ended["reservations"][0]["status"]) == ("TERMINATED", "deleted")


def test_what_fails_for_one_lease_holds_up_no_other(story: Story) -> None:
    stuck = story.reserve(0, 60)
    story.run()
    (host,) = story.cloud.pool_hosts(reservation_of(stuck))
    break_cloud(story, host)
    elsewhere = f'["!=", "$hypervisor_hostname", "{host}"]'
    asked = host_reservation(3, 3, hypervisor_properties=elsewhere)
    other = story.reserve(60, 120, reservations=[asked])
    story.at(60)
    assert (status(story, stuck), status(story, other)) == ("TERMINATING", "ACTIVE")


def test_a_short_lease_whose_start_is_tried_again_still_warns_of_its_end(story: Story) -> None:
    lease = story.reserve(0, 30)
    break_cloud(story, "add_host")
    story.run()
    break_cloud(story)
    story.at(1)
    assert status(story, lease) == "ACTIVE"
    assert story.told(lease["id"])[-2:] == [
        "lease.event.start_lease",
        "lease.event.before_end_lease",
    ]


def test_a_failed_snapshot_leaves_the_lease_alone(make_story: Any) -> None:
    story = make_story(manager__event_max_retries=1)
    story.register(1)
    lease = story.reserve(0, 120, reservations=[host_reservation(before_end="snapshot")])
    story.run()
    story.cloud.boot_server("sim-1", "vm")
    break_cloud(story, "snapshot")
    story.at(60)
    story.at(1)
    assert event(story, lease, "before_end_lease")["status"] == "ERROR"
    assert status(story, lease) == "ACTIVE"
    story.at(59)
    assert status(story, lease) == "TERMINATED"


def test_growth_that_fails_leaves_the_lease_active_and_degraded(make_story: Any) -> None:
    story = make_story(manager__event_max_retries=1)
    story.register(2)
    lease = story.reserve(0, 120)
    story.run()
    break_cloud(story, "add_host")
    change = {"reservations": [{"id": reservation_of(lease), "max": 2}]}
    story.ok("PUT", f"/v1/leases/{lease['id']}", change)
    story.run()
    assert story.lease(lease["id"])["degraded"] is False
    story.at(1)
    shown = story.lease(lease["id"])
    assert (shown["status"], shown["degraded"]) == ("ACTIVE", True)


def test_a_pool_that_somebody_removed_does_not_hinder_the_end(story: Story) -> None:
    lease = story.reserve(0, 60)
    story.run()
    [host] = story.cloud.pool_hosts(reservation_of(lease))
    story.cloud.remove_host(reservation_of(lease), host)
    story.cloud.delete_pool(reservation_of(lease))
    story.at(60)
    assert status(story, lease) == "TERMINATED"


def test_work_of_a_manager_that_died_is_taken_over(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.reserve(0, 60)
    assert len(story.dispatcher._claim()) == 1  # and no more is heard of it
    assert story.at(0) == 0
    story.dispatcher.keep()
    story.clock.advance(29)
    story.dispatcher.keep()
    assert story.run() == 0
    story.clock.advance(1)
    story.dispatcher.keep()
    assert story.run() >= 1
    assert status(story, lease) == "ACTIVE"
    assert len(effects(story, "add_host")) == 1


def test_a_start_that_failed_for_good_says_why_to_those_who_listen(make_story: MakeStory) -> None:
    story = make_story(manager__event_max_retries=0)
    story.register(1)
    lease = story.reserve(0, 60)
    break_cloud(story, "add_host")
    story.run()
    last = story.published(lease["id"])[-1]
    assert last["event_type"] == "lease.event.start_lease"
    assert last["payload"]["status"] == "ERROR"
    assert "add_host is broken" in last["payload"]["error"]
