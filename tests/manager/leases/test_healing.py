"""Hosts that fail and recover: who may book them, and what happens to leases that hold them."""

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
from climate.manager.resources import inventory_sync as inventory
from climate.plugins.base import DiscoveredResource
from tests.conftest import MakeStory
from tests.support.failing_cloud import break_cloud
from tests.support.service import Story, host_reservation

HEALTHY = (False, False, False)
ALL = [host_reservation(4, 4)]


def sync(story: Story) -> None:
    """Synchronise twice: a host counts as lost if it is absent both times."""
    lost = inventory.synchronise(story.runtime)
    inventory.synchronise(story.runtime, lost)


def fail(story: Story, *ids: str) -> None:
    for id_ in ids:
        story.cloud.fail_host(host(story, id_)["hypervisor_hostname"])
    sync(story)


def mend(story: Story, *ids: str) -> None:
    for id_ in ids:
        story.cloud.mend_host(host(story, id_)["hypervisor_hostname"])
    sync(story)


def host(story: Story, id_: str) -> dict[str, Any]:
    return dict(story.ok("GET", f"/v1/os-hosts/{id_}")["host"])


def flags(story: Story, lease: dict[str, Any]) -> tuple[bool, bool, bool]:
    """Return (degraded, missing_resources, resources_changed)."""
    shown = story.lease(lease["id"])
    (reservation,) = shown["reservations"]
    return shown["degraded"], reservation["missing_resources"], reservation["resources_changed"]


def handed_over(story: Story, lease: dict[str, Any]) -> list[str]:
    """Return the ids of the hosts in the lease's pool."""
    hosts = story.ok("GET", "/v1/os-hosts")["hosts"]
    ids = {host["hypervisor_hostname"]: host["id"] for host in hosts}
    return [ids[name] for name in story.cloud.pool_hosts(lease["reservations"][0]["id"])]


def running(story: Story, minutes: float = 120, **fields: Any) -> dict[str, Any]:
    lease = story.reserve(0, minutes, **fields)
    story.run()
    return lease


# What the cloud says about hosts.


def test_a_failed_host_cannot_be_booked_until_it_recovers(story: Story) -> None:
    fail(story, "1")
    assert host(story, "1")["reservable"] is False
    body = story.lease_body(reservations=ALL)
    assert "3 match" in story.refused(409, "POST", "/v1/leases", body)
    mend(story, "1")
    story.reserve(reservations=ALL)
    story.cloud.fail_host("sim-5")
    made = story.ok("POST", "/v1/os-hosts", {"name": "sim-5"})["host"]
    assert made["reservable"] is False
    mend(story, made["id"])
    assert host(story, made["id"])["reservable"] is True


