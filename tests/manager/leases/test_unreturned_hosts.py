"""Hosts that a lease which is over does not give back: they fail, for everybody else."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from climate.manager import inventory
from climate.manager.audit import audit, repair
from climate.plugins.base import NotYet
from tests.conftest import MakeStory
from tests.functional.fragile import break_cloud
from tests.service import Story, host_reservation

ALL = 4


def look(story: Story) -> None:
    """Have a manager look at the cloud, and do what that leads to."""
    inventory.synchronise(story.runtime)
    story.run()


def wait(story: Story, minutes: float) -> None:
    """Let time pass, running what is due and looking at the cloud every minute."""
    for _ in range(int(minutes)):
        for _ in range(6):
            story.clock.advance(10)
            story.run()
        look(story)


def reservable(story: Story) -> list[str]:
    """Return the numbers of the hosts that can be booked: 2 for sim-2."""
    found = story.ok("GET", "/v1/os-hosts")["hosts"]
    return [number(one["hypervisor_hostname"]) for one in found if one["reservable"]]


def number(name: str) -> str:
    return name.removeprefix("sim-")


def booked(story: Story, lease: dict[str, Any]) -> list[str]:
    """Return the numbers of the hosts that the lease has or will have."""
    hosts = [story.ok("GET", f"/v1/os-hosts/{id_}") for id_ in story.hosts_of(lease["id"])]
    return [number(one["host"]["hypervisor_hostname"]) for one in hosts]


def status(story: Story, lease: dict[str, Any]) -> str:
    return str(story.lease(lease["id"])["status"])


def flags(story: Story, lease: dict[str, Any]) -> tuple[bool, bool]:
    """Return (degraded, missing_resources)."""
    now = story.lease(lease["id"])
    return now["degraded"], now["reservations"][0]["missing_resources"]


def handed_over(story: Story, lease: dict[str, Any]) -> list[str]:
    """Return the numbers of the hosts that are in the lease's pool."""
    return [number(name) for name in story.cloud.pool_hosts(lease["reservations"][0]["id"])]


def on(*numbers: str) -> dict[str, Any]:
    """Return a request for these hosts."""
    wanted = json.dumps(["in", "$hypervisor_hostname", [f"sim-{one}" for one in numbers]])
    return host_reservation(len(numbers), len(numbers), hypervisor_properties=wanted)


def stick(story: Story, *numbers: str) -> dict[str, Any]:
    """Return a lease of these hosts that was over a minute ago, and does not give them back."""
    lease = story.reserve(0, 10, reservations=[on(*numbers)])
    story.run()
    break_cloud(story, "remove_host")
    wait(story, 11)
    assert status(story, lease) == "ERROR"
    return lease


def test_a_host_whose_lease_cannot_be_ended_is_booked_no_more_until_it_is(
    story_everywhere: Story,
) -> None:
    story = story_everywhere
    stick(story, "2")
    assert reservable(story) == ["1", "3", "4"]
    too_many = story.lease_body(60, 120, reservations=[host_reservation(ALL, ALL)])
    assert "3 match" in story.refused(409, "POST", "/v1/leases", too_many)
    wait(story, 5)
    assert reservable(story) == ["1", "3", "4"]
    break_cloud(story)
    wait(story, 2)
    assert reservable(story) == ["1", "2", "3", "4"]
    assert "sim-2" in story.cloud.free_hosts()


def test_an_end_that_is_merely_tried_again_holds_no_host_back(story: Story) -> None:
    story.reserve(0, 10, reservations=[on("2")])
    story.run()
    break_cloud(story, "remove_host")
    story.clock.advance(600)
    for _ in range(20):
        look(story)
        assert len(reservable(story)) == ALL
        story.clock.advance(1)


def never(*_: object) -> None:
    """Say that servers are still being deleted."""
    raise NotYet("servers are still there")


