"""Power saving: idle hosts are switched off and are back in time for the next lease."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from climate.cmd import bootstrap
from climate.core.provisioning.shutdown import ShutdownState
from climate.db.provisioning import shutdowns as db
from climate.manager.process.lead_times import LeadTimes
from climate.manager.provisioning import planner as preparing
from climate.manager.provisioning.power_saving import PowerSaver
from climate.manager.resources import inventory_sync as inventory
from tests.conftest import MakeStory
from tests.support.provisioners import preparations, rejected_report, report
from tests.support.service import Story, hosts

BOB = "bob:lab:member"
IDLE = 30.0  # minutes


@pytest.fixture
def story(make_story: MakeStory) -> Story:
    """Return a service with the hosts sim-1 .. sim-3 that keeps one spare host on, at noon."""
    return started(make_story, 3)


@pytest.fixture
def everywhere(make_story_everywhere: MakeStory) -> Story:
    """Return the same service on each database."""
    return started(make_story_everywhere, 3)


def started(make: MakeStory, count: int, **options: Any) -> Story:
    created = make(
        provisioning__enabled=True,
        provisioning__prior=600.0,
        provisioning__longest=1200.0,
        **{"provisioning__power_off": True, "provisioning__spare": 1, **options},
    )
    created.register(count)
    plan(created)
    return created


def plan(story: Story) -> None:
    """Let a manager read the inventory, plan preparations and plan shutdowns."""
    settings = story.runtime.settings.provisioning
    assert settings is not None
    known = LeadTimes(settings)
    inventory.synchronise(story.runtime)
    preparing.plan(story.runtime, settings, known)
    PowerSaver(story.runtime, settings, known).run()


def later(story: Story, minutes: float = IDLE) -> list[dict[str, Any]]:
    """Let time pass, and return the shutdowns that are then wanted."""
    story.at(minutes)
    plan(story)
    return shutdowns(story, "state=wanted")


def shutdowns(story: Story, query: str = "") -> list[dict[str, Any]]:
    return list(story.ok("GET", f"/v2/shutdowns?{query}")["shutdowns"])


def shutdown(story: Story, one: dict[str, Any]) -> dict[str, Any]:
    return dict(story.ok("GET", f"/v2/shutdowns/{one['id']}"))


def switched_off(story: Story) -> list[dict[str, Any]]:
    """Switch all hosts off but the spare one; return these shutdowns."""
    found = later(story)
    for item in found:
        report(story, item, "accepted", "shutdowns")
        report(story, item, "off", "shutdowns")
    return found


def lease(story: Story, first: float = 0, count: int = 3) -> str:
    asked = story.asking(first, first + 60, reservations=[hosts(count, count)])
    return str(story.ok("POST", "/v2/leases", asked)["id"])


def bookable(story: Story) -> int:
    found = story.ok("GET", "/v2/resources")["resources"]
    return sum(item["reservable"] for item in found)


def saved(story: Story, minutes: float, period: str = "all") -> list[dict[str, Any]]:
    when = f"since={story.moment(-minutes)}&until={story.moment()}&period={period}"
    return list(story.ok("GET", f"/v2/readiness/energy?{when}")["saved"])


def test_idle_hosts_go_off_except_the_spare_and_are_back_for_the_next_lease(story: Story) -> None:
    assert later(story, IDLE - 1) == []
    found = switched_off(story)
    assert {item["node"] for item in found} == {"sim-1", "sim-2"}
    assert later(story, 60) == []  # the spare stays
    assert [shutdown(story, item)["state"] for item in found] == ["off", "off"]
    assert bookable(story) == 3
    created = lease(story, 60)
    story.at(41)
    plan(story)
    ready = preparations(story, "claimable=true")
    assert len(ready) == 3
    assert [shutdown(story, item)["state"] for item in found] == ["over", "over"]
    for item in ready:
        report(story, item, "accepted", "preparations")
        report(story, item, "ready", "preparations")
    assert story.ok("GET", f"/v2/leases/{created}/readiness")["state"] == "ready"
    story.at(19)
    assert story.lease(created)["status"] == "ACTIVE"
    (share,) = saved(story, 240)
    assert share["shutdowns"] == 2
    assert share["host_hours"] == pytest.approx(2 * 101 / 60, abs=0.01)
    assert later(story, 45) == []  # while the lease has them


def test_concurrent_managers_switch_each_host_off_once_and_keep_the_spare(
    everywhere: Story,
) -> None:
    story = everywhere
    settings = story.runtime.settings.provisioning
    assert settings is not None
    savings = [PowerSaver(story.runtime, settings, LeadTimes(settings)) for _ in range(6)]
    story.at(IDLE)
    with ThreadPoolExecutor(6) as crowd:
        list(crowd.map(PowerSaver.run, savings))
    assert len(shutdowns(story)) == len({shutdown["node"] for shutdown in shutdowns(story)}) == 2


def test_a_host_that_a_lease_needs_soon_stays_on(story: Story) -> None:
    lease(story, IDLE + 40, count=2)  # a lead of 20 minutes, and 30 to be off
    assert later(story) == []  # the third is the spare
    assert later(story, 5) == []


def test_a_host_booked_before_its_shutdown_was_accepted_stays_on(story: Story) -> None:
    first, second = later(story)
    report(story, first, "accepted", "shutdowns")
    lease(story, 15)
    assert rejected_report(story, second, "accepted", "shutdowns") == "shutdown_over"
    plan(story)
    given_up = shutdown(story, second)
    assert (given_up["state"], given_up["reason"]) == ("over", "it is needed soon")
    assert rejected_report(story, second, "accepted", "shutdowns") == "shutdown_over"
    assert shutdown(story, first)["state"] == "accepted"


def test_a_host_is_prepared_after_its_shutdown_has_finished(everywhere: Story) -> None:
    story = everywhere
    going, _ = later(story)
    report(story, going, "accepted", "shutdowns")
    created = lease(story)
    story.run()
    assert story.lease(created)["status"] == "ACTIVE"
    plan(story)
    (blocked,) = preparations(story, f"node={going['node']}")
    assert blocked["id"] not in {item["id"] for item in preparations(story, "claimable=true")}
    assert (
        rejected_report(story, blocked, "accepted", "preparations", owner="p2")
        == "preparation_claimed"
    )
    report(story, going, "off", "shutdowns")
    assert (
        rejected_report(story, blocked, "accepted", "preparations", owner="p2")
        == "preparation_claimed"
    )
    plan(story)
    assert shutdown(story, going)["state"] == "over"
    assert report(story, blocked, "accepted", "preparations", owner="p2")["state"] == "accepted"


def test_a_host_that_is_being_prepared_is_not_shut_down(story: Story) -> None:
    going, _ = later(story)
    created = lease(story, 10, count=2)
    plan(story)
    mine = next(iter(preparations(story, f"lease={created}&claimable=true")))
    report(story, mine, "accepted", "preparations")
    add_shutdown(story, going, mine)
    assert report(story, mine, "accepted", "preparations")["attempt"] == 1
    (late,) = [item for item in shutdowns(story, "claimable=true") if item["node"] == mine["node"]]
    assert rejected_report(story, late, "accepted", "shutdowns") == "shutdown_over"
    plan(story)
    assert shutdown(story, late)["state"] == "over"


def add_shutdown(story: Story, like: dict[str, Any], mine: dict[str, Any]) -> None:
    """Store a shutdown of a host that is being prepared, as a manager that chose it just before."""
    with story.runtime.database.read() as session:
        seen = db.get(session, like["id"])
    new = replace(
        seen,
        id=str(uuid.uuid4()),
        resource_id=int(mine["resource_id"]),
        node=mine["node"],
        progress=ShutdownState.WANTED,
        over_at=None,
        reason=None,
    )
    story.runtime.database.write(lambda session: db.want(session, [new]))


def test_every_host_of_a_lease_that_is_off_gets_a_preparation(story: Story) -> None:
    found = switched_off(story)
    created = lease(story)
    story.run()  # before any manager looked
    assert story.lease(created)["status"] == "ACTIVE"
    plan(story)
    asked = {item["node"] for item in preparations(story, "claimable=true")}
    assert asked == {item["node"] for item in found}
    assert bookable(story) == 3


def test_concurrent_bookings_and_shutdowns_leave_no_host_off_without_a_preparation(
    make_story_everywhere: MakeStory,
) -> None:
    story = started(make_story_everywhere, 6)
    going = later(story)
    assert len(going) == 5
    clients = [bootstrap.make_api(story.conf, story.runtime).test_client() for _ in range(8)]

    def claim(number: int) -> None:
        one = going[number]
        body = {"state": "accepted", "owner": one["node"]}
        answer = clients[number].post(f"/v2/shutdowns/{one['id']}/report", json=body)
        assert answer.status_code in {200, 409}

    def book(number: int) -> str:
        asked = story.asking(0, 60, reservations=[hosts(2, 2)])
        return str(clients[number].post("/v2/leases", json=asked).get_json()["id"])

    with ThreadPoolExecutor(8) as crowd:
        claims = [crowd.submit(claim, number) for number in range(5)]
        created = [item.result() for item in [crowd.submit(book, number) for number in (5, 6, 7)]]
        [item.result() for item in claims]
    story.run()
    assert {story.lease(item)["status"] for item in created} == {"ACTIVE"}
    plan(story)
    for shutdown in shutdowns(story, "state=accepted"):
        assert preparations(story, f"node={shutdown['node']}&claimable=true") == []
        report(story, shutdown, "off", "shutdowns", owner=shutdown["node"])
    plan(story)
    ever_claimed = {shutdown["node"] for shutdown in shutdowns(story) if shutdown["accepted_at"]}
    assert ever_claimed <= {item["node"] for item in preparations(story, "claimable=true")}
    assert shutdowns(story, "state=off&state=accepted&state=wanted&state=kept") == []


def test_a_host_with_servers_on_it_stays_on(story: Story) -> None:
    used, _ = later(story)
    story.cloud.boot_server(used["node"], "somebody's")
    assert rejected_report(story, used, "accepted", "shutdowns") == "shutdown_over"
    kept = shutdown(story, used)
    assert kept["state"] == "kept"
    assert "somebody's" in kept["reason"]
    plan(story)
    assert shutdown(story, used)["state"] == "over"
    plan(story)
    assert {host.external_id for host in story.cloud.hosts() if host.lost} == set()
    assert shutdown(story, used)["off_at"] is None


def test_the_next_owner_of_a_shutdown_checks_for_servers_again(story: Story) -> None:
    used, _ = later(story)
    report(story, used, "accepted", "shutdowns", claim_seconds=60)
    story.cloud.boot_server(used["node"], "somebody's")
    assert report(story, used, "accepted", "shutdowns", claim_seconds=60)["attempt"] == 1
    story.clock.advance(60)
    assert rejected_report(story, used, "accepted", "shutdowns", owner="p2") == "shutdown_over"
    assert shutdown(story, used)["state"] == "kept"


def test_a_claim_excludes_other_owners_until_it_expires(everywhere: Story) -> None:
    story = everywhere
    one, _ = later(story)
    assert report(story, one, "accepted", "shutdowns", claim_seconds=60)["attempt"] == 1
    assert rejected_report(story, one, "accepted", "shutdowns", owner="p2") == "shutdown_claimed"
    assert one["id"] not in {found["id"] for found in shutdowns(story, "claimable=true")}
    lease(story)
    plan(story)
    story.clock.advance(60)
    plan(story)
    assert shutdown(story, one)["state"] == "accepted"  # needed or not: it may be on its way
    assert one["id"] in {found["id"] for found in shutdowns(story, "claimable=true")}
    assert report(story, one, "accepted", "shutdowns", owner="p2")["attempt"] == 2
    for state in ("accepted", "off", "wanted"):
        assert rejected_report(story, one, state, "shutdowns") == "shutdown_claimed"
    given_back = report(story, one, "wanted", "shutdowns", owner="p2")
    assert (given_back["state"], given_back["owner"]) == ("accepted", None)
    assert report(story, one, "accepted", "shutdowns")["attempt"] == 3
    assert report(story, one, "off", "shutdowns") == report(story, one, "off", "shutdowns")


def test_a_host_that_cannot_be_switched_off_is_retried_later(make_story: MakeStory) -> None:
    story = started(make_story, 1, provisioning__spare=0)
    (one,) = later(story)
    report(story, one, "accepted", "shutdowns")
    body = {"state": "kept", "owner": "p1"}
    story.problem(400, "POST", f"/v2/shutdowns/{one['id']}/report", body)
    report(story, one, "kept", "shutdowns", reason="no answer")
    story.cloud.enable_service(one["node"])  # a real one was up all the while
    plan(story)
    ended = shutdown(story, one)
    assert (ended["state"], ended["reason"]) == ("over", "no answer")
    assert later(story, 1) == []
    assert len(later(story)) == 1


def test_quarantined_and_failed_hosts_are_not_switched_off(make_story: MakeStory) -> None:
    story = started(make_story, 2, provisioning__spare=0)
    story.ok("PATCH", "/v2/resources/1/readiness", {"set_aside": "to be mended"})
    story.cloud.fail_host("sim-2")
    assert later(story) == []
    story.cloud.mend_host("sim-2")
    assert later(story, 1) == []
    assert [item["node"] for item in later(story)] == ["sim-2"]


def test_a_host_that_an_operator_switched_on_is_on(story: Story) -> None:
    found = switched_off(story)
    story.cloud.enable_service(found[0]["node"])
    story.at(1)
    plan(story)
    assert shutdown(story, found[0])["state"] == "off"  # the cloud needs time to notice
    story.at(2)
    plan(story)
    assert shutdown(story, found[0])["state"] == "over"
    assert shutdown(story, found[1])["state"] == "off"


def test_another_host_is_switched_on_when_a_lease_takes_the_spare(story: Story) -> None:
    switched_off(story)
    take_spare(story)
    (woken,) = shutdowns(story, "claimable=true")
    assert woken["state"] == "waking"
    plan(story)
    assert len(shutdowns(story, "state=off")) == 1
    report(story, woken, "accepted", "shutdowns")
    assert rejected_report(story, woken, "on", "shutdowns", owner="p2") == "shutdown_claimed"
    assert report(story, woken, "on", "shutdowns") == report(story, woken, "on", "shutdowns")
    assert shutdown(story, woken)["state"] == "over"
    assert later(story, 1) == []
    assert shutdowns(story, "state=waking") == []


def take_spare(story: Story) -> None:
    """Start a lease on the host that is on."""
    off = {shutdown["node"] for shutdown in shutdowns(story, "state=off")}
    (spare,) = {"sim-1", "sim-2", "sim-3"} - off
    query = f'["==", "$hypervisor_hostname", "{spare}"]'
    asked = hosts(1, 1, hypervisor_properties=query, resource_properties="")
    story.ok("POST", "/v2/leases", story.asking(0, 600, reservations=[asked]))
    story.run()
    plan(story)


def test_a_waking_host_is_prepared_at_once_if_a_lease_needs_it(story: Story) -> None:
    switched_off(story)
    take_spare(story)
    (woken,) = shutdowns(story, "state=waking")
    report(story, woken, "accepted", "shutdowns")
    lease(story, count=2)
    story.run()
    plan(story)
    assert shutdown(story, woken)["state"] == "over"
    assert rejected_report(story, woken, "on", "shutdowns") == "shutdown_over"
    found = {item["node"] for item in preparations(story, "claimable=true")}
    assert woken["node"] in found
    assert len(found) == 2


def test_a_host_that_does_not_wake_is_quarantined_and_another_wakes(story: Story) -> None:
    switched_off(story)
    take_spare(story)
    (woken,) = shutdowns(story, "state=waking")
    report(story, woken, "accepted", "shutdowns")
    report(story, woken, "kept", "shutdowns", reason="no power")
    plan(story)
    known = story.ok("GET", f"/v2/resources/{woken['resource_id']}/readiness")
    assert known["set_aside"] == "no power"
    story.at(2)
    plan(story)
    (other,) = shutdowns(story, "state=waking")
    assert other["node"] != woken["node"]


def test_hosts_that_are_off_come_back_after_power_saving_is_disabled(make_story: MakeStory) -> None:
    first = started(make_story, 2, provisioning__spare=0)
    gone, waits = later(first)
    report(first, gone, "accepted", "shutdowns")
    report(first, gone, "off", "shutdowns")
    second = make_story(provisioning__enabled=True)
    second.clock.advance(first.clock.now().timestamp() - second.clock.now().timestamp())
    second.cloud.disable_service(gone["node"])
    plan(second)
    assert shutdown(second, waits)["reason"] == "hosts are not switched off any more"
    assert shutdown(second, waits)["state"] == "over"
    lease(second, count=2)
    second.run()
    plan(second)
    assert shutdown(second, gone)["state"] == "over"
    assert [item["node"] for item in preparations(second, "claimable=true")] == [gone["node"]]


def test_sends_no_statements_where_power_saving_is_disabled(make_story: MakeStory) -> None:
    story = started(make_story, 3, provisioning__power_off=False)
    settings = story.runtime.settings.provisioning
    assert settings is not None
    saving = PowerSaver(story.runtime, settings, LeadTimes(settings))
    saving.run()
    sent: list[str] = []
    sa.event.listen(
        story.runtime.database.engine, "before_cursor_execute", lambda *given: sent.append(given[2])
    )
    saving.run()
    assert sent == []
    assert later(story, 600) == []


def test_operators_see_savings_by_period(story: Story) -> None:
    found = switched_off(story)  # at 12:30
    story.at(24 * 60)
    assert [(item["since"][:10], item["host_hours"]) for item in saved(story, 3000, "day")] == [
        (story.moment(-24 * 60)[:10], 23.0),
        (story.moment()[:10], 25.0),
    ]
    assert saved(story, 60)[0]["host_hours"] == 2.0
    assert saved(story, 60)[0]["shutdowns"] == 0
    for path in ("shutdowns", f"shutdowns/{found[0]['id']}", "readiness/energy"):
        story.problem(403, "GET", f"/v2/{path}", token=BOB)
    story.problem(404, "GET", "/v2/shutdowns/none")
    when = f"since={story.moment()}&until={story.moment()}"
    assert story.problem(400, "GET", f"/v2/readiness/energy?{when}")["code"] == "invalid_date"


def test_removes_old_shutdowns(story: Story) -> None:
    found = switched_off(story)
    lease(story)
    story.run()
    plan(story)
    assert len(shutdowns(story, "state=over")) == len(found)
    settings = story.runtime.settings.provisioning
    assert settings is not None
    story.clock.advance(settings.kept.total_seconds() + 3600)
    preparing.Planner(story.runtime, settings).forget()
    assert shutdowns(story) == []
