"""Webhooks are delivered by filter and in order, whatever the receivers do."""

import datetime as dt
import ipaddress
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import sqlalchemy as sa

from climate.core.notifications.message import NotificationFilter
from climate.core.notifications.subscription import (
    Delivery,
    Subscription,
    SubscriptionStatus,
    WebhookRules,
)
from climate.manager.notifications.relay import Relay
from climate.manager.notifications.subscription_delivery import SubscriptionDelivery
from climate.notifications import webhook_sender
from climate.notifications.emit import LogEmitter
from tests.conftest import MakeStory
from tests.support import broker, threads
from tests.support.emitters import log
from tests.support.hanging_resolver import hanging_resolver
from tests.support.outbox_rows import write, write_many
from tests.support.process import eventually
from tests.support.receiver import SECRET, Answer, Receiver, receiving
from tests.support.service import Story

PATH = "/v2/subscriptions"
LOOPBACK = {
    "notifications__webhook_networks": ["127.0.0.0/8"],
    "notifications__webhook_http": True,
    "notifications__webhook_timeout": 1.0,
}
NO = Answer(500)


@pytest.fixture
def any_story(make_story_everywhere: MakeStory) -> Story:
    """Return a service that may send to the loopback, on each database in turn."""
    return make_story_everywhere(**LOOPBACK)


@pytest.fixture
def story(make_story: MakeStory) -> Story:
    """Return such a service on SQLite."""
    return make_story(**LOOPBACK)


@pytest.fixture
def impatient_story(make_story: MakeStory) -> Story:
    """Return such a service that stops after three attempts."""
    return make_story(**LOOPBACK, notifications__webhook_attempts=3)


def _has_last(receiver: Receiver, number: int) -> bool:
    return receiver.seqs[-1:] == [number]


def deliveries(story: Story, owner: str = "manager-1") -> SubscriptionDelivery:
    poster = webhook_sender.for_config(story.conf, story.runtime.settings.webhooks)
    return SubscriptionDelivery(story.runtime, poster, owner)


def subscribe(story: Story, url: str, token: str | None = None, **fields: Any) -> dict[str, Any]:
    body = {"url": url, "secret": SECRET, "after": 0, **fields}
    return dict(story.ok("POST", PATH, body, token=token))


def publish(
    story: Story, *event_types: str, lease_id: str = "lease", project: str = "admin"
) -> None:
    """Write notifications, number them and publish them."""
    write(story, lease_id, *event_types, project_id=project)
    story.relay.flush()


def deliver(story: Story) -> int:
    return deliveries(story).run_due()


def deliver_all(story: Story, tries: int = 40) -> None:
    """Deliver repeatedly while time passes."""
    for _ in range(tries):
        deliver(story)
        story.clock.advance(400)


def shown(story: Story, made: dict[str, Any]) -> dict[str, Any]:
    return dict(story.ok("GET", f"{PATH}/{made['id']}"))


def dead(story: Story, made: dict[str, Any]) -> list[int]:
    found = story.ok("GET", f"{PATH}/{made['id']}/dead-letters")["dead_letters"]
    return [item["seq"] for item in found]


# What is sent.


def test_a_receiver_gets_a_signed_cloudevent(impatient_story: Story, receiver: Receiver) -> None:
    impatient_story.register(1)
    subscribe(impatient_story, f"{receiver.url}?key=1")
    lease = impatient_story.reserve()
    impatient_story.relay.flush()
    assert deliver(impatient_story) == 1
    [got], [kept] = receiver.got, log(impatient_story)
    assert got.path == "/hook?key=1"
    assert got.headers["content-type"] == "application/cloudevents+json; charset=UTF-8"
    assert got.headers["webhook-id"] == kept["message_id"]
    assert int(got.headers["webhook-timestamp"]) == int(impatient_story.clock.now().timestamp())
    assert got.is_signed
    event = got.event
    data = event.pop("data")
    assert event == {
        "specversion": "1.0",
        "id": kept["message_id"],
        "source": "climate.lease",
        "type": "lease.create",
        "time": kept["created_at"],
        "sequence": "00000000000000000001",
        "datacontenttype": "application/json",
        "subject": lease["id"],
    }
    assert data == {**kept["payload"], "seq": 1, "message_id": kept["message_id"]}
    impatient_story.at(58.5)
    impatient_story.relay.flush()
    impatient_story.clock.advance(20)
    deliver(impatient_story)
    assert receiver.events[-1]["data"]["starts_in"] == 70, "counted from the delivery"


