"""Reservations of flavor:instance: instances of a flavor that the cloud has."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from climate.manager import audit
from tests.service import Story

MakeStory = Callable[..., Story]
PLUGINS = ["physical.host.plugin", "virtual.instance.plugin", "flavor.instance.plugin"]


@pytest.fixture
def story(make_story: MakeStory, hosts_template: Path, tmp_path: Path) -> Story:
    """Return a service that reserves three hosts of 16 VCPU and one of 64 with GPUs."""
    shutil.copy(hosts_template, tmp_path / "climate.sqlite")
    shutil.copy(hosts_template.parent / "cloud", tmp_path / "cloud")
    return make_story(manager__plugins=PLUGINS)


def instances(flavor: Any = "large", amount: Any = "1", **fields: Any) -> dict[str, Any]:
    """Return a request as the command line sends it."""
    asked = {"flavor_id": flavor, "amount": amount, "affinity": "None"}
    return {"resource_type": "flavor:instance", **asked, **fields}


def ask(story: Story, *reservations: dict[str, Any]) -> int:
    """Ask for a lease and return the status of the answer."""
    body = story.lease_body(60, 120, reservations=list(reservations))
    return story.call("POST", "/v1/leases", body).status_code


def test_the_reservation_says_what_the_flavor_said(story: Story) -> None:
    [shown] = story.reserve(reservations=[instances(amount=2)])["reservations"]
    told = {"amount": 2, "vcpus": 4, "memory_mb": 8192, "disk_gb": 91, "flavor_id": shown["id"]}
    assert shown.items() >= told.items()
    assert json.loads(shown["resource_properties"])["id"] == "large"


def test_a_host_holds_as_many_as_the_flavor_takes_of_it(story: Story) -> None:
    there = 3 * (16 // 4) + 1000 // 91
    assert ask(story, instances(amount=there + 1)) == 409
    assert ask(story, instances(amount=there)) == 201
    assert ask(story, instances()) == 409


def test_it_shares_hosts_with_instances_of_other_kinds(story: Story) -> None:
    other = {"vcpus": 16, "memory_mb": 0, "disk_gb": 0, "affinity": None, "resource_properties": ""}
    size = {"resource_type": "virtual:instance", "amount": 6, **other}
    assert ask(story, size, instances("small", 17)) == 409
    assert ask(story, size, instances("small", 16)) == 201


def test_a_flavor_chooses_hosts_by_traits_and_resource_classes(story: Story) -> None:
    assert ask(story, instances("gpu", 3)) == 409
    assert ask(story, instances("gpu", 2)) == 201
    assert ask(story, instances("gpu")) == 409


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (instances("no such flavor"), 400),
        (instances(""), 400),
        (instances(amount=""), 400),
        (instances(amount=0), 400),
        (instances(affinity="true"), 409),
        ({"resource_type": "flavor:instance", "amount": 1}, 400),
    ],
)
def test_what_makes_no_sense_is_refused(
    story: Story, request_: dict[str, Any], status: int
) -> None:
    assert ask(story, request_) == status


def test_nobody_but_the_flavor_says_how_large_it_is(story: Story) -> None:
    mine = {"vcpus": 1, "disk_gb": 1, "resource_properties": '{"extra_specs": {}}'}
    lease = story.reserve(reservations=[instances(**mine)])
    [shown] = lease["reservations"]
    assert (shown["vcpus"], shown["disk_gb"]) == (4, 91)
    for name, value in (*mine.items(), ("flavor_id", "small")):
        change = {"reservations": [{"id": shown["id"], name: value}]}
        story.refused(409, "PUT", f"/v1/leases/{lease['id']}", change)
    more = {"reservations": [{"id": shown["id"], "amount": 3}]}
    story.ok("PUT", f"/v1/leases/{lease['id']}", more)


def test_it_starts_and_ends_like_any_other(story: Story) -> None:
    lease = story.reserve(reservations=[instances(amount=2)])
    story.at(60)
    [shown] = story.lease(lease["id"])["reservations"]
    assert (shown["status"], shown["flavor_id"]) == ("active", shown["id"])
    assert [one.description for one in audit.audit(story.runtime)] == []
    story.at(60)
    assert story.lease(lease["id"])["status"] == "TERMINATED"
    assert [one.description for one in audit.audit(story.runtime)] == []


def test_how_many_are_free_can_be_asked(story: Story) -> None:
    query = 'resource_type=flavor:instance&params={"flavor_id":"large"}&end=2031-01-01T00:00:00Z'
    assert story.ok("GET", f"/v2/availability?{query}")
