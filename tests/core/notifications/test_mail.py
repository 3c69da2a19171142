"""E-mail: allowed addresses, secret links, and when digests are due."""

import datetime as dt

import pytest

from climate.core.errors import InvalidInput
from climate.core.notifications import mail
from climate.core.notifications.mail import EmailRules, Purpose
from climate.core.notifications.message import NotificationFilter
from climate.core.notifications.subscription import (
    Frequency,
    Kind,
    Outcome,
    Subscription,
    WebhookRules,
    judge,
)
from tests.support.cases import each_case

RULES = EmailRules()
BERLIN = mail.zone("Europe/Berlin")
NOW = dt.datetime(2030, 1, 15, 12, 34, 56, tzinfo=dt.UTC)


def subscription(**fields: object) -> Subscription:
    given = {"url": "mailto:a@example.org", "kind": Kind.EMAIL, "confirm_requested_at": NOW}
    return Subscription(
        id="0" * 36,
        project_id="lab",
        user_id="alice",
        wanted=NotificationFilter(),
        all_projects=False,
        done_seq=0,
        created_at=NOW,
        **{**given, **fields},  # type: ignore[arg-type]
    )


@each_case("address", ["a@example.org", "a.b+c@x-y.example.org", "o'neil@example.org", "1@a.bc"])
def test_accepts_an_address_and_its_url_keeps_it(address: str) -> None:
    mail.check_address(address, RULES)
    assert mail.address_of(mail.url_of(address)) == address


@each_case(
    "address",
    [
        *("", "a", "@example.org", "a@", "a@localhost", "a@b@example.org", "a b@example.org"),
        *("a@example.org\n", "a\r\nBcc:x@example.org", "a@example.org, b@example.org"),
        *("<a@example.org>", '"a"@example.org', "a@[127.0.0.1]", "a@-x.org", "a@x..org"),
        *("a..b@example.org", ".a@example.org", "a.@example.org", "\u00e4@example.org"),
        *("a@ex\u00e4mple.org", f"{'a' * 65}@example.org", f"a@{'x' * 63}.{'y' * 190}.org"),
    ],
)
def test_rejects_what_is_no_single_address(address: str) -> None:
    with pytest.raises(InvalidInput):
        mail.check_address(address, RULES)


def test_the_operator_may_allow_only_some_domains() -> None:
    rules = EmailRules(domains=("example.org",))
    mail.check_address("a@EXAMPLE.org", rules)
    for other in ("a@sub.example.org", "a@example.org.evil.example", "a@notexample.org"):
        with pytest.raises(InvalidInput, match="only addresses of these domains"):
            mail.check_address(other, rules)


def test_confirmations_are_counted_by_mailbox() -> None:
    keys = {mail.mailbox_key(text) for text in ("Al@x.org", "al+1@x.org", "al+2@X.ORG")}
    assert len(keys) == 1
    assert mail.mailbox_key("bo@x.org") not in keys


def test_a_link_depends_on_secret_subscription_purpose_and_request() -> None:
    secret, later = mail.new_secret(), NOW + dt.timedelta(seconds=1)
    links = [
        mail.link(subscription(), secret, Purpose.CONFIRM),
        mail.link(subscription(), mail.new_secret(), Purpose.CONFIRM),
        mail.link(subscription(confirm_requested_at=later), secret, Purpose.CONFIRM),
        mail.link(subscription(), secret, Purpose.UNSUBSCRIBE),
    ]
    assert len(set(links)) == 4
    assert {mail.subscription_id_of(link) for link in links} == {"0" * 36}
    unsubscribe = mail.link(subscription(confirm_requested_at=later), secret, Purpose.UNSUBSCRIBE)
    assert unsubscribe == links[3], "links in earlier mails stay valid"
    assert mail.subscription_id_of("x" * 80) is None


def test_an_hourly_digest_begins_at_the_full_hour() -> None:
    for minute in (0, 59):
        now = NOW.replace(minute=minute)
        assert mail.period_start(now, Frequency.HOURLY, BERLIN, 7) == dt.datetime(
            2030, 1, 15, 12, tzinfo=dt.UTC
        )
    following = mail.next_period(NOW, Frequency.HOURLY, BERLIN, 7)
    assert following == dt.datetime(2030, 1, 15, 13, tzinfo=dt.UTC)


@each_case(
    "now,began,following",
    [
        ("2030-01-15T05:59", "2030-01-14T06:00", "2030-01-15T06:00"),
        ("2030-01-15T06:00", "2030-01-15T06:00", "2030-01-16T06:00"),
        ("2030-03-30T12:00", "2030-03-30T06:00", "2030-03-31T05:00"),  # summer time begins
        ("2030-10-26T12:00", "2030-10-26T05:00", "2030-10-27T06:00"),  # and ends
    ],
)
def test_a_daily_digest_begins_at_an_hour_of_the_receivers_day(
    now: str, began: str, following: str
) -> None:
    at, first, second = (
        dt.datetime.fromisoformat(f"{text}+00:00") for text in (now, began, following)
    )
    assert mail.period_start(at, Frequency.DAILY, BERLIN, 7) == first
    assert mail.next_period(at, Frequency.DAILY, BERLIN, 7) == second


@each_case("name", ["Nowhere/City", "../../etc/passwd", "Europe", "", "Europe/Berlin\n", "a" * 65])
def test_rejects_an_unknown_time_zone(name: str) -> None:
    with pytest.raises(InvalidInput):
        mail.check_zone(name)
    assert mail.zone(name) is dt.UTC, "which mails use then"


def test_failures_of_the_own_server_never_give_up_and_permanent_ones_do_at_once() -> None:
    rules = WebhookRules(attempts=100)
    ours = judge(subscription(attempts=99), Outcome(reason="x", is_ours=True), rules, 0.5)
    assert (ours.give_up, ours.counts, ours.pause) == (False, False, 30)
    temporary = judge(subscription(), Outcome(reason="451"), rules, 0.5)
    assert (temporary.give_up, temporary.counts, temporary.pause) == (False, True, 1)
    assert judge(subscription(), Outcome(reason="550", permanent=True), rules, 0.5).give_up
