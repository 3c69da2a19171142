"""/v2/utilisation: how much of the capacity leases use, for operators."""

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeStory
from tests.support.bodies import HOSTS_AND_INSTANCES, copy_hosts, instances
from tests.support.service import Story, hosts

ALICE, BOB, ADMIN = "alice:mine:member", "bob:other:member", "boss:mine:admin"
WINDOW = "&start=2030-01-15T12:00:00Z&end=2030-01-15T16:00:00Z&period=hour"
HOSTS = "&resource_type=physical:host"


@pytest.fixture
def story(make_story: MakeStory, hosts_template: Path, tmp_path: Path) -> Story:
    copy_hosts(hosts_template, tmp_path)
    return make_story(manager__plugins=HOSTS_AND_INSTANCES, DEFAULT__cleaning_time=30)


def utilisation(story: Story, more: str, window: str = WINDOW) -> Any:
    answer = story.ok("GET", f"/v2/utilisation?{more}{window}", token=ADMIN)
    return {item["name"]: (item["capacity"], item["values"]) for item in answer["series"]}


def book(story: Story, hosts_: int, start: float, end: float, token: str = ALICE) -> None:
    body = story.asking(start, end, reservations=[hosts(hosts_, hosts_)])
    story.ok("POST", "/v2/leases", body, token=token)


def test_the_occupied_part_of_all_hosts_includes_cleaning(story: Story) -> None:
    book(story, 2, 60, 120)
    assert utilisation(story, "by=type") == {"physical:host": (4, [0.0, 0.5, 0.25, 0.0])}
    assert utilisation(story, "by=type" + HOSTS) == utilisation(story, "by=type")


def test_projects_share_the_capacity(story: Story) -> None:
    book(story, 1, 0, 60)
    book(story, 2, 60, 90, BOB)
    assert utilisation(story, "by=project" + HOSTS) == {
        "mine": (4, [0.25, 0.125, 0.0, 0.0]),
        "other": (4, [0.0, 0.5, 0.0, 0.0]),
    }


def test_each_value_of_a_property_has_its_capacity(story: Story) -> None:
    story.ok("PUT", "/v1/os-hosts/1", {"rack": "r1"})
    only = hosts(1, 1, resource_properties=["==", "$rack", "r1"])
    story.ok("POST", "/v2/leases", story.asking(60, 90, reservations=[only]), token=ALICE)
    assert utilisation(story, "by=property&property=rack" + HOSTS) == {
        "": (3, [0.0, 0.0, 0.0, 0.0]),
        "r1": (1, [0.0, 1.0, 0.0, 0.0]),
    }


def test_the_fullest_class_of_shares_counts(story: Story) -> None:
    only = {"resource_properties": '["==", "$id", "1"]'}  # it has 16 VCPU
    body = story.lease_body(60, 90, reservations=[instances(2, **only)])
    story.ok("POST", "/v1/leases", body, token=ALICE)
    assert utilisation(story, "by=type") == {"physical:host": (4, [0.0, 0.125, 0.0, 0.0])}


def test_only_operators_read_it(story: Story) -> None:
    path = f"/v2/utilisation?by=type{WINDOW}"
    assert story.problem(403, "GET", path, token=ALICE)["code"] == "forbidden"


def test_rejects_what_is_too_much_or_incomplete(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    year = "&start=2030-01-01T00:00:00Z&end=2030-12-01T00:00:00Z&period=hour"
    for query, code in [
        (f"by=type{year}", "invalid_input"),
        (f"by=project{WINDOW}", "invalid_input"),
        (f"by=property{HOSTS}{WINDOW}", "invalid_input"),
        (f"by=property&property=nothing{HOSTS}{WINDOW}", "invalid_query"),
        (f"by=rack{WINDOW}", "invalid_input"),
        (f"by=type&resource_type=no:such{WINDOW}", "unsupported_resource_type"),
        ("by=type&start=2030-01-15T12:00:00Z&end=2030-01-15T12:00:00Z", "invalid_date"),
    ]:
        problem = story.problem(400, "GET", f"/v2/utilisation?{query}", token=ADMIN)
        assert problem["code"] == code
    monkeypatch.setattr("climate.manager.resources.utilisation.MAX_SERIES", 1)
    path = f"/v2/utilisation?by=property&property=vcpus{HOSTS}{WINDOW}"
    assert "another property" in story.problem(400, "GET", path, token=ADMIN)["detail"]
