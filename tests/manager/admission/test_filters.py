"""Filters and weighers that an operator selects."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeStory
from tests.support.bodies import HOSTS_AND_INSTANCES, copy_hosts, instances
from tests.support.service import Story, host_reservation, hosts


@pytest.fixture
def selecting(make_story: MakeStory, hosts_template: Path, tmp_path: Path) -> Callable[..., Story]:
    """Return a maker of services with hosts sim-1 .. sim-4 and filters or weighers."""

    def make(**options: Any) -> Story:
        copy_hosts(hosts_template, tmp_path)
        return make_story(manager__plugins=HOSTS_AND_INSTANCES, **options)

    return make


def test_takes_the_best_host_first_and_a_negative_weight_reverses_the_order(
    selecting: Callable[..., Story],
) -> None:
    story = selecting(manager__weighers=["lowest_id"])
    taken = [story.hosts_of(story.reserve()["id"]) for _ in range(4)]
    assert taken == [["1"], ["2"], ["3"], ["4"]]
    reverse = selecting(manager__weighers=["lowest_id=-1"])
    assert reverse.hosts_of(reverse.reserve(180, 240)["id"]) == ["4"]


def test_never_takes_a_filtered_host(selecting: Callable[..., Story]) -> None:
    story = selecting(manager__filters=["no_maintenance"])
    story.ok("PUT", "/v1/os-hosts/2", {"maintenance": "true"})
    lease = story.reserve(reservations=[host_reservation(1, 4)])
    assert sorted(story.hosts_of(lease["id"])) == ["1", "3", "4"]
    body = story.lease_body(reservations=[host_reservation(1, 1)])
    story.refused(409, "POST", "/v1/leases", body)


def test_a_filtered_host_is_not_free_capacity(selecting: Callable[..., Story]) -> None:
    story = selecting(manager__filters=["no_maintenance"])
    story.ok("PUT", "/v1/os-hosts/2", {"maintenance": "true"})
    story.reserve(0, 60, reservations=[host_reservation(1, 1)])
    three = {"reservations": [hosts(3, 3)], "duration": 3600, "end_by": story.moment(240)}
    windows = story.ok("POST", "/v2/availability/search", three)["windows"]
    assert [window["start"] for window in windows] == [story.moment(60)]
    for resource_type, free in (("physical:host", 3), ("virtual:instance", 96)):
        query = f"resource_type={resource_type}&end={story.moment(120)}"
        assert story.ok("GET", f"/v2/availability?{query}")["steps"][-1]["free"] == free


def test_reads_all_hosts_before_it_rejects_for_lack_of_unfiltered_ones(
    selecting: Callable[..., Story],
) -> None:
    story = selecting(manager__filters=["no_maintenance"], simulated__hosts=40)
    for number in range(5, 41):
        story.ok("POST", "/v1/os-hosts", {"name": f"sim-{number}"})
    for host in range(1, 40):
        story.ok("PUT", f"/v1/os-hosts/{host}", {"maintenance": "yes"})
    assert story.hosts_of(story.reserve()["id"]) == ["40"]


def test_a_weigher_packs_instances(selecting: Callable[..., Story]) -> None:
    story = selecting(manager__weighers=["fewest_left"])
    story.reserve(reservations=[instances(1)])
    for _ in range(3):
        story.reserve(reservations=[instances(1)])
    body = story.lease_body(reservations=[host_reservation(3, 3)])
    story.ok("POST", "/v1/leases", body)
