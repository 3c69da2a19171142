"""Typed properties and changes of properties, in both APIs and on every database."""

import json
from typing import Any
from urllib.parse import quote

import pytest
import sqlalchemy as sa

from climate.db.tables.leases import ResourceProperty
from climate.manager.resources.inventory_sync import synchronise
from tests.conftest import MakeStory
from tests.support.cases import each_case
from tests.support.service import Story, hosts

RESOURCES = "/v2/resources"
TYPES = [
    "ram_gib = number GiB",
    "firmware = version",
    "healthy = boolean",
    "serial = text",
    "cpu_flags = set",
]
VALUES: list[dict[str, Any]] = [
    {"ram_gib": 128, "firmware": "1.9", "healthy": True, "serial": "0012", "cpu_flags": ["avx"]},
    {"ram_gib": "64.0", "firmware": "1.10", "healthy": "false", "cpu_flags": "b, avx2,avx"},
    {"ram_gib": 9, "firmware": "1.10-rc1", "serial": "12", "cpu_flags": []},
]


@pytest.fixture
def typed(make_story_everywhere: MakeStory) -> Story:
    """Return a service with hosts 1 to 4; the first three have typed properties."""
    story = make_story_everywhere(resources__property_types=TYPES)
    story.register(4)
    for number, properties in enumerate(VALUES, start=1):
        story.ok("PATCH", path_of(story, number), {"properties": properties})
    return story


def path_of(story: Story, number: int) -> str:
    (host,) = story.ok("GET", f"{RESOURCES}?q=sim-{number}")["resources"]
    return f"{RESOURCES}/{host['id']}"


def selected(story: Story, query: object) -> list[int]:
    path = f"{RESOURCES}?resource_type=physical:host&properties={quote(json.dumps(query))}"
    found = story.ok("GET", path)["resources"]
    return [int(each["name"].removeprefix("sim-")) for each in found]


def test_expressions_compare_by_the_declared_type(typed: Story) -> None:
    cases: list[tuple[object, list[int]]] = [
        ([">", "$ram_gib", 9], [1, 2]),
        ([">", "$firmware", "1.9"], [2, 3]),
        (["==", "$firmware", "1.10.0"], [2]),
        (["<", "$firmware", "1.10"], [1, 3]),
        (["==", "$healthy", "false"], [2]),
        (["==", "$serial", "12"], [3]),
        (["contains", "$cpu_flags", "avx"], [1, 2]),
        (["==", "$cpu_flags", "avx,avx2,b"], [2]),
        (["not", ["contains", "$cpu_flags", "avx2"]], [1, 3, 4]),
        (["==", "$firmware", "null"], [4]),
    ]
    assert [selected(typed, query) for query, _ in cases] == [ids for _, ids in cases]
    # Admission chooses by the same rules.
    wanted = hosts(resource_properties=["==", "$firmware", "v1.010"])
    lease = typed.ok("POST", "/v2/leases", typed.asking(reservations=[wanted]))
    assert typed.hosts_of(lease["id"]) == [path_of(typed, 2).rpartition("/")[2]]
    shown = typed.ok("GET", "/v2/resource-types/physical:host/properties")["properties"]
    described = {each["name"]: (each["type"], each["unit"]) for each in shown}
    assert described["ram_gib"] == ("number", "GiB")
    assert described["firmware"] == ("version", None)
    assert described["vcpus"] == (None, None)


def test_values_that_do_not_fit_are_rejected(typed: Story) -> None:
    path = path_of(typed, 1)
    before = typed.ok("GET", path)
    for name, value, reason in [
        ("ram_gib", "128 GiB", "ram_gib: the property is declared as number in GiB, and"),
        ("firmware", "latest", '"latest" is not a version'),
        ("healthy", "yes", '"yes" is not true or false'),
        ("cpu_flags", ["a,b"], "the items of a set are texts without commas"),
        ("cpu_flags", [1], "the items of a set are texts without commas"),
        ("rack", ["r1"], "rack must be a text"),
    ]:
        problem = typed.problem(400, "PATCH", path, {"properties": {"rank": "1", name: value}})
        assert reason in problem["errors"][0]["detail"]
        assert problem["errors"][0]["pointer"] == "#/properties"
    assert "is not a version" in typed.refused(
        400, "PUT", f"/v1/os-hosts/{before['id']}", {"firmware": "x"}
    )
    assert typed.ok("GET", path) == before
    wanted = hosts(resource_properties=["not", ["==", "$ram_gib", "big"]])
    body = typed.asking(reservations=[wanted])
    problem = typed.problem(400, "POST", "/v2/leases", body)
    assert problem["code"] == "invalid_query"
    assert 'ram_gib is a number in GiB at [1][1], and "big" is not a number' in problem["detail"]
    assert typed.ok("GET", "/v2/leases")["leases"] == []


@each_case("name, value", [("firmware", "2.0"), ("rack", "r9")])
def test_null_removes_a_property(typed: Story, name: str, value: str) -> None:
    path = path_of(typed, 4)
    before = typed.ok("GET", path)["properties"]
    changed = typed.ok("PATCH", path, {"properties": {name: value}})["properties"]
    assert changed == {**before, name: value}
    assert typed.ok("PATCH", path, {"properties": {name: None}})["properties"] == before
    typed.problem(400, "PATCH", path, {"properties": {"vcpus": None}})


def test_a_change_can_depend_on_the_version_that_was_read(typed: Story) -> None:
    path, body = path_of(typed, 4), {"properties": {"rack": "r1"}}
    etag = typed.call("GET", path).headers["ETag"]
    changed = typed.call("PATCH", path, body, headers={"If-Match": etag})
    assert changed.status_code == 200
    typed.problem(412, "PATCH", path, body, headers={"If-Match": '""'})
    problem = typed.problem(412, "PATCH", path, body, headers={"If-Match": etag})
    assert typed.call("GET", path).headers["ETag"] == changed.headers["ETag"] != etag
    for current in (problem["etag"], "*"):
        response = typed.call("PATCH", path, body, headers={"If-Match": current})
        assert response.status_code == 200


def test_managers_compute_version_keys_that_an_older_release_left_out(typed: Story) -> None:
    typed.runtime.database.write(
        lambda session: session.execute(sa.update(ResourceProperty).values(version_key=None))
    )
    query = [">", "$firmware", "1.9"]
    assert selected(typed, query) == []
    synchronise(typed.runtime)
    assert selected(typed, query) == [2, 3]
