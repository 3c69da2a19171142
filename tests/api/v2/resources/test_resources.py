"""/v2/resources: lists, private properties, registration and removal."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from climate.cmd import bootstrap
from climate.db.resources import resources
from climate.manager.resources.inventory_sync import synchronise
from tests.conftest import MakeStory
from tests.support.service import Story, hosts

RESOURCES = "/v2/resources"
ALICE, EVE, ADMIN = "alice:lab", "eve:other", "boss:ops:admin"
PLUGINS = [
    "physical.host.plugin",
    "virtual.instance.plugin",
    "virtual.floatingip.plugin",
    "virtual.network.plugin",
    "virtual.volume.plugin",
]


def walk(story: Story, token: str | None = None, **query: Any) -> list[dict[str, Any]]:
    path, found = f"{RESOURCES}?{urlencode(query)}", []
    while path:
        page = story.ok("GET", path, token=token)
        found += page["resources"]
        path = page["next"]
    return found


def names(found: list[dict[str, Any]]) -> list[str]:
    return [resource["name"] for resource in found]


@pytest.fixture
def lab(story_everywhere: Story) -> Story:
    """Return a service with a private property (secret) and a public one (rack)."""
    story = story_everywhere
    first, second, *_ = story.ok("GET", "/v1/os-hosts")["hosts"]
    story.ok("PUT", f"/v1/os-hosts/{first['id']}", {"rack": "r1", "secret": "yes"})
    story.ok("PUT", f"/v1/os-hosts/{second['id']}", {"rack": "r2"})
    story.ok("PATCH", "/v1/os-hosts/properties/secret", {"private": True})
    return story


def test_pages_and_expressions_select_resources(lab: Story) -> None:
    whole = walk(lab, ALICE)
    for limit in (1, 2, 3, 4):
        assert walk(lab, ALICE, limit=limit) == whole
        assert walk(lab, ALICE, limit=limit, sort="-id") == whole[::-1]
    # A cloud may report a property of some hosts that others do not have.
    database, now = lab.runtime.database, lab.clock.now()
    with database.read() as session:
        host = resources.find_all(session, "physical:host")[2]
    native = {**{name: host.properties[name] for name in host.native}, "rare": "yes"}
    database.write(lambda session: resources.set_native(session, host, native, now))
    cases: list[tuple[dict[str, str], list[str]]] = [
        ({"properties": '["==", "$vcpus", 64]'}, ["sim-4"]),
        ({"properties": '["in", "$rack", "r1", "r2"]'}, ["sim-1", "sim-2"]),
        ({"properties": '["not", ["==", "$rack", "r1"]]'}, ["sim-2", "sim-3", "sim-4"]),
        ({"properties": ""}, ["sim-1", "sim-2", "sim-3", "sim-4"]),
        ({"resource_type": "physical:host", "properties": '["==", "$rack", "r2"]'}, ["sim-2"]),
        ({"properties": '["==", "$rare", "yes"]'}, ["sim-3"]),
        ({"q": "IM-3"}, ["sim-3"]),
        *(({"q": text}, []) for text in ("sim%", "sim_", "sim-31", "\\")),
    ]
    for query, expected in cases:
        for limit in (1, 100):
            for sort in ("id", "name"):
                assert names(walk(lab, ALICE, limit=limit, sort=sort, **query)) == expected
        assert names(walk(lab, ALICE, limit=1, sort="-name", **query)) == expected[::-1]


def test_users_see_resources_without_private_properties_or_occupants(lab: Story) -> None:
    first, *others = walk(lab, ALICE)
    assert names([first, *others]) == ["sim-1", "sim-2", "sim-3", "sim-4"]
    properties = first["properties"]
    assert (properties["rack"], properties["vcpus"]) == ("r1", "16")
    assert "secret" not in properties
    assert lab.ok("GET", f"{RESOURCES}/{first['id']}", token=ALICE) == first
    assert {**first, "properties": {}, "updated_at": None} == {
        "id": properties["id"],
        "resource_type": "physical:host",
        "name": "sim-1",
        "reservable": True,
        "state": "ready",
        "power": None,
        "properties": {},
        "created_at": "2030-01-15T12:00:00Z",
        "updated_at": None,
    }
    for_admins = walk(lab, ADMIN)[0]
    assert for_admins["properties"]["secret"] == "yes"
    assert lab.ok("GET", f"{RESOURCES}/{first['id']}", token=ADMIN) == for_admins
    before = lab.call("GET", RESOURCES, token=EVE).get_data()
    body = lab.asking(0, 60, reservations=[hosts(4, 4)])
    lab.ok("POST", "/v2/leases", body, token=ALICE)
    assert lab.call("GET", RESOURCES, token=EVE).get_data() == before
    for name in ("0", "x", "-1", "1.0", "%D9%A1", "9" * 18, "9" * 99):
        assert lab.problem(404, "GET", f"{RESOURCES}/{name}")["code"] == "not_found"


def test_private_properties_cannot_be_guessed_by_expressions(lab: Story) -> None:
    path = f"{RESOURCES}?properties={quote(json.dumps(['==', '$secret', 'yes']))}"
    problem = lab.problem(400, "GET", path, token=ALICE)
    assert problem["code"] == "invalid_query"
    unknown = lab.problem(400, "GET", path.replace("secret", "nosuch"), token=ALICE)
    assert problem["detail"] == unknown["detail"].replace("nosuch", "secret")
    assert names(lab.ok("GET", path, token=ADMIN)["resources"]) == ["sim-1"]
    for query, code in [
        ("resource_type=virtual:instance", "unsupported_resource_type"),
        ("properties=%5B%22x%22%5D", "invalid_query"),
        ("properties=%5B%22==%22,%22$vcpuss%22,1%5D", "invalid_query"),
        ("sort=type", "invalid_input"),
        ("state=broken", "invalid_input"),
    ]:
        assert lab.problem(400, "GET", f"{RESOURCES}?{query}")["code"] == code


# Registration.


@pytest.fixture
def empty(make_story: MakeStory) -> Story:
    """Return a service with all resource types and nothing registered."""
    return make_story(manager__plugins=PLUGINS)


def resource(resource_type: str, name: str, **properties: Any) -> dict[str, Any]:
    return {"resource_type": resource_type, "name": name, "properties": properties}


def detail(story: Story, status: int, *request: Any, token: str | None = None) -> str:
    return str(story.problem(status, *request, token=token)["detail"])


def test_registers_and_removes_a_resource_of_any_type(empty: Story) -> None:
    for resource_type, name in [
        ("physical:host", "sim-3"),
        ("virtual:floatingip", "sim-public/198.51.100.7"),
        ("virtual:network", "vlan:sim:105"),
        ("virtual:volume", "gold"),
    ]:
        answer = empty.call("POST", RESOURCES, resource(resource_type, name, rack="r1", slot=4))
        assert answer.status_code == 201
        created = answer.get_json()
        assert (created["resource_type"], created["reservable"]) == (resource_type, True)
        assert created["properties"].items() >= {"rack": "r1", "slot": "4"}.items()
        path = f"{RESOURCES}/{created['id']}"
        assert answer.headers["Location"].endswith(path)
        assert empty.ok("GET", path) == created
        again = resource(resource_type, name)
        assert "registered already" in detail(empty, 409, "POST", RESOURCES, again)
        assert empty.call("DELETE", path).status_code == 204
        detail(empty, 404, "GET", path)
        detail(empty, 404, "DELETE", path)
    volume = empty.ok("POST", RESOURCES, resource("virtual:volume", "gold"))
    reserved = {"resource_type": "virtual:volume", "volume_type": "gold", "size": 1}
    empty.reserve(60, 120, reservations=[reserved])
    assert "is reserved" in detail(empty, 409, "DELETE", f"{RESOURCES}/{volume['id']}")


def test_rejects_what_cannot_be_registered(empty: Story) -> None:
    for body, status, reason in [
        (resource("virtual:instance", "sim-1"), 409, "register hosts"),
        (resource("virtual:moon", "it"), 400, "not supported"),
        (resource("virtual:volume", "bronze"), 404, "bronze could not be found"),
        (resource("virtual:volume", "standard"), 409, "it is public"),
        (resource("virtual:volume", "silver"), 400, "is unknown to Cinder"),
        (resource("virtual:volume", "silver", gigabytes="lots"), 400, "must be a whole number"),
        (resource("virtual:volume", "gold", tier=["a"]), 400, "tier must be a text"),
        (resource("virtual:volume", ""), 400, "name"),
    ]:
        assert reason in detail(empty, status, "POST", RESOURCES, body)
    assert empty.ok("GET", RESOURCES)["resources"] == []


def test_the_policy_of_v1_applies_to_registration(empty: Story, tmp_path: Path) -> None:
    rules = tmp_path / "policy.yaml"
    rules.write_text('"climate:oshosts:post": "!"\n"climate:oshosts:delete": "!"\n')
    empty.conf.set_override("policy_file", str(rules), group="oslo_policy")
    empty.http = bootstrap.make_api(empty.conf, empty.runtime).test_client()
    member, gold = "jane:lab:member", resource("virtual:volume", "gold")
    detail(empty, 403, "POST", RESOURCES, gold, token=member)
    detail(empty, 403, "POST", RESOURCES, resource("physical:host", "sim-1"))
    created = empty.ok("POST", RESOURCES, gold)
    detail(empty, 403, "DELETE", f"{RESOURCES}/{created['id']}", token=member)


def test_changes_properties_of_any_type(empty: Story) -> None:
    address, gold = (
        empty.ok("POST", RESOURCES, resource(type_, name, rack="r1"))
        for type_, name in [
            ("virtual:floatingip", "sim-public/198.51.100.7"),
            ("virtual:volume", "gold"),
        ]
    )
    path = f"{RESOURCES}/{address['id']}"
    changed = empty.ok("PATCH", path, {"properties": {"rack": "r2", "slot": 4}})
    assert changed["properties"] == {**address["properties"], "rack": "r2", "slot": "4"}
    assert empty.ok("GET", path) == changed
    # The capacity of a volume type, at the next look at the cloud.
    path = f"{RESOURCES}/{gold['id']}"
    empty.ok("PATCH", path, {"properties": {"gigabytes": 7}})
    synchronise(empty.runtime)
    volume = {"resource_type": "virtual:volume", "resource_properties": ["==", "$rack", "r1"]}
    asked = {**volume, "volume_type": "gold", "size": 8}
    body = empty.lease_body(60, 120, reservations=[asked])
    empty.refused(409, "POST", "/v1/leases", body)
    empty.reserve(60, 120, reservations=[{**asked, "size": 7}])
    for properties, status, reason in [
        ({"rack": "r2"}, 409, "is required by a reservation of volume"),
        ({"gigabytes": "lots"}, 400, "must be a whole number"),
        ({"name": "silver"}, 400, "the cloud reports these properties"),
        ({"tier": ["a"]}, 400, "tier must be a text"),
    ]:
        assert reason in detail(empty, status, "PATCH", path, {"properties": properties})
    member = "jane:lab:member"
    detail(empty, 403, "PATCH", path, {"properties": {}}, token=member)
