"""Hosts that an ended lease does not return count as failed for every other lease."""

import json
from datetime import timedelta
from typing import Any

import pytest

from climate.manager.audit.cloud import Repair, audit, repair
from climate.manager.resources import inventory_sync as inventory
from climate.plugins.base import NotYet
from tests.conftest import MakeStory
from tests.support.failing_cloud import break_cloud
from tests.support.service import Story, host_reservation

ALL = ["1", "2", "3", "4"]


def synchronise(story: Story) -> None:
    """Have a manager read the cloud, and run what follows."""
    inventory.synchronise(story.runtime)
    story.run()


def wait(story: Story, minutes: int) -> None:
    """Run events every ten seconds, and synchronise every minute."""
    for _ in range(minutes):
        story.until(story.clock.now() + timedelta(minutes=1), step=10)
        synchronise(story)


def reservable(story: Story) -> list[str]:
    hosts = story.ok("GET", "/v1/os-hosts")["hosts"]
    return [number(host["hypervisor_hostname"]) for host in hosts if host["reservable"]]


def number(name: str) -> str:
    return name.removeprefix("sim-")


def booked(story: Story, lease: dict[str, Any]) -> list[str]:
    hosts = [story.ok("GET", f"/v1/os-hosts/{id_}") for id_ in story.hosts_of(lease["id"])]
    return [number(host["host"]["hypervisor_hostname"]) for host in hosts]


def status(story: Story, lease: dict[str, Any]) -> str:
    return str(story.lease(lease["id"])["status"])


def flags(story: Story, lease: dict[str, Any]) -> tuple[bool, bool]:
    """Return (degraded, missing_resources)."""
    shown = story.lease(lease["id"])
    return shown["degraded"], shown["reservations"][0]["missing_resources"]


def handed_over(story: Story, lease: dict[str, Any]) -> list[str]:
    return [number(name) for name in story.cloud.pool_hosts(lease["reservations"][0]["id"])]


def reservation_on(*numbers: str) -> dict[str, Any]:
    """Return a reservation of exactly these hosts."""
    names = json.dumps(["in", "$hypervisor_hostname", [f"sim-{each}" for each in numbers]])
    return host_reservation(len(numbers), len(numbers), hypervisor_properties=names)


def fail_to_end(story: Story, *numbers: str) -> dict[str, Any]:
    """Return a lease that ended a minute ago and did not return its hosts."""
    lease = story.reserve(0, 10, reservations=[reservation_on(*numbers)])
    story.run()
    break_cloud(story, "remove_host")
    wait(story, 11)
    assert status(story, lease) == "ERROR"
    return lease


def test_unreturned_hosts_cannot_be_booked_until_the_lease_is_ended(story: Story) -> None:
    fail_to_end(story, "1", "2", "3")
    assert reservable(story) == ["4"]
    body = story.lease_body(60, 120, reservations=[host_reservation(4, 4)])
    assert "1 match" in story.refused(409, "POST", "/v1/leases", body)
    wait(story, 3)
    assert reservable(story) == ["4"]
    break_cloud(story)
    wait(story, 2)
    assert reservable(story) == ALL
    assert {"sim-1", "sim-2", "sim-3"} <= set(story.cloud.free_hosts())


def test_hosts_stay_bookable_while_an_end_is_retried_or_no_manager_runs(story: Story) -> None:
    lease = story.reserve(0, 10, reservations=[reservation_on("2")])
    story.run()
    story.clock.advance(3600)
    inventory.synchronise(story.runtime)
    assert reservable(story) == ALL
    break_cloud(story, "remove_host")
    for _ in range(20):
        synchronise(story)
        assert reservable(story) == ALL
        story.clock.advance(1)
    break_cloud(story)
    wait(story, 1)
    assert status(story, lease) == "TERMINATED"


