"""Mails reach a real SMTP server: what they say, to whom, and what happens if it fails."""

import datetime as dt
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import vobject

from climate.core.notifications.event_type import LEASE_CREATE
from climate.db.notifications import outbox
from climate.manager.notifications.subscription_delivery import SubscriptionDelivery
from climate.notifications import mail_sender, webhook_sender
from tests.conftest import MakeStory
from tests.support.hanging_resolver import hanging_resolver
from tests.support.mail_server import CUT, USER, MailServer, Received, mail_server
from tests.support.outbox_rows import publish
from tests.support.service import Story

PATH = "/v2/subscriptions"
ADDRESS = "alice@example.org"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MailServer]:
    with mail_server(tmp_path) as running:
        yield running


@pytest.fixture
def story(make_story: MakeStory, server: MailServer) -> Story:
    return make_story(**server.options, email__attempts=3)


def deliver(story: Story) -> int:
    keys = story.runtime.settings.webhooks.secret_keys
    mailer = mail_sender.for_config(story.conf, keys)
    poster = webhook_sender.for_config(story.conf, story.runtime.settings.webhooks)
    return SubscriptionDelivery(story.runtime, poster, "manager-1", mailer).run_due()


def subscribe(story: Story, token: str | None = None, **fields: Any) -> dict[str, Any]:
    body = {"kind": "email", "address": ADDRESS, **fields}
    return dict(story.ok("POST", PATH, body, token=token))


def confirmed(story: Story, server: MailServer, **fields: Any) -> dict[str, Any]:
    """Create a subscription whose address is confirmed; forget the mails so far."""
    made = subscribe(story, **fields)
    deliver(story)
    assert story.http.post(server.got[-1].link("confirm")).status_code == 200
    server.got.clear()
    return made


def shown(story: Story, made: dict[str, Any]) -> dict[str, Any]:
    return dict(story.ok("GET", f"{PATH}/{made['id']}"))


def ids(mails: list[Received]) -> list[str]:
    return [str(mail.message["Message-ID"]) for mail in mails]


# Double opt-in, and the end of a subscription.


def test_nothing_but_the_confirmation_is_sent_until_the_address_is_confirmed(
    make_story_everywhere: MakeStory, server: MailServer
) -> None:
    story = make_story_everywhere(**server.options)
    made = subscribe(story, "alice:lab", time_zone="Europe/Berlin")
    assert (made["confirmed_at"], made["url"]) == (None, f"mailto:{ADDRESS}")
    publish(story, "lease.create", project="lab")
    assert deliver(story) == 1
    assert deliver(story) == 0
    [mail] = server.got
    assert (mail.sender, mail.to) == ("climate@lab.example", [ADDRESS])
    assert (mail.is_encrypted, mail.user) == (True, USER)
    assert "User alice of project lab" in mail.text
    assert "User <bdi>alice</bdi>" in mail.html
    path = mail.link("confirm")
    page = story.http.get(path)
    assert (page.status_code, page.mimetype) == (200, "text/html")
    assert "no-referrer" in page.headers["Referrer-Policy"]
    assert shown(story, made)["confirmed_at"] is None, "a page that is read changes nothing"
    assert deliver(story) == 0

    assert story.http.post(path).status_code == 200
    assert shown(story, made)["confirmed_at"] is not None
    assert deliver(story) == 0, "what was before the confirmation is not sent"
    publish(story, "lease.delete", project="lab")
    assert deliver(story) == 1
    assert story.http.post(path).status_code == 200, "a second click changes nothing"
    assert deliver(story) == 0
    assert server.got[1].message["Subject"] == "Lease \u201clease\u201d is deleted"


