"""After down time events run in order if they are still useful, and one notification lists them."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from climate.core.lease.schedule import BEFORE_END, BEFORE_START, END, START
from climate.plugins.base import NotYet
from tests.conftest import MakeStory
from tests.support.service import Story


def late_events(story: Story, lease: dict[str, Any]) -> list[list[tuple[str, float, str]]]:
    return [
        [
            (item["event_type"], item["late_seconds"], item["outcome"])
            for item in notification["payload"]["late"]
        ]
        for notification in story.published(lease["id"])
        if notification["event_type"] == "lease.catch_up"
    ]


def test_events_in_time_are_not_reported_as_late(story: Story) -> None:
    lease = story.reserve(60, 180)
    for minutes in (0, 50, 9, 1, 60):
        story.at(minutes)
    story.clock.advance(60)
    story.at(60 - 1)
    assert story.lease(lease["id"])["status"] == "TERMINATED"
    assert late_events(story, lease) == []


def test_each_down_time_is_reported_in_one_notification(story: Story) -> None:
    lease = story.reserve(60, 300)
    reminded = story.reserve(75, 300)
    story.at(70)
    assert story.lease(lease["id"])["status"] == "ACTIVE"
    assert late_events(story, lease) == [
        [
            (BEFORE_START, 70 * 60.0, "skipped"),
            (BEFORE_START, 20 * 60.0, "skipped"),
            (BEFORE_START, 11 * 60.0, "skipped"),
            (START, 10 * 60.0, "done"),
        ]
    ]
    assert story.event_types(lease["id"])[1:] == ["lease.catch_up", "lease.event.start_lease"]
    assert late_events(story, reminded) == [
        [(BEFORE_START, 55 * 60.0, "skipped"), (BEFORE_START, 5 * 60.0, "done")]
    ]
    notification = story.published(reminded["id"])[-1]
    assert notification["event_type"] == "lease.event.before_start_lease"
    assert notification["payload"]["starts_in"] == 5 * 60.0
    story.at(1000)
    assert [[kind for kind, _, _ in late] for late in late_events(story, lease)[1:]] == [
        [BEFORE_END, END]
    ]
    assert story.event_types(lease["id"])[-3:] == [
        "lease.catch_up",
        "lease.event.before_end_lease",
        "lease.event.end_lease",
    ]


def test_a_lease_whose_whole_window_was_missed_is_ended_and_never_started(story: Story) -> None:
    lease = story.reserve(60, 180)
    story.at(1000)
    [late] = late_events(story, lease)
    assert [(kind, outcome) for kind, _, outcome in late][-3:] == [
        (START, "skipped"),
        (BEFORE_END, "skipped"),
        (END, "done"),
    ]
    assert story.cloud.effects() == []
    assert story.event_types(lease["id"])[1:] == ["lease.catch_up", "lease.event.end_lease"]


def first_attempts(story: Story, kind: str) -> tuple[float | None, float | None]:
    """Return how many first attempts were counted, and the sum of seconds they were late."""
    get, labels = story.runtime.metrics.registry.get_sample_value, {"kind": kind}
    name = "climate_event_lateness_seconds"
    return get(f"{name}_count", labels), get(f"{name}_sum", labels)


class Booting:
    """A cloud whose first ``failures`` starts fail; the next one takes ``seconds``."""

    def __init__(self, story: Story, seconds: float, failures: int = 0) -> None:
        self.story, self.seconds, self.failures = story, seconds, failures
        self.first: datetime | None = None

    def start(self, *_: object) -> dict[str, str]:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("nothing boots")
        self.story.clock.advance(0.01)
        present = self.story.clock.now()
        self.first = self.first or present
        if (present - self.first).total_seconds() < self.seconds:
            raise NotYet("it boots")
        return {}


@pytest.mark.parametrize("failures", [0, 1])
def test_a_missed_start_may_take_as_long_as_any_other(
    story: Story, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    lease = story.reserve(60, 240)
    booting = Booting(story, 90, failures)
    monkeypatch.setattr(story.runtime.plugins["physical:host"], "start", booting.start)
    story.at(60 + 11)
    for _ in range(17):
        story.at(5 / 60)
        assert story.lease(lease["id"])["status"] == "STARTING"
    story.until(story.clock.now() + timedelta(seconds=15), step=5)
    assert story.lease(lease["id"])["status"] == "ACTIVE"
    assert story.event_types(lease["id"])[1:] == ["lease.catch_up", "lease.event.start_lease"]
    assert first_attempts(story, START) == (1, 11 * 60)


def test_a_missed_start_may_take_as_long_below_the_late_threshold(
    make_story: MakeStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = make_story(manager__late_after=3600.0)
    story.register(1)
    lease = story.reserve(60, 240)
    monkeypatch.setattr(story.runtime.plugins["physical:host"], "start", Booting(story, 90).start)
    story.at(59)
    story.at(31)
    story.until(story.clock.now() + timedelta(minutes=2), step=5)
    assert story.lease(lease["id"])["status"] == "ACTIVE"
    get = story.runtime.metrics.registry.get_sample_value
    assert get("climate_events_total", {"kind": START, "outcome": "retried"}) is None


def test_a_start_that_takes_too_long_fails_after_ten_minutes(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = story.reserve(60, 240)
    monkeypatch.setattr(story.runtime.plugins["physical:host"], "start", Booting(story, 9999).start)
    story.at(60 + 11)
    story.until(story.clock.now() + timedelta(minutes=9.9), step=20)
    assert story.lease(lease["id"])["status"] == "STARTING"
    story.until(story.clock.now() + timedelta(minutes=2), step=20)
    assert story.lease(lease["id"])["status"] == "ERROR"


def test_a_start_that_takes_a_while_is_not_late(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = story.reserve(60, 240)
    monkeypatch.setattr(story.runtime.plugins["physical:host"], "start", Booting(story, 90).start)
    story.until(story.clock.now() + timedelta(minutes=60), step=60)
    story.until(story.clock.now() + timedelta(minutes=2), step=5)
    assert story.lease(lease["id"])["status"] == "ACTIVE"
    assert late_events(story, lease) == []
    assert first_attempts(story, START) == (1, 0)


@pytest.fixture
def lease_with_slow_snapshots(story: Story, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return a lease that runs since an hour, whose snapshots take 90 seconds."""
    snapshots = Booting(story, 90)
    monkeypatch.setattr(story.runtime.plugins["physical:host"], "before_end", snapshots.start)
    lease = story.reserve(0, 240)
    story.run()
    story.at(60)
    return lease


