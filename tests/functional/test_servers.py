"""Reserved instances that climate boots, on the simulated cloud: what is stored, shown and told."""

import base64
import json
from typing import Any

import pytest

from tests.conftest import MakeStory
from tests.support.service import Story

SECRET = base64.b64encode(b"password: hunter2").decode()
SERVER = {"imageRef": "cirros", "user_data": SECRET}
PLUGINS = ["physical.host.plugin", "virtual.instance.plugin"]


@pytest.fixture
def story(make_story: MakeStory) -> Story:
    made = make_story(manager__plugins=PLUGINS)
    made.register(2)
    return made


def room(**fields: Any) -> dict[str, Any]:
    sizes = {"vcpus": 1, "memory_mb": 1024, "disk_gb": 0}
    return {
        "resource_type": "virtual:instance",
        "amount": 2,
        "affinity": None,
        "resource_properties": "",
        **sizes,
        **fields,
    }


def booted(story: Story) -> list[str]:
    return [one["server"] for one in story.cloud.effects() if one["effect"] == "boot"]


def test_servers_are_booted_once_and_more_when_there_is_more_room(story: Story) -> None:
    lease = story.reserve(reservations=[room(on_start="create", server=SERVER)])
    story.at(60)
    [mine] = story.lease(lease["id"])["reservations"]
    assert mine["servers"] == booted(story) == [f"{mine['id']}-{n}" for n in (1, 2)]
    more = {"reservations": [{"id": mine["id"], "amount": 3}]}
    story.ok("PUT", f"/v1/leases/{lease['id']}", more)
    story.run()
    [mine] = story.lease(lease["id"])["reservations"]
    assert mine["servers"] == booted(story) == [f"{mine['id']}-{n}" for n in (1, 2, 3)]


def test_images_are_kept_before_anything_is_deleted(story: Story) -> None:
    asked = room(on_start="create", on_end="snapshot", server=SERVER)
    story.reserve(reservations=[asked])
    story.at(60)
    story.at(60)
    effects = [one["effect"] for one in story.cloud.effects()]
    assert effects.count("keep_image") == 2
    assert max(n for n, one in enumerate(effects) if one == "keep_image") < min(
        n for n, one in enumerate(effects) if one in {"clear_host", "delete_slots"}
    )


def test_user_data_is_shown_and_told_to_nobody(story: Story) -> None:
    lease = story.reserve(reservations=[room(on_start="create", server=SERVER)])
    story.at(60)
    shown = [story.lease(lease["id"]), story.ok("GET", f"/v2/leases/{lease['id']}")]
    told = story.ok("GET", "/v2/notifications")
    assert shown[0]["reservations"][0]["server"]["imageRef"] == "cirros"
    assert SECRET not in json.dumps([shown, told])
    assert "cirros" not in json.dumps(told)


def test_what_cannot_be_is_a_400_that_says_what_can(story: Story) -> None:
    body = story.lease_body(reservations=[room(on_end="keep")])
    assert "Use snapshot" in story.refused(400, "POST", "/v1/leases", body)
    body = story.lease_body(reservations=[room(on_start="create")])
    assert "imageRef" in story.refused(400, "POST", "/v1/leases", body)
