"""Webhooks of chat services receive messages in their own format, and no surprises in them."""

from typing import Any

import pytest

from climate.core.notifications.event_type import EventType
from climate.db.notifications import outbox
from climate.manager.notifications.subscription_delivery import SubscriptionDelivery
from climate.notifications import webhook_sender
from tests.conftest import MakeStory
from tests.support.receiver import Received, Receiver
from tests.support.service import Story

PATH = "/v2/subscriptions"
EVIL = "<!channel> [x](https://evil.example) <b>&amp; @room"
LEASE = "lease/1?"


@pytest.fixture
def story(make_story: MakeStory) -> Story:
    return make_story(
        notifications__webhook_networks=["127.0.0.0/8"],
        notifications__webhook_http=True,
        api__public_url="https://climate.example/",
    )


def message(story: Story, receiver: Receiver, form: str) -> tuple[Received, dict[str, Any]]:
    """Return the request about a reminder, and its body."""
    body = {"url": receiver.url, "format": form, "after": 0, "time_zone": "Europe/Berlin"}
    assert story.ok("POST", PATH, body)["format"] == form
    payload = {
        "lease_id": LEASE,
        "project_id": "admin",
        "name": EVIL,
        "start_date": "2030-01-15T13:00:00.000000",
        "end_date": "2030-01-15T14:00:00.000000",
        "reservations": [{"resource_type": "physical:host", "min": 1, "max": 2}],
    }
    kind = EventType("lease.event.before_end_lease")
    story.runtime.database.write(
        lambda session: outbox.write(session, kind, payload, story.clock.now())
    )
    story.relay.flush()
    poster = webhook_sender.for_config(story.conf, story.runtime.settings.webhooks)
    assert SubscriptionDelivery(story.runtime, poster, "manager").run_due() == 1
    [got] = receiver.got
    assert got.headers["content-type"] == "application/json; charset=UTF-8"
    assert story.ok("GET", PATH)["subscriptions"][0]["reason"] is None
    return got, got.event


URL = "https://climate.example/console/leases/lease%2F1%3F"


def test_slack_receives_blocks_within_its_limits(story: Story, receiver: Receiver) -> None:
    got, body = message(story, receiver, "slack")
    assert body.keys() == {"text", "blocks"}
    header, facts, advice = body["blocks"]
    assert header["type"] == "header"
    assert header["text"]["type"] == "plain_text", "in which Slack interprets nothing"
    assert EVIL in header["text"]["text"]
    assert len(header["text"]["text"]) <= 150
    assert 1 <= len(facts["fields"]) <= 10
    assert facts["fields"][0]["text"] == "*Start*\nTuesday 2030-01-15 14:00 (UTC+01:00)"
    assert len(advice["text"]["text"]) <= 3000
    assert f"<{URL}|Open the lease>" in advice["text"]["text"]
    assert "&lt;!channel&gt;" in body["text"]
    marked = [body["text"], *(item["text"] for item in facts["fields"])]
    assert not any("<" in text for text in marked)
    assert "webhook-signature" in got.headers


def test_matrix_receives_text_and_html(story: Story, receiver: Receiver) -> None:
    _, body = message(story, receiver, "matrix")
    assert body.keys() == {"text", "html"}
    assert "<b>" not in body["html"]
    assert "&lt;b&gt;&amp;amp;" in body["html"]
    assert "Start: Tuesday 2030-01-15 14:00 (UTC+01:00)" in body["text"]
    assert f'<a href="{URL}">' in body["html"]
    assert "@room" not in body["text"] + body["html"], "nobody is notified by a name of a lease"


def test_teams_receives_an_adaptive_card_without_markdown(story: Story, receiver: Receiver) -> None:
    _, body = message(story, receiver, "teams")
    assert body["type"] == "message"
    [attachment] = body["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    card = attachment["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.2")
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}, "no Markdown"
    assert EVIL in card["body"][0]["inlines"][0]["text"]
    assert card["actions"] == [{"type": "Action.OpenUrl", "title": "Open the lease", "url": URL}]


def test_a_message_has_no_link_without_a_public_address(
    make_story: MakeStory, receiver: Receiver
) -> None:
    options = {"notifications__webhook_networks": ["127.0.0.0/8"]}
    story = make_story(**options, notifications__webhook_http=True)
    got, _ = message(story, receiver, "matrix")
    assert b"http" not in got.body.replace(b"https://evil.example", b"")


def test_the_format_can_be_changed_and_cloudevents_need_a_secret(story: Story) -> None:
    body = {"url": "https://example.org/hook", "format": "slack"}
    made = story.ok("POST", PATH, body)
    changed = story.ok("PATCH", f"{PATH}/{made['id']}", {"format": "teams"})
    assert (made["format"], changed["format"]) == ("slack", "teams")
    problem = story.problem(400, "POST", PATH, {"url": "https://example.org/hook"})
    assert (problem["code"], problem["errors"][0]["pointer"]) == ("missing_parameter", "#/secret")
