"""The life of a lease from request to end, also when the cloud fails."""

from typing import Any

from tests.conftest import MakeStory
from tests.support.bodies import change_of, effect_names, event_status, pool_of
from tests.support.failing_cloud import break_cloud
from tests.support.service import Story, host_reservation


def status(story: Story, lease: dict[str, Any]) -> str:
    return str(story.lease(lease["id"])["status"])


def pauses(story: Story, count: int) -> list[float]:
    """Return the seconds before each of the next ``count`` attempts."""
    found: list[float] = []
    waited = 0.0
    while len(found) < count:
        story.clock.advance(0.5)
        waited += 0.5
        if story.run():
            found.append(waited)
            waited = 0.0
    return found


def test_a_lease_lives_from_request_to_end(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.reserve(120, 240, reservations=[host_reservation(1, 2)])
    seen = []
    for minutes, hosts in ((0, 0), (60, 0), (50, 0), (9, 0), (1, 2), (60, 2), (60, 0)):
        story.at(minutes)
        now = story.lease(lease["id"])
        acted = {event["event_type"] for event in now["events"] if event["status"] == "DONE"}
        seen.append((now["status"], now["reservations"][0]["status"], len(acted)))
        assert len(pool_of(story, lease)) == hosts
    assert seen == [
        ("PENDING", "pending", 0),
        *[("PENDING", "pending", 1)] * 3,
        ("ACTIVE", "active", 2),
        ("ACTIVE", "active", 3),
        ("TERMINATED", "deleted", 4),
    ]
    assert story.event_types(lease["id"]) == [
        "lease.create",
        *["lease.event.before_start_lease"] * 3,
        "lease.event.start_lease",
        "lease.event.before_end_lease",
        "lease.event.end_lease",
    ]


def test_a_lease_without_reservations_starts_and_ends(story: Story) -> None:
    dates = {"name": "bare", "start_date": "now", "end_date": story.date(90)}
    requests = (dates, {**dates, "reservations": []})
    leases = [story.ok("POST", "/v1/leases", request)["lease"] for request in requests]
    story.run()
    assert [status(story, lease) for lease in leases] == ["ACTIVE"] * 2
    story.at(90)
    assert [status(story, lease) for lease in leases] == ["TERMINATED"] * 2
    assert [lease["reservations"] for lease in leases] == [[], []]


def test_a_host_leaves_one_lease_before_it_enters_the_next(story_everywhere: Story) -> None:
    story = story_everywhere
    second = story.reserve(120, 180, reservations=[host_reservation(4, 4)])
    first = story.reserve(60, 120, reservations=[host_reservation(4, 4)])
    story.at(60)
    (host, *_) = pool_of(story, first)
    story.cloud.boot_server(host, "vm")
    story.at(60)
    assert (status(story, first), status(story, second)) == ("TERMINATED", "ACTIVE")
    assert story.cloud.servers(host) == []
    done = [effect for effect in story.cloud.effects() if effect["effect"].endswith("_pool")]
    assert [(effect["effect"], effect["pool"]) for effect in done[-2:]] == [
        ("delete_pool", first["reservations"][0]["id"]),
        ("ensure_pool", second["reservations"][0]["id"]),
    ]


def test_a_failing_end_delays_the_next_lease_of_its_hosts_and_no_other(story: Story) -> None:
    stuck = story.reserve(0, 60)
    story.run()
    (host,) = pool_of(story, stuck)
    pattern = '["{0}", "$hypervisor_hostname", "{1}"]'
    elsewhere = host_reservation(3, 3, hypervisor_properties=pattern.format("!=", host))
    other = story.reserve(60, 120, reservations=[elsewhere])
    same = host_reservation(1, 1, hypervisor_properties=pattern.format("==", host))
    waiting = story.reserve(60, 120, reservations=[same])
    break_cloud(story, "remove_host")
    story.at(60)
    statuses = [status(story, lease) for lease in (stuck, other, waiting)]
    assert statuses == ["TERMINATING", "ACTIVE", "PENDING"]
    break_cloud(story)
    story.at(1)
    statuses = [status(story, lease) for lease in (stuck, other, waiting)]
    assert statuses == ["TERMINATED", "ACTIVE", "ACTIVE"]


def test_retries_a_failed_start_after_growing_pauses(make_story: MakeStory) -> None:
    story = make_story(manager__event_max_retries=4)
    story.register(1)
    break_cloud(story, "add_host")
    lease = story.reserve(0, 240)
    story.run()
    assert status(story, lease) == "STARTING"
    assert event_status(story, lease, "start_lease") == "UNDONE"
    assert pauses(story, 2) == [1.0, 2.0]
    break_cloud(story)
    assert pauses(story, 1) == [4.0]
    assert status(story, lease) == "ACTIVE"
    assert story.event_types(lease["id"]).count("lease.event.start_lease") == 1


def test_a_start_that_keeps_failing_shows_error_and_notifies_once(make_story: MakeStory) -> None:
    story = make_story(manager__event_max_retries=2)
    story.register(4)
    break_cloud(story, "sim-4")
    lease = story.reserve(0, 240, reservations=[host_reservation(4, 4)])
    story.run()
    assert pauses(story, 2) == [1.0, 2.0]
    assert all(50 < pause < 70 for pause in pauses(story, 3))
    failed = story.lease(lease["id"])
    assert (failed["status"], failed["reservations"][0]["status"]) == ("ERROR", "error")
    assert event_status(story, lease, "start_lease") == "ERROR"
    (start,) = [
        notification["payload"]
        for notification in story.published(lease["id"])
        if notification["event_type"] == "lease.event.start_lease"
    ]
    assert start["status"] == "ERROR"
    assert "is broken" in start["error"]
    assert len(pool_of(story, lease)) == 3
    break_cloud(story)
    story.at(240)
    ended = story.lease(lease["id"])
    assert (ended["status"], ended["reservations"][0]["status"]) == ("TERMINATED", "deleted")
    assert pool_of(story, lease) == []


def test_a_start_that_fails_until_the_end_is_cleaned_up_at_the_end(story: Story) -> None:
    lease = story.reserve(0, 1)
    break_cloud(story, "add_host")
    story.run()
    story.at(1)
    story.at(1)
    assert status(story, lease) == "TERMINATED"
    shown = {event["event_type"]: event["status"] for event in story.lease(lease["id"])["events"]}
    assert shown["end_lease"] == "DONE"
    assert "UNDONE" not in shown.values()
    assert shown.get("start_lease") != "DONE"
    break_cloud(story)
    story.at(60)
    assert effect_names(story, "add_host") == []


def test_retries_a_failed_end_for_ever(make_story: MakeStory) -> None:
    story = make_story(manager__event_max_retries=1)
    story.register(1)
    lease = story.reserve(0, 60)
    story.run()
    break_cloud(story, "remove_host")
    story.at(60)
    assert status(story, lease) == "TERMINATING"
    assert pauses(story, 1) == [1.0]
    assert status(story, lease) == "ERROR"
    assert all(50 < pause < 70 for pause in pauses(story, 10))
    assert status(story, lease) == event_status(story, lease, "end_lease") == "ERROR"
    assert story.event_types(lease["id"]).count("lease.event.end_lease") == 1
    later = {"end_date": story.date(60)}
    assert "being ended" in story.refused(400, "PUT", f"/v1/leases/{lease['id']}", later)
    break_cloud(story)
    story.at(2)
    ended = story.lease(lease["id"])
    assert (ended["status"], ended["reservations"][0]["status"]) == ("TERMINATED", "deleted")
    assert story.event_types(lease["id"]).count("lease.event.end_lease") == 2


def test_a_reminder_that_is_due_at_a_delayed_start_comes_after_it(story: Story) -> None:
    lease = story.reserve(0, 30)
    break_cloud(story, "add_host")
    story.run()
    break_cloud(story)
    story.at(1)
    assert status(story, lease) == "ACTIVE"
    assert story.event_types(lease["id"])[-2:] == [
        "lease.event.start_lease",
        "lease.event.before_end_lease",
    ]


def test_a_failed_snapshot_leaves_the_lease_active_and_is_retried_when_it_is_prolonged(
    make_story: MakeStory,
) -> None:
    story = make_story(manager__event_max_retries=1)
    story.register(1)
    lease = story.reserve(0, 120, reservations=[host_reservation(before_end="snapshot")])
    story.run()
    story.cloud.boot_server("sim-1", "vm")
    break_cloud(story, "snapshot")
    story.at(60)
    story.at(1)
    assert event_status(story, lease, "before_end_lease") == "ERROR"
    assert status(story, lease) == "ACTIVE"
    break_cloud(story)
    story.ok("PUT", f"/v1/leases/{lease['id']}", {"end_date": story.date(90)})
    assert event_status(story, lease, "before_end_lease") == "UNDONE"
    story.at(31)
    assert event_status(story, lease, "before_end_lease") == "DONE"
    assert effect_names(story, "snapshot") == ["snapshot"]
    story.at(59)
    assert status(story, lease) == "TERMINATED"


def test_growth_that_fails_leaves_the_lease_degraded_until_it_is_requested_again(
    make_story: MakeStory,
) -> None:
    story = make_story(manager__event_max_retries=1)
    story.register(2)
    lease = story.reserve(0, 120)
    story.run()
    break_cloud(story, "add_host")
    change = {"reservations": change_of(lease, max=2)}
    story.ok("PUT", f"/v1/leases/{lease['id']}", change)
    story.run()
    assert story.lease(lease["id"])["degraded"] is False
    story.at(1)
    assert status(story, lease) == "ACTIVE"
    assert story.lease(lease["id"])["degraded"] is True
    break_cloud(story)
    story.ok("PUT", f"/v1/leases/{lease['id']}", change)
    story.run()
    assert story.lease(lease["id"])["degraded"] is False
    assert len(pool_of(story, lease)) == 2


def test_a_lease_that_waits_for_a_host_still_ends_on_time(story: Story) -> None:
    stuck = story.reserve(0, 10)
    lease = story.reserve(0, 60, reservations=[host_reservation(3, 3)])
    story.run()
    break_cloud(story, "remove_host")
    story.at(15)  # the first lease is over, but its host cannot be reclaimed
    change = {"reservations": change_of(lease, max=4)}
    story.ok("PUT", f"/v1/leases/{lease['id']}", change)
    story.at(1)
    assert event_status(story, lease, "update_lease") == "UNDONE"
    (host,) = story.hosts_of(stuck["id"])
    break_cloud(story, host, f"sim-{host}")
    story.at(60)
    assert status(story, lease) == "TERMINATED"
    assert status(story, stuck) != "TERMINATED"


def test_a_pool_that_an_operator_deleted_does_not_block_the_end(story: Story) -> None:
    lease = story.reserve(0, 60)
    story.run()
    (host,), pool = pool_of(story, lease), lease["reservations"][0]["id"]
    story.cloud.remove_host(pool, host)
    story.cloud.delete_pool(pool)
    story.at(60)
    assert status(story, lease) == "TERMINATED"


def test_reclaims_the_work_of_a_manager_that_died(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.reserve(0, 60)
    assert len(story.dispatcher._claim()) == 1  # and the manager dies
    assert story.at(0) == 0
    story.dispatcher.upkeep.renew()
    story.clock.advance(29)
    story.dispatcher.upkeep.renew()
    assert story.run() == 0
    story.clock.advance(1)
    story.dispatcher.upkeep.renew()
    assert story.run() >= 1
    assert status(story, lease) == "ACTIVE"
    assert effect_names(story, "add_host") == ["add_host"]