def test_only_a_recent_and_complete_link_confirms(story: Story, server: MailServer) -> None:
    made = subscribe(story)
    deliver(story)
    path = server.got[0].link("confirm")
    other = path.replace(path[-5:], "AAAAA")
    unsubscribe = path.replace("confirm", "unsubscribe")
    for wrong in (other, unsubscribe, f"/email/confirm/{made['id']}", "/email/confirm/x"):
        answer = story.http.post(wrong)
        assert (answer.status_code, answer.mimetype) == (404, "text/html"), wrong
    story.clock.advance(7 * 86400 + 1)
    assert story.http.post(path).status_code == 404
    assert shown(story, made)["confirmed_at"] is None
    story.ok("PATCH", f"{PATH}/{made['id']}", {"status": "active"})
    deliver(story)
    assert story.http.post(path).status_code == 404, "a later confirmation replaces it"
    assert story.http.post(server.got[1].link("confirm")).status_code == 200


def test_a_confirmation_that_is_sent_late_can_be_opened_for_the_full_time(
    story: Story, server: MailServer
) -> None:
    subscribe(story)
    story.clock.advance(8 * 86400)
    deliver(story)
    assert story.http.post(server.got[0].link("confirm")).status_code == 200


def test_a_confirmation_does_not_resume_a_suspended_subscription(
    story: Story, server: MailServer
) -> None:
    made = subscribe(story)
    deliver(story)
    story.ok("PATCH", f"{PATH}/{made['id']}", {"status": "suspended"})
    page = story.http.post(server.got[0].link("confirm"))
    assert "climate sends none until the project resumes the subscription" in page.text
    assert shown(story, made)["status"] == "suspended"


def test_a_new_address_must_be_confirmed_and_ends_the_links_of_the_old_one(
    story: Story, server: MailServer
) -> None:
    made = confirmed(story, server)
    publish(story, "lease.create")
    deliver(story)
    old = server.got[0].link("unsubscribe")
    changed = story.ok("PATCH", f"{PATH}/{made['id']}", {"address": "bob@example.org"})
    assert (changed["address"], changed["confirmed_at"]) == ("bob@example.org", None)
    publish(story, "lease.update")
    deliver(story)
    assert [mail.to for mail in server.got] == [[ADDRESS], ["bob@example.org"]]
    assert story.http.post(old).status_code == 404
    assert "confirm" in server.got[1].text


