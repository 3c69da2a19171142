"""Hosts that fail and come back: who may book them, and what becomes of leases that have them."""

import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from climate.core.errors import BackendUnavailable
from climate.core.lease.model import Inventory
from climate.db.resources import capacity
from climate.db.tables.leases import ResourceRow
from climate.manager import inventory
from climate.plugins.base import DiscoveredResource
from tests.conftest import MakeStory
from tests.functional.fragile import break_cloud
from tests.service import Story, host_reservation

ALL = 4


def look(story: Story) -> None:
    """Have a manager look at the cloud, twice: what is lost at one look may be back."""
    lost = inventory.synchronise(story.runtime)
    inventory.synchronise(story.runtime, lost)


def fail(story: Story, *ids: str) -> None:
    """Let hosts fail, and have it noticed."""
    for id_ in ids:
        story.cloud.fail_host(host(story, id_)["hypervisor_hostname"])
    look(story)


def mend(story: Story, *ids: str) -> None:
    """Let hosts work again, and have it noticed."""
    for id_ in ids:
        story.cloud.mend_host(host(story, id_)["hypervisor_hostname"])
    look(story)


def host(story: Story, id_: str) -> dict[str, Any]:
    return dict(story.ok("GET", f"/v1/os-hosts/{id_}")["host"])


def flags(story: Story, lease: dict[str, Any]) -> tuple[bool, bool, bool]:
    """Return (degraded, missing_resources, resources_changed)."""
    now = story.lease(lease["id"])
    (reservation,) = now["reservations"]
    return now["degraded"], reservation["missing_resources"], reservation["resources_changed"]


def handed_over(story: Story, lease: dict[str, Any]) -> list[str]:
    """Return the ids of the hosts that are in the lease's pool."""
    ids = {
        one["hypervisor_hostname"]: one["id"] for one in story.ok("GET", "/v1/os-hosts")["hosts"]
    }
    return [ids[name] for name in story.cloud.pool_hosts(lease["reservations"][0]["id"])]


def test_a_host_that_fails_is_booked_no_more_until_it_works(story: Story) -> None:
    fail(story, "1")
    assert host(story, "1")["reservable"] is False
    assert "3 match" in story.refused(
        409, "POST", "/v1/leases", story.lease_body(reservations=[host_reservation(4, 4)])
    )
    mend(story, "1")
    assert host(story, "1")["reservable"] is True
    story.reserve(reservations=[host_reservation(4, 4)])


def test_a_host_that_is_down_can_be_registered_and_booked_when_it_works(story: Story) -> None:
    story.cloud.fail_host("sim-5")
    made = story.ok("POST", "/v1/os-hosts", {"name": "sim-5"})["host"]
    assert made["reservable"] is False
    story.cloud.mend_host("sim-5")
    look(story)
    assert host(story, made["id"])["reservable"] is True


