"""The events of a lease: the reminder before its end, and events of the user."""

from typing import Any

from tests.conftest import MakeStory
from tests.support.bodies import effect_names, event_status, put, rejected_put, times_of_day
from tests.support.service import Story, host_reservation


def own(*events: tuple[str, str]) -> dict[str, Any]:
    """Return the fields of a lease with these events, given as (type, date)."""
    return {"events": [{"event_type": kind, "event_date": date} for kind, date in events]}


def count(story: Story, lease: dict[str, Any], kind: str) -> int:
    return story.event_types(lease["id"]).count(f"lease.event.{kind}")


def test_an_event_of_the_user_is_notified_at_its_date_and_does_nothing(story: Story) -> None:
    date = story.date(90)
    events = [
        {"event_type": "check.disks", "event_date": date},
        {"event_type": "check.disks", "event_date": date},  # equal events are one
        {"event_type": "also", "time": date},
    ]
    lease = story.reserve(60, 240, events=events)
    assert times_of_day(lease, "check.disks") == times_of_day(lease, "also") == ["13:30"]
    story.at(60)
    before = story.cloud.effects()
    story.at(29)
    assert count(story, lease, "check.disks") == 0
    for minutes in (1, 10):
        story.at(minutes)
        assert count(story, lease, "check.disks") == count(story, lease, "also") == 1
    assert story.cloud.effects() == before
    assert event_status(story, lease, "check.disks") == "DONE"
    (payload,) = [
        notification["payload"]
        for notification in story.published(lease["id"])
        if notification["event_type"] == "lease.event.also"
    ]
    assert payload["lease_id"] == lease["id"]
    assert [host["id"] for host in payload["hosts"]] == story.hosts_of(lease["id"])


def test_an_event_of_the_user_may_come_before_the_start_but_not_after_the_end(
    story: Story,
) -> None:
    body = story.lease_body(60, 240, **own(("mine", story.date(241))))
    assert "mine" in story.refused(400, "POST", "/v1/leases", body)
    events = own(("mine", story.date(240)), ("early", story.date(10)))
    lease = story.reserve(60, 240, **events)
    story.at(10)
    assert count(story, lease, "early") == 1
    assert story.lease(lease["id"])["status"] == "PENDING"
    story.at(50)
    story.at(180)
    assert sorted(story.event_types(lease["id"])[-2:]) == [
        "lease.event.end_lease",
        "lease.event.mine",
    ]


def test_events_of_the_user_move_with_the_start_and_are_then_notified_again(story: Story) -> None:
    lease = story.reserve(60, 240, **own(("mine", story.date(90)), ("early", story.date(10))))
    story.at(10)
    dates = {"start_date": story.date(110), "end_date": story.date(290)}
    moved = put(story, lease, **dates)
    assert times_of_day(moved, "mine") == ["14:30"]
    for minutes, early, mine in ((59, 1, 0), (1, 2, 0), (79, 2, 0), (1, 2, 1)):
        story.at(minutes)
        assert (count(story, lease, "early"), count(story, lease, "mine")) == (early, mine)


def test_an_event_of_the_user_that_an_earlier_start_makes_overdue_is_notified_once(
    story: Story,
) -> None:
    lease = story.reserve(60, 240, **own(("first", story.date(5)), ("second", story.date(20))))
    story.at(5)
    moved = put(story, lease, start_date=story.date(20))  # "second" would be due ten minutes ago
    assert times_of_day(moved, "second") == ["12:05"]
    for minutes in (0, 20):
        story.at(minutes)
        assert (count(story, lease, "first"), count(story, lease, "second")) == (1, 1)


def test_an_earlier_end_moves_events_and_an_end_now_cancels_them(story: Story) -> None:
    lease = story.reserve(0, 240, **own(("mine", story.date(200))))
    story.run()
    moved = put(story, lease, end_date=story.date(120))
    assert times_of_day(moved, "mine") == ["14:00"]
    story.clock.advance(60)
    put(story, lease, end_date="now")
    story.at(240)
    assert story.lease(lease["id"])["status"] == "TERMINATED"
    assert count(story, lease, "mine") == 0


def test_the_reminder_of_a_short_lease_comes_right_after_its_start(story: Story) -> None:
    lease = story.reserve(0, 30)
    assert times_of_day(lease, "before_end_lease") == times_of_day(lease, "start_lease")
    story.run()
    assert story.event_types(lease["id"]) == [
        "lease.create",
        "lease.event.start_lease",
        "lease.event.before_end_lease",
    ]


def test_the_reminder_can_be_off_unless_a_date_is_given(make_story: MakeStory) -> None:
    story = make_story(manager__minutes_before_end_lease=0)
    story.register(2)
    lease = story.reserve(60, 240)
    assert times_of_day(lease, "before_end_lease") == []
    chosen = story.reserve(60, 240, before_end_date="2030-01-15 15:30")
    assert times_of_day(chosen, "before_end_lease") == ["15:30"]
    put(story, lease, end_date=story.date(300))
    changed = put(story, lease, before_end_date=story.date(200))
    assert times_of_day(changed, "before_end_lease") == ["15:20"]


def test_the_reminder_keeps_its_distance_from_the_end(story: Story) -> None:
    lease = story.reserve(60, 240, before_end_date=story.date(230))
    for end, expected in ((300, "16:50"), (65, "13:00"), (300, "16:50")):  # never before the start
        changed = put(story, lease, end_date=story.date(end))
        assert times_of_day(changed, "before_end_lease") == [expected]
    moved = put(story, lease, end_date=story.date(600), before_end_date=story.date(500))
    assert times_of_day(moved, "before_end_lease") == ["20:20"]
    dates: dict[str, Any] = {"end_date": story.date(400), "before_end_date": story.date(450)}
    rejected_put(story, lease, **dates)


def test_an_own_before_end_event_replaces_the_reminder_and_takes_snapshots(story: Story) -> None:
    first, second = story.date(100), story.date(200)
    for minutes in (30, 60, 240, 241):
        body = story.lease_body(60, 240, **own(("before_end_lease", story.date(minutes))))
        story.refused(400, "POST", "/v1/leases", body)
    for fields in (
        own(("before_end_lease", first), ("before_end_lease", second)),
        {"before_end_date": first, **own(("before_end_lease", second))},
    ):
        body = story.lease_body(60, 240, **fields)
        assert "before_end_lease" in story.refused(400, "POST", "/v1/leases", body)
    same = {"before_end_date": first, **own(("before_end_lease", first))}
    assert times_of_day(story.reserve(60, 240, **same), "before_end_lease") == ["13:40"]
    snapshot = [host_reservation(before_end="snapshot")]
    event = own(("before_end_lease", story.date(230)))
    lease = story.reserve(0, 240, reservations=snapshot, **event)
    assert times_of_day(lease, "before_end_lease") == ["15:50"]
    story.run()
    (host,) = story.cloud.pool_hosts(lease["reservations"][0]["id"])
    story.cloud.boot_server(host, "vm")
    story.at(229)
    assert effect_names(story, "snapshot") == []
    story.at(1)
    assert effect_names(story, "snapshot") == ["snapshot"]
