"""Subscriptions are sent what they want, in order, whatever their receivers do to us."""

import datetime as dt
import ipaddress
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import sqlalchemy as sa

from climate.core.notification import NotificationFilter
from climate.core.subscription import Delivery, Subscription, SubscriptionStatus, WebhookRules
from climate.manager.deliveries import Deliveries
from climate.manager.relay import Relay
from climate.notifications import webhooks
from climate.notifications.emit import LogEmitter
from tests import broker
from tests.conftest import MakeStory
from tests.functional.emitters import log, write, write_many
from tests.process import eventually
from tests.receiver import SECRET, Answer, Receiver, receiving
from tests.service import Story

PATH = "/v2/subscriptions"
LOOPBACK = {
    "notifications__webhook_networks": ["127.0.0.0/8"],
    "notifications__webhook_http": True,
    "notifications__webhook_timeout": 1.0,
}
NO = Answer(500)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Return a receiver that takes all it is sent."""
    with receiving() as made:
        yield made


@pytest.fixture
def hooked(make_story_everywhere: MakeStory) -> Story:
    """Return a service that may send to the loopback, on each database in turn."""
    return make_story_everywhere(**LOOPBACK)


@pytest.fixture
def simple(make_story: MakeStory) -> Story:
    """Return such a service on SQLite."""
    return make_story(**LOOPBACK, notifications__webhook_attempts=3)


def deliveries(story: Story, owner: str = "manager-1") -> Deliveries:
    poster = webhooks.for_config(story.conf, story.runtime.settings.webhooks)
    return Deliveries(story.runtime, poster, owner)


def subscribe(story: Story, url: str, token: str | None = None, **fields: Any) -> dict[str, Any]:
    body = {"url": url, "secret": SECRET, "after": 0, **fields}
    return dict(story.ok("POST", PATH, body, token=token))


def tell(story: Story, *event_types: str, lease_id: str = "lease", project: str = "admin") -> None:
    """Write notifications, and have them numbered and published."""
    write(story, lease_id, *event_types, project_id=project)
    story.relay.flush()


def deliver(story: Story) -> int:
    return deliveries(story).run_due()


def deliver_all(story: Story, tries: int = 40) -> None:
    """Deliver, again and again, as time goes by."""
    for _ in range(tries):
        deliver(story)
        story.clock.advance(400)


def shown(story: Story, made: dict[str, Any]) -> dict[str, Any]:
    return dict(story.ok("GET", f"{PATH}/{made['id']}"))


def dead(story: Story, made: dict[str, Any]) -> list[int]:
    found = story.ok("GET", f"{PATH}/{made['id']}/dead-letters")["dead_letters"]
    return [one["seq"] for one in found]


# What is sent.


def test_a_receiver_gets_a_signed_cloudevent(simple: Story, receiver: Receiver) -> None:
    simple.register(1)
    subscribe(simple, f"{receiver.url}?key=1")
    lease = simple.reserve()
    simple.relay.flush()
    assert deliver(simple) == 1
    [got], [kept] = receiver.got, log(simple)
    assert got.path == "/hook?key=1"
    assert got.headers["content-type"] == "application/cloudevents+json; charset=UTF-8"
    assert got.headers["webhook-id"] == kept["message_id"]
    assert int(got.headers["webhook-timestamp"]) == int(simple.clock.now().timestamp())
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


def test_starts_in_is_true_when_it_is_sent(simple: Story, receiver: Receiver) -> None:
    simple.register(1)
    subscribe(simple, receiver.url, event_types=["lease.event.before_start_lease"])
    simple.reserve(2, 60)
    simple.run()
    simple.at(1)
    simple.relay.flush()
    simple.clock.advance(20)
    deliver(simple)
    assert receiver.events[-1]["data"]["starts_in"] == 40


def test_what_is_too_large_is_shortened(make_story: MakeStory, receiver: Receiver) -> None:
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


def test_each_gets_what_it_wants_in_order(hooked: Story) -> None:
    story = hooked
    with receiving() as all_, receiving() as starts, receiving() as one, receiving() as theirs:
        subscribe(story, all_.url)
        subscribe(story, starts.url, event_types=["lease.event.*", "lease.delete"])
        subscribe(story, one.url, lease_id="second")
        subscribe(story, theirs.url, token="bob:office")
        tell(story, "lease.create", "lease.event.start_lease", "lease.delete", lease_id="first")
        tell(story, "lease.create", "lease.update", lease_id="second")
        tell(story, "lease.create", project="office")
        deliver(story)
        found = [each.seqs for each in (all_, starts, one, theirs)]
    assert found == [[1, 2, 3, 4, 5], [2, 3], [4, 5], [6]]


def test_a_resource_type_can_be_wanted(simple: Story, receiver: Receiver) -> None:
    simple.register(1)
    with receiving() as other:
        subscribe(simple, receiver.url, resource_type="physical:host")
        subscribe(simple, other.url, resource_type="physical:hos")
        simple.reserve()
        simple.relay.flush()
        deliver(simple)
        assert (receiver.seqs, other.seqs) == ([1], [])


def test_all_projects_are_for_those_who_may_see_them(simple: Story, receiver: Receiver) -> None:
    body = {"url": receiver.url, "secret": SECRET, "all_projects": True}
    simple.problem(403, "POST", PATH, body, token="alice:lab")
    subscribe(simple, receiver.url, all_projects=True)
    tell(simple, "first", project="lab")
    tell(simple, "second", project="office")
    deliver(simple)
    assert receiver.seqs == [1, 2]


def test_one_who_subscribes_gets_what_comes_from_then_on(simple: Story, receiver: Receiver) -> None:
    tell(simple, "before")
    simple.ok("POST", PATH, {"url": receiver.url, "secret": SECRET})
    tell(simple, "after")
    deliver(simple)
    assert receiver.seqs == [2]


def test_more_than_a_turn_is_sent_whole_and_in_order(hooked: Story, receiver: Receiver) -> None:
    subscribe(hooked, receiver.url)
    write_many(hooked, 120)
    hooked.relay.flush()
    deliver(hooked)
    assert receiver.seqs == list(range(1, 121))
    assert deliver(hooked) == 0


# Receivers that fail.


def test_what_fails_is_tried_again_and_nothing_overtakes(hooked: Story, receiver: Receiver) -> None:
    story = hooked
    made = subscribe(story, receiver.url)
    receiver.answers = [Answer(204), NO, NO]
    tell(story, "first", "second", "third")
    assert deliver(story) == 2
    assert deliver(story) == 0  # not before its pause is over
    story.clock.advance(2)
    assert deliver(story) == 1
    assert shown(story, made)["reason"] == "HTTP 500"
    story.clock.advance(3)
    deliver(story)
    assert receiver.seqs == [1, 2, 2, 2, 3]
    assert len({one.headers["webhook-id"] for one in receiver.got}) == 3
    assert shown(story, made)["reason"] is None
    assert shown(story, made)["after"] == 3


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(302, {"Location": "/elsewhere"}), "HTTP 302: redirects are not followed"),
        (Answer(404), "HTTP 404"),
        (Answer(None), "the connection broke, or what came back is no HTTP"),
        (Answer(hang=threading.Event()), "no answer within 0.3 s"),
        (Answer(drip=threading.Event()), "no answer within 0.3 s"),
    ],
    ids=["redirects", "refuses", "closes", "hangs", "drips"],
)
def test_whatever_a_receiver_does_is_a_failure_with_a_reason(
    make_story: MakeStory, receiver: Receiver, answer: Answer, reason: str
) -> None:
    story = make_story(**{**LOOPBACK, "notifications__webhook_timeout": 0.3})
    made = subscribe(story, receiver.url)
    receiver.answers = [answer]
    tell(story, "first")
    deliver(story)
    for event in (answer.hang, answer.drip):
        if event is not None:
            event.set()
    assert shown(story, made)["reason"] == reason
    assert [one.path for one in receiver.got] == ["/hook"]
    story.clock.advance(2)
    deliver(story)
    assert receiver.seqs == [1, 1]


def test_a_receiver_that_is_not_there_is_a_failure(simple: Story) -> None:
    with receiving() as gone:
        made = subscribe(simple, gone.url)
    tell(simple, "first")
    deliver(simple)
    assert shown(simple, made)["reason"] == "it refuses connections"


def test_a_receiver_may_ask_for_a_longer_pause(simple: Story, receiver: Receiver) -> None:
    subscribe(simple, receiver.url)
    receiver.answers = [Answer(429, {"Retry-After": "100"})]
    tell(simple, "first")
    deliver(simple)
    simple.clock.advance(99)
    assert deliver(simple) == 0
    simple.clock.advance(2)
    assert deliver(simple) == 1


def test_what_fails_too_often_is_put_aside_and_can_be_sent_again(
    hooked: Story, receiver: Receiver
) -> None:
    story = hooked
    made = subscribe(story, receiver.url)
    receiver.answers = [NO] * 10
    tell(story, "poison", "fine")
    deliver_all(story, 14)
    assert receiver.seqs == [1] * 10 + [2]
    assert dead(story, made) == [1]
    assert (shown(story, made)["dead_letters"], shown(story, made)["status"]) == (1, "active")
    receiver.answers = [NO]
    again = f"{PATH}/{made['id']}/redeliver"
    assert story.ok("POST", again, {"seqs": [1, 7]}) == {"redelivering": 1}
    deliver_all(story, 3)
    assert receiver.seqs[11:] == [1]  # once for each time it is asked for
    assert dead(story, made) == [1]
    assert story.ok("POST", again, {}) == {"redelivering": 1}
    deliver(story)
    assert dead(story, made) == []
    assert receiver.got[0].headers["webhook-id"] == receiver.got[-1].headers["webhook-id"]


def test_a_subscription_that_keeps_failing_is_suspended_and_its_owner_told(
    hooked: Story, receiver: Receiver
) -> None:
    story = hooked
    made = subscribe(story, receiver.url, token="alice:lab")
    receiver.then = NO
    tell(story, *(f"event {n}" for n in range(7)), project="lab")
    deliver_all(story, 60)
    assert dead(story, made) == [1, 2, 3, 4, 5]
    found = shown(story, made)
    assert (found["status"], found["after"]) == ("suspended", 5)
    assert found["reason"] == "5 notifications in a row were not taken; the last: HTTP 500"
    count = len(receiver.got)
    story.relay.flush()
    [told] = story.ok("GET", "/v2/notifications?event_type=subscription.*", token="alice:lab")[
        "notifications"
    ]
    assert told["event_type"] == "subscription.suspended"
    assert told["lease_id"] is None
    assert told["payload"]["subscription_id"] == made["id"]
    receiver.then = Answer()
    story.problem(409, "POST", f"{PATH}/{made['id']}/redeliver", {})
    assert len(receiver.got) == count
    resumed = story.ok("PATCH", f"{PATH}/{made['id']}", {"status": "active"}, token="alice:lab")
    assert (resumed["status"], resumed["reason"]) == ("active", None)
    deliver(story)
    assert receiver.seqs[count:] == [6, 7, 8]


def test_a_receiver_that_is_gone_for_good_is_left_alone(simple: Story, receiver: Receiver) -> None:
    made = subscribe(simple, receiver.url)
    receiver.answers = [Answer(410)]
    tell(simple, "first")
    deliver_all(simple, 3)
    assert (shown(simple, made)["status"], shown(simple, made)["reason"]) == (
        "suspended",
        "HTTP 410",
    )
    assert receiver.seqs == [1]


# Several managers.


def test_a_claim_keeps_another_manager_away_until_it_expires(
    hooked: Story, receiver: Receiver
) -> None:
    story = hooked
    subscribe(story, receiver.url)
    tell(story, "first", "second")
    done = threading.Event()
    receiver.answers = [Answer(hang=done)]
    first = threading.Thread(target=deliveries(story, "first").run_due)
    first.start()
    eventually(lambda: receiver.got, "the first is at it")
    assert deliveries(story, "second").run_due() == 0
    done.set()
    first.join()
    assert receiver.seqs == [1, 2]


def test_the_result_of_a_claim_that_was_taken_over_does_not_count(
    make_story_everywhere: MakeStory, receiver: Receiver
) -> None:
    story = make_story_everywhere(**{**LOOPBACK, "notifications__webhook_timeout": 30.0})
    made = subscribe(story, receiver.url)
    tell(story, "first", "second", "third")
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


def test_several_managers_deliver_without_doubles(hooked: Story) -> None:
    story = hooked
    count, receivers = 30, 4
    with receiving() as first, receiving() as second, receiving() as third, receiving() as fourth:
        all_ = [first, second, third, fourth]
        for one in all_:
            subscribe(story, one.url)
        managers = [deliveries(story, f"manager-{n}") for n in range(3)]
        for manager in managers:
            manager.start()
        relay = Relay(story.runtime, LogEmitter(), "manager-0")
        for _ in range(3):
            write_many(story, count // 3)
            relay.flush()
        eventually(lambda: sum(len(one.got) for one in all_) >= count * receivers, "all arrived")
        for manager in managers:
            manager.stop()
    assert [one.seqs for one in all_] == [list(range(1, count + 1))] * receivers


def test_those_who_hang_delay_nobody_else(make_story: MakeStory) -> None:
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
            tell(story, f"event {number}")
            eventually(lambda number=number: quick.seqs[-1:] == [number], "the quick one has it")
        assert len(hanging.got) == 2  # half of the places
        release.set()
        manager.stop()


# Changes while it goes on.


def test_a_subscription_that_was_removed_or_suspended_is_sent_nothing(
    hooked: Story, receiver: Receiver
) -> None:
    story = hooked
    removed, suspended = subscribe(story, receiver.url), subscribe(story, receiver.url)
    tell(story, "first")
    assert story.call("DELETE", f"{PATH}/{removed['id']}").status_code == 204
    story.problem(404, "GET", f"{PATH}/{removed['id']}")
    change = {"status": "suspended"}
    assert story.ok("PATCH", f"{PATH}/{suspended['id']}", change)["status"] == "suspended"
    assert deliver(story) == 0
    story.ok("PATCH", f"{PATH}/{suspended['id']}", {"status": "active", "after": 1})
    assert deliver(story) == 0
    story.ok("PATCH", f"{PATH}/{suspended['id']}", {"after": 0})
    assert deliver(story) == 1


def test_a_new_place_is_used_from_the_next_one_on(simple: Story, receiver: Receiver) -> None:
    with receiving() as old:
        made = subscribe(simple, old.url)
        old.then = NO
        tell(simple, "first")
        deliver(simple)
    change = {"url": receiver.url, "event_types": ["first"]}
    assert simple.ok("PATCH", f"{PATH}/{made['id']}", change)["event_types"] == ["first"]
    tell(simple, "second")
    deliver(simple)
    assert receiver.seqs == [1]


# Where they are not sent.


@pytest.mark.parametrize("name", ["rebound.example", "localhost"])
def test_what_a_name_means_is_checked_and_that_very_address_is_connected_to(
    make_story: MakeStory, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The name is asked for once; it leads to the loopback, which is not public."""
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
    tell(story, "first")
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    deliver(story)
    assert len(asked) == (1 if name.endswith("example") else 0)
    assert "not public" in shown(story, made)["reason"]
    assert receiver.got == []


def test_a_certificate_that_nobody_vouches_for_is_not_trusted(
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
        poster = webhooks.WebhookPoster(rules, "climate", cafile and str(cafile))
        with receiving(certificate, key) as secure, resolved("127.0.0.1"):
            outcome = poster.post(delivery(secure.url.replace("127.0.0.1", name)), {})
            found.append((outcome.reason or "taken", len(secure.got)))
    assert [count for _, count in found] == [0, 0, 1]
    assert "self-signed" in found[0][0]
    assert "other.example" in found[1][0]
    assert found[2][0] == "taken"


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
    told = broker.notification(1)
    return Delivery(
        subscription=subscription, secret=SECRET, notification=told, letter=None, at=now
    )
