"""Subscriptions in the console: a mailbox that its owner confirms, and a chat."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.chromium import Browser
from tests.support.mail_server import MailServer, mail_server
from tests.support.process import Service, eventually, standalone, write_config

PAGE = "/console/subscriptions"


@pytest.fixture
def mails(tmp_path: Path) -> Iterator[MailServer]:
    with mail_server(tmp_path) as running:
        yield running


@pytest.fixture
def service(mails: MailServer, tmp_path: Path) -> Iterator[Service]:
    conf = write_config(
        tmp_path / "climate.conf", **{"manager__poll_interval": 0.1, **mails.options}
    )
    with standalone(tmp_path, "--config-file", str(conf)) as (started, _):
        yield started


def test_a_mailbox_is_subscribed_in_the_console_and_its_owner_confirms_and_unsubscribes(
    browser: Browser, service: Service, mails: MailServer
) -> None:
    browser.open(PAGE)
    browser.click("Create subscription")
    browser.fill("Send to", "E-mail")
    browser.fill("Address", "alice@example.org")
    browser.fill("Mails", "For each notification")
    assert browser.field("Time zone").get_attribute("value") == "Europe/Berlin"
    assert browser.axe() == []
    browser.click("Create")
    browser.shows("as soon as the owner of the address has confirmed it")
    browser.click("Done")
    browser.shows("Not confirmed")

    eventually(lambda: mails.got, "the confirmation arrived")
    browser.open(mails.got[0].link("confirm"))
    browser.shows(
        "climate will send notifications about leases of project lab to alice@example.org"
    )
    assert browser.axe() == []
    browser.click("Confirm")
    browser.shows("Your address is confirmed")
    browser.open(PAGE)
    browser.shows("Active")
    assert "Not confirmed" not in browser.text

    body = {"name": "far", "start_date": "2090-01-15 12:00", "end_date": "2090-01-15 13:00"}
    Service(service.port, "alice:lab").ok("POST", "/v1/leases", {**body, "reservations": []})
    eventually(lambda: len(mails.got) > 1, "the notification arrived")
    browser.open(mails.got[1].link("unsubscribe"))
    browser.click("Unsubscribe")
    browser.shows("You have unsubscribed")
    browser.open(PAGE)
    browser.shows("the receiver of the mails has unsubscribed")


def test_a_chat_is_subscribed_and_changed(browser: Browser) -> None:
    browser.open(PAGE)
    browser.click("Create subscription")
    browser.fill("Send to", "Slack")
    browser.fill("Receiver", "https://hooks.example.org/services/x")
    browser.click("Create")
    browser.shows("hooks.example.org")
    browser.shows("Slack")
    browser.click("Change https://hooks.example.org/services/x")
    browser.fill("Send to", "Microsoft Teams (workflow)")
    browser.click("Change")
    browser.shows("Microsoft Teams")
