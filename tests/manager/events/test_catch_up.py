"""After down time: what is still worth doing is done, in order, and told in one notification."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from climate.core.schedule import BEFORE_END, BEFORE_START, END, START
from climate.plugins.base import NotYet
from tests.conftest import MakeStory
from tests.service import Story


def late_of(story: Story, lease: dict[str, Any]) -> list[list[tuple[str, float, str]]]:
    """Return what each notification about being late said."""
    return [
        [
            (one["event_type"], one["late_seconds"], one["outcome"])
            for one in told["payload"]["late"]
        ]
        for told in story.published(lease["id"])
        if told["event_type"] == "lease.catch_up"
    ]


def test_what_is_in_time_is_not_called_late(story: Story) -> None:
    lease = story.reserve(60, 180)
    for minutes in (0, 50, 9, 1, 60):
        story.at(minutes)
    story.clock.advance(60)
    story.at(60 - 1)
    assert story.lease(lease["id"])["status"] == "TERMINATED"
    assert late_of(story, lease) == []


def test_a_start_that_was_missed_is_made_up_for_and_told_once(story: Story) -> None:
    lease = story.reserve(60, 240)
    story.at(70)
    assert story.lease(lease["id"])["status"] == "ACTIVE"
    assert late_of(story, lease) == [
        [
            (BEFORE_START, 70 * 60.0, "skipped"),
            (BEFORE_START, 20 * 60.0, "skipped"),
            (BEFORE_START, 11 * 60.0, "skipped"),
            (START, 10 * 60.0, "done"),
        ]
    ]
    assert story.told(lease["id"])[1:] == ["lease.catch_up", "lease.event.start_lease"]


def test_a_heads_up_that_is_late_tells_the_seconds_that_are_left(story: Story) -> None:
    lease = story.reserve(120, 240)
    story.at(115)
    assert late_of(story, lease) == [
        [(BEFORE_START, 55 * 60.0, "skipped"), (BEFORE_START, 5 * 60.0, "done")]
    ]
    told = story.published(lease["id"])[-1]
    assert told["event_type"] == "lease.event.before_start_lease"
    assert told["payload"]["starts_in"] == 5 * 60.0


def test_a_lease_that_was_missed_whole_is_ended_and_never_started(story: Story) -> None:
    lease = story.reserve(60, 180)
    story.at(1000)
    [late] = late_of(story, lease)
    assert [(kind, outcome) for kind, _, outcome in late][-3:] == [
        (START, "skipped"),
        (BEFORE_END, "skipped"),
        (END, "done"),
    ]
    assert story.cloud.effects() == []
    assert story.told(lease["id"])[1:] == ["lease.catch_up", "lease.event.end_lease"]


def test_each_time_that_nobody_was_there_is_told(story: Story) -> None:
    lease = story.reserve(60, 300)
    story.at(70)
    story.at(1000)
    assert [[kind for kind, _, _ in late] for late in late_of(story, lease)[1:]] == [
        [BEFORE_END, END]
    ]
    assert story.told(lease["id"])[-3:] == [
        "lease.catch_up",
        "lease.event.before_end_lease",
        "lease.event.end_lease",
    ]


def tries(story: Story, kind: str) -> tuple[float | None, float | None]:
    """Return how many first tries were counted, and by how many seconds they were late in all."""
    get, of = story.runtime.metrics.registry.get_sample_value, {"kind": kind}
    late = "climate_event_lateness_seconds"
    return get(f"{late}_count", of), get(f"{late}_sum", of)


class Booting:
    """A cloud that fails at the first ``failures`` starts, and then needs ``seconds``."""

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
def test_a_start_that_was_missed_has_as_much_time_as_any(
    story: Story, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    lease = story.reserve(60, 240)
    booting = Booting(story, 90, failures)
    monkeypatch.setattr(story.runtime.plugins["physical:host"], "start", booting.start)
    story.at(60 + 11)
    for _ in range(89):
        story.at(1 / 60)
        assert story.lease(lease["id"])["status"] == "STARTING"
    story.until(story.clock.now() + timedelta(seconds=5), step=1)
    assert story.lease(lease["id"])["status"] == "ACTIVE"
    assert story.told(lease["id"])[1:] == ["lease.catch_up", "lease.event.start_lease"]
    assert tries(story, START) == (1, 11 * 60)


def test_it_has_that_also_where_so_much_is_not_called_late(
    make_story: MakeStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = make_story(manager__late_after=3600.0)
    story.register(1)
    lease = story.reserve(60, 240)
    monkeypatch.setattr(story.runtime.plugins["physical:host"], "start", Booting(story, 90).start)
    story.at(59)
    story.at(31)
    story.until(story.clock.now() + timedelta(minutes=2), step=1)
    assert story.lease(lease["id"])["status"] == "ACTIVE"
    get = story.runtime.metrics.registry.get_sample_value
    assert get("climate_events_total", {"kind": START, "outcome": "retried"}) is None


def test_a_start_for_which_the_cloud_needs_long_is_told_as_failed_in_time(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = story.reserve(60, 240)
    monkeypatch.setattr(story.runtime.plugins["physical:host"], "start", Booting(story, 9999).start)
    story.at(60 + 11)
    story.until(story.clock.now() + timedelta(minutes=9.9), step=5)
    assert story.lease(lease["id"])["status"] == "STARTING"
    story.until(story.clock.now() + timedelta(minutes=1), step=5)
    assert story.lease(lease["id"])["status"] == "ERROR"


def test_a_start_for_which_the_cloud_needs_a_while_is_not_late(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = story.reserve(60, 240)
    monkeypatch.setattr(story.runtime.plugins["physical:host"], "start", Booting(story, 90).start)
    story.until(story.clock.now() + timedelta(minutes=62), step=1)
    assert story.lease(lease["id"])["status"] == "ACTIVE"
    assert late_of(story, lease) == []
    assert tries(story, START) == (1, 0)


@pytest.fixture
def snapped(story: Story, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return a lease that has run for an hour, and of which snapshots will take 90 seconds."""
    snapshots = Booting(story, 90)
    monkeypatch.setattr(story.runtime.plugins["physical:host"], "before_end", snapshots.start)
    lease = story.reserve(0, 240)
    story.run()
    story.at(60)
    return lease


