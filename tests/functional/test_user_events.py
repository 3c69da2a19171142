"""Events that users bring: told at their date, never executed, and moved with their lease."""

from typing import Any

import pytest

from tests.support.service import Story, host_reservation


def own(*pairs: tuple[str, str]) -> dict[str, Any]:
    """Return events for a lease, given as (kind, date)."""
    return {"events": [{"event_type": kind, "event_date": date} for kind, date in pairs]}


def times(lease: dict[str, Any], kind: str) -> list[str]:
    """Return the times of day at which the events of a kind are due."""
    return [one["time"][11:16] for one in lease["events"] if one["event_type"] == kind]


def count(story: Story, lease: dict[str, Any], kind: str) -> int:
    """Return how often an event of this kind was told."""
    return story.told(lease["id"]).count(f"lease.event.{kind}")


@pytest.mark.parametrize("key", ["event_date", "time"])
def test_an_event_of_any_kind_is_told_at_its_date(story_everywhere: Story, key: str) -> None:
    story = story_everywhere
    event = {"event_type": "check.disks", key: story.date(90)}
    lease = story.reserve(60, 240, events=[event])
    assert times(lease, "check.disks") == ["13:30"]
    story.at(60)
    before = story.cloud.effects()
    story.at(29)
    assert count(story, lease, "check.disks") == 0
    story.at(1)
    assert count(story, lease, "check.disks") == 1
    story.at(10)
    assert count(story, lease, "check.disks") == 1
    assert story.cloud.effects() == before
    (shown,) = [
        one for one in story.lease(lease["id"])["events"] if one["event_type"] == "check.disks"
    ]
    assert shown["status"] == "DONE"


def test_an_event_tells_who_has_which_hosts(story: Story) -> None:
    lease = story.reserve(0, 240, **own(("mine", story.date(30))))
    story.at(30)
    (note,) = [
        one for one in story.published(lease["id"]) if one["event_type"] == "lease.event.mine"
    ]
    assert note["payload"]["lease_id"] == lease["id"]
    assert [host["id"] for host in note["payload"]["hosts"]] == story.hosts_of(lease["id"])


def test_events_of_the_service_cannot_be_brought(story: Story) -> None:
    for kind in ["start_lease", "end_lease", "update_lease", "before_end_lease.stop"]:
        body = story.lease_body(60, 240, **own((kind, story.date(90))))
        assert kind in story.refused(400, "POST", "/v1/leases", body)


def test_a_kind_is_a_short_plain_word(story: Story) -> None:
    for kind in ["", "Mine", "two words", "x" * 65, "9lives", "\u2603", 5, None]:
        body = story.lease_body(60, 240, **own((kind, story.date(90))))
        assert "event_type" in story.refused(400, "POST", "/v1/leases", body)


def test_an_event_needs_a_kind_and_a_date(story: Story) -> None:
    for event in [
        {"event_type": "mine"},
        {"event_type": "mine", "event_date": None},
        {"event_type": "mine", "time": ""},
        {"event_date": "2030-01-15 13:30"},
    ]:
        body = story.lease_body(60, 240, events=[event])
        assert story.refused(400, "POST", "/v1/leases", body).startswith(
            "Missing parameter events.0"
        )


def test_the_date_of_an_event_has_the_format_of_all_dates(story: Story) -> None:
    for date in ["now", "2030-01-15T13:30", "soon", 5]:
        body = story.lease_body(60, 240, **own(("mine", date)))
        assert "is an invalid date" in story.refused(400, "POST", "/v1/leases", body)


def test_an_event_must_not_come_after_the_end(story: Story) -> None:
    body = story.lease_body(60, 240, **own(("mine", story.date(241))))
    assert "mine" in story.refused(400, "POST", "/v1/leases", body)
    lease = story.reserve(60, 240, **own(("mine", story.date(240))))
    story.at(60)
    story.at(180)
    assert sorted(story.told(lease["id"])[-2:]) == ["lease.event.end_lease", "lease.event.mine"]


def test_an_event_may_come_before_the_start(story: Story) -> None:
    lease = story.reserve(60, 240, **own(("mine", story.date(10))))
    story.at(10)
    assert count(story, lease, "mine") == 1
    assert story.lease(lease["id"])["status"] == "PENDING"


