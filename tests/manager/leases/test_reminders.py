"""Reminders before the start and the end of a lease: when they are due, each sent once."""

from typing import Any

import pytest

from climate.config.registry import Misconfigured
from climate.core.notifications import reminder
from tests.conftest import MakeStory
from tests.support.service import Story, host_reservation


def own(*dates: str) -> dict[str, Any]:
    """Return the field of a request that asks for reminders at these dates."""
    return {"events": [{"event_type": "before_start_lease", "event_date": at} for at in dates]}


def times(lease: dict[str, Any], kind: str = "before_start_lease") -> list[str]:
    """Return the times of day at which events of a kind are due."""
    return [event["time"][11:16] for event in lease["events"] if event["event_type"] == kind]


def reminders(story: Story, lease: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        item["payload"]
        for item in story.published(lease["id"])
        if item["event_type"] == "lease.event.before_start_lease"
    ]


def leads(story: Story, lease: dict[str, Any]) -> list[float]:
    """Return how many seconds before the start each reminder says that it was sent."""
    return [payload["starts_in"] for payload in reminders(story, lease)]


def sent(story: Story, lease: dict[str, Any]) -> list[str]:
    """Return the notifications about events, without reminders before the start."""
    kinds = [kind.removeprefix("lease.event.") for kind in story.event_types(lease["id"])]
    return [kind for kind in kinds if not kind.startswith(("lease.", "before_start"))]


def put(story: Story, lease: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return dict(story.ok("PUT", f"/v1/leases/{lease['id']}", fields)["lease"])


# Reminders before the start.


def test_reminders_are_sent_an_hour_ten_minutes_and_a_minute_before_the_start(
    story: Story,
) -> None:
    lease = story.reserve(120, 240, reservations=[host_reservation(4, 4)])
    [created] = story.published(lease["id"])
    assert created["event_type"] == "lease.create"
    shown = {"lease_id": lease["id"], **lease}
    del shown["id"]
    assert {key: created["payload"][key] for key in shown} == shown
    assert times(lease) == ["13:00", "13:50", "13:59"]
    for minutes, expected in ((59, []), (1, [3600]), (50, [3600, 600]), (9, [3600, 600, 60])):
        story.at(minutes)
        assert leads(story, lease) == expected
    story.at(1)
    assert leads(story, lease) == [3600, 600, 60]
    hosts = reminders(story, lease)[0]["hosts"]
    assert sorted(host["name"] for host in hosts) == ["sim-1", "sim-2", "sim-3", "sim-4"]
    assert {host["id"] for host in hosts} == set(story.hosts_of(lease["id"]))
    assert {host["reservation_id"] for host in hosts} == {lease["reservations"][0]["id"]}


def test_reminders_already_due_are_combined_and_state_the_actual_time(story: Story) -> None:
    story.clock.advance(12.5)
    lease = story.reserve(5.5, 120)
    assert times(lease) == ["12:00", "12:04"]
    story.run()
    assert leads(story, lease) == [287.5]
    story.at(4)
    assert leads(story, lease) == [287.5, 47.5]
    story.clock.advance(17.5)
    last = story.reserve(1, 120)
    story.run()
    story.at(1)
    assert leads(story, last) == [30], "less than the shortest lead is left"


def test_reminders_missed_during_down_time_are_sent_once_and_never_after_the_start(
    story: Story,
) -> None:
    near, started, deleted = (story.reserve(minutes, 240) for minutes in (120, 60, 120))
    story.ok("DELETE", f"/v1/leases/{deleted['id']}")
    story.clock.advance(115 * 60)
    story.run()
    assert leads(story, near) == [300.0]
    assert story.lease(started["id"])["status"] == "ACTIVE"
    assert leads(story, started) == leads(story, deleted) == []


@pytest.mark.parametrize("start", ["now", "2030-01-15 12:00"])
def test_a_lease_that_starts_now_has_no_reminder(story: Story, start: str) -> None:
    lease = story.reserve(start_date=start)
    assert times(lease) == []
    story.run()
    assert story.event_types(lease["id"]) == ["lease.create", "lease.event.start_lease"]


def test_leads_are_configurable(make_story: MakeStory) -> None:
    for configured in ([90, 30], []):
        story = make_story(manager__before_start_leads=configured)
        if configured:
            story.register(2)
        lease = story.reserve(2, 120)
        assert len(times(lease)) == len(configured)
        for _ in range(12):
            story.at(1 / 6)
        assert leads(story, lease) == configured


RULES = [
    'physical:host ["==", "$$gpu", "True"]: 7200, 600',  # a configuration file doubles each $
    "physical:host: 300",
]


def test_rules_give_leases_of_certain_hosts_other_reminders(make_story: MakeStory) -> None:
    story = make_story(manager__reminder_rules=RULES)
    story.register(2)
    story.ok("PUT", "/v1/os-hosts/1", {"gpu": "True"})
    query = '["==", "$gpu", "{}"]'
    fast, slow = (
        story.reserve(
            180, 240, reservations=[host_reservation(1, 1, resource_properties=query.format(gpu))]
        )
        for gpu in ("null", "True")
    )
    assert times(fast) == ["14:55"]
    assert times(slow) == ["13:00", "14:50"]
    assert times(story.lease(slow["id"])) == ["13:00", "14:50"]
    moved = put(story, slow, start_date=story.date(200))
    assert times(moved) == ["13:20", "15:10"]
    mine = story.reserve(300, 360, **own(story.date(30)))
    assert times(mine) == ["12:30"], "the owner's reminders replace those of all rules"


def test_a_learned_lead_time_is_the_offset_of_a_reminder(make_story: MakeStory) -> None:
    story = make_story(
        manager__reminder_rules=["physical:host: p90, 300"],
        provisioning__enabled=True,
        provisioning__prior=1200,
        provisioning__margin=1,
    )
    story.register(1)
    lease = story.reserve(180, 240)
    learned, last = times(lease)
    assert (times(story.lease(lease["id"])), last) == ([learned, last], "14:55")
    assert "14:00" < learned < "14:40", "the first estimate is longer than the usual 20 minutes"


def test_a_learned_lead_time_needs_provisioning(make_story: MakeStory) -> None:
    with pytest.raises(Misconfigured, match=r"need \[provisioning\] enabled"):
        make_story(manager__reminder_rules=["physical:host: p90"])


def test_a_rule_for_a_type_that_no_plug_in_manages_prevents_the_start(
    make_story: MakeStory,
) -> None:
    with pytest.raises(Misconfigured, match="no plug-in manages physical:hots"):
        make_story(manager__reminder_rules=["physical:hots: 60"])


def test_further_reminders_of_the_end_are_sent_while_the_lease_is_active(
    make_story: MakeStory,
) -> None:
    story = make_story(manager__before_end_leads=[7200, 600, 60])
    story.register(1)
    lease = story.reserve(10, 70)
    kind = "before_end_reminder"
    assert times(lease, kind) == ["13:00", "13:09"]
    story.at(10)
    put(story, lease, end_date=story.date(190))
    assert times(story.lease(lease["id"]), kind) == ["13:20", "15:10", "15:19"]
    story.at(70)
    payloads = [
        item["payload"]
        for item in story.published(lease["id"])
        if item["event_type"] == f"lease.event.{kind}"
    ]
    assert [payload["ends_in"] for payload in payloads] == [7200]
    story.clock.advance(121 * 60)
    story.run()
    assert sent(story, lease).count(kind) == 1, "no late reminder of a lease that is over"


@pytest.mark.parametrize(
    "rule", ["physical:host", "host: 60", "physical:host: 0", 'physical:host ["~"]: 60', "a:b: x"]
)
def test_a_rule_that_is_not_understood_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match=rule.split(":", maxsplit=1)[0]):
        reminder.parse(rule, {})