def test_a_large_notification_is_shortened(make_story: MakeStory, receiver: Receiver) -> None:
    story = make_story(**LOOPBACK, notifications__webhook_max_bytes=4096)
    story.register(1)
    subscribe(story, receiver.url)
    events = [{"event_type": f"mine_{n}", "time": story.date(70)} for n in range(40)]
    lease = story.reserve(events=events)
    story.relay.flush()
    deliver(story)
    [got] = receiver.got
    assert len(got.body) < 4096
    assert got.is_signed
    data = got.event["data"]
    assert data["shortened"] is True
    assert (data["lease_id"], data["status"]) == (lease["id"], "PENDING")


# To whom, and in which order.


def test_each_subscription_gets_what_its_filter_selects_in_order(any_story: Story) -> None:
    story = any_story
    with receiving() as all_, receiving() as starts, receiving() as one, receiving() as theirs:
        subscribe(story, all_.url)
        subscribe(story, starts.url, event_types=["lease.event.*", "lease.delete"])
        subscribe(story, one.url, lease_id="second")
        subscribe(story, theirs.url, token="bob:office")
        publish(story, "lease.create", "lease.event.start_lease", "lease.delete", lease_id="first")
        publish(story, "lease.create", "lease.update", lease_id="second")
        publish(story, "lease.create", project="office")
        deliver(story)
        found = [each.seqs for each in (all_, starts, one, theirs)]
    assert found == [[1, 2, 3, 4, 5], [2, 3], [4, 5], [6]]


def test_a_filter_selects_resource_types(impatient_story: Story, receiver: Receiver) -> None:
    impatient_story.register(1)
    with receiving() as other:
        subscribe(impatient_story, receiver.url, resource_type="physical:host")
        subscribe(impatient_story, other.url, resource_type="physical:hos")
        impatient_story.reserve()
        impatient_story.relay.flush()
        deliver(impatient_story)
        assert (receiver.seqs, other.seqs) == ([1], [])


def test_a_subscription_begins_at_its_creation_and_sees_all_projects_only_for_admins(
    impatient_story: Story, receiver: Receiver
) -> None:
    body = {"url": receiver.url, "secret": SECRET, "all_projects": True}
    impatient_story.problem(403, "POST", PATH, body, token="alice:lab")
    publish(impatient_story, "before")
    impatient_story.ok("POST", PATH, body)
    publish(impatient_story, "first", project="lab")
    publish(impatient_story, "second", project="office")
    deliver(impatient_story)
    assert receiver.seqs == [2, 3]


def test_more_than_one_batch_is_delivered_in_order(story: Story, receiver: Receiver) -> None:
    subscribe(story, receiver.url)
    write_many(story, 60)
    story.relay.flush()
    deliver(story)
    assert receiver.seqs == list(range(1, 61))
    assert deliver(story) == 0


# Receivers that fail.


def test_a_failed_delivery_is_retried_before_later_notifications(
    any_story: Story, receiver: Receiver
) -> None:
    story = any_story
    made = subscribe(story, receiver.url)
    receiver.answers = [Answer(204), NO, NO]
    publish(story, "first", "second", "third")
    assert deliver(story) == 2
    assert deliver(story) == 0  # not before its pause is over
    story.clock.advance(2)
    assert deliver(story) == 1
    assert shown(story, made)["reason"] == "HTTP 500"
    story.clock.advance(3)
    deliver(story)
    assert receiver.seqs == [1, 2, 2, 2, 3]
    assert len({item.headers["webhook-id"] for item in receiver.got}) == 3
    assert shown(story, made)["reason"] is None
    assert shown(story, made)["after"] == 3


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(302, {"Location": "/elsewhere"}), "HTTP 302: redirects are not followed"),
        (Answer(404), "HTTP 404"),
        (Answer(None), "the connection broke, or the response is not HTTP"),
        (Answer(hang=threading.Event()), "no answer within 0.3 s"),
        (Answer(drip=threading.Event()), "no answer within 0.3 s"),
    ],
    ids=["redirects", "refuses", "closes", "hangs", "drips"],
)
def test_a_failed_delivery_has_a_reason(
    make_story: MakeStory, receiver: Receiver, answer: Answer, reason: str
) -> None:
    story = make_story(**{**LOOPBACK, "notifications__webhook_timeout": 0.3})
    made = subscribe(story, receiver.url)
    receiver.answers = [answer]
    publish(story, "first")
    deliver(story)
    for event in (answer.hang, answer.drip):
        if event is not None:
            event.set()
    assert shown(story, made)["reason"] == reason
    assert [item.path for item in receiver.got] == ["/hook"]
    story.clock.advance(2)
    deliver(story)
    assert receiver.seqs == [1, 1]


