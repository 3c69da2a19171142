"""Preparations: hosts that must be ready when their lease starts, and who prepares them."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from climate.cmd import bootstrap
from climate.db.provisioning import readiness as stored_readiness
from climate.manager.audit.backlog import show_backlog
from climate.manager.process.lead_times import LeadTimes
from climate.manager.provisioning import planner as preparing
from climate.manager.resources import inventory_sync as inventory
from tests.conftest import MakeStory
from tests.support.provisioners import (
    host_readiness,
    plan,
    preparations,
    readiness,
    rejected_report,
    report,
    synchronise_inventory,
)
from tests.support.service import Story, hosts

BOB = "bob:lab:member"


def lease(story: Story, first: float = 60, count: int = 1) -> str:
    """Create a lease that starts ``first`` minutes from now; return its id."""
    body = story.asking(first, first + 60, reservations=[hosts(count, count)])
    return str(story.ok("POST", "/v2/leases", body)["id"])


def requested(story: Story, lease_id: str, minutes: float = 45) -> list[dict[str, Any]]:
    """Wait until the hosts of a lease must be prepared; return their preparations."""
    story.at(minutes)
    plan(story)
    return preparations(story, f"lease={lease_id}")


def reservable(story: Story, id_: str) -> bool:
    return bool(story.ok("GET", f"/v2/resources/{id_}")["reservable"])


def test_requests_each_host_once_its_lead_time_before_the_start(everywhere: Story) -> None:
    story = everywhere
    created = lease(story, 60, count=2)
    assert plan(story) == 0
    assert readiness(story, created)["state"] is None
    story.at(29)
    assert plan(story) == 0
    story.at(1)
    assert plan(story) == 2
    assert plan(story) == 0
    found = preparations(story)
    assert len({item["node"] for item in found}) == 2
    assert {item["lease_id"] for item in found} == {created}
    assert {item["lead"] for item in found} == {1800.0}
    assert readiness(story, created) | {"reasons": []} == {
        "state": "preparing",
        "hosts": 2,
        "ready": 0,
        "ready_at": None,
        "early": None,
        "reasons": [],
        "waiting_for": [],
    }
    published = [item for item in story.published() if item["event_type"] == "node.prepare"]
    assert {item["payload"]["node"] for item in published} == {item["node"] for item in found}
    # Users see neither preparations nor notifications about nodes.
    for_users = story.ok("GET", "/v2/notifications", token=BOB)["notifications"]
    assert not [item for item in for_users if item["event_type"].startswith("node.")]
    story.problem(403, "GET", "/v2/preparations", token=BOB)
    malformed = {"state": "ready", "owner": "p1", "seconds": {"boot": -1}}
    story.problem(400, "POST", f"/v2/preparations/{found[0]['id']}/report", malformed)
    assert preparations(story) == found
    unknown = {"state": "wanted", "owner": "p"}
    story.problem(404, "POST", "/v2/preparations/none/report", unknown)


def test_topics_of_nodes_get_the_start_and_the_end_if_enabled(make_story: MakeStory) -> None:
    published = []
    for topics in (True, False):
        story = make_story(provisioning__enabled=True, provisioning__topics=topics)
        if topics:
            story.register(2)
        created = lease(story, 10, 2)
        story.at(10)
        story.at(60)
        found = [
            item for item in story.published(created) if item["event_type"].startswith("node.")
        ]
        published.append(sorted((item["event_type"], item["payload"]["node"]) for item in found))
    kinds, nodes = ("node.end_lease", "node.start_lease"), ("sim-1", "sim-2")
    assert published == [[(kind, node) for kind in kinds for node in nodes], []]


def test_concurrent_planners_and_provisioners_get_each_host_once(everywhere: Story) -> None:
    story = everywhere
    created = lease(story, count=2)
    story.at(45)
    with ThreadPoolExecutor(4) as crowd:
        list(crowd.map(lambda _: plan(story), range(4)))
    found = preparations(story, f"lease={created}")
    assert len(found) == len({item["node"] for item in found}) == 2
    assert len([item for item in story.published() if item["event_type"] == "node.prepare"]) == 2
    path = f"/v2/preparations/{found[0]['id']}/report"

    # Not made in the threads: CPython 3.11 cannot compile routes in several of them at once.
    clients = [bootstrap.make_api(story.conf, story.runtime).test_client() for _ in range(8)]

    def claim(number: int) -> int:
        asked = {"state": "accepted", "owner": f"p{number}"}
        return clients[number].post(path, json=asked).status_code

    with ThreadPoolExecutor(8) as crowd:
        assert sorted(crowd.map(claim, range(8))) == [200] + [409] * 7


def test_preparations_end_when_their_lease_moves_or_is_deleted(story: Story) -> None:
    created = lease(story)
    (first,) = requested(story, created)
    change = {"start": story.moment(100), "end": story.moment(160)}
    story.ok("PATCH", f"/v2/leases/{created}", change)
    plan(story)
    assert preparations(story, f"lease={created}")[0]["state"] == "over"
    assert rejected_report(story, first, "accepted") == "preparation_over"
    story.at(75)
    plan(story)
    (second,) = preparations(story)
    assert second["needed_at"] == change["start"]
    story.ok("DELETE", f"/v2/leases/{created}")
    plan(story)
    assert preparations(story) == []
    assert rejected_report(story, second, "accepted") == "preparation_over"


def test_requests_a_lease_again_that_moves_back(story: Story) -> None:
    created = lease(story)
    (first,) = requested(story, created)
    dates = {"start": story.moment(15), "end": story.moment(75)}
    moved = {"start": story.moment(300), "end": story.moment(360)}
    for change in (moved, dates):
        story.ok("PATCH", f"/v2/leases/{created}", change)
        plan(story)
    (again,) = preparations(story)
    assert again["needed_at"] == first["needed_at"]
    assert again["id"] != first["id"]


def test_a_claim_excludes_other_provisioners_until_it_expires(everywhere: Story) -> None:
    story = everywhere
    (one,) = requested(story, lease(story))
    assert report(story, one, "accepted", claim_seconds=60)["attempt"] == 1
    assert rejected_report(story, one, "accepted", owner="p2") == "preparation_claimed"
    assert preparations(story, "claimable=true") == []
    story.clock.advance(50)
    assert report(story, one, "accepted", claim_seconds=60)["attempt"] == 1
    story.clock.advance(59)
    assert rejected_report(story, one, "accepted", owner="p2") == "preparation_claimed"
    story.clock.advance(1)
    assert [found["id"] for found in preparations(story, "claimable=true")] == [one["id"]]
    assert report(story, one, "accepted", owner="p2")["attempt"] == 2
    for state in ("accepted", "ready", "wanted"):
        assert rejected_report(story, one, state) == "preparation_claimed"
    assert rejected_report(story, one, "failed", reason="no power") == "preparation_claimed"
    assert report(story, one, "ready", owner="p2")["state"] == "ready"


def test_names_the_hosts_that_no_provisioner_has_claimed_for_30_seconds(everywhere: Story) -> None:
    story = everywhere
    show_backlog(story.runtime)
    created = lease(story, count=2)
    first, second = requested(story, created)

    def unclaimed() -> tuple[float | None, list[str]]:
        count = story.runtime.metrics.registry.get_sample_value("climate_preparations_unclaimed")
        return count, sorted(readiness(story, created)["reasons"])

    def reason(task: dict[str, Any]) -> str:
        return (
            f"{task['node']}: no provisioner has claimed its preparation; a provisioner with"
            f" {task['node']} in its nodes file must run"
        )

    story.clock.advance(29)
    assert unclaimed() == (0, [])
    story.clock.advance(1)
    assert unclaimed() == (2, sorted(map(reason, (first, second))))
    report(story, first, "accepted", claim_seconds=60)
    assert unclaimed() == (1, [reason(second)])
    report(story, second, "accepted", claim_seconds=60)
    assert unclaimed() == (0, [])
    story.clock.advance(89)  # a provisioner that died is replaced within 30 seconds
    assert unclaimed() == (0, [])
    report(story, second, "accepted", claim_seconds=60)
    story.clock.advance(1)
    assert unclaimed() == (1, [reason(first)])


def test_a_report_needs_a_claim(story: Story) -> None:
    (one,) = requested(story, lease(story))
    assert rejected_report(story, one, "ready") == "preparation_claimed"
    report(story, one, "accepted")
    assert report(story, one, "wanted")["owner"] is None
    assert rejected_report(story, one, "ready") == "preparation_claimed"


def test_a_repeated_report_is_counted_once(story: Story) -> None:
    created = lease(story)
    (one,) = requested(story, created)
    report(story, one, "accepted")
    story.clock.advance(300)
    first = report(story, one, "ready", seconds={"power": 20.0, "boot": 280.5}, cold=True)
    story.clock.advance(60)
    assert report(story, one, "ready", seconds={"power": 1.0}, cold=True) == first
    assert first["early"] == 600.0
    known = host_readiness(story, one["resource_id"])
    assert known["times"] == [300.5]
    assert known["lead"]["own_times"] == 1
    assert known["state"] == "ready"
    assert readiness(story, created)["state"] == "ready"
    assert readiness(story, created)["early"] == 600.0
    assert rejected_report(story, one, "accepted") == "invalid_transition"
    (warm,) = requested(story, lease(story, 120), 105)
    report(story, warm, "accepted")
    report(story, warm, "ready", seconds={"check": 0.1}, cold=False)
    times = host_readiness(story, warm["resource_id"])["times"]
    assert times == (known["times"] if warm["node"] == one["node"] else [])


def test_measured_times_shorten_the_lead_time_and_only_the_last_are_kept(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_readiness, "REMEMBERED", 2)
    for number in range(9):
        created = lease(story, 1)
        plan(story)
        (one,) = preparations(story, f"lease={created}&state=wanted")
        report(story, one, "accepted")
        report(story, one, "ready", seconds={"boot": 100.0 + number}, cold=True)
        story.ok("DELETE", f"/v2/leases/{created}")
        plan(story)
    found = story.ok("GET", "/v2/resources")["resources"]
    known = [host_readiness(story, item["id"]) for item in found]
    assert max(len(item["times"]) for item in known) == 2
    assert all(item["lead"]["seconds"] < 600 for item in known)


def test_a_failed_host_is_quarantined_and_replaced(story: Story) -> None:
    created = lease(story)
    (one,) = requested(story, created)
    report(story, one, "accepted")
    report(story, one, "failed", reason="sim: no power", seconds={"power": 3.0})
    assert readiness(story, created)["reasons"] == [f"{one['node']}: sim: no power"]
    plan(story)
    plan(story)
    (other,) = preparations(story)
    assert other["resource_id"] != one["resource_id"]
    assert story.hosts_of(created) == [other["resource_id"]]
    synchronise_inventory(story)
    assert not reservable(story, one["resource_id"])
    path = f"/v2/resources/{one['resource_id']}/readiness"
    assert host_readiness(story, one["resource_id"])["set_aside"] == "sim: no power"
    assert story.ok("PATCH", path, {"set_aside": None})["set_aside"] is None
    synchronise_inventory(story)
    assert reservable(story, one["resource_id"])


def test_a_failed_host_without_a_replacement_is_retried_after_its_quarantine(story: Story) -> None:
    created = lease(story, count=4)
    one, *_ = requested(story, created)
    report(story, one, "accepted")
    report(story, one, "failed", reason="no power")
    plan(story)
    assert readiness(story, created)["state"] == "failed"
    assert story.lease(created)["degraded"]
    assert len(story.hosts_of(created)) == 4
    story.ok("PATCH", f"/v2/resources/{one['resource_id']}/readiness", {"set_aside": None})
    plan(story)
    assert one["id"] in {found["id"] for found in preparations(story)}


def test_a_slow_host_is_replaced_in_time_and_returns_when_it_is_ready(story: Story) -> None:
    created = lease(story, 60)
    (slow,) = requested(story, created, 30)
    report(story, slow, "accepted", claim_seconds=3600)
    story.at(19)
    plan(story)
    assert story.hosts_of(created) == [slow["resource_id"]]
    story.at(1)
    plan(story)
    plan(story)
    (other,) = preparations(story)
    assert story.hosts_of(created) == [other["resource_id"]]
    assert not reservable(story, slow["resource_id"])
    report(story, slow, "ready", seconds={"boot": 1300.0}, cold=True)
    plan(story)
    synchronise_inventory(story)
    assert reservable(story, slow["resource_id"])
    assert host_readiness(story, slow["resource_id"])["times"] == [1300.0]
    assert preparations(story, "state=over")[0]["id"] == slow["id"]
    report(story, other, "accepted")
    story.at(9)
    plan(story)
    assert story.hosts_of(created) == [other["resource_id"]]


def test_a_host_without_power_stays_booked_until_it_is_prepared(story: Story) -> None:
    for number in range(1, 5):
        story.cloud.fail_host(f"sim-{number}")
    synchronise_inventory(story)
    created = lease(story)
    (one,) = requested(story, created)
    synchronise_inventory(story)
    assert story.hosts_of(created) == [one["resource_id"]]
    assert not story.lease(created)["degraded"]
    assert host_readiness(story, one["resource_id"])["up"] is False
    report(story, one, "accepted", claim_seconds=3600)
    story.cloud.mend_host(one["node"])
    report(story, one, "ready")
    synchronise_inventory(story)
    assert host_readiness(story, one["resource_id"])["up"] is True
    # It dies just before its lease.
    story.at(5)
    story.cloud.fail_host(one["node"])
    synchronise_inventory(story)
    assert not reservable(story, one["resource_id"])
    assert story.hosts_of(created) != [one["resource_id"]]


def test_the_state_of_a_host_has_the_time_of_its_last_heartbeat(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = story.clock.now()
    first, second, down, other = story.cloud.hosts()[:4]
    heard = [now - timedelta(seconds=50), now - timedelta(seconds=10)]
    found = [
        replace(first, heard_at=heard[0]),
        replace(second, heard_at=heard[1]),
        replace(down, heard_at=heard[0], usable=False, lost=True),
        other,
    ]
    monkeypatch.setattr(story.cloud, "hosts", lambda: found)
    ids = sorted((host["id"] for host in story.ok("GET", "/v1/os-hosts")["hosts"]), key=int)
    for _ in range(2):  # What is known of a host is stored first, and then changed.
        inventory.synchronise(story.runtime)
        known = [host_readiness(story, id_) for id_ in ids]
        assert [item["up"] for item in known] == [True, True, False, True]
        seen = [datetime.fromisoformat(item["seen_at"]) for item in known]
        assert seen == [*heard, now, now]


def test_a_late_host_stays_with_its_running_lease(story: Story) -> None:
    story.cloud.fail_host("sim-1")
    created = lease(story, count=4)
    late = next(item for item in requested(story, created) if item["node"] == "sim-1")
    report(story, late, "accepted", claim_seconds=3600)
    story.at(10)
    plan(story)  # It could be replaced now, if there were another.
    story.at(6)
    plan(story)
    synchronise_inventory(story)
    assert story.lease(created)["status"] == "ACTIVE"
    assert readiness(story, created)["state"] == "late"
    assert not story.lease(created)["degraded"]
    late_now = report(story, late, "ready")
    assert late_now["early"] == -60.0


def test_reports_the_share_of_leases_that_were_ready(story: Story) -> None:
    ready, late = lease(story), lease(story)
    story.at(30)
    plan(story)
    for item in preparations(story, f"lease={ready}"):
        report(story, item, "accepted")
        report(story, item, "ready")
    story.at(29)
    short = lease(story, 1)
    plan(story)
    story.at(5)
    assert {readiness(story, id_)["state"] for id_ in (late, short)} == {"late"}
    asked = f"since={story.moment(-3000)}&until={story.moment(10)}&period=day"
    (share,) = story.ok("GET", f"/v2/readiness?{asked}")["readiness"]
    assert (share["leases"], share["ready_leases"], share["short_notice"]) == (3, 1, 1)
    assert (share["ready_share"], share["hardware"]) == (0.5, "simulated")
    assert share["mean_early"] == 1800.0
    bad = f"since={story.moment()}&until={story.moment(-1)}"
    assert story.problem(400, "GET", f"/v2/readiness?{bad}")["code"] == "invalid_date"


def test_pages_and_filters_of_preparations(everywhere: Story) -> None:
    story = everywhere
    lease(story, count=3)
    story.at(45)
    plan(story)
    first = story.ok("GET", "/v2/preparations?limit=2")
    rest = story.ok("GET", first["next"])
    found = [item["id"] for item in first["preparations"] + rest["preparations"]]
    assert len(set(found)) == 3
    assert rest["next"] is None
    node = first["preparations"][0]["node"]
    assert [item["node"] for item in preparations(story, f"node={node}")] == [node]
    assert preparations(story, "hardware=none") == []


def test_removes_old_preparations(story: Story) -> None:
    (one,) = requested(story, created := lease(story))
    story.ok("DELETE", f"/v2/leases/{created}")
    plan(story)
    settings = story.runtime.settings.provisioning
    assert settings is not None
    job = preparing.Planner(story.runtime, settings)
    story.clock.advance((settings.kept - timedelta(hours=1)).total_seconds())
    job.forget()
    assert preparations(story, "state=over")
    story.clock.advance(2 * 3600)
    job.forget()
    story.problem(404, "GET", f"/v2/preparations/{one['id']}")


def test_lead_times_are_read_again_after_a_failed_query(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = story.runtime.settings.provisioning
    assert settings is not None
    lead_times, now, queries = LeadTimes(settings), story.clock.now(), []

    def times(_: object) -> dict[int, tuple[str, list[float]]]:
        queries.append(now)
        if len(queries) == 1:
            raise OSError("the database is away")
        return {}

    monkeypatch.setattr(stored_readiness, "times", times)
    with story.runtime.database.read() as session:
        with pytest.raises(OSError, match="away"):
            lead_times.refresh(session, now)
        lead_times.refresh(session, now)
        lead_times.refresh(session, now)
    assert len(queries) == 2