def test_own_reminders_replace_the_configured_ones_and_move_with_the_start(story: Story) -> None:
    lease = story.reserve(120, 240, **own(story.date(30), story.date(110)))
    assert times(lease) == ["12:30", "13:50"]
    story.at(30)
    assert leads(story, lease) == [5400]
    story.at(80)
    assert leads(story, lease) == [5400, 600]
    past = story.reserve(120, 240, **own(*(story.date(-minutes) for minutes in (5, 30, 600))))
    story.run()
    assert leads(story, past) == [7200]
    moving = story.reserve(120, 240, **own(story.date(105)))
    start, end = story.date(180), story.date(300)
    assert times(put(story, moving, start_date=start, end_date=end)) == ["16:35"]
    for minutes in (120, 121, 240, 300):
        body = story.lease_body(120, 240, **own(story.date(minutes)))
        assert "before_start_lease" in story.refused(400, "POST", "/v1/leases", body)


# Changes of dates.


def test_reminders_are_sent_again_when_the_start_moves_away(story: Story) -> None:
    lease = story.reserve(60, 600)
    story.at(50)
    before = leads(story, lease)
    assert before[-1] == 600
    put(story, lease, start_date=story.date(180))
    story.at(119)
    assert leads(story, lease) == before
    for minutes in (1, 50, 9, 1):
        story.at(minutes)
    assert leads(story, lease) == [*before, 3600, 600, 60]
    assert story.lease(lease["id"])["status"] == "ACTIVE"


def test_a_start_that_moves_closer_has_one_reminder_at_once(story: Story) -> None:
    lease = story.reserve(600, 700)
    put(story, lease, start_date=story.date(5))
    story.run()
    assert leads(story, lease) == [300]
    story.at(4)
    assert leads(story, lease) == [300, 60]


def test_a_start_that_moves_before_its_reminder_was_sent_has_one(story: Story) -> None:
    closer, later, to_now = (story.reserve(start, 700) for start in (30, 30, 120))
    put(story, closer, start_date=story.date(20))
    put(story, later, start_date=story.date(120))
    put(story, to_now, start_date="now")
    story.run()
    assert leads(story, closer) == [1200]
    assert leads(story, later) == leads(story, to_now) == []


def test_a_change_of_the_end_does_not_repeat_reminders_of_the_start(story: Story) -> None:
    lease = story.reserve(30, 240)
    story.run()
    assert leads(story, lease) == [1800]
    assert times(put(story, lease, end_date=story.date(300))) == times(lease)
    story.at(1)
    assert leads(story, lease) == [1800]


def test_the_reminder_of_the_end_follows_the_end(story: Story) -> None:
    lease = story.reserve(0, 120)
    story.run()
    put(story, lease, end_date=story.date(180))
    story.at(60)
    assert sent(story, lease) == ["start_lease"], "it was not sent yet and moved silently"
    story.at(60)
    assert sent(story, lease) == ["start_lease", "before_end_lease"]
    put(story, lease, end_date=story.date(30))
    story.run()
    assert sent(story, lease) == ["start_lease", "before_end_lease"], "the end came closer"
    assert times(put(story, lease, end_date=story.date(180)), "before_end_lease") == ["16:00"]
    story.at(120)
    story.at(60)
    assert sent(story, lease)[-3:] == ["before_end_lease.stop", "before_end_lease", "end_lease"]
