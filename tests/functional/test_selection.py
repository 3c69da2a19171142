"""Filters and weighers of the operator's choice, at work in admission."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.functional.test_v1_instances import PLUGINS, instances
from tests.support.service import Story, host_reservation, hosts

MakeStory = Callable[..., Story]


@pytest.fixture
def choosy(make_story: MakeStory, hosts_template: Path, tmp_path: Path) -> Callable[..., Story]:
    """Return a maker of services with hosts sim-1 .. sim-4 and a selection."""

    def make(**options: Any) -> Story:
        shutil.copy(hosts_template, tmp_path / "climate.sqlite")
        shutil.copy(hosts_template.parent / "cloud", tmp_path / "cloud")
        return make_story(manager__plugins=PLUGINS, **options)

    return make


def test_the_best_is_taken_first(choosy: Callable[..., Story]) -> None:
    story = choosy(manager__weighers=["lowest_id"])
    taken = [story.hosts_of(story.reserve()["id"]) for _ in range(4)]
    assert taken == [["1"], ["2"], ["3"], ["4"]]


def test_a_negative_weight_turns_the_order_round(choosy: Callable[..., Story]) -> None:
    story = choosy(manager__weighers=["lowest_id=-1"])
    assert story.hosts_of(story.reserve()["id"]) == ["4"]


def test_what_is_filtered_out_is_not_taken(choosy: Callable[..., Story]) -> None:
    story = choosy(manager__filters=["no_maintenance"])
    story.ok("PUT", "/v1/os-hosts/2", {"maintenance": "true"})
    lease = story.reserve(reservations=[host_reservation(1, 4)])
    assert sorted(story.hosts_of(lease["id"])) == ["1", "3", "4"]
    body = story.lease_body(reservations=[host_reservation(1, 1)])
    story.refused(409, "POST", "/v1/leases", body)


def test_what_is_filtered_out_is_neither_free_nor_waited_for(choosy: Callable[..., Story]) -> None:
    story = choosy(manager__filters=["no_maintenance"])
    story.ok("PUT", "/v1/os-hosts/2", {"maintenance": "true"})
    story.reserve(0, 60, reservations=[host_reservation(1, 1)])
    three = {"reservations": [hosts(3, 3)], "duration": 3600, "end_by": story.moment(240)}
    windows = story.ok("POST", "/v2/availability/search", three)["windows"]
    assert [one["start"] for one in windows] == [story.moment(60)]
    for type_, free in (("physical:host", 3), ("virtual:instance", 96)):
        asked = f"resource_type={type_}&end={story.moment(120)}"
        assert story.ok("GET", f"/v2/availability?{asked}")["steps"][-1]["free"] == free


def test_all_there_is_is_looked_at_before_a_filter_makes_it_too_few(
    choosy: Callable[..., Story],
) -> None:
    story = choosy(manager__filters=["no_maintenance"], simulated__hosts=40)
    for number in range(5, 41):
        story.ok("POST", "/v1/os-hosts", {"name": f"sim-{number}"})
    for host in range(1, 40):
        story.ok("PUT", f"/v1/os-hosts/{host}", {"maintenance": "yes"})
    assert story.hosts_of(story.reserve()["id"]) == ["40"]


def test_shares_go_where_the_weigher_wants_them(choosy: Callable[..., Story]) -> None:
    story = choosy(manager__weighers=["fewest_left"])
    story.reserve(reservations=[instances(1)])
    for _ in range(3):
        story.reserve(reservations=[instances(1)])
    body = story.lease_body(reservations=[host_reservation(3, 3)])
    story.ok("POST", "/v1/leases", body)
