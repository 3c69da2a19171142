"""Leases with start_when ready: they start at once when their last host is ready."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.orm import Session

from climate.core.lease.model import Resource
from climate.core.settings import Settings
from climate.manager.audit.backlog import show_backlog
from climate.manager.leases import ready_start as starting
from tests.conftest import MakeStory
from tests.manager.provisioning.conftest import OPTIONS
from tests.support.provisioners import (
    plan,
    preparations,
    readiness,
    report,
    synchronise_inventory,
)
from tests.support.service import Story, hosts


def lease(story: Story, first: float = 60, count: int = 1, **more: Any) -> str:
    """Create a lease of an hour that starts when its hosts are ready; return its id."""
    fields = {"reservations": [hosts(count, count)], "start_when": "ready", **more}
    return str(story.ok("POST", "/v2/leases", story.asking(first, first + 60, **fields))["id"])


def shown(story: Story, lease_id: str) -> dict[str, Any]:
    return dict(story.ok("GET", f"/v2/leases/{lease_id}"))


def status(story: Story, lease_id: str) -> str:
    return str(shown(story, lease_id)["status"])


def wait_for_hosts(story: Story, lease_id: str, minutes: float = 30) -> list[dict[str, Any]]:
    """Claim the hosts of a lease and let its start pass; return their preparations."""
    story.at(minutes)
    plan(story)
    found = preparations(story, f"lease={lease_id}")
    for item in found:
        report(story, item, "accepted", claim_seconds=3600)
    story.at(60 - minutes)
    return found


def delays(story: Story, lease_id: str) -> list[dict[str, Any]]:
    found = story.published(lease_id)
    return [item["payload"] for item in found if item["event_type"] == "lease.start_delayed"]


def after_the_delay(story: Story, lease_id: str) -> list[str]:
    """Return the notifications after lease.start_delayed, which is sent once."""
    found = [item for item in story.event_types(lease_id) if not item.startswith("node.")]
    assert found.count("lease.start_delayed") == 1
    return found[found.index("lease.start_delayed") + 1 :]


def metric(story: Story, name: str, **labels: str) -> float | None:
    return story.runtime.metrics.registry.get_sample_value(name, labels)


def test_starts_at_the_moment_the_last_host_is_ready(everywhere: Story) -> None:
    story = everywhere
    created = lease(story, count=2)
    end = shown(story, created)["end"]
    first, last = wait_for_hosts(story, created)
    report(story, first, "ready")
    for _ in range(9):
        story.at(0.5)
    assert status(story, created) == "PENDING"
    (delay,) = delays(story, created)
    assert len(delay["waiting_for"]) == 2
    assert len(readiness(story, created)["waiting_for"]) == 1
    waiting = shown(story, created)
    assert waiting["start_delayed_at"] == waiting["start"]
    assert (waiting["ready_at"], waiting["started_at"]) == (None, None)
    assert story.cloud.effects() == []

    report(story, last, "ready")
    assert shown(story, created)["ready_at"] == story.moment()
    story.run()
    started = shown(story, created)
    assert (started["status"], started["start_when"]) == ("ACTIVE", "ready")
    assert (started["ready_at"], started["started_at"]) == (story.moment(), story.moment())
    assert (started["start"], started["end"]) == (waiting["start"], end)
    assert readiness(story, created)["waiting_for"] == []
    story.at(56)
    assert status(story, created) == "TERMINATED"
    events = ["event.start_lease", "event.before_end_lease", "event.end_lease"]
    assert after_the_delay(story, created) == [f"lease.{event}" for event in events]


def test_starts_as_scheduled_if_its_hosts_are_ready_before(story: Story) -> None:
    show_backlog(story.runtime)
    created = lease(story, count=2)
    story.at(45)
    plan(story)
    states = {
        state: metric(story, "climate_preparations", state=state)
        for state in ("wanted", "accepted", "ready", "failed")
    }
    assert states == {"wanted": 2, "accepted": 0, "ready": 0, "failed": 0}
    for item in preparations(story):
        report(story, item, "accepted")
        story.at(1)
        report(story, item, "ready")
    ready_at = story.moment()
    assert status(story, created) == "PENDING"
    story.at(13)
    started = shown(story, created)
    assert (started["status"], started["started_at"]) == ("ACTIVE", started["start"])
    assert (started["ready_at"], started["start_delayed_at"]) == (ready_at, None)
    assert delays(story, created) == []


def test_a_lease_whose_hosts_are_never_ready_ends_and_says_so(story: Story) -> None:
    created = lease(story)
    wait_for_hosts(story, created)
    story.at(59.9)
    assert status(story, created) == "PENDING"
    story.at(0.1)
    assert status(story, created) == "TERMINATED"
    assert after_the_delay(story, created) == ["lease.not_started", "lease.event.end_lease"]
    last = story.published(created)[-2]["payload"]
    assert len(last["waiting_for"]) == 1
    assert shown(story, created)["started_at"] is None
    assert [effect["effect"] for effect in story.cloud.effects() if "add" in effect["effect"]] == []
    start = {"hardware": "simulated", "outcome": "never"}
    assert metric(story, "climate_lease_starts_total", **start) == 1


def test_a_waiting_lease_may_end_later_or_now_or_be_deleted(story: Story) -> None:
    longer, ended, gone = lease(story, count=2), lease(story), lease(story)
    ready, last = wait_for_hosts(story, longer)
    report(story, ready, "ready")
    story.at(1)
    story.ok("PATCH", f"/v2/leases/{longer}", {"end": story.moment(120)})
    story.ok("PATCH", f"/v2/leases/{ended}", {"end": "now"})
    assert story.call("DELETE", f"/v2/leases/{gone}").status_code == 204
    story.run()
    assert status(story, ended) == "TERMINATED"
    story.at(118)
    assert status(story, longer) == "PENDING"
    plan(story)
    assert readiness(story, longer)["waiting_for"] == [last["node"]]
    report(story, last, "ready")
    story.run()
    assert status(story, longer) == "ACTIVE"
    assert "lease.catch_up" not in after_the_delay(story, longer)


def test_a_waiting_lease_starts_when_start_when_becomes_scheduled(story: Story) -> None:
    created = lease(story)
    wait_for_hosts(story, created)
    path = f"/v2/leases/{created}"
    story.ok("PATCH", path, {"name": "other"})
    story.run()
    assert status(story, created) == "PENDING"
    assert story.ok("PATCH", path, {"start_when": "scheduled"})["start_when"] == "scheduled"
    story.run()
    assert status(story, created) == "ACTIVE"
    assert story.problem(409, "PATCH", path, {"start_when": "ready"})["code"] == "conflict"
    assert story.ok("PATCH", path, {"start_when": "scheduled"})["status"] == "ACTIVE"


@pytest.mark.parametrize("by", ["report", "change"])
def test_a_report_or_change_with_a_clock_behind_the_manager_still_starts_the_lease(
    everywhere: Story, by: str
) -> None:
    story = everywhere
    created = lease(story)
    (host,) = wait_for_hosts(story, created)
    story.clock.step(-0.2)
    if by == "report":
        report(story, host, "ready")
    else:
        story.ok("PATCH", f"/v2/leases/{created}", {"start_when": "scheduled"})
    story.clock.step(0.2)
    story.run()
    assert status(story, created) == "ACTIVE"


def test_waits_although_the_clock_is_set_back_after_the_claim_of_the_start(story: Story) -> None:
    created = lease(story)
    story.at(30)
    plan(story)
    story.clock.advance(30 * 60 + 0.01)
    claimed = story.dispatcher._claim()
    story.clock.step(-0.05)
    for batch in claimed:
        story.dispatcher.pool.run(batch)
    assert status(story, created) == "PENDING"
    assert len(delays(story, created)) == 1


def test_does_not_wait_for_removed_reservations(story: Story) -> None:
    two = [hosts(1, 1), hosts(1, 1)]
    created = lease(story, reservations=two)
    first, last = wait_for_hosts(story, created)
    report(story, first, "ready")
    story.run()
    change = {"remove_reservations": [last["reservation_id"]]}
    assert story.ok("PATCH", f"/v2/leases/{created}", change)["status"] == "PENDING"
    story.run()
    assert status(story, created) == "ACTIVE"


def test_waits_for_the_replacement_of_a_failed_host(story: Story) -> None:
    created = lease(story)
    (failed,) = wait_for_hosts(story, created)
    report(story, failed, "failed", reason="no power")
    plan(story)
    plan(story)
    (other,) = preparations(story)
    story.at(2)
    assert status(story, created) == "PENDING"
    assert readiness(story, created)["waiting_for"] == [other["node"]]
    report(story, other, "accepted")
    report(story, other, "ready")
    story.run()
    assert status(story, created) == "ACTIVE"
    assert story.cloud.pool_hosts(shown(story, created)["reservations"][0]["id"]) == [other["node"]]


def test_does_not_wait_for_a_host_that_needs_no_preparation(make_story: MakeStory) -> None:
    cold = '["==", "$$provisioned", "yes"]'
    story = make_story(**OPTIONS, provisioning__hosts=cold)
    story.ok("POST", "/v1/os-hosts", {"name": "sim-1", "provisioned": "yes"})
    created = lease(story)
    (failed,) = wait_for_hosts(story, created)
    story.ok("POST", "/v1/os-hosts", {"name": "sim-2"})
    report(story, failed, "failed", reason="no power")
    plan(story)
    story.at(1)
    started = shown(story, created)
    assert (started["status"], started["ready_at"]) == ("ACTIVE", story.moment())
    assert "lease.catch_up" not in after_the_delay(story, created)


def test_hosts_that_were_ready_must_be_prepared_again_after_a_move_or_a_failure(
    story: Story,
) -> None:
    moved, lost = lease(story), lease(story)
    story.at(45)
    plan(story)
    for item in preparations(story):
        report(story, item, "accepted")
        report(story, item, "ready")
    assert None not in {shown(story, item)["ready_at"] for item in (moved, lost)}
    dates = {"start": story.moment(300), "end": story.moment(360)}
    assert story.ok("PATCH", f"/v2/leases/{moved}", dates)["ready_at"] is None
    (host,) = story.hosts_of(lost)
    story.ok("PATCH", f"/v2/resources/{host}/readiness", {"set_aside": "it smells"})
    synchronise_inventory(story)
    plan(story)
    assert shown(story, lost)["ready_at"] is None
    story.at(15)
    assert status(story, lost) == "PENDING"


def test_a_lease_that_starts_now_waits_for_its_hosts(story: Story) -> None:
    body = {**story.asking(0, 60, start_when="ready"), "start": "now"}
    created = story.ok("POST", "/v2/leases", body)["id"]
    story.run()
    plan(story)
    (host,) = preparations(story)
    story.at(5)
    assert status(story, created) == "PENDING"
    report(story, host, "accepted")
    report(story, host, "ready")
    story.run()
    assert status(story, created) == "ACTIVE"


def test_rejects_leases_that_can_never_wait_for_hosts(story: Story, make_story: MakeStory) -> None:
    by_v1 = story.reserve(start_when="ready")  # v1 does not know start_when
    assert not by_v1.keys() & {"start_when", "ready_at", "started_at"}
    assert shown(story, by_v1["id"])["start_when"] == "scheduled"
    body = story.asking(start_when="ready")
    created = story.reserve(reservations=[])["id"]
    change = {"start_when": "ready"}
    refused = story.problem(400, "PATCH", f"/v2/leases/{created}", change)
    assert refused["code"] == "not_provisioned"
    assert shown(story, created)["start_when"] == "scheduled"
    bad = story.problem(400, "POST", "/v2/leases", {**body, "start_when": "soon"})
    assert bad["errors"][0]["pointer"] == "#/start_when"
    assert "scheduled" in bad["detail"]
    plain = make_story()
    disabled = plain.problem(400, "POST", "/v2/leases", body)
    assert disabled["code"] == "not_provisioned"


def test_the_lateness_of_a_start_counts_from_the_ready_hosts(story: Story) -> None:
    """What was waited for hosts is not what the cloud took."""
    created = lease(story)
    (one,) = wait_for_hosts(story, created)
    for _ in range(20):
        story.at(1)
    report(story, one, "ready")
    story.clock.advance(4)
    story.run()
    kind = {"kind": "start_lease"}
    assert metric(story, "climate_event_lateness_seconds_count", **kind) == 1
    assert metric(story, "climate_event_lateness_seconds_sum", **kind) == 4
    assert metric(story, "climate_lease_ready_lateness_seconds_sum") == 4
    assert metric(story, "climate_events_total", **kind, outcome="claimed") == 1
    late = {"hardware": "simulated", "outcome": "late"}
    assert metric(story, "climate_lease_starts_total", **late) == 1
    early = {"hardware": "simulated", "le": "-600.0"}
    assert metric(story, "climate_host_ready_early_seconds_bucket", **early) == 1


# Reports that arrive while a manager or another report decides.


def _meanwhile(
    monkeypatch: pytest.MonkeyPatch, when: Callable[[], bool], act: Callable[[], object]
) -> threading.Thread:
    """Call ``act`` after another thread has read which hosts are not ready, before it decides."""
    other = threading.Thread(target=act)
    known = starting.unready
    looked: list[int] = []

    def unready(settings: Settings, session: Session, lease_id: str) -> list[Resource]:
        found = known(settings, session, lease_id)
        if threading.current_thread() is not other and not looked and when():
            looked.append(1)
            other.start()
            other.join(1.0)
        return found

    monkeypatch.setattr(starting, "unready", unready)
    return other


def test_a_report_while_a_manager_decides_to_wait_still_starts_the_lease(
    everywhere: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = everywhere
    created = lease(story)
    story.at(45)
    plan(story)
    (one,) = preparations(story)
    report(story, one, "accepted", claim_seconds=3600)
    other = _meanwhile(monkeypatch, lambda: True, lambda: report(story, one, "ready"))
    story.at(15)
    other.join()
    story.run()
    assert status(story, created) == "ACTIVE"


def test_two_concurrent_last_reports_start_the_lease(
    everywhere: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = everywhere
    created = lease(story, count=2)
    first, second = wait_for_hosts(story, created)
    other = _meanwhile(monkeypatch, lambda: True, lambda: report(story, second, "ready"))
    report(story, first, "ready")
    other.join()
    story.run()
    assert status(story, created) == "ACTIVE"
