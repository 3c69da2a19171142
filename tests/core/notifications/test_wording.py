"""Notifications in words: titles, facts and advice."""

import datetime as dt
from typing import Any

from climate.core.notifications import mail
from climate.core.notifications.message import Notification
from climate.core.notifications.wording import Wording, describe, one_line, show_time
from tests.support.cases import each_case

NOW = dt.datetime(2030, 1, 15, 12, tzinfo=dt.UTC)
LEASE: dict[str, Any] = {
    "name": "run",
    "status": "PENDING",
    "project_id": "lab",
    "start_date": "2030-01-15T13:00:00.000000",
    "end_date": "2030-01-16T13:00:00.000000",
    "reservations": [{"resource_type": "physical:host", "min": 1, "max": 3}],
}


def words(event_type: str, lease_id: str | None = "id", **payload: Any) -> Wording:
    notification = Notification(
        seq=1,
        message_id="m",
        event_type=event_type,
        lease_id=lease_id,
        project_id="lab",
        payload=payload,
        created_at=NOW,
    )
    return describe(notification, payload, NOW, mail.zone("Europe/Berlin"))


@each_case(
    "event_type,status,title",
    [
        ("lease.create", "PENDING", "Lease \u201crun\u201d is reserved"),
        ("lease.event.before_start_lease", "PENDING", "Lease \u201crun\u201d starts in 1 hour"),
        ("lease.event.before_end_lease", "ACTIVE", "Lease \u201crun\u201d ends in 1 day"),
        ("lease.event.start_lease", "ACTIVE", "Lease \u201crun\u201d has started"),
        ("lease.event.start_lease", "ERROR", "Lease \u201crun\u201d could not be started yet"),
        ("lease.event.mine", "ACTIVE", "Lease \u201crun\u201d: lease.event.mine"),
    ],
)
def test_a_title_says_what_happens_to_which_lease(event_type: str, status: str, title: str) -> None:
    assert words(event_type, **{**LEASE, "status": status}).title == title


def test_facts_have_times_with_offset_and_resources_with_names() -> None:
    facts = dict(words("lease.create", **LEASE).facts)
    assert facts["Start"] == "Tuesday 2030-01-15 14:00 (UTC+01:00)"
    assert facts["Resources"] == "1 to 3 x physical:host"
    hosts = [{"reservation_id": "r", "id": str(n), "name": f"h{n}"} for n in range(12)]
    facts = dict(words("lease.event.start_lease", **LEASE, hosts=hosts).facts)
    assert facts["Resources"].startswith("12 hosts (h0, h1,")
    assert facts["Resources"].endswith("h9 and 2 more)")


def test_a_notification_about_no_lease_has_a_title_and_its_reason() -> None:
    found = words("subscription.suspended", None, project_id="lab", reason="550 no such user")
    assert found.title == "climate has suspended a subscription"
    assert found.facts == (("Reason", "550 no such user"), ("Project", "lab"))
    assert words("audit.invariant_holds", None).title == "audit.invariant_holds"


@each_case(
    "text,shown",
    [
        ("a\r\nb\x00c\u2028d\x85e", "a  b c d e"),
        ("\u202egnp.exe", "gnp.exe"),
        ("x" * 300, f"{'x' * 197}..."),
        ("{name} %s \ud800", "{name} %s  "),
    ],
)
def test_values_become_one_line(text: str, shown: str) -> None:
    assert one_line(text) == shown


@each_case(
    "seconds,text",
    [
        (-7200, "was due to start 2 hours ago"),
        (-5, "starts now"),
        (30, "starts in less than a minute"),
        (600, "starts in 10 minutes"),
        (3 * 86400, "starts in 3 days"),
    ],
)
def test_a_reminder_says_how_far_ahead_the_start_is(seconds: int, text: str) -> None:
    start = (NOW + dt.timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()
    lease = {**LEASE, "start_date": start, "end_date": "2030-02-15T13:00:00.000000"}
    assert words("lease.event.before_start_lease", **lease).title == f"Lease \u201crun\u201d {text}"


def test_times_have_their_offset() -> None:
    assert show_time(NOW, dt.UTC) == "Tuesday 2030-01-15 12:00 (UTC+00:00)"
    assert show_time(NOW, mail.zone("America/St_Johns")) == "Tuesday 2030-01-15 08:30 (UTC-03:30)"
