"""Heads-ups before the start, and the events that users bring: when they are due, once each."""

from typing import Any

import pytest

from tests.service import Story, host_reservation


def own(*pairs: tuple[str, str]) -> dict[str, Any]:
    """Return events for a lease, given as (kind, date)."""
    return {"events": [{"event_type": kind, "event_date": date} for kind, date in pairs]}


def times(lease: dict[str, Any], kind: str) -> list[str]:
    """Return the times of day at which the events of a kind are due."""
    return [one["time"][11:16] for one in lease["events"] if one["event_type"] == kind]


def heads_ups(story: Story, lease: dict[str, Any]) -> list[float]:
    """Return how many seconds before the start each heads-up says that it came."""
    return [
        one["payload"]["starts_in"]
        for one in story.published(lease["id"])
        if one["event_type"] == "lease.event.before_start_lease"
    ]


def told(story: Story, lease: dict[str, Any]) -> list[str]:
    """Return what was told about events of the lease that are not heads-ups before the start."""
    kinds = [kind.removeprefix("lease.event.") for kind in story.told(lease["id"])]
    return [kind for kind in kinds if not kind.startswith(("lease.", "before_start"))]


def put(story: Story, lease: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Change the lease and return it."""
    return story.ok("PUT", f"/v1/leases/{lease['id']}", fields)["lease"]


def test_heads_ups_come_an_hour_ten_minutes_and_a_minute_before_the_start(
    story_everywhere: Story,
) -> None:
    story = story_everywhere
    lease = story.reserve(120, 240)
    assert times(lease, "before_start_lease") == ["13:00", "13:50", "13:59"]
    for minutes, seen in ((59, []), (1, [3600]), (50, [3600, 600]), (9, [3600, 600, 60])):
        story.at(minutes)
        assert heads_ups(story, lease) == seen
    story.at(1)
    assert heads_ups(story, lease) == [3600, 600, 60]


def test_a_heads_up_names_the_hosts_concerned(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.reserve(60, 120, reservations=[host_reservation(4, 4)])
    story.run()
    (note,) = (
        one
        for one in story.published(lease["id"])
        if one["event_type"] == "lease.event.before_start_lease"
    )
    payload = note["payload"]
    assert sorted(host["name"] for host in payload["hosts"]) == ["sim-1", "sim-2", "sim-3", "sim-4"]
    assert {host["id"] for host in payload["hosts"]} == set(story.hosts_of(lease["id"]))
    assert {host["reservation_id"] for host in payload["hosts"]} == {lease["reservations"][0]["id"]}


def test_a_notification_is_the_lease_as_the_api_shows_it(story: Story) -> None:
    lease = story.reserve(120, 240)
    (note,) = story.published(lease["id"])
    assert note["event_type"] == "lease.create"
    expected = {"lease_id": lease["id"], **lease}
    del expected["id"]
    assert {key: note["payload"][key] for key in expected} == expected


def test_missed_heads_ups_come_as_one_at_once_with_the_true_time(story_everywhere: Story) -> None:
    story = story_everywhere
    story.clock.advance(12.5)
    lease = story.reserve(5.5, 120)
    assert times(lease, "before_start_lease") == ["12:00", "12:04"]
    story.run()
    assert heads_ups(story, lease) == [287.5]
    story.at(4)
    assert heads_ups(story, lease) == [287.5, 47.5]


def test_a_lease_within_the_last_lead_has_one_heads_up(story: Story) -> None:
    story.clock.advance(30)
    lease = story.reserve(1, 120)
    story.run()
    assert heads_ups(story, lease) == [30]
    story.at(1)
    assert heads_ups(story, lease) == [30]


@pytest.mark.parametrize("start", ["now", "2030-01-15 12:00"])
def test_a_lease_that_starts_now_has_no_heads_up(story: Story, start: str) -> None:
    lease = story.reserve(start_date=start)
    assert times(lease, "before_start_lease") == []
    story.run()
    assert story.told(lease["id"]) == ["lease.create", "lease.event.start_lease"]


def test_leads_are_configurable(make_story: Any) -> None:
    story = make_story(manager__before_start_leads=[90, 30])
    story.register(1)
    lease = story.reserve(2, 120)
    for _ in range(12):
        story.at(1 / 6)
    assert heads_ups(story, lease) == [90, 30]


def test_heads_ups_can_be_off(make_story: Any) -> None:
    story = make_story(manager__before_start_leads=[])
    story.register(1)
    assert times(story.reserve(120, 240), "before_start_lease") == []


def test_heads_ups_of_ones_own_replace_the_configured_ones(story: Story) -> None:
    dates = [("before_start_lease", story.date(30)), ("before_start_lease", story.date(110))]
    lease = story.reserve(120, 240, **own(*dates))
    assert times(lease, "before_start_lease") == ["12:30", "13:50"]
    story.at(30)
    assert heads_ups(story, lease) == [5400]
    story.at(80)
    assert heads_ups(story, lease) == [5400, 600]


def test_own_heads_ups_that_are_past_come_as_one_at_once(story: Story) -> None:
    dates = [("before_start_lease", story.date(-minutes)) for minutes in (5, 30, 600)]
    lease = story.reserve(120, 240, **own(*dates))
    story.run()
    assert heads_ups(story, lease) == [7200]


def test_an_own_heads_up_must_come_before_the_start(story: Story) -> None:
    for minutes in [120, 121, 240, 300]:
        dates = own(("before_start_lease", story.date(minutes)))
        body = story.lease_body(120, 240, **dates)
        assert "before_start_lease" in story.refused(400, "POST", "/v1/leases", body)


def test_heads_ups_come_again_when_the_start_moves(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.reserve(60, 600)
    story.at(50)
    assert heads_ups(story, lease)[-1] == 600
    before = heads_ups(story, lease)
    put(story, lease, start_date=story.date(180))
    story.at(119)
    assert heads_ups(story, lease) == before
    for minutes in (1, 50, 9, 1):
        story.at(minutes)
    assert heads_ups(story, lease) == [*before, 3600, 600, 60]
    assert story.lease(lease["id"])["status"] == "ACTIVE"


def test_a_start_that_moves_closer_is_announced_at_once_and_once(story: Story) -> None:
    lease = story.reserve(600, 700)
    put(story, lease, start_date=story.date(5))
    story.run()
    assert heads_ups(story, lease) == [300]
    story.at(4)
    assert heads_ups(story, lease) == [300, 60]


def test_a_start_that_moves_before_its_heads_up_was_sent_is_announced_once(story: Story) -> None:
    lease = story.reserve(30, 700)
    put(story, lease, start_date=story.date(20))
    story.run()
    assert heads_ups(story, lease) == [1200]
    later = story.reserve(30, 700)
    put(story, later, start_date=story.date(120))
    story.run()
    assert heads_ups(story, later) == []


def test_own_heads_ups_move_with_the_start(story: Story) -> None:
    lease = story.reserve(120, 240, **own(("before_start_lease", story.date(105))))
    moved = put(story, lease, start_date=story.date(180), end_date=story.date(300))
    assert times(moved, "before_start_lease") == ["14:45"]


def test_a_change_of_the_end_alone_does_not_announce_the_start_again(story: Story) -> None:
    lease = story.reserve(30, 240)
    story.run()
    assert heads_ups(story, lease) == [1800]
    moved = put(story, lease, end_date=story.date(300))
    assert times(moved, "before_start_lease") == times(lease, "before_start_lease")
    story.at(1)
    assert heads_ups(story, lease) == [1800]


def test_a_lease_brought_forward_to_now_has_nothing_left_to_announce(story: Story) -> None:
    lease = story.reserve(120, 240)
    put(story, lease, start_date="now")
    story.at(119)
    assert heads_ups(story, lease) == []


def test_no_heads_up_comes_after_the_start(story: Story) -> None:
    lease = story.reserve(120, 240)
    story.at(121)  # the managers were away
    assert story.lease(lease["id"])["status"] == "ACTIVE"
    assert heads_ups(story, lease) == []


def test_no_heads_up_comes_for_a_deleted_lease(story: Story) -> None:
    lease = story.reserve(120, 240)
    story.ok("DELETE", f"/v1/leases/{lease['id']}")
    story.at(119)
    assert heads_ups(story, lease) == []


def test_before_end_comes_again_when_the_end_moves_away(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.reserve(0, 120)
    story.run()
    story.at(60)
    assert told(story, lease) == ["start_lease", "before_end_lease"]
    moved = put(story, lease, end_date=story.date(180))
    assert times(moved, "before_end_lease") == ["15:00"]
    story.at(120)
    story.at(60)
    assert told(story, lease)[-3:] == [
        "before_end_lease.stop",
        "before_end_lease",
        "end_lease",
    ]


def test_before_end_that_was_not_sent_yet_moves_silently(story: Story) -> None:
    lease = story.reserve(0, 120)
    story.run()
    put(story, lease, end_date=story.date(180))
    story.at(60)
    assert told(story, lease) == ["start_lease"]
    story.at(60)
    assert told(story, lease) == ["start_lease", "before_end_lease"]


def test_before_end_that_was_sent_is_not_sent_again_for_a_nearer_end(story: Story) -> None:
    lease = story.reserve(0, 120)
    story.run()
    story.at(60)
    put(story, lease, end_date=story.date(30))
    story.run()
    assert told(story, lease) == ["start_lease", "before_end_lease"]


def test_heads_ups_missed_while_no_manager_ran_are_told_once(story: Story) -> None:
    lease = story.reserve(120, 240)
    story.clock.advance(115 * 60)
    story.run()
    heads_ups = [
        one["payload"]["starts_in"]
        for one in story.published(lease["id"])
        if one["event_type"] == "lease.event.before_start_lease"
    ]
    assert heads_ups == [300.0]