def test_retry_after_a_closed_port_a_longer_pause_and_gone(
    impatient_story: Story, receiver: Receiver
) -> None:
    with receiving() as closed:
        unreachable = subscribe(impatient_story, closed.url)
    made = subscribe(impatient_story, receiver.url)
    receiver.answers = [Answer(429, {"Retry-After": "100"}), Answer(410)]
    publish(impatient_story, "first")
    deliver(impatient_story)
    assert shown(impatient_story, unreachable)["reason"] == "it refuses connections"
    impatient_story.ok("PATCH", f"{PATH}/{unreachable['id']}", {"status": "suspended"})
    impatient_story.clock.advance(99)
    assert deliver(impatient_story) == 0
    impatient_story.clock.advance(2)
    deliver(impatient_story)
    assert receiver.seqs == [1, 1]
    deliver_all(impatient_story, 3)
    found = shown(impatient_story, made)
    assert (found["status"], found["reason"]) == ("suspended", "HTTP 410")
    assert receiver.seqs == [1, 1]


def test_a_notification_that_keeps_failing_becomes_a_dead_letter_and_can_be_redelivered(
    impatient_story: Story, receiver: Receiver
) -> None:
    made = subscribe(impatient_story, receiver.url)
    receiver.answers = [NO] * 3
    publish(impatient_story, "poison", "fine")
    deliver_all(impatient_story, 5)
    assert receiver.seqs == [1] * 3 + [2]
    assert dead(impatient_story, made) == [1]
    assert (
        shown(impatient_story, made)["dead_letters"],
        shown(impatient_story, made)["status"],
    ) == (1, "active")
    receiver.answers = [NO]
    again = f"{PATH}/{made['id']}/redeliver"
    assert impatient_story.ok("POST", again, {"seqs": [1, 7]}) == {"redelivering": 1}
    deliver_all(impatient_story, 3)
    assert receiver.seqs[4:] == [1]  # once for each time it is asked for
    assert dead(impatient_story, made) == [1]
    assert impatient_story.ok("POST", again, {}) == {"redelivering": 1}
    deliver(impatient_story)
    assert dead(impatient_story, made) == []
    assert receiver.got[0].headers["webhook-id"] == receiver.got[-1].headers["webhook-id"]


def test_a_subscription_that_keeps_failing_is_suspended_and_its_owner_notified(
    impatient_story: Story, receiver: Receiver
) -> None:
    made = subscribe(impatient_story, receiver.url, token="alice:lab")
    receiver.then = NO
    publish(impatient_story, *(f"event {n}" for n in range(7)), project="lab")
    deliver_all(impatient_story, 18)
    assert dead(impatient_story, made) == [1, 2, 3, 4, 5]
    found = shown(impatient_story, made)
    assert (found["status"], found["after"]) == ("suspended", 5)
    assert (
        found["reason"] == "5 notifications in a row were not delivered; the last error: HTTP 500"
    )
    count = len(receiver.got)
    impatient_story.relay.flush()
    [notification] = impatient_story.ok(
        "GET", "/v2/notifications?event_type=subscription.*", token="alice:lab"
    )["notifications"]
    assert notification["event_type"] == "subscription.suspended"
    assert notification["lease_id"] is None
    assert notification["payload"]["subscription_id"] == made["id"]
    receiver.then = Answer()
    impatient_story.problem(409, "POST", f"{PATH}/{made['id']}/redeliver", {})
    assert len(receiver.got) == count
    resumed = impatient_story.ok(
        "PATCH", f"{PATH}/{made['id']}", {"status": "active"}, token="alice:lab"
    )
    assert (resumed["status"], resumed["reason"]) == ("active", None)
    deliver(impatient_story)
    assert receiver.seqs[count:] == [6, 7, 8]