def test_properties_follow_the_cloud_as_far_as_it_reports_them(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = story.cloud.hosts()

    def report(reported: list[DiscoveredResource]) -> dict[str, Any]:
        monkeypatch.setattr(story.cloud, "hosts", lambda: reported)
        sync(story)
        return host(story, "1")

    def properties(complete: bool = True, **given: str) -> list[DiscoveredResource]:
        return [replace(each, properties=given, complete=complete) for each in hosts]

    story.ok("PUT", "/v1/os-hosts/1", {"rack": "r1"})
    trait: dict[str, Any] = {"trait:CUSTOM_A": "True"}
    shown = report(properties(vcpus="128", **trait))
    assert (shown["vcpus"], shown["rack"], shown["trait:CUSTOM_A"]) == (128, "r1", "True")
    shown = report(properties(complete=False, vcpus="64"))
    assert (shown["vcpus"], shown["trait:CUSTOM_A"]) == (64, "True")
    assert "trait:CUSTOM_A" not in report(properties(vcpus="64"))
    for inventories, complete, expected in (
        ({}, False, hosts[0].inventories),
        ({"VCPU": Inventory(1)}, True, {"VCPU": Inventory(1)}),
    ):
        report([replace(each, inventories=inventories, complete=complete) for each in hosts])
        with story.runtime.database.read() as session:
            assert capacity.find_some(session, [1]) == {1: expected}
    before = host(story, "1")
    story.clock.advance(60)
    sync(story)
    assert host(story, "1") == before, "nothing is written while nothing changes"
    shown = report([])
    assert (shown["reservable"], shown["vcpus"]) == (False, before["vcpus"])


def test_a_cloud_that_does_not_answer_changes_nothing(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_to_answer() -> list[DiscoveredResource]:
        raise BackendUnavailable("Nova does not answer")

    monkeypatch.setattr(story.cloud, "hosts", fail_to_answer)
    with pytest.raises(BackendUnavailable):
        sync(story)
    assert host(story, "1")["reservable"] is True


def test_a_host_that_cannot_be_updated_does_not_block_the_others(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(story, "1", "2")
    enroll = story.cloud.enroll

    def fail_for_the_first(name: str) -> None:
        if name == "sim-1":
            raise BackendUnavailable("Nova does not do it: 500")
        enroll(name)

    monkeypatch.setattr(story.cloud, "enroll", fail_for_the_first)
    mend(story, "1", "2")
    assert [host(story, id_)["reservable"] for id_ in "12"] == [False, True]


def test_a_registration_or_removal_that_the_cloud_refuses_can_be_repeated(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_host: str) -> None:
        raise BackendUnavailable("Nova does not do it: 500")

    with monkeypatch.context() as broken:
        broken.setattr(story.cloud, "enroll", refuse)
        broken.setattr(story.cloud, "withdraw", refuse)
        message = story.refused(503, "POST", "/v1/os-hosts", {"name": "sim-5"})
        assert "Nova does not do it" in message
        assert len(story.ok("GET", "/v1/os-hosts")["hosts"]) == 4
        story.refused(503, "DELETE", "/v1/os-hosts/1")
        assert host(story, "1")["reservable"] is False
    story.ok("POST", "/v1/os-hosts", {"name": "sim-5"})
    sync(story)
    assert host(story, "1")["reservable"] is True
    story.ok("DELETE", "/v1/os-hosts/1")


def test_the_periodic_task_synchronises_hosts(make_story: MakeStory) -> None:
    story = make_story(manager__sync_interval=0.1)
    story.register(1)
    synchronised = threading.Event()
    genuine = inventory.synchronise

    def synchronise(*given: Any) -> Any:
        lost = genuine(*given)
        if host(story, "1")["reservable"] is False:
            synchronised.set()
        return lost

    watch = inventory.InventorySync(story.runtime)
    story.cloud.fail_host("sim-1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inventory, "synchronise", synchronise)
        watch.start()
        for _ in range(600):
            story.clock.advance(0.1)
            if synchronised.wait(0.1):
                break
        watch.stop()
    assert synchronised.is_set()


# Leases that have not started.


def test_a_lease_that_starts_soon_gets_another_host(story: Story) -> None:
    lease = story.reserve(30, 90)
    (before,) = story.hosts_of(lease["id"])
    fail(story, before)
    (after,) = story.hosts_of(lease["id"])
    assert after != before
    assert flags(story, lease) == HEALTHY
    assert story.event_types(lease["id"])[-1] == "lease.update"
    story.at(30)
    assert handed_over(story, lease) == [after]


@pytest.mark.parametrize("interval", [None, 0])
def test_a_lease_far_ahead_is_healed_within_the_healing_interval(
    make_story: MakeStory, interval: int | None
) -> None:
    options = {} if interval is None else {"physical:host__healing_interval": interval}
    story = make_story(**options)
    story.register(2)
    lease = story.reserve(600, 660)
    (before,) = story.hosts_of(lease["id"])
    fail(story, before)
    is_healed_at_once = interval == 0
    assert (story.hosts_of(lease["id"]) != [before]) == is_healed_at_once
    story.clock.advance(545 * 60)
    sync(story)
    assert story.hosts_of(lease["id"]) != [before]


def test_a_replacement_matches_the_request_and_belongs_to_no_other_lease(story: Story) -> None:
    wanted = host_reservation(hypervisor_properties='["==", "$vcpus", "64"]')
    lease = story.reserve(30, 90, reservations=[wanted])
    (large,) = story.hosts_of(lease["id"])
    fail(story, large)
    assert flags(story, lease) == (True, True, False)
    mend(story, large)
    assert flags(story, lease) == HEALTHY, "the host recovered before the start"
    story.ok("DELETE", f"/v1/leases/{lease['id']}")
    lease = story.reserve(30, 90)
    other = story.reserve(60, 120, reservations=[host_reservation(3, 3)])
    held = story.hosts_of(other["id"])
    fail(story, *story.hosts_of(lease["id"]))
    assert flags(story, lease) == (True, True, False)
    assert story.hosts_of(other["id"]) == held


def test_hosts_that_fail_before_the_start_join_the_lease_when_they_recover(story: Story) -> None:
    lease = story.reserve(30, 120, reservations=ALL)
    fail(story, "3", "4")
    story.at(30)
    assert story.lease(lease["id"])["status"] == "ACTIVE"
    assert handed_over(story, lease) == ["1", "2"]
    mend(story, "3")
    story.run()
    assert handed_over(story, lease) == ["1", "2", "3"]
    assert flags(story, lease) == (True, True, False)
    mend(story, "4")
    story.run()
    assert handed_over(story, lease) == ["1", "2", "3", "4"]
    assert flags(story, lease) == HEALTHY


def test_a_host_that_is_down_only_at_the_start_joins_at_the_next_synchronisation(
    story: Story,
) -> None:
    lease = story.reserve(30, 120, reservations=ALL)
    with story.runtime.database.engine.begin() as connection:
        connection.execute(
            sa.update(ResourceRow).where(ResourceRow.id == 3).values(reservable=False)
        )
    story.at(30)
    assert handed_over(story, lease) == ["1", "2", "4"]
    assert flags(story, lease) == (True, True, False)
    sync(story)
    story.run()
    assert handed_over(story, lease) == ["1", "2", "3", "4"]
    assert flags(story, lease) == HEALTHY


# Running leases.


def test_a_running_lease_gets_another_host_at_once(story: Story) -> None:
    lease = running(story)
    (before,) = story.hosts_of(lease["id"])
    fail(story, before)
    (after,) = story.hosts_of(lease["id"])
    assert after != before
    assert flags(story, lease) == (True, False, True)
    story.run()
    assert flags(story, lease) == (False, False, True)
    assert handed_over(story, lease) == [after]
    story.at(120)
    assert story.lease(lease["id"])["status"] == "TERMINATED"
    assert handed_over(story, lease) == []


def test_a_running_lease_without_a_replacement_is_degraded_until_its_host_recovers(
    story: Story,
) -> None:
    lease = running(story, reservations=ALL)
    fail(story, "2")
    story.run()
    assert flags(story, lease) == (True, True, False)
    assert handed_over(story, lease) == ["1", "2", "3", "4"]
    story.ok("PUT", f"/v1/leases/{lease['id']}", {"end_date": story.date(240)})
    assert len(story.hosts_of(lease["id"])) == 4, "it can be prolonged"
    count = len(story.event_types(lease["id"]))
    sync(story)
    assert len(story.event_types(lease["id"])) == count
    mend(story, "2")
    story.run()
    assert flags(story, lease) == HEALTHY
    assert handed_over(story, lease) == ["1", "2", "3", "4"]


def test_as_many_failed_hosts_are_replaced_as_there_are_replacements(story: Story) -> None:
    lease = running(story, reservations=[host_reservation(3, 3)])
    held = story.hosts_of(lease["id"])
    fail(story, *held[:2])
    story.run()
    assert flags(story, lease) == (True, True, True)
    assert len(set(story.hosts_of(lease["id"])) - set(held)) == 1


def test_a_replacement_is_handed_over_when_the_cloud_accepts_it(story: Story) -> None:
    lease = running(story, 600)
    fail(story, *story.hosts_of(lease["id"]))
    break_cloud(story, "add_host")
    story.until(story.clock.now() + timedelta(minutes=20))
    sync(story)
    assert flags(story, lease) == (True, False, True)
    break_cloud(story)
    sync(story)
    story.run()
    assert handed_over(story, lease) == story.hosts_of(lease["id"])
    assert flags(story, lease) == (False, False, True)


def test_a_running_lease_keeps_a_host_that_is_disabled_or_absent_once(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = running(story)
    held = story.hosts_of(lease["id"])
    story.cloud.fail_host(f"sim-{held[0]}")
    inventory.synchronise(story.runtime)
    story.cloud.mend_host(f"sim-{held[0]}")
    sync(story)
    assert story.hosts_of(lease["id"]) == held
    disabled = [replace(each, usable=False) for each in story.cloud.hosts()]
    monkeypatch.setattr(story.cloud, "hosts", lambda: disabled)
    sync(story)
    assert host(story, held[0])["reservable"] is False
    assert story.hosts_of(lease["id"]) == held
    assert flags(story, lease) == HEALTHY


def test_managers_that_synchronise_at_the_same_time_heal_a_lease_once(
    story_everywhere: Story,
) -> None:
    story = story_everywhere
    lease = running(story)
    (before,) = story.hosts_of(lease["id"])
    story.cloud.fail_host(host(story, before)["hypervisor_hostname"])
    threads = [threading.Thread(target=sync, args=(story,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(story.hosts_of(lease["id"])) == 1
    events = [event["event_type"] for event in story.lease(lease["id"])["events"]]
    assert events.count("update_lease") == 1


def test_a_lease_past_its_end_is_not_healed(story: Story) -> None:
    lease = running(story, 10)
    held = story.hosts_of(lease["id"])
    break_cloud(story, "remove_host")
    story.at(15)
    fail(story, *held)
    assert flags(story, lease)[2] is False