def test_what_was_moved_into_the_past_has_as_much_time_as_any(
    story: Story, snapped: dict[str, Any]
) -> None:
    story.ok("PUT", f"/v1/leases/{snapped['id']}", {"end_date": story.date(30)})
    story.run()
    story.until(story.clock.now() + timedelta(minutes=2), step=1)
    assert "lease.event.before_end_lease" in story.told(snapped["id"])
    assert story.lease(snapped["id"])["status"] == "ACTIVE"
    get = story.runtime.metrics.registry.get_sample_value
    assert get("climate_events_total", {"kind": BEFORE_END, "outcome": "retried"}) is None


@pytest.mark.parametrize("failures", [0, 1])
def test_a_start_that_was_moved_to_now_is_as_new(
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
    story.until(story.clock.now() + timedelta(minutes=2), step=1)
    assert story.lease(lease["id"])["status"] == "ACTIVE"
    [late] = late_of(story, lease)
    assert late[-1] == (START, 1800, "done")
    assert tries(story, START) == (1, 1800)
    retried = {"kind": START, "outcome": "retried"}
    get = story.runtime.metrics.registry.get_sample_value
    assert get("climate_events_total", retried) == (failures or None)


def test_an_end_that_waits_for_snapshots_is_not_late(story: Story, snapped: dict[str, Any]) -> None:
    story.ok("PATCH", f"/v2/leases/{snapped['id']}", {"end": "now"})
    story.run()
    assert story.lease(snapped["id"])["status"] == "ACTIVE"
    story.until(story.clock.now() + timedelta(minutes=2), step=1)
    assert story.lease(snapped["id"])["status"] == "TERMINATED"
    assert late_of(story, snapped) == []
    assert tries(story, END) == (1, 0)


def test_what_was_due_before_it_was_asked_for_is_not_late(story: Story) -> None:
    an_hour_ago = {"type": "check.disks", "at": story.moment()}
    story.clock.advance(3600)
    moved = story.ok("POST", "/v2/leases", story.asking(0, 240, events=[an_hour_ago]))
    story.run()
    story.at(60)
    story.ok("PATCH", f"/v2/leases/{moved['id']}", {"end": story.moment(30)})
    story.run()
    assert "lease.event.before_end_lease" in story.told(moved["id"])
    assert late_of(story, moved) == []
    assert tries(story, "user") == (1, 0)
    assert tries(story, BEFORE_END) == (1, 0)


def test_clocks_that_are_set_start_nothing_twice(story: Story) -> None:
    """Set forward, the lease starts; set back, it has started."""
    lease = story.reserve(60, 180)
    story.clock.step(3600)
    story.run()
    assert story.lease(lease["id"])["status"] == "ACTIVE"
    story.clock.step(-3600)
    assert story.run() == 0
    story.at(60)
    assert len([one for one in story.cloud.effects() if one["effect"] == "add_host"]) == 1
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
