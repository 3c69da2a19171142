"""Webhook subscriptions: allowed targets, signing secrets, retries."""

import base64
import datetime as dt
import ipaddress

import pytest

from climate.core.errors import InvalidInput
from climate.core.notifications.message import NotificationFilter
from climate.core.notifications.subscription import (
    Outcome,
    Subscription,
    SubscriptionStatus,
    WebhookRules,
    check_address,
    check_url,
    judge,
    key_of,
    where,
)
from tests.support.cases import each_case

PUBLIC = WebhookRules()
LAB = WebhookRules(networks=(ipaddress.ip_network("10.1.0.0/16"),), plain=True)


def failing(attempts: int = 0, given_up: int = 0) -> Subscription:
    now = dt.datetime(2030, 1, 15, tzinfo=dt.UTC)
    return Subscription(
        id="subscription",
        project_id="lab",
        user_id="alice",
        url="https://example.org",
        wanted=NotificationFilter(),
        all_projects=False,
        status=SubscriptionStatus.ACTIVE,
        reason=None,
        done_seq=0,
        attempts=attempts,
        given_up=given_up,
        slow=False,
        delivered_at=None,
        created_at=now,
        updated_at=None,
    )


# Targets.


@each_case(
    "address",
    [
        *("127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1"),  # noqa: S104 - refused
        *("192.168.1.1", "192.0.2.1"),
        *(
            "169.254.169.254",
            "100.64.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "192.0.2.1",
        ),
        *("::1", "::", "fe80::1", "fe80::1%eth0", "fd00::1", "fec0::1", "ff02::1"),
        *("::ffff:127.0.0.1", "::ffff:10.1.2.3", "64:ff9b::a00:1", "64:ff9b::7f00:1"),
        *("2002:7f00:1::", "2002:a01:203::", "2001:0:4136:e378:8000:63bf:80ff:fffe"),
        # What is_global says about these depends on the patch release of Python.
        *("192.0.0.0", "192.0.0.8", "192.0.0.11", "192.0.0.192", "192.0.0.255", "192.88.99.1"),
        *("::ffff:192.0.0.192", "64:ff9b::c000:c0", "2002:c000:c0::", "3fff::1", "2001:1::1"),
        "168.63.129.16",
        *("2130706433", "127.1", "0177.0.0.1", "not-an-address"),
    ],
)
def test_rejects_addresses_that_are_not_public(address: str) -> None:
    with pytest.raises(InvalidInput):
        check_address(address, PUBLIC)


@each_case("address", ["8.8.8.8", "192.0.0.9", "192.0.1.1", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_accepts_public_addresses(address: str) -> None:
    check_address(address, PUBLIC)


def test_the_operator_may_allow_networks() -> None:
    check_address("10.1.2.3", LAB)
    check_address("::ffff:10.1.2.3", LAB)
    for other in ("10.2.0.1", "127.0.0.1", "fd00::1"):
        with pytest.raises(InvalidInput):
            check_address(other, LAB)


@each_case(
    "url",
    [
        *("http://example.org/", "ftp://example.org/", "example.org", "//example.org", "https://"),
        *("https://user:pw@example.org/", "https://example.org/#x", "https://example.org:0/"),
        *("https://example.org:99999/", "https://[::1/", "https://exa mple.org/", "https://é.org/"),
        *("https://example.org/a\nb", "https://localhost/", "https://LOCALHOST./x"),
        *("https://a.localhost/", "https://127.0.0.1/", "https://[::1]/", "https://2130706433/"),
        f"https://example.org/{'x' * 2048}",
    ],
)
def test_rejects_urls_that_cannot_be_delivered_to(url: str) -> None:
    with pytest.raises(InvalidInput):
        check_url(url, PUBLIC)


def test_a_url_names_host_and_port() -> None:
    for url, place in [
        ("https://example.org/hook?a=b", ("example.org", 443)),
        ("https://example.org:8443", ("example.org", 8443)),
        ("https://[2606:4700::1111]/", ("2606:4700::1111", 443)),
    ]:
        check_url(url, PUBLIC)
        assert where(url) == place
    check_url("http://10.1.0.1:8080/", LAB)
    assert where("http://10.1.0.1/") == ("10.1.0.1", 80)


# Secrets.


def test_accepts_a_secret_of_24_bytes() -> None:
    key = bytes(range(24))
    assert key_of(f"whsec_{base64.b64encode(key).decode()}") == key


@each_case(
    "secret",
    [
        *("", "whsec_", "secret", base64.b64encode(bytes(24)).decode(), "whsec_***"),
        f"whsec_{base64.b64encode(bytes(23)).decode()}",
        f"whsec_{base64.b64encode(bytes(65)).decode()}",
        f"whsec_{base64.b64encode(bytes(30)).decode()}é",
    ],
)
def test_rejects_an_invalid_secret_without_repeating_it(secret: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        key_of(secret)
    assert not secret.removeprefix("whsec_") or secret not in refusal.value.message


# Retries.


def test_pauses_between_attempts_double_with_jitter() -> None:
    failed = Outcome(reason="HTTP 500")
    pauses = [judge(failing(n), failed, PUBLIC, 0.5).pause for n in range(9)]
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    many = WebhookRules(attempts=100)
    assert judge(failing(50), failed, many, 0.5).pause == 300
    assert judge(failing(2), failed, PUBLIC, 0.0).pause == 3
    assert judge(failing(2), failed, PUBLIC, 0.999).pause < 5


def test_respects_retry_after_up_to_an_hour() -> None:
    assert judge(failing(), Outcome(reason="x", retry_after=90), PUBLIC, 0.5).pause == 90
    assert judge(failing(), Outcome(reason="x", retry_after=9e9), PUBLIC, 0.5).pause == 3600
    assert judge(failing(5), Outcome(reason="x", retry_after=3), PUBLIC, 0.5).pause == 32


def test_gives_up_and_suspends_after_repeated_failures() -> None:
    failed = Outcome(reason="HTTP 500")
    assert not judge(failing(8), failed, PUBLIC, 0.5).give_up
    given_up = judge(failing(9), failed, PUBLIC, 0.5)
    assert given_up.give_up
    assert given_up.suspend is None
    last = judge(failing(9, given_up=4), failed, PUBLIC, 0.5)
    assert last.give_up
    assert last.suspend == "5 notifications in a row were not delivered; the last error: HTTP 500"
    gone = judge(failing(), Outcome(reason="HTTP 410", gone=True), PUBLIC, 0.5)
    assert (gone.give_up, gone.suspend) == (False, "HTTP 410")