def test_an_event_moved_into_the_past_may_take_as_long_as_any_other(
    story: Story, lease_with_slow_snapshots: dict[str, Any]
) -> None:
    story.ok("PUT", f"/v1/leases/{lease_with_slow_snapshots['id']}", {"end_date": story.date(30)})
    story.run()
    story.until(story.clock.now() + timedelta(minutes=2), step=5)
    assert "lease.event.before_end_lease" in story.event_types(lease_with_slow_snapshots["id"])
    assert story.lease(lease_with_slow_snapshots["id"])["status"] == "ACTIVE"
    get = story.runtime.metrics.registry.get_sample_value
    assert get("climate_events_total", {"kind": BEFORE_END, "outcome": "retried"}) is None


@pytest.mark.parametrize("failures", [0, 1])
def test_a_start_moved_to_now_counts_as_new(
    story: Story, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    lease = story.reserve(60, 240)
    story.run()
    story.clock.advance(40.5)
    story.ok("PUT", f"/v1/leases/{lease['id']}", {"start_date": "now"})
    booting = Booting(story, 90, failures)
    monkeypatch.setattr(story.runtime.plugins["physical:host"], "start", booting.start)
    story.clock.advance(1800)
    story.run()
    story.until(story.clock.now() + timedelta(minutes=2), step=5)
    assert story.lease(lease["id"])["status"] == "ACTIVE"
    [late] = late_events(story, lease)
    assert late[-1] == (START, 1800, "done")
    assert first_attempts(story, START) == (1, 1800)
    retried = {"kind": START, "outcome": "retried"}
    get = story.runtime.metrics.registry.get_sample_value
    assert get("climate_events_total", retried) == (failures or None)


def test_an_end_that_waits_for_snapshots_is_not_late(
    story: Story, lease_with_slow_snapshots: dict[str, Any]
) -> None:
    story.ok("PATCH", f"/v2/leases/{lease_with_slow_snapshots['id']}", {"end": "now"})
    story.run()
    assert story.lease(lease_with_slow_snapshots["id"])["status"] == "ACTIVE"
    story.until(story.clock.now() + timedelta(minutes=2), step=5)
    assert story.lease(lease_with_slow_snapshots["id"])["status"] == "TERMINATED"
    assert late_events(story, lease_with_slow_snapshots) == []
    assert first_attempts(story, END) == (1, 0)


def test_an_event_due_before_its_request_is_not_late(story: Story) -> None:
    an_hour_ago = {"type": "check.disks", "at": story.moment()}
    story.clock.advance(3600)
    moved = story.ok("POST", "/v2/leases", story.asking(0, 240, events=[an_hour_ago]))
    story.run()
    story.at(60)
    story.ok("PATCH", f"/v2/leases/{moved['id']}", {"end": story.moment(30)})
    story.run()
    assert "lease.event.before_end_lease" in story.event_types(moved["id"])
    assert late_events(story, moved) == []
    assert first_attempts(story, "user") == (1, 0)
    assert first_attempts(story, BEFORE_END) == (1, 0)


def test_a_clock_that_is_set_back_starts_nothing_twice(story: Story) -> None:
    """Set forward, the lease starts; set back, it has started."""
    lease = story.reserve(60, 180)
    story.clock.step(3600)
    story.run()
    assert story.lease(lease["id"])["status"] == "ACTIVE"
    story.clock.step(-3600)
    assert story.run() == 0
    story.at(60)
    assert len([effect for effect in story.cloud.effects() if effect["effect"] == "add_host"]) == 1
    story.at(120)
    assert story.lease(lease["id"])["status"] == "TERMINATED"


def test_a_lease_may_last_to_the_end_of_the_calendar(story: Story) -> None:
    lease = story.ok("POST", "/v1/leases", story.lease_body(0, 60, end_date="9999-12-31 23:59"))[
        "lease"
    ]
    story.run()
    assert story.lease(lease["id"])["status"] == "ACTIVE"
    story.ok("DELETE", f"/v1/leases/{lease['id']}")
    story.run()
    assert story.call("GET", f"/v1/leases/{lease['id']}").status_code == 404