def test_a_host_whose_end_takes_too_long_cannot_be_booked(
    make_story: MakeStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise NotYet("servers are still there")

    story = make_story(manager__event_max_retries=50)
    story.register(2)
    story.reserve(0, 10, reservations=[reservation_on("2")])
    story.run()
    with monkeypatch.context() as slow:
        slow.setattr(story.cloud, "delete_servers", fail)
        wait(story, 15)
        assert reservable(story) == ["1", "2"]
        wait(story, 7)
        assert reservable(story) == ["1"]
    wait(story, 2)
    assert reservable(story) == ["1", "2"]


def test_a_coming_lease_gets_another_host_instead(story: Story) -> None:
    coming = story.reserve(30, 90)
    held = booked(story, coming)
    fail_to_end(story, *held)
    assert booked(story, coming) != held
    assert flags(story, coming) == (False, False)
    wait(story, 20)
    assert status(story, coming) == "ACTIVE"
    assert handed_over(story, coming) == booked(story, coming)


def test_a_lease_starts_without_the_host_and_gets_it_later(story: Story) -> None:
    coming = story.reserve(20, 90, reservations=[host_reservation(4, 4)])
    fail_to_end(story, "2")
    wait(story, 13)
    assert status(story, coming) == "ACTIVE"
    assert handed_over(story, coming) == ["1", "3", "4"]
    assert flags(story, coming) == (True, True)
    break_cloud(story)
    wait(story, 3)
    assert handed_over(story, coming) == ALL
    assert flags(story, coming) == (False, False)
    events = story.lease(coming["id"])["events"]
    assert [event["status"] for event in events if event["event_type"] == "update_lease"] == [
        "DONE"
    ]


def test_a_start_waits_until_it_is_known_whether_the_other_lease_ends(story: Story) -> None:
    first = story.reserve(0, 10, reservations=[reservation_on("1", "2")])
    second = story.reserve(10, 90, reservations=[reservation_on("2", "3")])
    story.run()
    break_cloud(story, "remove_host")
    story.at(10)
    synchronise(story)
    assert (status(story, first), status(story, second)) == ("TERMINATING", "PENDING")
    wait(story, 2)
    assert (status(story, first), status(story, second)) == ("ERROR", "ACTIVE")
    assert handed_over(story, second) == ["3"]
    assert flags(story, second) == (True, True)


def test_a_start_does_not_wait_for_a_host_that_failed(story: Story) -> None:
    first = story.reserve(0, 10, reservations=[reservation_on("2")])
    second = story.reserve(10, 90, reservations=[reservation_on("2", "3")])
    story.run()
    story.cloud.fail_host("sim-2")
    inventory.synchronise(story.runtime)
    break_cloud(story, "sim-2")
    story.at(10)
    assert (status(story, first), status(story, second)) == ("TERMINATING", "ACTIVE")
    assert handed_over(story, second) == ["3"]


def test_a_lease_of_unreturned_hosts_only_gets_them_later(story: Story) -> None:
    coming = story.reserve(10, 90, reservations=[reservation_on("2")])
    fail_to_end(story, "2")
    assert status(story, coming) == "ACTIVE"
    assert handed_over(story, coming) == []
    break_cloud(story)
    wait(story, 3)
    assert handed_over(story, coming) == ["2"]


def test_a_lease_that_lacks_a_host_gets_one_that_becomes_free(story: Story) -> None:
    other = story.reserve(0, 200, reservations=[reservation_on("3", "4")])
    coming = story.reserve(20, 90, reservations=[host_reservation(2, 2)])
    fail_to_end(story, "2")
    wait(story, 10)
    assert handed_over(story, coming) == ["1"]
    break_cloud(story, "sim-2")
    story.ok("DELETE", f"/v1/leases/{other['id']}")
    wait(story, 2)
    assert len(handed_over(story, coming)) == 2
    assert "2" not in handed_over(story, coming)
    assert flags(story, coming) == (False, False)


@pytest.mark.parametrize("way", ["deletion", "repair"])
def test_an_operator_gets_the_host_back_at_the_next_synchronisation(story: Story, way: str) -> None:
    lease = fail_to_end(story, "2")
    if way == "deletion":
        story.ok("DELETE", f"/v1/leases/{lease['id']}")
        wait(story, 3)
        assert status(story, lease) == "DELETING"
        assert reservable(story) == ["1", "3", "4"], "the deletion fails, too"
        break_cloud(story)
        wait(story, 2)
    else:
        break_cloud(story)
        outcomes = [repair(story.runtime, drift) for drift in audit(story.runtime)]
        assert outcomes == [Repair.LEFT_TO_MANAGER]
        story.run()
    assert story.cloud.pools() == {}
    synchronise(story)
    assert reservable(story) == ALL


def test_a_returned_host_that_is_down_cannot_be_booked(story: Story) -> None:
    fail_to_end(story, "2")
    story.cloud.fail_host("sim-2")
    break_cloud(story)
    wait(story, 3)
    assert story.cloud.pools() == {}
    assert reservable(story) == ["1", "3", "4"]


def test_a_lease_that_never_got_the_host_ends_without_it(story: Story) -> None:
    coming = story.reserve(20, 30, reservations=[host_reservation(4, 4)])
    last = story.reserve(40, 90, reservations=[host_reservation(4, 4)])
    stuck = fail_to_end(story, "2")
    break_cloud(story, "sim-2")
    wait(story, 20)
    assert status(story, coming) == "TERMINATED"
    assert list(story.cloud.pools()) == [stuck["reservations"][0]["id"]]
    wait(story, 10)
    assert handed_over(story, last) == ["1", "3", "4"]
