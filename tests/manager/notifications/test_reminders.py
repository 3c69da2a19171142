"""Subscribers choose when they are reminded of the start of leases."""

from typing import Any

import pytest

from climate.db.notifications import reminders
from climate.db.notifications.reminders import subscribers
from climate.manager.notifications.reminders import remind
from climate.manager.notifications.subscription_delivery import SubscriptionDelivery
from climate.notifications import webhook_sender
from tests.conftest import NOON, MakeStory
from tests.support.receiver import SECRET, Receiver
from tests.support.service import Story

SUBSCRIPTIONS = "/v2/subscriptions"


@pytest.fixture
def story(make_story_everywhere: MakeStory) -> Story:
    """Return a service with two hosts and no reminders, on each database in turn."""
    made = make_story_everywhere(
        manager__before_start_leads=[],
        notifications__webhook_networks=["127.0.0.0/8"],
        notifications__webhook_http=True,
    )
    made.register(2)
    return made


def subscribe(story: Story, url: str, **fields: Any) -> str:
    body = {"url": url, "secret": SECRET, "event_types": ["lease.delete"], **fields}
    return str(story.ok("POST", SUBSCRIPTIONS, body)["id"])


def reminded(story: Story, receiver: Receiver, minute: float) -> list[tuple[str, float]]:
    """Return of what the receiver is reminded at a minute: names, and minutes until the start."""
    story.at(minute - (story.clock.now() - NOON).total_seconds() / 60)
    remind(story.runtime.store)
    story.relay.flush()
    before = len(receiver.events)
    poster = webhook_sender.for_config(story.conf, story.runtime.settings.webhooks)
    SubscriptionDelivery(story.runtime, poster, "manager-1").run_due()
    new = receiver.events[before:]
    assert {event["type"] for event in new} <= {"lease.reminder"}
    return [(event["data"]["name"], event["data"]["starts_in"] / 60) for event in new]


def test_only_the_subscriber_is_reminded_and_once(story: Story, receiver: Receiver) -> None:
    subscribe(story, f"{receiver.url}/other", event_types=["lease.reminder"])
    asking = subscribe(story, receiver.url, before_start_leads=[1200, 600])
    story.reserve(60, 90, name="first")
    assert reminded(story, receiver, 39) == []
    assert reminded(story, receiver, 41) == [("first", 19)]
    assert reminded(story, receiver, 42) == []
    assert {event["data"]["subscription_id"] for event in receiver.events} == {asking}
    assert {got.path for got in receiver.got} == {"/hook"}
    story.reserve(58 - 42, 90 - 42, name="late")
    assert reminded(story, receiver, 55) == [("late", 3), ("first", 5)], "only 10 min before"


def test_a_moved_lease_is_reminded_again(story: Story, receiver: Receiver) -> None:
    subscribe(story, receiver.url, before_start_leads=[600])
    lease = story.reserve(60, 90, name="first")
    assert reminded(story, receiver, 51) == [("first", 9)]
    later = {"start_date": story.date(80 - 51), "end_date": story.date(99 - 51)}
    story.ok("PUT", f"/v1/leases/{lease['id']}", later)
    assert reminded(story, receiver, 69) == []
    assert reminded(story, receiver, 71) == [("first", 9)]


def test_reminders_match_the_lease_and_type_and_can_be_ended(
    story: Story, receiver: Receiver
) -> None:
    one = story.reserve(60, 90, name="one")
    story.reserve(60, 90, name="two")
    made = subscribe(story, receiver.url, before_start_leads=[1800], lease_id=one["id"])
    subscribe(story, receiver.url, before_start_leads=[1800], resource_type="virtual:instance")
    assert reminded(story, receiver, 31) == [("one", 29)]
    path = f"{SUBSCRIPTIONS}/{made}"
    assert story.ok("PATCH", path, {"before_start_leads": [60, 120, 60]})["before_start_leads"] == [
        120,
        60,
    ]
    story.ok("PATCH", path, {"status": "suspended"})
    assert reminded(story, receiver, 58.5) == []
    story.ok("PATCH", path, {"status": "active"})
    assert reminded(story, receiver, 58.9) == [], "what was due while it was suspended is over"
    story.ok("PATCH", path, {"before_start_leads": []})
    assert reminded(story, receiver, 59.5) == []


def test_a_subscription_that_a_user_suspends_meanwhile_gets_no_reminder(
    story: Story, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{SUBSCRIPTIONS}/{subscribe(story, receiver.url, before_start_leads=[600])}"
    story.reserve(60, 90)
    with story.runtime.database.read() as session:
        found = subscribers(session)
    story.ok("PATCH", path, {"status": "suspended"})
    monkeypatch.setattr(reminders, "subscribers", lambda _: found)
    story.at(51)
    assert remind(story.runtime.store) == 0


def test_a_subscription_that_fails_does_not_stop_the_others(
    make_story: MakeStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = make_story(manager__before_start_leads=[])
    story.register(2)
    urls = ("https://example.org/first", "https://example.org/second")
    first, _ = (subscribe(story, url, before_start_leads=[600]) for url in urls)
    story.reserve(60, 90)
    story.at(51)
    note = reminders.note

    def fail(session: Any, id_: str, *others: Any) -> None:
        if id_ == first:
            raise RuntimeError("broken")
        note(session, id_, *others)

    monkeypatch.setattr(reminders, "note", fail)
    assert remind(story.runtime.store) == 1
    monkeypatch.setattr(reminders, "note", note)
    assert remind(story.runtime.store) == 1