def test_a_host_that_is_long_overdue_is_booked_no_more(
    make_story: MakeStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = make_story(manager__event_max_retries=50)
    story.register(2)
    story.reserve(0, 10, reservations=[on("2")])
    story.run()
    with monkeypatch.context() as slow:
        slow.setattr(story.cloud, "delete_servers", never)
        wait(story, 15)
        assert reservable(story) == ["1", "2"]
        wait(story, 7)
        assert reservable(story) == ["1"]
    wait(story, 2)
    assert reservable(story) == ["1", "2"]


def test_hosts_that_nobody_could_take_back_as_no_manager_ran_do_not_fail(story: Story) -> None:
    lease = story.reserve(0, 10, reservations=[on("2")])
    story.run()
    story.clock.advance(3600)
    inventory.synchronise(story.runtime)
    assert len(reservable(story)) == ALL
    story.run()
    assert status(story, lease) == "TERMINATED"


def test_a_coming_lease_gets_another_host_for_one_that_is_not_given_back(
    story_everywhere: Story,
) -> None:
    story = story_everywhere
    next_one = story.reserve(30, 90)
    held = booked(story, next_one)
    stick(story, *held)
    assert booked(story, next_one) != held
    assert flags(story, next_one) == (False, False)
    wait(story, 20)
    assert status(story, next_one) == "ACTIVE"
    assert handed_over(story, next_one) == booked(story, next_one)


def test_a_lease_starts_without_a_host_that_is_not_given_back_and_gets_it_later(
    story_everywhere: Story,
) -> None:
    story = story_everywhere
    following = story.reserve(20, 90, reservations=[host_reservation(ALL, ALL)])
    stick(story, "2")
    wait(story, 10)
    assert status(story, following) == "ACTIVE"
    assert handed_over(story, following) == ["1", "3", "4"]
    assert flags(story, following) == (True, True)
    wait(story, 3)
    assert handed_over(story, following) == ["1", "3", "4"]
    break_cloud(story)
    wait(story, 3)
    assert handed_over(story, following) == ["1", "2", "3", "4"]
    assert flags(story, following) == (False, False)
    events = story.lease(following["id"])["events"]
    assert [one["status"] for one in events if one["event_type"] == "update_lease"] == ["DONE"]


def test_a_lease_that_starts_where_another_cannot_end_waits_until_that_is_known(
    story: Story,
) -> None:
    first = story.reserve(0, 10, reservations=[on("1", "2")])
    second = story.reserve(10, 90, reservations=[on("2", "3")])
    story.run()
    break_cloud(story, "remove_host")
    story.at(10)
    look(story)
    assert (status(story, first), status(story, second)) == ("TERMINATING", "PENDING")
    wait(story, 2)
    assert (status(story, first), status(story, second)) == ("ERROR", "ACTIVE")
    assert handed_over(story, second) == ["3"]
    assert flags(story, second) == (True, True)


def test_a_lease_of_nothing_but_hosts_that_are_not_given_back_gets_them_later(
    story: Story,
) -> None:
    following = story.reserve(10, 90, reservations=[on("2")])
    stick(story, "2")
    assert status(story, following) == "ACTIVE"
    assert handed_over(story, following) == []
    break_cloud(story)
    wait(story, 3)
    assert handed_over(story, following) == ["2"]


def test_a_lease_that_is_short_gets_a_host_that_is_free_meanwhile(story: Story) -> None:
    other = story.reserve(0, 200, reservations=[on("3", "4")])
    following = story.reserve(20, 90, reservations=[host_reservation(2, 2)])
    stick(story, "2")
    wait(story, 10)
    assert handed_over(story, following) == ["1"]
    break_cloud(story, "sim-2")
    story.ok("DELETE", f"/v1/leases/{other['id']}")
    wait(story, 2)
    assert len(handed_over(story, following)) == 2
    assert "2" not in handed_over(story, following)
    assert flags(story, following) == (False, False)


def free_by_deletion(story: Story, lease: dict[str, Any]) -> None:
    story.ok("DELETE", f"/v1/leases/{lease['id']}")


def free_by_repair(story: Story, _lease: dict[str, Any]) -> None:
    assert [repair(story.runtime, difference) for difference in audit(story.runtime)] == [True]


@pytest.mark.parametrize("way", [free_by_deletion, free_by_repair])
def test_an_operator_has_the_host_back_at_the_next_look(story: Story, way: Any) -> None:
    lease = stick(story, "2")
    break_cloud(story)
    way(story, lease)
    story.run()
    assert story.cloud.pools() == {}
    look(story)
    assert len(reservable(story)) == ALL


def test_a_host_of_a_deleted_lease_that_is_not_given_back_stays_out(story: Story) -> None:
    lease = stick(story, "2")
    story.ok("DELETE", f"/v1/leases/{lease['id']}")
    wait(story, 3)
    assert status(story, lease) == "DELETING"
    assert reservable(story) == ["1", "3", "4"]


def test_a_host_that_is_given_back_and_is_down_stays_out(story: Story) -> None:
    stick(story, "2")
    story.cloud.fail_host("sim-2")
    break_cloud(story)
    wait(story, 3)
    assert story.cloud.pools() == {}
    assert reservable(story) == ["1", "3", "4"]


def test_a_lease_that_never_got_the_host_ends_without_it(story: Story) -> None:
    following = story.reserve(20, 30, reservations=[host_reservation(ALL, ALL)])
    last = story.reserve(40, 90, reservations=[host_reservation(ALL, ALL)])
    stuck = stick(story, "2")
    break_cloud(story, "sim-2")
    wait(story, 20)
    assert status(story, following) == "TERMINATED"
    assert list(story.cloud.pools()) == [stuck["reservations"][0]["id"]]
    wait(story, 10)
    assert handed_over(story, last) == ["1", "3", "4"]


def test_no_start_waits_for_a_host_that_fails(story: Story) -> None:
    first = story.reserve(0, 10, reservations=[on("2")])
    second = story.reserve(10, 90, reservations=[on("2", "3")])
    story.run()
    story.cloud.fail_host("sim-2")
    inventory.synchronise(story.runtime)
    break_cloud(story, "sim-2")
    story.at(10)
    assert (status(story, first), status(story, second)) == ("TERMINATING", "ACTIVE")
    assert handed_over(story, second) == ["3"]


def test_several_hosts_of_one_lease_come_back_together(story: Story) -> None:
    held: Sequence[str] = ("1", "2", "3")
    stick(story, *held)
    assert reservable(story) == ["4"]
    break_cloud(story)
    wait(story, 2)
    assert len(reservable(story)) == ALL