# Several managers.


def test_a_claimed_delivery_is_left_alone_until_the_claim_expires(
    any_story: Story, receiver: Receiver
) -> None:
    story = any_story
    subscribe(story, receiver.url)
    publish(story, "first", "second")
    done = threading.Event()
    receiver.answers = [Answer(hang=done)]
    first = threading.Thread(target=deliveries(story, "first").run_due)
    first.start()
    eventually(lambda: receiver.got, "the first is at it")
    assert deliveries(story, "second").run_due() == 0
    done.set()
    first.join()
    assert receiver.seqs == [1, 2]


def test_the_result_of_a_reclaimed_delivery_does_not_count(
    make_story_everywhere: MakeStory, receiver: Receiver
) -> None:
    story = make_story_everywhere(**{**LOOPBACK, "notifications__webhook_timeout": 30.0})
    made = subscribe(story, receiver.url)
    publish(story, "first", "second", "third")
    late, done = deliveries(story, "late"), threading.Event()
    receiver.answers = [Answer(hang=done)]
    slow = threading.Thread(target=late.run_due)
    slow.start()
    eventually(lambda: receiver.got, "the first is at it")
    story.clock.advance(100)
    assert deliveries(story, "second").run_due() == 3
    done.set()
    slow.join()
    assert receiver.seqs == [1, 1, 2, 3]  # once more, and in order
    assert shown(story, made)["after"] == 3


