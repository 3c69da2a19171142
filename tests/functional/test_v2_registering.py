"""POST and DELETE /v2/resources: registering whatever can be reserved."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from climate import service
from tests.support.service import Story

RESOURCES = "/v2/resources"
PLUGINS = [
    "physical.host.plugin",
    "virtual.instance.plugin",
    "virtual.floatingip.plugin",
    "virtual.network.plugin",
    "virtual.volume.plugin",
]


@pytest.fixture
def story(make_story: Callable[..., Story]) -> Story:
    return make_story(manager__plugins=PLUGINS)


def asked(resource_type: str, name: str, **properties: Any) -> dict[str, Any]:
    return {"resource_type": resource_type, "name": name, "properties": properties}


@pytest.mark.parametrize(
    ("resource_type", "name"),
    [
        ("physical:host", "sim-3"),
        ("virtual:floatingip", "sim-public/198.51.100.7"),
        ("virtual:network", "vlan:sim:105"),
        ("virtual:volume", "gold"),
    ],
)
def test_a_resource_of_any_type_is_registered_and_removed(
    story: Story, resource_type: str, name: str
) -> None:
    answer = story.call("POST", RESOURCES, asked(resource_type, name, rack="r1", slot=4))
    assert answer.status_code == 201
    made = answer.json
    assert made["resource_type"] == resource_type
    assert made["reservable"] is True
    assert made["properties"].items() >= {"rack": "r1", "slot": "4"}.items()
    path = f"{RESOURCES}/{made['id']}"
    assert answer.headers["Location"].endswith(path)
    assert story.ok("GET", path) == made
    assert "registered already" in detail(story, 409, "POST", RESOURCES, asked(resource_type, name))
    assert story.call("DELETE", path).status_code == 204
    detail(story, 404, "GET", path)
    detail(story, 404, "DELETE", path)


def detail(story: Story, status: int, *request: Any, **who: str) -> str:
    """Return why a request is refused."""
    answer = story.call(*request, **who)
    assert answer.status_code == status, answer.text
    return str(answer.json["detail"])


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (asked("virtual:instance", "sim-1"), 409, "register hosts"),
        (asked("virtual:moon", "it"), 400, "not supported"),
        (asked("virtual:volume", "bronze"), 404, "bronze could not be found"),
        (asked("virtual:volume", "standard"), 409, "it is public"),
        (asked("virtual:volume", "silver"), 400, "does not tell how many GiB"),
        (asked("virtual:volume", "silver", gigabytes="lots"), 400, "must be a whole number"),
        (asked("virtual:volume", "gold", tier=["a"]), 400, "tier must be a text"),
        (asked("virtual:volume", ""), 400, "name"),
        ({"resource_type": "virtual:volume"}, 400, "name"),
        ({**asked("virtual:volume", "gold"), "inventories": {}}, 400, "inventories"),
    ],
)
def test_what_cannot_be_registered_is_refused(
    story: Story, body: dict[str, Any], status: int, reason: str
) -> None:
    assert reason in detail(story, status, "POST", RESOURCES, body)
    assert story.ok("GET", RESOURCES)["resources"] == []


def test_what_is_reserved_cannot_be_removed(story: Story) -> None:
    made = story.ok("POST", RESOURCES, asked("virtual:volume", "gold"))
    volume = {"resource_type": "virtual:volume", "volume_type": "gold", "size": 1}
    story.reserve(60, 120, reservations=[volume])
    assert "is reserved" in detail(story, 409, "DELETE", f"{RESOURCES}/{made['id']}")


def test_who_may_not_in_v1_may_not_here(story: Story, tmp_path: Path) -> None:
    rules = tmp_path / "policy.yaml"
    rules.write_text('"climate:oshosts:post": "!"\n"climate:oshosts:delete": "!"\n')
    story.conf.set_override("policy_file", str(rules), group="oslo_policy")
    story.http = service.make_api(story.conf, story.runtime).test_client()
    member = "jane:lab:member"
    detail(story, 403, "POST", RESOURCES, asked("virtual:volume", "gold"), token=member)
    detail(story, 403, "POST", RESOURCES, asked("physical:host", "sim-1"))
    made = story.ok("POST", RESOURCES, asked("virtual:volume", "gold"))
    detail(story, 403, "DELETE", f"{RESOURCES}/{made['id']}", token=member)