def test_the_receiver_unsubscribes_without_signing_in(
    make_story_everywhere: MakeStory, server: MailServer
) -> None:
    story = make_story_everywhere(**server.options)
    made = confirmed(story, server)
    publish(story, "lease.create", "lease.update")
    deliver(story)
    first, second = server.got
    url = str(first.message["List-Unsubscribe"]).strip("<>")
    assert first.message["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    assert url in first.text
    assert url in first.html
    path = url.removeprefix("https://climate.example")
    assert second.link("unsubscribe") == path
    assert story.http.get(path).status_code == 200
    assert shown(story, made)["status"] == "active", "a page that is read changes nothing"
    for _ in range(2):
        answer = story.http.post(path, data={"List-Unsubscribe": "One-Click"})
        assert answer.status_code == 200
    found = shown(story, made)
    assert (found["status"], found["confirmed_at"]) == ("suspended", None)
    assert found["reason"] == "the receiver of the mails has unsubscribed"
    publish(story, "lease.delete")
    assert deliver(story) == 0
    log = story.ok("GET", "/v2/notifications?event_type=subscription.*")["notifications"]
    assert [item["payload"]["subscription_id"] for item in log] == [made["id"]]
    story.ok("PATCH", f"{PATH}/{made['id']}", {"status": "active"})
    deliver(story)
    assert len(server.got) == 3
    assert "confirm your address" in server.got[2].text, "it must be confirmed again"


def test_no_log_contains_a_link(
    story: Story, server: MailServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "climate")
    made = confirmed(story, server)
    publish(story, "lease.create")
    deliver(story)
    path = server.got[0].link("unsubscribe")
    story.http.get(path)
    story.http.post(path)
    story.http.post(f"{path}x")
    assert "POST /email/unsubscribe/<secret>: 200" in caplog.text
    assert f"{made['id']}." not in caplog.text


# What mails say.


def remind(story: Story, server: MailServer) -> tuple[str, Received, Received]:
    """Return the id of a lease, and the mails that remind of its start (13:00) and of its end."""
    story.register(2)
    confirmed(story, server, time_zone="Europe/Berlin", event_types=["lease.event.before*"])
    reservations = [{**story.lease_body()["reservations"][0], "min": 2, "max": 2}]
    lease = story.reserve(60, 120, name="training <b>run</b>", reservations=reservations)
    for minutes in (59, 50):
        story.at(minutes)
        story.relay.flush()
        deliver(story)
    return lease["id"], server.got[0], server.got[-1]


def test_a_reminder_says_what_to_do(story: Story, server: MailServer) -> None:
    id_, start, end = remind(story, server)
    message = start.message
    assert message["Subject"] == "Lease \u201ctraining <b>run</b>\u201d starts in 1 minute"
    assert message["From"] == "Lab leases <climate@lab.example>"
    assert (message["To"], message["Auto-Submitted"]) == (ADDRESS, "auto-generated")
    assert message["Date"].datetime == story.clock.now() - dt.timedelta(minutes=50)
    for text in (
        "Tuesday 2030-01-15 14:00 (UTC+01:00)",
        "2 hosts (sim-1, sim-2)",
        "Connect: after the start",
        f"https://climate.example/console/leases/{id_}",
    ):
        assert text in start.text
        assert text in start.html
    assert "<b>" not in start.html
    assert "training &lt;b&gt;run&lt;/b&gt;" in start.html
    assert "ends in" in str(end.message["Subject"])
    assert f"openstack reservation lease set --prolong-for 1h {id_}" in end.text
    assert "End it:" in end.text


def test_a_reminder_contains_the_calendar_file_in_lines_of_any_mail_server(
    story: Story, server: MailServer
) -> None:
    id_, start, _ = remind(story, server)
    [file] = start.message.iter_attachments()
    assert (file.get_content_type(), file.get_filename()) == ("text/calendar", "lease.ics")
    [event] = vobject.readOne(file.get_content()).vevent_list
    assert event.uid.value == f"{id_}@climate", "as in calendar feeds"
    assert event.dtstart.value == dt.datetime(2030, 1, 15, 13, tzinfo=dt.UTC)
    head, _, body = start.raw.partition(b"\r\n\r\n")
    assert max(map(len, head.split(b"\r\n"))) < 998
    encoded = [line for line in body.split(b"\r\n") if not line.startswith(b"Content-")]
    assert max(map(len, encoded)) <= 76, "as MIME requires"
    assert start.raw.isascii()


@pytest.mark.parametrize("name", ["x\r\nBcc: eve@example.org", "x\n\nbody", "x\u2028y\x85z\x0bw"])
def test_a_name_adds_no_header_and_no_line(story: Story, server: MailServer, name: str) -> None:
    confirmed(story, server)
    payload = {"lease_id": "lease", "project_id": "admin", "name": name}
    story.runtime.database.write(
        lambda session: outbox.write(session, LEASE_CREATE, payload, story.clock.now())
    )
    story.relay.flush()
    deliver(story)
    [mail] = server.got
    assert mail.to == [ADDRESS]
    assert {"bcc", "body"}.isdisjoint(key.lower() for key in mail.message)
    assert len(str(mail.message["Subject"]).splitlines()) == 1
    assert mail.text.splitlines()[1] == ""


# Servers that fail.


def test_a_dead_server_loses_nothing_and_costs_no_attempt(
    story: Story, server: MailServer, caplog: pytest.LogCaptureFixture
) -> None:
    made = confirmed(story, server)
    server.stop()
    publish(story, "lease.create", "lease.delete")
    for _ in range(6):
        deliver(story)
        story.clock.advance(60)
    found = shown(story, made)
    assert (found["status"], found["dead_letters"]) == ("active", 0)
    assert "climate tries again" in found["reason"]
    assert "localhost" not in found["reason"], "internals are only in the log"
    assert f"the mail server localhost:{server.port} accepts no mails" in caplog.text
    server.start()
    deliver(story)
    subjects = [str(mail.message["Subject"]) for mail in server.got]
    assert subjects == ["Lease \u201clease\u201d is reserved", "Lease \u201clease\u201d is deleted"]
    assert shown(story, made)["reason"] is None


def test_a_temporary_rejection_is_retried_with_the_same_message_id(
    story: Story, server: MailServer
) -> None:
    made = confirmed(story, server)
    server.rcpt_replies = ["451 4.7.1 greylisted"]
    server.data_replies = ["452 4.3.1 no space", "250 OK"]
    publish(story, "lease.create", "lease.delete")
    assert deliver(story) == 1
    assert deliver(story) == 0, "not before the pause is over"
    assert shown(story, made)["reason"] == "the mail server rejected it: 451 4.7.1 greylisted"
    for _ in range(2):
        story.clock.advance(3)
        deliver(story)
    assert len(set(ids(server.got))) == len(server.got) == 2
    assert shown(story, made)["dead_letters"] == 0


def test_an_undeliverable_mail_becomes_a_dead_letter_at_once_and_can_be_redelivered(
    story: Story, server: MailServer
) -> None:
    made = confirmed(story, server)
    server.rcpt_replies = ["550 5.1.1 no such user"]
    publish(story, "lease.create", "lease.delete")
    deliver(story)
    story.clock.advance(2)
    deliver(story)
    path = f"{PATH}/{made['id']}"
    [letter] = story.ok("GET", f"{path}/dead-letters")["dead_letters"]
    assert letter["seq"] == 1
    assert letter["reason"] == "the mail server rejected it: 550 5.1.1 no such user"
    assert len(server.got) == 1, "the next notification is not held up"
    story.ok("POST", f"{path}/redeliver", {})
    deliver(story)
    assert "is reserved" in str(server.got[1].message["Subject"])
    assert shown(story, made)["dead_letters"] == 0
    server.data_replies = ["554 5.7.1 refused"] * 9
    publish(story, *(f"event {number}" for number in range(7)))
    for _ in range(9):
        story.clock.advance(400)
        deliver(story)
    found = shown(story, made)
    assert (found["status"], found["dead_letters"]) == ("suspended", 5)
    assert "5 notifications in a row" in found["reason"]


def test_a_mail_whose_acceptance_is_unknown_is_sent_again_and_recognised(
    story: Story, server: MailServer
) -> None:
    made = confirmed(story, server)
    server.rcpt_replies = [CUT]
    server.data_replies = [CUT]
    publish(story, "lease.create")
    for _ in range(3):
        deliver(story)
        story.clock.advance(5)
    assert len(server.got) == 2, "cut before the text, after the text, and accepted"
    assert ids(server.got[:1]) == ids(server.got[1:])
    assert made["id"] in ids(server.got)[0]
    assert shown(story, made)["reason"] is None


@pytest.mark.parametrize("case", ["untrusted", "other name", "no tls", "wrong password"])
def test_no_mail_and_no_password_goes_to_a_server_that_is_not_trusted(
    make_story: MakeStory, tmp_path: Path, case: str
) -> None:
    with mail_server(tmp_path, offers_tls=case != "no tls") as server:
        changes: dict[str, dict[str, Any]] = {
            "untrusted": {"email__cafile": None},
            "other name": {"email__server": "127.0.0.1"},
            "wrong password": {"email__password": "guess"},
        }
        story = make_story(**{**server.options, **changes.get(case, {})})
        made = subscribe(story)
        deliver(story)
        assert server.got == []
        assert bool(server.refused) == (case == "wrong password")
        assert "climate tries again" in shown(story, made)["reason"]


def test_a_confirmation_that_is_rejected_suspends_the_subscription(
    story: Story, server: MailServer
) -> None:
    made = subscribe(story)
    server.rcpt_replies = ["550 5.1.1 no such user"]
    deliver(story)
    found = shown(story, made)
    assert found["status"] == "suspended"
    assert "550 5.1.1 no such user" in found["reason"]


def test_a_notification_that_cannot_be_put_into_words_holds_up_no_other(
    story: Story, server: MailServer
) -> None:
    made = confirmed(story, server)
    start, end = "2030-01-15T13:00:00.000000", "2030-01-15T14:00:00.000000"
    payload = {"project_id": "admin", "start_date": start, "end_date": end}
    story.runtime.database.write(
        lambda session: outbox.write(session, LEASE_CREATE, payload, story.clock.now())
    )
    with story.runtime.database.engine.begin() as connection:  # a window without length
        connection.exec_driver_sql("UPDATE outbox SET payload = replace(payload, 'T14', 'T13')")
    publish(story, "lease.delete")
    for _ in range(5):
        deliver(story)
        story.clock.advance(400)
    assert [str(mail.message["Subject"])[-10:] for mail in server.got] == ["is deleted"]
    assert shown(story, made)["dead_letters"] == 1


# Digests.


def test_a_digest_is_at_most_one_mail_in_a_period(
    make_story_everywhere: MakeStory, server: MailServer
) -> None:
    story = make_story_everywhere(**server.options)  # it is 12:00
    made = confirmed(story, server, frequency="hourly")
    for number in range(6):  # a notification every ten minutes, 12:00 to 12:50
        publish(story, "lease.update", lease_id=f"lease {number}")
        deliver(story)
        story.clock.advance(600)
    assert deliver(story) == 1  # 13:00
    [mail] = server.got
    assert mail.message["Subject"] == "6 notifications of the last hour"
    assert mail.text.count("has changed") == mail.html.count("has changed") == 6
    assert mail.text.index("lease 0") < mail.text.index("lease 5")
    publish(story, "lease.delete")
    story.clock.advance(60)
    story.ok("PATCH", f"{PATH}/{made['id']}", {"time_zone": "Asia/Tokyo"})
    assert deliver(story) == 0, "a change does not bring the next digest forward"
    for _ in range(12):
        story.clock.advance(600)
        deliver(story)
    assert len(server.got) == 2, "and none without a notification"
    assert shown(story, made)["after"] == 7


def test_a_digest_is_the_same_in_each_attempt(story: Story, server: MailServer) -> None:
    made = confirmed(story, server, frequency="hourly")
    publish(story, "lease.create", "lease.update")
    story.clock.advance(3600)
    server.data_replies = [CUT]
    deliver(story)
    publish(story, "lease.delete")
    story.clock.advance(3600)
    deliver(story)
    assert len(set(ids(server.got))) == 1
    assert "is deleted" not in server.got[1].text
    story.clock.advance(3600)
    server.data_replies = ["554 refused"]
    deliver(story)
    path = f"{PATH}/{made['id']}"
    letters = story.ok("GET", f"{path}/dead-letters")["dead_letters"]
    assert [letter["seq"] for letter in letters] == [3]
    story.ok("POST", f"{path}/redeliver", {})
    deliver(story)
    assert server.got[-1].message["Subject"] == "1 notification, delivered again"
    assert shown(story, made)["dead_letters"] == 0


def test_a_dead_letter_does_not_take_the_place_of_a_digest(
    story: Story, server: MailServer
) -> None:
    made = confirmed(story, server, frequency="hourly")
    publish(story, "lease.create")
    story.clock.advance(3600)
    server.data_replies = ["554 refused"]
    deliver(story)
    server.got.clear()
    publish(story, "lease.update")
    story.clock.advance(3600)
    story.ok("POST", f"{PATH}/{made['id']}/redeliver", {})
    for _ in range(3):
        deliver(story)
    subjects = [mail.message["Subject"] for mail in server.got]
    assert subjects == ["1 notification, delivered again", "1 notification of the last hour"]


@pytest.fixture
def hasty_story(make_story: MakeStory, server: MailServer) -> Story:
    return make_story(**{**server.options, "email__timeout": 2.0})


def test_a_server_whose_name_is_not_resolved_in_time_is_tried_again(
    hasty_story: Story, server: MailServer, caplog: pytest.LogCaptureFixture
) -> None:
    subscribe(hasty_story)
    with hanging_resolver():
        deliver(hasty_story)
    assert "was not resolved in time" in caplog.text
    hasty_story.clock.advance(60)
    deliver(hasty_story)
    assert len(server.got) == 1