def test_what_the_cloud_says_of_a_host_is_followed(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.ok("PUT", "/v1/os-hosts/1", {"rack": "r1"})
    grown = [
        DiscoveredResource(
            external_id=one.external_id, properties={**one.properties, "vcpus": "128"}
        )
        for one in story.cloud.hosts()
    ]
    monkeypatch.setattr(story.cloud, "hosts", lambda: grown)
    look(story)
    assert host(story, "1")["vcpus"] == 128
    assert host(story, "1")["rack"] == "r1"
    assert host(story, "1")["id"] == "1"


def test_what_the_cloud_cannot_tell_now_stays(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = [
        replace(one, properties={**one.properties, "trait:CUSTOM_A": "True"})
        for one in story.cloud.hosts()
    ]
    monkeypatch.setattr(story.cloud, "hosts", lambda: told)
    look(story)
    assert host(story, "1")["trait:CUSTOM_A"] == "True"
    less = [replace(one, properties={"vcpus": "128"}, complete=False) for one in told]
    monkeypatch.setattr(story.cloud, "hosts", lambda: less)
    look(story)
    assert host(story, "1")["trait:CUSTOM_A"] == "True"
    assert host(story, "1")["vcpus"] == 128
    gone = [replace(one, properties={"vcpus": "128"}) for one in told]
    monkeypatch.setattr(story.cloud, "hosts", lambda: gone)
    look(story)
    assert "trait:CUSTOM_A" not in host(story, "1")


def test_what_is_shared_follows_the_cloud_as_far_as_it_tells(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = story.cloud.hosts()
    less = [replace(one, inventories={"VCPU": Inventory(1)}) for one in there]
    for told, expected in (
        ([replace(one, inventories={}, complete=False) for one in there], there[0].inventories),
        (less, less[0].inventories),
    ):
        monkeypatch.setattr(story.cloud, "hosts", lambda told=told: told)
        look(story)
        with story.runtime.database.read() as session:
            assert capacity.find_some(session, [1]) == {1: expected}


def test_a_host_that_the_cloud_has_no_more_is_not_reservable(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(story.cloud, "hosts", list)
    look(story)
    assert host(story, "1")["reservable"] is False
    assert host(story, "1")["vcpus"] == 16


def test_a_cloud_that_does_not_answer_changes_nothing(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent() -> list[DiscoveredResource]:
        raise BackendUnavailable("Nova does not answer")

    monkeypatch.setattr(story.cloud, "hosts", silent)
    with pytest.raises(BackendUnavailable):
        look(story)
    assert host(story, "1")["reservable"] is True


def test_nothing_is_written_while_nothing_changes(story: Story) -> None:
    story.reserve()
    look(story)
    before = host(story, "1")
    story.clock.advance(60)
    look(story)
    assert host(story, "1") == before


def test_a_lease_that_starts_soon_gets_another_host(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.reserve(30, 90)
    (before,) = story.hosts_of(lease["id"])
    fail(story, before)
    (after,) = story.hosts_of(lease["id"])
    assert after != before
    assert flags(story, lease) == (False, False, False)
    assert story.told(lease["id"])[-1] == "lease.update"
    story.at(30)
    assert handed_over(story, lease) == [after]


def test_a_lease_far_ahead_waits_for_the_host_to_be_mended(story: Story) -> None:
    lease = story.reserve(600, 660)
    (before,) = story.hosts_of(lease["id"])
    fail(story, before)
    assert story.hosts_of(lease["id"]) == [before]
    story.clock.advance(545 * 60)
    look(story)
    assert story.hosts_of(lease["id"]) != [before]


def test_without_an_interval_leases_are_healed_however_far_ahead(make_story: MakeStory) -> None:
    story = make_story(**{"physical:host__healing_interval": 0})
    story.register(2)
    lease = story.reserve(600, 660)
    (before,) = story.hosts_of(lease["id"])
    fail(story, before)
    assert story.hosts_of(lease["id"]) != [before]


def test_a_running_lease_gets_another_host_at_once(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.reserve(0, 120)
    story.run()
    (before,) = story.hosts_of(lease["id"])
    fail(story, before)
    (after,) = story.hosts_of(lease["id"])
    assert flags(story, lease) == (True, False, True)
    story.run()
    assert flags(story, lease) == (False, False, True)
    assert handed_over(story, lease) == [after]
    story.at(120)
    assert story.lease(lease["id"])["status"] == "TERMINATED"
    assert handed_over(story, lease) == []


def test_a_running_lease_without_a_replacement_is_degraded_until_its_host_works(
    story: Story,
) -> None:
    lease = story.reserve(0, 120, reservations=[host_reservation(ALL, ALL)])
    story.run()
    fail(story, "2")
    story.run()
    assert flags(story, lease) == (True, True, False)
    assert handed_over(story, lease) == ["1", "2", "3", "4"]
    told = len(story.told(lease["id"]))
    look(story)
    assert len(story.told(lease["id"])) == told
    mend(story, "2")
    story.run()
    assert flags(story, lease) == (False, False, False)
    assert handed_over(story, lease) == ["1", "2", "3", "4"]


def test_a_host_that_is_down_at_the_start_joins_when_it_works(story: Story) -> None:
    lease = story.reserve(30, 120, reservations=[host_reservation(ALL, ALL)])
    fail(story, "3")
    story.at(30)
    assert story.lease(lease["id"])["status"] == "ACTIVE"
    assert flags(story, lease) == (True, True, False)
    assert handed_over(story, lease) == ["1", "2", "4"]
    mend(story, "3")
    story.run()
    assert handed_over(story, lease) == ["1", "2", "3", "4"]
    assert flags(story, lease) == (False, False, False)


def test_of_two_hosts_that_are_down_at_the_start_the_first_to_work_joins_at_once(
    story: Story,
) -> None:
    lease = story.reserve(30, 120, reservations=[host_reservation(ALL, ALL)])
    fail(story, "3", "4")
    story.at(30)
    mend(story, "3")
    story.run()
    assert handed_over(story, lease) == ["1", "2", "3"]
    assert flags(story, lease) == (True, True, False)


def test_a_host_that_is_down_only_at_the_very_start_joins_at_the_next_look(story: Story) -> None:
    lease = story.reserve(30, 120, reservations=[host_reservation(ALL, ALL)])
    with story.runtime.database.engine.begin() as connection:
        connection.execute(
            sa.update(ResourceRow).where(ResourceRow.id == 3).values(reservable=False)
        )
    story.at(30)
    assert handed_over(story, lease) == ["1", "2", "4"]
    assert flags(story, lease) == (True, True, False)
    look(story)
    story.run()
    assert handed_over(story, lease) == ["1", "2", "3", "4"]
    assert flags(story, lease) == (False, False, False)


def test_a_replacement_that_the_cloud_does_not_take_is_handed_over_when_it_does(
    story: Story,
) -> None:
    lease = story.reserve(0, 600)
    story.run()
    fail(story, *story.hosts_of(lease["id"]))
    break_cloud(story, "add_host")
    story.until(story.clock.now() + timedelta(minutes=20))
    look(story)
    assert flags(story, lease) == (True, False, True)
    break_cloud(story)
    look(story)
    story.run()
    assert handed_over(story, lease) == story.hosts_of(lease["id"])
    assert flags(story, lease) == (False, False, True)


def test_a_running_lease_keeps_a_host_that_is_switched_off_for_maintenance(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = story.reserve(0, 120)
    story.run()
    held = story.hosts_of(lease["id"])
    off = [replace(one, usable=False) for one in story.cloud.hosts()]
    monkeypatch.setattr(story.cloud, "hosts", lambda: off)
    look(story)
    assert host(story, held[0])["reservable"] is False
    assert story.hosts_of(lease["id"]) == held
    assert flags(story, lease) == (False, False, False)


def test_a_running_lease_keeps_a_host_that_is_away_for_one_look(story: Story) -> None:
    lease = story.reserve(0, 120)
    story.run()
    held = story.hosts_of(lease["id"])
    story.cloud.fail_host(f"sim-{held[0]}")
    inventory.synchronise(story.runtime)
    story.cloud.mend_host(f"sim-{held[0]}")
    look(story)
    assert story.hosts_of(lease["id"]) == held


def test_one_host_that_cannot_be_followed_keeps_no_other_from_it(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(story, "1", "2")
    enroll = story.cloud.enroll

    def fragile(name: str) -> None:
        if name == "sim-1":
            raise BackendUnavailable("the request to Nova failed: 500")
        enroll(name)

    monkeypatch.setattr(story.cloud, "enroll", fragile)
    mend(story, "1", "2")
    assert [host(story, id_)["reservable"] for id_ in "12"] == [False, True]


def test_a_lease_with_a_host_that_fails_can_be_prolonged(story_everywhere: Story) -> None:
    story = story_everywhere
    wish = host_reservation(ALL, ALL)
    lease = story.reserve(0, 120, reservations=[wish])
    story.run()
    fail(story, story.hosts_of(lease["id"])[0])
    story.ok("PUT", f"/v1/leases/{lease['id']}", {"end_date": story.date(240)})
    assert len(story.hosts_of(lease["id"])) == ALL


def test_one_of_two_is_replaced_when_there_is_one(story: Story) -> None:
    lease = story.reserve(0, 120, reservations=[host_reservation(3, 3)])
    story.run()
    held = story.hosts_of(lease["id"])
    fail(story, *held[:2])
    story.run()
    assert flags(story, lease) == (True, True, True)
    assert len(set(story.hosts_of(lease["id"])) - set(held)) == 1


def test_a_replacement_matches_what_was_asked_for(story: Story) -> None:
    wish = host_reservation(hypervisor_properties='["==", "$vcpus", "64"]')
    lease = story.reserve(30, 90, reservations=[wish])
    fail(story, *story.hosts_of(lease["id"]))
    assert flags(story, lease) == (True, True, False)


def test_a_replacement_is_taken_from_nobody(story: Story) -> None:
    lease = story.reserve(30, 90)
    others = story.reserve(60, 120, reservations=[host_reservation(3, 3)])
    held = story.hosts_of(others["id"])
    fail(story, *story.hosts_of(lease["id"]))
    assert flags(story, lease) == (True, True, False)
    assert story.hosts_of(others["id"]) == held


def test_a_host_that_is_back_before_the_lease_starts_is_forgotten(story: Story) -> None:
    lease = story.reserve(30, 90, reservations=[host_reservation(ALL, ALL)])
    fail(story, "1")
    assert flags(story, lease) == (True, True, False)
    mend(story, "1")
    assert flags(story, lease) == (False, False, False)


def test_managers_that_look_at_the_same_moment_heal_once(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.reserve(0, 120)
    story.run()
    (before,) = story.hosts_of(lease["id"])
    story.cloud.fail_host(host(story, before)["hypervisor_hostname"])
    threads = [threading.Thread(target=look, args=(story,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(story.hosts_of(lease["id"])) == 1
    events = [one for one in story.lease(lease["id"])["events"] if "update" in one["event_type"]]
    assert len(events) == 1


def test_a_lease_that_is_over_is_left_alone(story: Story) -> None:
    lease = story.reserve(0, 10)
    story.run()
    held = story.hosts_of(lease["id"])
    break_cloud(story, "remove_host")
    story.at(15)
    fail(story, *held)
    assert flags(story, lease)[2] is False


def test_a_registration_that_the_cloud_refuses_leaves_nothing(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_host: str) -> None:
        raise BackendUnavailable("the request to Nova failed: 500")

    with monkeypatch.context() as broken:
        broken.setattr(story.cloud, "enroll", refuse)
        said = story.refused(503, "POST", "/v1/os-hosts", {"name": "sim-5"})
    assert "the request to Nova failed" in said
    assert len(story.ok("GET", "/v1/os-hosts")["hosts"]) == ALL
    story.ok("POST", "/v1/os-hosts", {"name": "sim-5"})


def test_a_removal_that_the_cloud_refuses_can_be_repeated(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_host: str) -> None:
        raise BackendUnavailable("the request to Nova failed: 500")

    with monkeypatch.context() as broken:
        broken.setattr(story.cloud, "withdraw", refuse)
        story.refused(503, "DELETE", "/v1/os-hosts/1")
    assert host(story, "1")["reservable"] is False
    look(story)
    assert host(story, "1")["reservable"] is True
    story.ok("DELETE", "/v1/os-hosts/1")


def test_the_watch_looks_by_itself(make_story: MakeStory) -> None:
    story = make_story(manager__sync_interval=0.1)
    story.register(1)
    watch = inventory.Watch(story.runtime)
    watch.start()
    story.cloud.fail_host("sim-1")
    done = threading.Event()
    until = story.clock.now() + timedelta(seconds=20)
    while host(story, "1")["reservable"] and story.clock.now() < until:
        done.wait(0.05)
        story.clock.advance(0.05)
    watch.stop()
    assert host(story, "1")["reservable"] is False
