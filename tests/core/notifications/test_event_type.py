"""Which event types a request may name."""

import pytest

from climate.core.notifications import event_type


@pytest.mark.parametrize(
    "pattern",
    [*event_type.KNOWN, "*", "lease.event.*", "node.*", "lease.event.my.own", "lease.event.my*"],
)
def test_accepts_what_can_match(pattern: str) -> None:
    assert event_type.why_unknown(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("LEASE.CREATE", "Did you mean lease.create"),
        ("lease.c*e", "Did you mean lease."),
        ("lease.create.*", "Did you mean lease.create"),
        ("lease.end_lease", "Did you mean lease.event.end_lease"),
        ("lease.strat", "Did you mean lease.event.start_lease"),
        ("foo.bar", "Types are lease.create, "),
        ("", "Types are lease.create, "),
        ("lease.event.", "64 lower case letters"),
        ("lease.event.Mine*", "64 lower case letters"),
    ],
)
def test_rejects_what_no_notification_has(pattern: str, hint: str) -> None:
    assert hint in str(event_type.why_unknown(pattern))
