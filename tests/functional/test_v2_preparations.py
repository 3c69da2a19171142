"""Hosts that are to be ready when their lease starts: who is asked, who acts, and what if not."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from climate import service
from climate.core.lead_time import REMEMBERED
from climate.manager import inventory, preparing
from tests.conftest import MakeStory
from tests.support.preparations import look, look_at_cloud, readiness, report, wanted
from tests.support.service import Story, hosts

BOB = "bob:lab:member"


@pytest.fixture
def story(make_story: MakeStory, database_url: str) -> Story:
    """Return a service with provisioning and hosts sim-1 .. sim-4, at noon."""
    made = make_story(
        database__connection=database_url,
        provisioning__enabled=True,
        provisioning__prior=600.0,
        provisioning__longest=1800.0,
    )
    made.register(4)
    return made


def lease(story: Story, first: float = 60, count: int = 1) -> str:
    """Make a lease of so many hosts that starts ``first`` minutes from now; return its id."""
    asked = story.asking(first, first + 60, reservations=[hosts(count, count)])
    return str(story.ok("POST", "/v2/leases", asked)["id"])


def asked_for(story: Story, lease_id: str, minutes: float = 45) -> list[dict[str, Any]]:
    """Let it be time for what a lease needs, and return that."""
    story.at(minutes)
    look(story)
    return wanted(story, f"lease={lease_id}")


def refused(story: Story, one: dict[str, Any], state: str, **more: Any) -> str:
    body = {"state": state, "owner": "p1", **more}
    return str(story.problem(409, "POST", f"/v2/preparations/{one['id']}/report", body)["code"])


def host_readiness(story: Story, id_: str) -> dict[str, Any]:
    return dict(story.ok("GET", f"/v2/resources/{id_}/readiness"))


def reservable(story: Story, id_: str) -> bool:
    return bool(story.ok("GET", f"/v2/resources/{id_}")["reservable"])


def test_each_host_is_asked_for_once_when_its_time_has_come(story: Story) -> None:
    made = lease(story, 60, count=2)
    assert look(story) == 0
    assert readiness(story, made)["state"] is None
    story.at(29)
    assert look(story) == 0
    story.at(1)
    assert look(story) == 2
    assert look(story) == 0
    found = wanted(story)
    assert len({one["node"] for one in found}) == 2
    assert {one["lease_id"] for one in found} == {made}
    assert {one["lead"] for one in found} == {1800.0}
    assert readiness(story, made) | {"reasons": []} == {
        "state": "preparing",
        "hosts": 2,
        "ready": 0,
        "ready_at": None,
        "early": None,
        "reasons": [],
        "waiting_for": [],
    }
    told = [one for one in story.published() if one["event_type"] == "node.prepare"]
    assert {one["payload"]["node"] for one in told} == {one["node"] for one in found}


def test_what_a_node_is_told_is_the_operators(story: Story) -> None:
    asked_for(story, lease(story))
    story.relay.flush()
    told = story.ok("GET", "/v2/notifications", token=BOB)["notifications"]
    assert not [one for one in told if one["event_type"].startswith("node.")]
    story.problem(403, "GET", "/v2/preparations", token=BOB)


@pytest.mark.parametrize("topics", [True, False])
def test_nodes_are_told_of_start_and_end_if_they_listen(
    topics: bool,
    make_story: MakeStory,
    sqlite_url: str,
) -> None:
    told = make_story(
        database__connection=sqlite_url, provisioning__enabled=True, provisioning__topics=topics
    )
    told.register(2)
    made = lease(told, 10, 2)
    told.at(10)
    told.at(60)
    found = [one for one in told.published(made) if one["event_type"].startswith("node.")]
    nodes = [(one["event_type"], one["payload"]["node"]) for one in found]
    assert sorted(nodes) == [
        (f"node.{kind}", node)
        for kind in ("end_lease", "start_lease")
        for node in (("sim-1", "sim-2") if topics else ())
    ]


def test_of_many_at_once_one_gets_it(story: Story) -> None:
    made = lease(story, count=2)
    story.at(45)
    with ThreadPoolExecutor(4) as crowd:
        list(crowd.map(lambda _: look(story), range(4)))
    found = wanted(story, f"lease={made}")
    assert len(found) == len({one["node"] for one in found}) == 2
    assert len([one for one in story.published() if one["event_type"] == "node.prepare"]) == 2
    path = f"/v2/preparations/{found[0]['id']}/report"

    # Not made in the threads: CPython 3.11 cannot compile routes in several of them at once.
    clients = [service.make_api(story.conf, story.runtime).test_client() for _ in range(8)]

    def claim(number: int) -> int:
        asked = {"state": "accepted", "owner": f"p{number}"}
        return clients[number].post(path, json=asked).status_code

    with ThreadPoolExecutor(8) as crowd:
        assert sorted(crowd.map(claim, range(8))) == [200] + [409] * 7


def test_leases_that_move_or_go_are_followed(story: Story) -> None:
    made = lease(story)
    (first,) = asked_for(story, made)
    change = {"start": story.moment(100), "end": story.moment(160)}
    story.ok("PATCH", f"/v2/leases/{made}", change)
    look(story)
    assert wanted(story, f"lease={made}")[0]["state"] == "over"
    assert refused(story, first, "accepted") == "preparation_over"
    story.at(75)
    look(story)
    (second,) = wanted(story)
    assert second["needed_at"] == change["start"]
    story.ok("DELETE", f"/v2/leases/{made}")
    look(story)
    assert wanted(story) == []
    assert refused(story, second, "accepted") == "preparation_over"


def test_a_lease_that_moves_back_is_asked_for_again(story: Story) -> None:
    made = lease(story)
    (first,) = asked_for(story, made)
    dates = {"start": story.moment(15), "end": story.moment(75)}
    moved = {"start": story.moment(300), "end": story.moment(360)}
    for change in (moved, dates):
        story.ok("PATCH", f"/v2/leases/{made}", change)
        look(story)
    (again,) = wanted(story)
    assert again["needed_at"] == first["needed_at"]
    assert again["id"] != first["id"]


def test_one_acts_and_another_takes_over_when_it_died(story: Story) -> None:
    (one,) = asked_for(story, lease(story))
    assert report(story, one, "accepted", claim_seconds=60)["attempt"] == 1
    assert refused(story, one, "accepted", owner="p2") == "preparation_claimed"
    assert wanted(story, "claimable=true") == []
    story.clock.advance(50)
    assert report(story, one, "accepted", claim_seconds=60)["attempt"] == 1
    story.clock.advance(59)
    assert refused(story, one, "accepted", owner="p2") == "preparation_claimed"
    story.clock.advance(1)
    assert [found["id"] for found in wanted(story, "claimable=true")] == [one["id"]]
    assert report(story, one, "accepted", owner="p2")["attempt"] == 2
    for state in ("accepted", "ready", "wanted"):
        assert refused(story, one, state) == "preparation_claimed"
    assert refused(story, one, "failed", reason="no power") == "preparation_claimed"
    assert report(story, one, "ready", owner="p2")["state"] == "ready"


def test_what_nobody_accepted_is_not_reported_on(story: Story) -> None:
    (one,) = asked_for(story, lease(story))
    assert refused(story, one, "ready") == "preparation_claimed"
    report(story, one, "accepted")
    assert report(story, one, "wanted")["owner"] is None
    assert refused(story, one, "ready") == "preparation_claimed"


def test_reports_may_be_sent_twice_and_are_learned_from_once(story: Story) -> None:
    made = lease(story)
    (one,) = asked_for(story, made)
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
    assert readiness(story, made)["state"] == "ready"
    assert readiness(story, made)["early"] == 600.0
    assert refused(story, one, "accepted") == "invalid_transition"


def test_a_host_that_had_power_teaches_nothing(story: Story) -> None:
    (one,) = asked_for(story, lease(story))
    report(story, one, "accepted")
    report(story, one, "ready", seconds={"check": 0.1}, cold=False)
    assert host_readiness(story, one["resource_id"])["times"] == []


def test_the_last_times_are_kept_and_shorten_the_lead(story: Story) -> None:
    for number in range(REMEMBERED + 2):
        made = lease(story, 1)
        look(story)
        (one,) = wanted(story, f"lease={made}&state=wanted")
        report(story, one, "accepted")
        report(story, one, "ready", seconds={"boot": 100.0 + number}, cold=True)
        story.ok("DELETE", f"/v2/leases/{made}")
        look(story)
    found = story.ok("GET", "/v2/resources")["resources"]
    known = [host_readiness(story, one["id"]) for one in found]
    assert sum(len(one["times"]) for one in known) == REMEMBERED + 2
    assert max(len(one["times"]) for one in known) <= REMEMBERED
    assert all(one["lead"]["seconds"] < 600 for one in known)


def test_a_host_that_fails_is_set_aside_and_replaced_until_it_is_taken_back(story: Story) -> None:
    made = lease(story)
    (one,) = asked_for(story, made)
    report(story, one, "accepted")
    report(story, one, "failed", reason="sim: no power", seconds={"power": 3.0})
    assert readiness(story, made)["reasons"] == [f"{one['node']}: sim: no power"]
    look(story)
    look(story)
    (other,) = wanted(story)
    assert other["resource_id"] != one["resource_id"]
    assert story.hosts_of(made) == [other["resource_id"]]
    look_at_cloud(story)
    assert not reservable(story, one["resource_id"])
    path = f"/v2/resources/{one['resource_id']}/readiness"
    assert host_readiness(story, one["resource_id"])["set_aside"] == "sim: no power"
    assert story.ok("PATCH", path, {"set_aside": None})["set_aside"] is None
    look_at_cloud(story)
    assert reservable(story, one["resource_id"])


def test_without_another_it_stays_and_is_tried_again_when_it_is_taken_back(story: Story) -> None:
    made = lease(story, count=4)
    one, *_ = asked_for(story, made)
    report(story, one, "accepted")
    report(story, one, "failed", reason="no power")
    look(story)
    assert readiness(story, made)["state"] == "failed"
    assert story.lease(made)["degraded"]
    assert len(story.hosts_of(made)) == 4
    story.ok("PATCH", f"/v2/resources/{one['resource_id']}/readiness", {"set_aside": None})
    look(story)
    assert one["id"] in {found["id"] for found in wanted(story)}


def test_a_slow_host_is_replaced_in_time_and_comes_back_when_it_is_ready(story: Story) -> None:
    made = lease(story, 60)
    (slow,) = asked_for(story, made, 30)
    report(story, slow, "accepted", claim_seconds=3600)
    story.at(19)
    look(story)
    assert story.hosts_of(made) == [slow["resource_id"]]
    story.at(1)
    look(story)
    look(story)
    (other,) = wanted(story)
    assert story.hosts_of(made) == [other["resource_id"]]
    assert not reservable(story, slow["resource_id"])
    report(story, slow, "ready", seconds={"boot": 1300.0}, cold=True)
    look(story)
    look_at_cloud(story)
    assert reservable(story, slow["resource_id"])
    assert host_readiness(story, slow["resource_id"])["times"] == [1300.0]
    assert wanted(story, "state=over")[0]["id"] == slow["id"]
    report(story, other, "accepted")
    story.at(9)
    look(story)
    assert story.hosts_of(made) == [other["resource_id"]]


def test_a_host_without_power_is_booked_and_kept_until_somebody_has_it(story: Story) -> None:
    for number in range(1, 5):
        story.cloud.fail_host(f"sim-{number}")
    look_at_cloud(story)
    made = lease(story)
    (one,) = asked_for(story, made)
    look_at_cloud(story)
    assert story.hosts_of(made) == [one["resource_id"]]
    assert not story.lease(made)["degraded"]
    assert host_readiness(story, one["resource_id"])["up"] is False
    report(story, one, "accepted", claim_seconds=3600)
    story.cloud.mend_host(one["node"])
    report(story, one, "ready")
    look_at_cloud(story)
    assert host_readiness(story, one["resource_id"])["up"] is True
    # It dies just before its lease.
    story.at(5)
    story.cloud.fail_host(one["node"])
    look_at_cloud(story)
    assert not reservable(story, one["resource_id"])
    assert story.hosts_of(made) != [one["resource_id"]]


def test_a_host_is_up_as_of_when_the_cloud_heard_of_it_last(
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
    ids = sorted((one["id"] for one in story.ok("GET", "/v1/os-hosts")["hosts"]), key=int)
    for _ in range(2):  # What is known of a host is stored first, and then changed.
        inventory.synchronise(story.runtime)
        known = [host_readiness(story, id_) for id_ in ids]
        assert [one["up"] for one in known] == [True, True, False, True]
        seen = [datetime.fromisoformat(one["seen_at"]) for one in known]
        assert seen == [*heard, now, now]


def test_a_late_host_stays_with_its_running_lease(story: Story) -> None:
    story.cloud.fail_host("sim-1")
    made = lease(story, count=4)
    late = next(one for one in asked_for(story, made) if one["node"] == "sim-1")
    report(story, late, "accepted", claim_seconds=3600)
    story.at(10)
    look(story)  # It could be replaced now, if there were another.
    story.at(6)
    look(story)
    look_at_cloud(story)
    assert story.lease(made)["status"] == "ACTIVE"
    assert readiness(story, made)["state"] == "late"
    assert not story.lease(made)["degraded"]
    late_now = report(story, late, "ready")
    assert late_now["early"] == -60.0


def test_which_share_of_leases_was_ready(story: Story) -> None:
    ready, late = lease(story), lease(story)
    story.at(30)
    look(story)
    for one in wanted(story, f"lease={ready}"):
        report(story, one, "accepted")
        report(story, one, "ready")
    story.at(29)
    short = lease(story, 1)
    look(story)
    story.at(5)
    assert {readiness(story, made)["state"] for made in (late, short)} == {"late"}
    asked = f"since={story.moment(-3000)}&until={story.moment(10)}&period=day"
    (share,) = story.ok("GET", f"/v2/readiness?{asked}")["readiness"]
    assert (share["leases"], share["ready_leases"], share["short_notice"]) == (3, 1, 1)
    assert (share["ready_share"], share["hardware"]) == (0.5, "simulated")
    assert share["mean_early"] == 1800.0
    bad = f"since={story.moment()}&until={story.moment(-1)}"
    assert story.problem(400, "GET", f"/v2/readiness?{bad}")["code"] == "invalid_date"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"state": "over", "owner": "p1"},
        {"state": "failed", "owner": "p1"},
        {"state": "accepted", "owner": ""},
        {"state": "accepted", "owner": "p1", "claim_seconds": 0},
        {"state": "ready", "owner": "p1", "seconds": {"boot": -1}},
        {"state": "ready", "owner": "p1", "seconds": {"boot": "long"}},
    ],
)
def test_a_report_that_makes_no_sense_changes_nothing(body: dict[str, Any], story: Story) -> None:
    (one,) = asked_for(story, lease(story))
    story.problem(400, "POST", f"/v2/preparations/{one['id']}/report", body)
    assert wanted(story) == [one]
    story.problem(404, "POST", "/v2/preparations/none/report", {"state": "wanted", "owner": "p"})


def test_pages_of_preparations(story: Story) -> None:
    lease(story, count=3)
    story.at(45)
    look(story)
    first = story.ok("GET", "/v2/preparations?limit=2")
    rest = story.ok("GET", first["next"])
    found = [one["id"] for one in first["preparations"] + rest["preparations"]]
    assert len(set(found)) == 3
    assert rest["next"] is None
    node = first["preparations"][0]["node"]
    assert [one["node"] for one in wanted(story, f"node={node}")] == [node]
    assert wanted(story, "hardware=none") == []


def test_old_preparations_are_forgotten(story: Story) -> None:
    (one,) = asked_for(story, made := lease(story))
    story.ok("DELETE", f"/v2/leases/{made}")
    look(story)
    settings = story.runtime.settings.provisioning
    assert settings is not None
    job = preparing.Preparing(story.runtime, settings)
    story.clock.advance((settings.kept - timedelta(hours=1)).total_seconds())
    job.forget()
    assert wanted(story, "state=over")
    story.clock.advance(2 * 3600)
    job.forget()
    story.problem(404, "GET", f"/v2/preparations/{one['id']}")
