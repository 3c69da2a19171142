"""/v2/leases/<id>/resources: names, properties, windows and readiness."""

from typing import Any

import pytest

from tests.conftest import MakeStory
from tests.support.bodies import HOSTS_AND_INSTANCES
from tests.support.provisioners import plan, preparations, report
from tests.support.service import Story, hosts

ALICE, EVE, ADMIN = "alice:lab", "eve:other", "boss:ops:admin"
ROOM = {"vcpus": 4, "memory_mb": 1024, "disk_gb": 10, "affinity": None}


@pytest.fixture
def lab(make_story_everywhere: MakeStory) -> Story:
    """Return a service with hosts and instances, provisioning, and cleaning of 30 minutes."""
    story = make_story_everywhere(
        manager__plugins=HOSTS_AND_INSTANCES,
        provisioning__enabled=True,
        provisioning__prior=600.0,
        DEFAULT__cleaning_time=30,
    )
    story.register(4)
    return story


def instances(amount: int, **params: Any) -> dict[str, Any]:
    return {"resource_type": "virtual:instance", "params": {"amount": amount, **ROOM, **params}}


def resources_of(story: Story, lease: dict[str, Any], query: str = "") -> list[dict[str, Any]]:
    path, found = f"/v2/leases/{lease['id']}/resources{query}", []
    while path:
        page = story.ok("GET", path, token=ALICE)
        found += page["resources"]
        path = page["next"]
    return found


def test_the_owner_sees_names_properties_and_windows(lab: Story) -> None:
    lease = lab.ok("POST", "/v2/leases", lab.asking(reservations=[hosts(2, 2)]), token=ALICE)
    first, second = resources_of(lab, lease)
    assert [first["name"], second["name"]] == sorted([first["name"], second["name"]])
    assert first["reservation_id"] == lease["reservations"][0]["id"]
    assert first["properties"]["memory_mb"] == "65536"
    shown = {name: value for name, value in first.items() if name not in {"id", "name"}}
    del shown["reservation_id"], shown["properties"]
    assert shown == {
        "resource_type": "physical:host",
        "start": lab.moment(60),
        "end": lab.moment(120),
        "busy_until": lab.moment(150),
        "state": "ready",
        "ready_at": None,
        "amounts": {},
        "handed_over": False,
    }
    assert sorted(lab.hosts_of(lease["id"])) == sorted([first["id"], second["id"]])


def test_shares_have_amounts_and_pages_repeat_nothing(lab: Story) -> None:
    wanted = [instances(2), instances(1), hosts(2, 2)]
    lease = lab.ok("POST", "/v2/leases", lab.asking(reservations=wanted), token=ALICE)
    whole = resources_of(lab, lease)
    for limit in (1, 2, 3):
        assert resources_of(lab, lease, f"?limit={limit}") == whole
        assert resources_of(lab, lease, f"?limit={limit}&sort=-name") == whole[::-1]
    vcpus = [each["amounts"]["VCPU"] for each in whole if each["amounts"]]
    assert sum(vcpus) == 3 * 4
    assert [each["amounts"] for each in whole].count({}) == 2


def test_the_state_follows_the_preparation_until_the_start(lab: Story) -> None:
    lease = lab.ok("POST", "/v2/leases", lab.asking(10, 60), token=ALICE)
    plan(lab)
    (task,) = preparations(lab)
    assert [resource["state"] for resource in resources_of(lab, lease)] == ["preparing"]
    report(lab, task, "accepted")
    lab.clock.advance(60)
    ready_at = lab.moment()
    report(lab, task, "ready", seconds={"boot": 60.0})
    (resource,) = resources_of(lab, lease)
    assert (resource["state"], resource["ready_at"]) == ("ready", ready_at)
    lab.at(10)
    (resource,) = resources_of(lab, lease)
    assert (resource["handed_over"], resource["ready_at"]) == (True, ready_at)


def test_others_see_neither_the_resources_nor_private_properties(lab: Story) -> None:
    (host, *_) = lab.ok("GET", "/v1/os-hosts")["hosts"]
    lab.ok("PUT", f"/v1/os-hosts/{host['id']}", {"secret": "yes"})
    lab.ok("PATCH", "/v1/os-hosts/properties/secret", {"private": True})
    lease = lab.ok("POST", "/v2/leases", lab.asking(reservations=[hosts(4, 4)]), token=ALICE)
    path = f"/v2/leases/{lease['id']}/resources"
    assert not any("secret" in each["properties"] for each in resources_of(lab, lease))
    shown = lab.ok("GET", path, token=ADMIN)["resources"]
    assert [each["properties"].get("secret") for each in shown].count("yes") == 1
    absent = lab.problem(404, "GET", path, token=EVE)
    assert absent["detail"] == f"There is no lease {lease['id']}"
    assert lab.problem(400, "GET", f"{path}?marker=x", token=ALICE)["code"] == "invalid_input"
