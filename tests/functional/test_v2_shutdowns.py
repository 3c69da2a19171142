"""Hosts that are switched off while nobody needs them: which, when, by whom, and back in time."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from climate import service
from climate.core.provisioning.shutdown import ShutdownState
from climate.db import shutdowns as db
from climate.manager import energy, inventory, preparing
from climate.manager.energy import Saving
from climate.manager.lead_times import LeadTimes
from tests.conftest import MakeStory
from tests.service import Story, hosts

BOB = "bob:lab:member"
IDLE = 30.0  # minutes


@pytest.fixture
def story(make_story: MakeStory, database_url: str) -> Story:
    """Return a service that switches hosts off but one, with hosts sim-1 .. sim-3, at noon."""
    return started(make_story, database_url, 3)


def started(make_story: MakeStory, url: str, count: int, **options: Any) -> Story:
    made = make_story(
        database__connection=url,
        provisioning__enabled=True,
        provisioning__prior=600.0,
        provisioning__longest=1200.0,
        **{"provisioning__power_off": True, "provisioning__spare": 1, **options},
    )
    made.register(count)
    look(made)
    return made


def look(story: Story) -> None:
    """Have a manager look at the cloud, at what is to be got ready, and at what nobody needs."""
    settings = story.runtime.settings.provisioning
    assert settings is not None
    known = LeadTimes(settings)
    inventory.synchronise(story.runtime)
    preparing.look(story.runtime, settings, known)
    Saving(story.runtime, settings, known).look()


def later(story: Story, minutes: float = IDLE) -> list[dict[str, Any]]:
    """Let time pass, and return what is wanted then."""
    story.at(minutes)
    look(story)
    return shutdowns(story, "state=wanted")


def shutdowns(story: Story, asked: str = "") -> list[dict[str, Any]]:
    return list(story.ok("GET", f"/v2/shutdowns?{asked}")["shutdowns"])


def shutdown(story: Story, one: dict[str, Any]) -> dict[str, Any]:
    return dict(story.ok("GET", f"/v2/shutdowns/{one['id']}"))


def preparations(story: Story, asked: str = "") -> list[dict[str, Any]]:
    return list(story.ok("GET", f"/v2/preparations?{asked}")["preparations"])


def report(story: Story, noun: str, one: dict[str, Any], state: str, **more: Any) -> dict[str, Any]:
    body = {"state": state, "owner": "p1", **more}
    return dict(story.ok("POST", f"/v2/{noun}/{one['id']}/report", body))


def refused(story: Story, noun: str, one: dict[str, Any], state: str, **more: Any) -> str:
    body = {"state": state, "owner": "p1", **more}
    return str(story.problem(409, "POST", f"/v2/{noun}/{one['id']}/report", body)["code"])


def switched_off(story: Story) -> list[dict[str, Any]]:
    """Let all but the spare host go off, and return these shutdowns."""
    found = later(story)
    for one in found:
        report(story, "shutdowns", one, "accepted")
        report(story, "shutdowns", one, "off")
    return found


def lease(story: Story, first: float = 0, count: int = 3) -> str:
    asked = story.asking(first, first + 60, reservations=[hosts(count, count)])
    return str(story.ok("POST", "/v2/leases", asked)["id"])


def bookable(story: Story) -> int:
    found = story.ok("GET", "/v2/resources")["resources"]
    return sum(one["reservable"] for one in found)


def saved(story: Story, minutes: float, period: str = "all") -> list[dict[str, Any]]:
    """Return what was saved in the last minutes."""
    when = f"since={story.moment(-minutes)}&until={story.moment()}&period={period}"
    return list(story.ok("GET", f"/v2/readiness/energy?{when}")["saved"])


def test_idle_hosts_go_off_but_the_spare_and_are_back_for_the_next_lease(story: Story) -> None:
    assert later(story, IDLE - 1) == []
    found = switched_off(story)
    assert {one["node"] for one in found} == {"sim-1", "sim-2"}
    assert later(story, 60) == []  # the spare stays
    assert [shutdown(story, one)["state"] for one in found] == ["off", "off"]
    assert bookable(story) == 3
    made = lease(story, 60)
    story.at(41)
    look(story)
    ready = preparations(story, "claimable=true")
    assert len(ready) == 3
    assert [shutdown(story, one)["state"] for one in found] == ["over", "over"]
    for one in ready:
        report(story, "preparations", one, "accepted")
        report(story, "preparations", one, "ready")
    assert story.ok("GET", f"/v2/leases/{made}/readiness")["state"] == "ready"
    story.at(19)
    assert story.lease(made)["status"] == "ACTIVE"
    (share,) = saved(story, 240)
    assert share["shutdowns"] == 2
    assert share["host_hours"] == pytest.approx(2 * 101 / 60, abs=0.01)
    assert later(story, 45) == []  # while the lease has them


def test_of_many_managers_at_once_each_host_goes_off_once_and_the_spare_stays(
    story: Story,
) -> None:
    settings = story.runtime.settings.provisioning
    assert settings is not None
    savings = [Saving(story.runtime, settings, LeadTimes(settings)) for _ in range(6)]
    story.at(IDLE)
    with ThreadPoolExecutor(6) as crowd:
        list(crowd.map(Saving.look, savings))
    assert len(shutdowns(story)) == len({one["node"] for one in shutdowns(story)}) == 2


def test_a_host_that_is_needed_soon_stays_on(story: Story) -> None:
    lease(story, IDLE + 40, count=2)  # a lead of 20 minutes, and 30 to be off
    assert later(story) == []  # the third is the spare
    assert later(story, 5) == []


def test_what_is_booked_before_somebody_began_stays_on(story: Story) -> None:
    first, second = later(story)
    report(story, "shutdowns", first, "accepted")
    lease(story, 15)
    assert refused(story, "shutdowns", second, "accepted") == "shutdown_over"
    look(story)
    given_up = shutdown(story, second)
    assert (given_up["state"], given_up["reason"]) == ("over", "it is needed soon")
    assert refused(story, "shutdowns", second, "accepted") == "shutdown_over"
    assert shutdown(story, first)["state"] == "accepted"


def test_a_lease_of_a_host_on_its_way_down_gets_it_after_that(story: Story) -> None:
    going, _ = later(story)
    report(story, "shutdowns", going, "accepted")
    made = lease(story)
    story.run()
    assert story.lease(made)["status"] == "ACTIVE"
    look(story)
    (blocked,) = preparations(story, f"node={going['node']}")
    assert blocked["id"] not in {one["id"] for one in preparations(story, "claimable=true")}
    assert refused(story, "preparations", blocked, "accepted", owner="p2") == "preparation_claimed"
    report(story, "shutdowns", going, "off")
    assert refused(story, "preparations", blocked, "accepted", owner="p2") == "preparation_claimed"
    look(story)
    assert shutdown(story, going)["state"] == "over"
    assert report(story, "preparations", blocked, "accepted", owner="p2")["state"] == "accepted"


def test_a_host_that_is_got_ready_already_is_not_disturbed(story: Story) -> None:
    going, _ = later(story)
    made = lease(story, 10, count=2)
    look(story)
    mine = next(iter(preparations(story, f"lease={made}&claimable=true")))
    report(story, "preparations", mine, "accepted")
    add_shutdown(story, going, mine)
    assert report(story, "preparations", mine, "accepted")["attempt"] == 1
    (late,) = [one for one in shutdowns(story, "claimable=true") if one["node"] == mine["node"]]
    assert refused(story, "shutdowns", late, "accepted") == "shutdown_over"
    look(story)
    assert shutdown(story, late)["state"] == "over"


def add_shutdown(story: Story, like: dict[str, Any], mine: dict[str, Any]) -> None:
    """Store a shutdown of a host that is got ready, as who chose it just before would."""
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


def test_no_lease_starts_with_a_host_that_is_off_and_nobody_asked_for(story: Story) -> None:
    found = switched_off(story)
    made = lease(story)
    story.run()  # before any manager looked
    assert story.lease(made)["status"] == "ACTIVE"
    look(story)
    asked = {one["node"] for one in preparations(story, "claimable=true")}
    assert asked == {one["node"] for one in found}
    assert bookable(story) == 3


def test_whichever_comes_first_booking_or_shutdown_no_host_is_forgotten(
    make_story: MakeStory, database_url: str
) -> None:
    story = started(make_story, database_url, 6)
    going = later(story)
    assert len(going) == 5
    clients = [service.make_api(story.conf, story.runtime).test_client() for _ in range(8)]

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
        made = [one.result() for one in [crowd.submit(book, number) for number in (5, 6, 7)]]
        [one.result() for one in claims]
    story.run()
    assert {story.lease(one)["status"] for one in made} == {"ACTIVE"}
    look(story)
    for one in shutdowns(story, "state=accepted"):
        assert preparations(story, f"node={one['node']}&claimable=true") == []
        report(story, "shutdowns", one, "off", owner=one["node"])
    look(story)
    ever_claimed = {one["node"] for one in shutdowns(story) if one["accepted_at"]}
    assert ever_claimed <= {one["node"] for one in preparations(story, "claimable=true")}
    assert shutdowns(story, "state=off&state=accepted&state=wanted&state=kept") == []


def test_a_host_with_servers_on_it_stays_on(story: Story) -> None:
    used, _ = later(story)
    story.cloud.boot_server(used["node"], "somebody's")
    assert refused(story, "shutdowns", used, "accepted") == "shutdown_over"
    kept = shutdown(story, used)
    assert kept["state"] == "kept"
    assert "somebody's" in kept["reason"]
    look(story)
    assert shutdown(story, used)["state"] == "over"
    look(story)
    assert {one.external_id for one in story.cloud.hosts() if one.lost} == set()
    assert shutdown(story, used)["off_at"] is None


def test_servers_are_looked_for_again_by_who_takes_over(story: Story) -> None:
    used, _ = later(story)
    report(story, "shutdowns", used, "accepted", claim_seconds=60)
    story.cloud.boot_server(used["node"], "somebody's")
    assert report(story, "shutdowns", used, "accepted", claim_seconds=60)["attempt"] == 1
    story.clock.advance(60)
    assert refused(story, "shutdowns", used, "accepted", owner="p2") == "shutdown_over"
    assert shutdown(story, used)["state"] == "kept"


def test_one_acts_and_another_sees_it_through_when_it_died(story: Story) -> None:
    one, _ = later(story)
    assert report(story, "shutdowns", one, "accepted", claim_seconds=60)["attempt"] == 1
    assert refused(story, "shutdowns", one, "accepted", owner="p2") == "shutdown_claimed"
    assert one["id"] not in {found["id"] for found in shutdowns(story, "claimable=true")}
    lease(story)
    look(story)
    story.clock.advance(60)
    look(story)
    assert shutdown(story, one)["state"] == "accepted"  # needed or not: it may be on its way
    assert one["id"] in {found["id"] for found in shutdowns(story, "claimable=true")}
    assert report(story, "shutdowns", one, "accepted", owner="p2")["attempt"] == 2
    for state in ("accepted", "off", "wanted"):
        assert refused(story, "shutdowns", one, state) == "shutdown_claimed"
    given_back = report(story, "shutdowns", one, "wanted", owner="p2")
    assert (given_back["state"], given_back["owner"]) == ("accepted", None)
    assert report(story, "shutdowns", one, "accepted")["attempt"] == 3
    assert report(story, "shutdowns", one, "off") == report(story, "shutdowns", one, "off")


def test_a_host_that_cannot_be_switched_off_is_left_alone_for_a_while(
    make_story: MakeStory, sqlite_url: str
) -> None:
    story = started(make_story, sqlite_url, 1, provisioning__spare=0)
    (one,) = later(story)
    report(story, "shutdowns", one, "accepted")
    body = {"state": "kept", "owner": "p1"}
    story.problem(400, "POST", f"/v2/shutdowns/{one['id']}/report", body)
    report(story, "shutdowns", one, "kept", reason="no answer")
    story.cloud.enable_service(one["node"])  # a real one was up all the while
    look(story)
    ended = shutdown(story, one)
    assert (ended["state"], ended["reason"]) == ("over", "no answer")
    assert later(story, 1) == []
    assert len(later(story)) == 1


def test_hosts_that_operators_set_aside_or_that_do_not_work_are_left_alone(
    make_story: MakeStory, sqlite_url: str
) -> None:
    story = started(make_story, sqlite_url, 2, provisioning__spare=0)
    story.ok("PATCH", "/v2/resources/1/readiness", {"set_aside": "to be mended"})
    story.cloud.fail_host("sim-2")
    assert later(story) == []
    story.cloud.mend_host("sim-2")
    assert later(story, 1) == []
    assert [one["node"] for one in later(story)] == ["sim-2"]


def test_a_host_that_somebody_switched_on_is_on(story: Story) -> None:
    found = switched_off(story)
    story.cloud.enable_service(found[0]["node"])
    story.at(1)
    look(story)
    assert shutdown(story, found[0])["state"] == "off"  # the cloud needs time to notice
    story.at(2)
    look(story)
    assert shutdown(story, found[0])["state"] == "over"
    assert shutdown(story, found[1])["state"] == "off"


def test_when_a_lease_takes_the_spare_another_host_comes_on(story: Story) -> None:
    switched_off(story)
    take_spare(story)
    (woken,) = shutdowns(story, "claimable=true")
    assert woken["state"] == "waking"
    look(story)
    assert len(shutdowns(story, "state=off")) == 1
    report(story, "shutdowns", woken, "accepted")
    assert refused(story, "shutdowns", woken, "on", owner="p2") == "shutdown_claimed"
    assert report(story, "shutdowns", woken, "on") == report(story, "shutdowns", woken, "on")
    assert shutdown(story, woken)["state"] == "over"
    assert later(story, 1) == []
    assert shutdowns(story, "state=waking") == []


def take_spare(story: Story) -> None:
    """Have a lease take the host that is on."""
    off = {one["node"] for one in shutdowns(story, "state=off")}
    (spare,) = {"sim-1", "sim-2", "sim-3"} - off
    query = f'["==", "$hypervisor_hostname", "{spare}"]'
    asked = hosts(1, 1, hypervisor_properties=query, resource_properties="")
    story.ok("POST", "/v2/leases", story.asking(0, 600, reservations=[asked]))
    story.run()
    look(story)


def test_a_host_that_wakes_is_got_ready_at_once_if_it_is_needed(story: Story) -> None:
    switched_off(story)
    take_spare(story)
    (woken,) = shutdowns(story, "state=waking")
    report(story, "shutdowns", woken, "accepted")
    lease(story, count=2)
    story.run()
    look(story)
    assert shutdown(story, woken)["state"] == "over"
    assert refused(story, "shutdowns", woken, "on") == "shutdown_over"
    found = {one["node"] for one in preparations(story, "claimable=true")}
    assert woken["node"] in found
    assert len(found) == 2


def test_a_host_that_does_not_wake_is_set_aside_and_another_does(story: Story) -> None:
    switched_off(story)
    take_spare(story)
    (woken,) = shutdowns(story, "state=waking")
    report(story, "shutdowns", woken, "accepted")
    report(story, "shutdowns", woken, "kept", reason="no power")
    look(story)
    known = story.ok("GET", f"/v2/resources/{woken['resource_id']}/readiness")
    assert known["set_aside"] == "no power"
    story.at(2)
    look(story)
    (other,) = shutdowns(story, "state=waking")
    assert other["node"] != woken["node"]


def test_what_is_off_comes_back_when_no_host_is_to_go_off_any_more(
    make_story: MakeStory, sqlite_url: str
) -> None:
    first = started(make_story, sqlite_url, 2, provisioning__spare=0)
    gone, waits = later(first)
    report(first, "shutdowns", gone, "accepted")
    report(first, "shutdowns", gone, "off")
    second = make_story(database__connection=sqlite_url, provisioning__enabled=True)
    second.clock.advance(first.clock.now().timestamp() - second.clock.now().timestamp())
    second.cloud.disable_service(gone["node"])
    look(second)
    assert shutdown(second, waits)["reason"] == "hosts are not switched off any more"
    assert shutdown(second, waits)["state"] == "over"
    lease(second, count=2)
    second.run()
    look(second)
    assert shutdown(second, gone)["state"] == "over"
    assert [one["node"] for one in preparations(second, "claimable=true")] == [gone["node"]]


def test_where_no_host_is_to_go_off_nothing_is_looked_at(
    make_story: MakeStory, sqlite_url: str
) -> None:
    story = started(make_story, sqlite_url, 3, provisioning__power_off=False)
    settings = story.runtime.settings.provisioning
    assert settings is not None
    saving = Saving(story.runtime, settings, LeadTimes(settings))
    saving.look()
    sent: list[str] = []
    sa.event.listen(
        story.runtime.database.engine, "before_cursor_execute", lambda *given: sent.append(given[2])
    )
    saving.look()
    assert sent == []
    assert later(story, 600) == []


def test_what_is_saved_is_told_by_period_to_operators(story: Story) -> None:
    found = switched_off(story)  # at 12:30
    story.at(24 * 60)
    assert [(one["since"][:10], one["host_hours"]) for one in saved(story, 3000, "day")] == [
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


def test_what_was_over_long_ago_is_forgotten(story: Story) -> None:
    found = switched_off(story)
    lease(story)
    story.run()
    look(story)
    assert len(shutdowns(story, "state=over")) == len(found)
    story.at(60)
    energy.forget(story.runtime, story.clock.now())
    assert shutdowns(story) == []