def test_concurrent_managers_deliver_without_duplicates(any_story: Story) -> None:
    story = any_story
    count, receivers = 30, 4
    with receiving() as first, receiving() as second, receiving() as third, receiving() as fourth:
        all_ = [first, second, third, fourth]
        for item in all_:
            subscribe(story, item.url)
        managers = [deliveries(story, f"manager-{n}") for n in range(3)]
        for manager in managers:
            manager.start()
        relay = Relay(story.runtime, LogEmitter(), "manager-0")
        for _ in range(3):
            write_many(story, count // 3)
            relay.flush()
        eventually(lambda: sum(len(item.got) for item in all_) >= count * receivers, "all arrived")
        for manager in managers:
            manager.stop()
    assert [item.seqs for item in all_] == [list(range(1, count + 1))] * receivers


def test_hanging_receivers_do_not_delay_the_others(make_story: MakeStory) -> None:
    options = {**LOOPBACK, "notifications__webhook_timeout": 60.0}
    story = make_story(**options, notifications__webhook_parallel=4)
    release = threading.Event()
    with receiving() as hanging, receiving() as quick:
        hanging.then = Answer(hang=release)
        for _ in range(6):
            subscribe(story, hanging.url)
        with story.runtime.database.engine.begin() as connection:  # as they were before
            connection.exec_driver_sql("UPDATE subscriptions SET slow = true")
        subscribe(story, quick.url)
        manager = deliveries(story)
        manager.start()
        for number in range(1, 6):
            publish(story, f"event {number}")
            eventually(partial(_has_last, quick, number), "the quick one has it")
        assert len(hanging.got) == 2  # half of the places
        release.set()
        manager.stop()


def test_a_subscription_whose_thread_cannot_start_is_served_after_its_claim_has_expired(
    story: Story, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribe(story, receiver.url)
    publish(story, "event")
    manager = deliveries(story)
    threads.fail_once(monkeypatch, "delivery")
    with pytest.raises(RuntimeError, match="thread"):
        manager._start_due()
    story.clock.advance(100)
    manager._start_due()
    eventually(lambda: receiver.got, "the event is delivered")
    manager.stop()


# Changes while it goes on.


def test_a_removed_or_suspended_subscription_is_sent_nothing(
    story: Story, receiver: Receiver
) -> None:
    removed, suspended = subscribe(story, receiver.url), subscribe(story, receiver.url)
    publish(story, "first")
    assert story.call("DELETE", f"{PATH}/{removed['id']}").status_code == 204
    story.problem(404, "GET", f"{PATH}/{removed['id']}")
    change = {"status": "suspended"}
    assert story.ok("PATCH", f"{PATH}/{suspended['id']}", change)["status"] == "suspended"
    assert deliver(story) == 0
    story.ok("PATCH", f"{PATH}/{suspended['id']}", {"status": "active", "after": 1})
    assert deliver(story) == 0
    story.ok("PATCH", f"{PATH}/{suspended['id']}", {"after": 0})
    assert deliver(story) == 1


def test_a_changed_url_is_used_from_the_next_delivery_on(
    impatient_story: Story, receiver: Receiver
) -> None:
    with receiving() as old:
        made = subscribe(impatient_story, old.url)
        old.then = NO
        publish(impatient_story, "lease.create")
        deliver(impatient_story)
    change = {"url": receiver.url, "event_types": ["lease.create"]}
    assert impatient_story.ok("PATCH", f"{PATH}/{made['id']}", change)["status"] == "active"
    publish(impatient_story, "second")
    deliver(impatient_story)
    assert receiver.seqs == [1]


# Where they are not sent.


@pytest.mark.parametrize("name", ["rebound.example", "localhost"])
def test_a_name_is_resolved_once_and_only_a_public_address_is_connected_to(
    make_story: MakeStory, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The name resolves to the loopback, which is not public."""
    story = make_story(notifications__webhook_http=True)
    port = urlsplit(receiver.url).port
    asked: list[object] = []

    def resolve(host: str, *_rest: Any, **_options: Any) -> list[Any]:
        asked.append(host)
        meant = "127.0.0.1" if len(asked) == 1 else "93.184.215.14"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (meant, port))]

    made = subscribe(story, "http://example.org/")
    with story.runtime.database.engine.begin() as connection:
        connection.execute(
            sa.text("UPDATE subscriptions SET url = :url"), {"url": f"http://{name}:{port}/"}
        )
    publish(story, "first")
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    deliver(story)
    assert len(asked) == (1 if name.endswith("example") else 0)
    assert "not public" in shown(story, made)["reason"]
    assert receiver.got == []


def test_only_a_trusted_certificate_of_the_right_name_is_accepted(
    make_story: MakeStory, tmp_path: Path
) -> None:
    """And the one for the name in the URL is, whatever address that is."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made_with = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    subject = ("-subj", "/CN=hook.example", "-addext", "subjectAltName=DNS:hook.example")
    out = ("-keyout", str(key), "-out", str(certificate))
    subprocess.run([*made_with, *subject, *out], check=True, capture_output=True)
    found = []
    for name, cafile in (
        ("hook.example", None),
        ("other.example", certificate),
        ("hook.example", certificate),
    ):
        rules = WebhookRules(networks=(ipaddress.ip_network("127.0.0.0/8"),), timeout=5)
        poster = webhook_sender.WebhookPoster(rules, "climate", str(cafile) if cafile else None)
        with receiving(certificate, key) as secure, resolved("127.0.0.1"):
            outcome = poster.post(delivery(secure.url.replace("127.0.0.1", name)), {})
            found.append((outcome.reason or "taken", len(secure.got)))
    assert [count for _, count in found] == [0, 0, 1]
    assert "self-signed" in found[0][0]
    assert "other.example" in found[1][0]
    assert found[2][0] == "taken"


def test_a_name_that_is_not_resolved_in_time_fails_the_delivery() -> None:
    poster = webhook_sender.WebhookPoster(WebhookRules(timeout=0.1), "climate")
    with hanging_resolver():
        outcome = poster.post(delivery("https://hook.example/"), {})
    assert outcome.reason == "no answer within 0.1 s"


@contextmanager
def resolved(address: str) -> Iterator[None]:
    """Have every name mean an address."""
    real = socket.getaddrinfo
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", lambda _, *rest, **more: real(address, *rest, **more))
        yield


def delivery(url: str) -> Delivery:
    now = dt.datetime(2030, 1, 15, tzinfo=dt.UTC)
    subscription = Subscription(
        id="subscription",
        project_id="lab",
        user_id="alice",
        url=url,
        wanted=NotificationFilter(),
        all_projects=False,
        status=SubscriptionStatus.ACTIVE,
        reason=None,
        done_seq=0,
        attempts=0,
        given_up=0,
        slow=False,
        delivered_at=None,
        created_at=now,
        updated_at=None,
    )
    notification = broker.notification(1)
    return Delivery(
        subscription=subscription, secret=SECRET, notification=notification, letter=None, at=now
    )