def test_events_that_are_equal_are_one(story: Story) -> None:
    date = story.date(90)
    lease = story.reserve(60, 240, **own(("mine", date), ("mine", date)))
    assert times(lease, "mine") == ["13:30"]


def test_an_event_keeps_its_distance_from_the_start(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.reserve(60, 240, **own(("mine", story.date(90))))
    dates = {"start_date": story.date(120), "end_date": story.date(300)}
    moved = story.ok("PUT", f"/v1/leases/{lease['id']}", dates)["lease"]
    assert times(moved, "mine") == ["14:30"]
    story.at(149)
    assert count(story, lease, "mine") == 0
    story.at(1)
    assert count(story, lease, "mine") == 1


def test_an_event_that_was_told_is_told_again_when_its_lease_moves(story: Story) -> None:
    lease = story.reserve(60, 240, **own(("mine", story.date(10))))
    story.at(10)
    story.ok("PUT", f"/v1/leases/{lease['id']}", {"start_date": story.date(90)})
    story.at(39)
    assert count(story, lease, "mine") == 1
    story.at(1)
    assert count(story, lease, "mine") == 2


def test_an_event_comes_no_later_than_an_earlier_end(story: Story) -> None:
    lease = story.reserve(0, 240, **own(("mine", story.date(200))))
    story.run()
    moved = story.ok("PUT", f"/v1/leases/{lease['id']}", {"end_date": story.date(120)})["lease"]
    assert times(moved, "mine") == ["14:00"]


def test_a_lease_that_ends_now_forgets_the_events_to_come(story: Story) -> None:
    lease = story.reserve(0, 240, **own(("mine", story.date(200))))
    story.run()
    story.clock.advance(60)
    story.ok("PUT", f"/v1/leases/{lease['id']}", {"end_date": "now"})
    story.at(240)
    assert story.lease(lease["id"])["status"] == "TERMINATED"
    assert count(story, lease, "mine") == 0


def test_a_before_end_of_ones_own_replaces_the_default_and_acts(story: Story) -> None:
    asked = host_reservation(before_end="snapshot")
    dates = own(("before_end_lease", story.date(230)))
    lease = story.reserve(0, 240, reservations=[asked], **dates)
    assert times(lease, "before_end_lease") == ["15:50"]
    story.run()
    (host,) = story.cloud.pool_hosts(lease["reservations"][0]["id"])
    story.cloud.boot_server(host, "vm")
    story.at(229)
    assert "snapshot" not in [effect["effect"] for effect in story.cloud.effects()]
    story.at(1)
    assert "snapshot" in [effect["effect"] for effect in story.cloud.effects()]


def test_a_before_end_of_ones_own_must_be_inside_the_lease(story: Story) -> None:
    for minutes in [30, 60, 240, 241]:
        body = story.lease_body(60, 240, **own(("before_end_lease", story.date(minutes))))
        story.refused(400, "POST", "/v1/leases", body)


def test_a_lease_has_one_before_end(story: Story) -> None:
    first, second = story.date(100), story.date(200)
    for fields in (
        own(("before_end_lease", first), ("before_end_lease", second)),
        {"before_end_date": first, **own(("before_end_lease", second))},
    ):
        body = story.lease_body(60, 240, **fields)
        assert "before_end_lease" in story.refused(400, "POST", "/v1/leases", body)
    same = {"before_end_date": first, **own(("before_end_lease", first))}
    assert times(story.reserve(60, 240, **same), "before_end_lease") == ["13:40"]


def test_a_hundred_events_are_taken_and_no_more(story: Story) -> None:
    dates = own(*((f"mine.{number}", story.date(90)) for number in range(101)))
    body = story.lease_body(60, 240, **dates)
    assert "events" in story.refused(400, "POST", "/v1/leases", body)
    body["events"].pop()
    lease = story.ok("POST", "/v1/leases", body)["lease"]
    kinds = [event["event_type"] for event in lease["events"]]
    assert sum(kind.startswith("mine.") for kind in kinds) == 100
