"""/v1/networks, and reservations of virtual:network."""

from collections.abc import Callable
from typing import Any

import pytest

from climate.plugins.networking.simulated import SimulatedNetworks
from tests.service import Story

PLUGINS = ["physical.host.plugin", "virtual.network.plugin"]


@pytest.fixture
def story(make_story: Callable[..., Story]) -> Story:
    """Return a service with two segments, one of them fast."""
    story = make_story(manager__plugins=PLUGINS)
    for number, speed in ((101, 1), (102, 10)):
        story.ok("POST", "/v1/networks", segment(number, speed=speed))
    return story


def segment(number: Any, **extra: Any) -> dict[str, Any]:
    known = {"network_type": "vlan", "physical_network": "sim", "segment_id": number}
    return {**known, **extra}


def network(**params: Any) -> dict[str, Any]:
    return {"resource_type": "virtual:network", "network_name": "mine", **params}


def there(story: Story) -> dict[str, str]:
    """Return whose network is on which segment."""
    cloud: SimulatedNetworks = story.runtime.plugins["virtual:network"].cloud  # type: ignore[attr-defined]
    return {one.endpoint: one.project_id for one in cloud.occupants_by_id().values()}


def test_a_segment_is_registered_listed_shown_and_removed(story: Story) -> None:
    made = story.ok("POST", "/v1/networks", segment(103, rack="r1"))["network"]
    assert made == {
        "id": made["id"],
        "network_type": "vlan",
        "physical_network": "sim",
        "segment_id": 103,
        "reservable": True,
        "created_at": "2030-01-15 12:00:00",
        "updated_at": None,
        "rack": "r1",
    }
    path = f"/v1/networks/{made['id']}"
    assert story.ok("GET", path) == {"network": made}
    assert made in story.ok("GET", "/v1/networks")["networks"]
    assert story.call("DELETE", path).status_code == 204
    assert "network_id" in story.refused(404, "GET", path)
    story.refused(403, "GET", "/v1/networks", token="jane:lab:member")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (segment(101), 409),
        (segment(5000), 404),
        (segment("x"), 400),
        (segment(103, network_type="flat"), 404),
        (segment(103, physical_network="sim:1"), 400),
        ({"network_type": "vlan"}, 400),
        (segment(103, rack=["r1"]), 400),
    ],
)
def test_what_cannot_be_registered_is_refused(
    story: Story, body: dict[str, Any], status: int
) -> None:
    story.refused(status, "POST", "/v1/networks", body)


def test_a_lease_has_a_network_from_its_start_to_its_end(story: Story) -> None:
    fast = network(resource_properties='["==", "$speed", "10"]')
    lease = story.reserve(0, 60, reservations=[fast])
    reason = story.refused(409, "POST", "/v1/leases", story.lease_body(0, 60, reservations=[fast]))
    assert reason.startswith("Not enough segments available: at least 1 asked for, 1 match")
    story.run()
    [mine] = story.lease(lease["id"])["reservations"]
    assert mine["networks"].keys() == there(story).keys() == {"vlan:sim:102"}
    told = story.published(lease["id"])[-1]["payload"]["networks"]
    assert [one["name"] for one in told] == ["vlan:sim:102"]
    story.at(60)
    assert story.lease(lease["id"])["status"] == "TERMINATED"
    assert there(story) == {}
