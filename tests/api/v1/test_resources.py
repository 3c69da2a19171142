"""/v1/floatingips and /v1/networks: exact answers and rejections."""

from typing import Any

import pytest

from climate.plugins.networking.simulated import NETWORK
from tests.conftest import MakeStory
from tests.support.service import Story

PLUGINS = ["physical.host.plugin", "virtual.floatingip.plugin", "virtual.network.plugin"]
ADDRESSES, SEGMENTS = "/v1/floatingips", "/v1/networks"
MEMBER = "jane:lab:member"


@pytest.fixture
def story(make_story: MakeStory) -> Story:
    return make_story(manager__plugins=PLUGINS)


def address(last: int, network: str = NETWORK) -> dict[str, str]:
    return {"floating_network_id": network, "floating_ip_address": f"198.51.100.{last}"}


def segment(number: Any, **extra: Any) -> dict[str, Any]:
    known = {"network_type": "vlan", "physical_network": "sim", "segment_id": number}
    return {**known, **extra}


def test_a_floating_ip_is_registered_shown_listed_and_removed(story: Story) -> None:
    created = story.ok("POST", ADDRESSES, address(9))["floatingip"]
    assert created == {
        "id": created["id"],
        "floating_network_id": NETWORK,
        "subnet_id": "sim-public-subnet",
        "floating_ip_address": "198.51.100.9",
        "reservable": True,
        "created_at": "2030-01-15 12:00:00",
        "updated_at": None,
    }
    path = f"{ADDRESSES}/{created['id']}"
    assert story.ok("GET", ADDRESSES, token=MEMBER) == {"floatingips": [created]}
    assert story.ok("GET", path) == {"floatingip": created}
    for body, status, reason in [
        ({"floating_network_id": NETWORK}, 400, "Missing parameter floating_ip_address"),
        (address(200), 400, "in an allocation pool"),
        (address(8, "elsewhere"), 400, "elsewhere is not an external network"),
        ({**address(8, ""), "floating_ip_address": f"{NETWORK}/8"}, 400, "Malformed parameter"),
        (address(9), 409, "registered already"),
    ]:
        assert reason in story.refused(status, "POST", ADDRESSES, body)
    story.refused(403, "POST", ADDRESSES, address(8), token=MEMBER)
    story.refused(403, "DELETE", path, token=MEMBER)
    assert story.call("DELETE", path).status_code == 204
    message = f"Object with {{'floatingip_id': '{created['id']}'}} not found"
    assert story.refused(404, "GET", path) == story.refused(404, "DELETE", path) == message
    story.refused(404, "GET", f"{ADDRESSES}/fip")


def test_a_segment_is_registered_shown_listed_and_removed(story: Story) -> None:
    created = story.ok("POST", SEGMENTS, segment(103, rack="r1"))["network"]
    assert created == {
        "id": created["id"],
        "network_type": "vlan",
        "physical_network": "sim",
        "segment_id": 103,
        "reservable": True,
        "created_at": "2030-01-15 12:00:00",
        "updated_at": None,
        "rack": "r1",
    }
    path = f"{SEGMENTS}/{created['id']}"
    assert story.ok("GET", path) == {"network": created}
    assert story.ok("GET", SEGMENTS) == {"networks": [created]}
    story.refused(403, "GET", SEGMENTS, token=MEMBER)
    for body, status in [
        (segment(103), 409),
        (segment(5000), 404),
        (segment("x"), 400),
        (segment(104, network_type="flat"), 404),
        (segment(104, physical_network="sim:1"), 400),
        ({"network_type": "vlan"}, 400),
        (segment(104, rack=["r1"]), 400),
    ]:
        story.refused(status, "POST", SEGMENTS, body)
    assert story.call("DELETE", path).status_code == 204
    assert "network_id" in story.refused(404, "GET", path)
