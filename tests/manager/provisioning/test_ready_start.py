"""A lease that asked for it starts when its hosts are ready: then at once, and not before."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.orm import Session

from climate.core.lease import Resource
from climate.manager import starting
from climate.manager.backlog import show_backlog
from climate.manager.runtime import Runtime
from tests.conftest import MakeStory
from tests.functional.preparers import look, look_at_cloud, readiness, report, wanted
from tests.service import Story, hosts

OPTIONS: dict[str, object] = {
    "provisioning__enabled": True,
    "provisioning__prior": 600.0,
    "provisioning__longest": 1800.0,
}


@pytest.fixture
def everywhere(make_story_everywhere: MakeStory) -> Story:
    """Return a service with provisioning and hosts sim-1 .. sim-4, at noon, on each database."""
    made = make_story_everywhere(**OPTIONS)
    made.register(4)
    return made


@pytest.fixture
def story(make_story: MakeStory) -> Story:
    """Return the same on SQLite."""
    made = make_story(**OPTIONS)
    made.register(4)
    return made


def lease(story: Story, first: float = 60, count: int = 1, **more: Any) -> str:
    """Make a lease of an hour that starts when its hosts are ready; return its id."""
    asked = {"reservations": [hosts(count, count)], "start_when": "ready", **more}
    return str(story.ok("POST", "/v2/leases", story.asking(first, first + 60, **asked))["id"])


def shown(story: Story, lease_id: str) -> dict[str, Any]:
    return dict(story.ok("GET", f"/v2/leases/{lease_id}"))


def status(story: Story, lease_id: str) -> str:
    return str(shown(story, lease_id)["status"])


def wait_for_hosts(story: Story, lease_id: str, minutes: float = 30) -> list[dict[str, Any]]:
    """Have the hosts of a lease claimed, and its start pass by; return their preparations."""
    story.at(minutes)
    look(story)
    found = wanted(story, f"lease={lease_id}")
    for one in found:
        report(story, one, "accepted", claim_seconds=3600)
    story.at(60 - minutes)
    return found


def delays(story: Story, lease_id: str) -> list[dict[str, Any]]:
    found = story.published(lease_id)
    return [one["payload"] for one in found if one["event_type"] == "lease.start_delayed"]


def after_the_delay(story: Story, lease_id: str) -> list[str]:
    """Return what was told of a lease after that its start is delayed, which is told once."""
    found = [one for one in story.told(lease_id) if not one.startswith("node.")]
    assert found.count("lease.start_delayed") == 1
    return found[found.index("lease.start_delayed") + 1 :]


def metric(story: Story, name: str, **labels: str) -> float | None:
    return story.runtime.metrics.registry.get_sample_value(name, labels)


def test_it_starts_the_moment_the_last_host_is_ready(everywhere: Story) -> None:
    story = everywhere
    made = lease(story, count=2)
    end = shown(story, made)["end"]
    first, last = wait_for_hosts(story, made)
    report(story, first, "ready")
    for _ in range(9):
        story.at(0.5)
    assert status(story, made) == "PENDING"
    (delay,) = delays(story, made)
    assert len(delay["waiting_for"]) == 2
    assert len(readiness(story, made)["waiting_for"]) == 1
    waiting = shown(story, made)
    assert waiting["start_delayed_at"] == waiting["start"]
    assert (waiting["ready_at"], waiting["started_at"]) == (None, None)
    assert story.cloud.effects() == []

    report(story, last, "ready")
    assert shown(story, made)["ready_at"] == story.moment()
    story.run()
    started = shown(story, made)
    assert (started["status"], started["start_when"]) == ("ACTIVE", "ready")
    assert (started["ready_at"], started["started_at"]) == (story.moment(), story.moment())
    assert (started["start"], started["end"]) == (waiting["start"], end)
    assert readiness(story, made)["waiting_for"] == []
    story.at(56)
    assert status(story, made) == "TERMINATED"
    events = ["event.start_lease", "event.before_end_lease", "event.end_lease"]
    assert after_the_delay(story, made) == [f"lease.{one}" for one in events]


def test_it_starts_as_scheduled_if_its_hosts_are_ready(everywhere: Story) -> None:
    story = everywhere
    made = lease(story, count=2)
    story.at(45)
    look(story)
    for one in wanted(story):
        report(story, one, "accepted")
        story.at(1)
        report(story, one, "ready")
    ready_at = story.moment()
    assert status(story, made) == "PENDING"
    story.at(13)
    started = shown(story, made)
    assert (started["status"], started["started_at"]) == ("ACTIVE", started["start"])
    assert (started["ready_at"], started["start_delayed_at"]) == (ready_at, None)
    assert delays(story, made) == []


def test_one_that_is_never_ready_ends_at_its_end_and_that_is_told(everywhere: Story) -> None:
    story = everywhere
    made = lease(story)
    wait_for_hosts(story, made)
    story.at(59.9)
    assert status(story, made) == "PENDING"
    story.at(0.1)
    assert status(story, made) == "TERMINATED"
    assert after_the_delay(story, made) == ["lease.not_started", "lease.event.end_lease"]
    last = story.published(made)[-2]["payload"]
    assert len(last["waiting_for"]) == 1
    assert shown(story, made)["started_at"] is None
    assert [one["effect"] for one in story.cloud.effects() if "add" in one["effect"]] == []
    start = {"hardware": "simulated", "outcome": "never"}
    assert metric(story, "climate_lease_starts_total", **start) == 1


def test_its_end_may_be_moved_or_come_at_once(story: Story) -> None:
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
    look(story)
    assert readiness(story, longer)["waiting_for"] == [last["node"]]
    report(story, last, "ready")
    story.run()
    assert status(story, longer) == "ACTIVE"
    assert "lease.catch_up" not in after_the_delay(story, longer)


def test_whoever_will_not_wait_any_more_says_so(story: Story) -> None:
    made = lease(story)
    wait_for_hosts(story, made)
    path = f"/v2/leases/{made}"
    story.ok("PATCH", path, {"name": "other"})
    story.run()
    assert status(story, made) == "PENDING"
    assert story.ok("PATCH", path, {"start_when": "scheduled"})["start_when"] == "scheduled"
    story.run()
    assert status(story, made) == "ACTIVE"
    assert story.problem(409, "PATCH", path, {"start_when": "ready"})["code"] == "conflict"
    assert story.ok("PATCH", path, {"start_when": "scheduled"})["status"] == "ACTIVE"


@pytest.mark.parametrize("by", ["report", "change"])
def test_who_reads_the_clock_before_the_start_gives_way_hurries_it_all_the_same(
    everywhere: Story, by: str
) -> None:
    story = everywhere
    made = lease(story)
    (host,) = wait_for_hosts(story, made)
    story.clock.step(-0.2)
    if by == "report":
        report(story, host, "ready")
    else:
        story.ok("PATCH", f"/v2/leases/{made}", {"start_when": "scheduled"})
    story.clock.step(0.2)
    story.run()
    assert status(story, made) == "ACTIVE"


def test_it_waits_though_the_clock_is_set_back_when_its_start_was_claimed(story: Story) -> None:
    made = lease(story)
    story.at(30)
    look(story)
    story.clock.advance(30 * 60 + 0.01)
    claimed = story.dispatcher._claim()
    story.clock.step(-0.05)
    for batch in claimed:
        story.dispatcher._do(batch)
    assert status(story, made) == "PENDING"
    assert len(delays(story, made)) == 1


def test_what_is_removed_is_not_waited_for(story: Story) -> None:
    two = [hosts(1, 1), hosts(1, 1)]
    made = lease(story, reservations=two)
    first, last = wait_for_hosts(story, made)
    report(story, first, "ready")
    story.run()
    change = {"remove_reservations": [last["reservation_id"]]}
    assert story.ok("PATCH", f"/v2/leases/{made}", change)["status"] == "PENDING"
    story.run()
    assert status(story, made) == "ACTIVE"


def test_a_host_that_fails_meanwhile_is_replaced_and_waited_for(story: Story) -> None:
    made = lease(story)
    (failed,) = wait_for_hosts(story, made)
    report(story, failed, "failed", reason="no power")
    look(story)
    look(story)
    (other,) = wanted(story)
    story.at(2)
    assert status(story, made) == "PENDING"
    assert readiness(story, made)["waiting_for"] == [other["node"]]
    report(story, other, "accepted")
    report(story, other, "ready")
    story.run()
    assert status(story, made) == "ACTIVE"
    assert story.cloud.pool_hosts(shown(story, made)["reservations"][0]["id"]) == [other["node"]]


def test_a_host_that_nobody_gets_ready_is_not_waited_for(make_story: MakeStory) -> None:
    cold = '["==", "$$provisioned", "yes"]'
    story = make_story(**OPTIONS, provisioning__hosts=cold)
    story.ok("POST", "/v1/os-hosts", {"name": "sim-1", "provisioned": "yes"})
    made = lease(story)
    (failed,) = wait_for_hosts(story, made)
    story.ok("POST", "/v1/os-hosts", {"name": "sim-2"})
    report(story, failed, "failed", reason="no power")
    look(story)
    story.at(1)
    started = shown(story, made)
    assert (started["status"], started["ready_at"]) == ("ACTIVE", story.moment())
    assert "lease.catch_up" not in after_the_delay(story, made)


def test_it_may_begin_now_as_soon_as_its_hosts_are_ready(story: Story) -> None:
    asked = {**story.asking(0, 60, start_when="ready"), "start": "now"}
    made = story.ok("POST", "/v2/leases", asked)["id"]
    story.run()
    look(story)
    (one,) = wanted(story)
    story.at(5)
    assert status(story, made) == "PENDING"
    report(story, one, "accepted")
    report(story, one, "ready")
    story.run()
    assert status(story, made) == "ACTIVE"


def test_that_hosts_were_ready_is_forgotten_if_they_must_be_so_again(story: Story) -> None:
    moved, lost = lease(story), lease(story)
    story.at(45)
    look(story)
    for one in wanted(story):
        report(story, one, "accepted")
        report(story, one, "ready")
    assert None not in {shown(story, one)["ready_at"] for one in (moved, lost)}
    dates = {"start": story.moment(300), "end": story.moment(360)}
    assert story.ok("PATCH", f"/v2/leases/{moved}", dates)["ready_at"] is None
    (host,) = story.hosts_of(lost)
    story.ok("PATCH", f"/v2/resources/{host}/readiness", {"set_aside": "it smells"})
    look_at_cloud(story)
    look(story)
    assert shown(story, lost)["ready_at"] is None
    story.at(15)
    assert status(story, lost) == "PENDING"


def test_what_can_never_be_is_refused(story: Story, make_story: MakeStory) -> None:
    body = story.asking(start_when="ready")
    none = story.problem(400, "POST", "/v2/leases", {**body, "reservations": []})
    assert none["code"] == "not_provisioned"
    made = story.ok("POST", "/v2/leases", {**story.asking(), "reservations": []})["id"]
    change = {"start_when": "ready"}
    refused = story.problem(400, "PATCH", f"/v2/leases/{made}", change)
    assert refused["code"] == "not_provisioned"
    assert shown(story, made)["start_when"] == "scheduled"
    bad = story.problem(400, "POST", "/v2/leases", {**body, "start_when": "soon"})
    assert bad["errors"][0]["pointer"] == "#/start_when"
    assert "scheduled" in bad["detail"]
    plain = make_story()
    disabled = plain.problem(400, "POST", "/v2/leases", body)
    assert disabled["code"] == "not_provisioned"


def test_v1_neither_takes_nor_shows_it(story: Story) -> None:
    made = story.reserve(start_when="ready")
    assert not made.keys() & {"start_when", "ready_at", "started_at"}
    assert shown(story, made["id"])["start_when"] == "scheduled"


def test_a_cloud_that_fails_after_the_wait_has_all_its_time(story: Story) -> None:
    """What was waited for hosts is not what the cloud took."""
    made = lease(story)
    (one,) = wait_for_hosts(story, made)
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


def test_how_many_hosts_are_in_which_state_is_a_metric(everywhere: Story) -> None:
    story = everywhere
    show_backlog(story.runtime)
    for count in (1, 2):
        lease(story, count=count)
    story.at(30)
    look(story)
    first, *_ = wanted(story)
    report(story, first, "accepted")
    found = {
        state: metric(story, "climate_preparations", state=state)
        for state in ("wanted", "accepted", "ready", "failed")
    }
    assert found == {"wanted": 2, "accepted": 1, "ready": 0, "failed": 0}


# Reports that come while others look.


def _meanwhile(
    monkeypatch: pytest.MonkeyPatch, when: Callable[[], bool], act: Callable[[], object]
) -> threading.Thread:
    """Have something done once somebody has looked which hosts are not ready, and may yet act."""
    other = threading.Thread(target=act)
    known = starting.unready
    looked: list[int] = []

    def unready(runtime: Runtime, session: Session, lease_id: str) -> list[Resource]:
        found = known(runtime, session, lease_id)
        if threading.current_thread() is not other and not looked and when():
            looked.append(1)
            other.start()
            other.join(1.0)
        return found

    monkeypatch.setattr(starting, "unready", unready)
    return other


def test_a_report_while_a_manager_decides_to_wait_is_not_lost(
    everywhere: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = everywhere
    made = lease(story)
    story.at(45)
    look(story)
    (one,) = wanted(story)
    report(story, one, "accepted", claim_seconds=3600)
    other = _meanwhile(monkeypatch, lambda: True, lambda: report(story, one, "ready"))
    story.at(15)
    other.join()
    story.run()
    assert status(story, made) == "ACTIVE"


def test_of_two_last_reports_at_once_one_is_the_last(
    everywhere: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = everywhere
    made = lease(story, count=2)
    first, second = wait_for_hosts(story, made)
    other = _meanwhile(monkeypatch, lambda: True, lambda: report(story, second, "ready"))
    report(story, first, "ready")
    other.join()
    story.run()
    assert status(story, made) == "ACTIVE"
