"""POST /v2/resources/stats: agents push properties of many resources."""

from typing import Any

import pytest

from tests.conftest import MakeStory
from tests.support.cases import each_case
from tests.support.service import Story, hosts

RESOURCES = "/v2/resources"
STATS = f"{RESOURCES}/stats"
TYPES = ["ram_gib = number GiB", "firmware = version", "cpu_flags = set"]
PLUGINS = ["physical.host.plugin", "virtual.volume.plugin"]


@pytest.fixture
def site(make_story_everywhere: MakeStory) -> Story:
    """Return a service with hosts sim-1 to sim-4 and typed properties."""
    story = make_story_everywhere(resources__property_types=TYPES)
    story.register(4)
    return story


def item(resource: str, generation: Any, /, **stats: Any) -> dict[str, Any]:
    return {"resource": resource, "generation": generation, "stats": stats}


def push(story: Story, *items: dict[str, Any]) -> list[tuple[str, int | None]]:
    answer = story.ok("POST", STATS, {"items": items})["results"]
    assert [each["resource"] for each in answer] == [each["resource"] for each in items]
    return [(each["result"], each["generation"]) for each in answer]


def shown(story: Story, number: int = 1) -> dict[str, Any]:
    (host,) = story.ok("GET", f"{RESOURCES}?q=sim-{number}")["resources"]
    return dict(host)


def own(story: Story, number: int = 1) -> dict[str, str]:
    names = ("ram_gib", "firmware", "cpu_flags", "load", "rack")
    return {n: text for n, text in shown(story, number)["properties"].items() if n in names}


def test_stores_values_of_many_resources_by_name_or_id(site: Story) -> None:
    second = shown(site, 2)
    results = push(
        site,
        item("sim-1", 7, ram_gib=128, firmware="1.10", cpu_flags=["avx2", "avx"], load=0.5),
        item(second["id"], 3, load=1),
        item("sim-9", 1, load=2),
        item("9" * 18, 1, load=2),
        item("9" * 40, 1, load=2),
    )
    assert results == [("applied", 7), ("applied", 3), *[("unknown", None)] * 3]
    first = {"ram_gib": "128", "firmware": "1.10", "cpu_flags": "avx,avx2", "load": "0.5"}
    assert (own(site), own(site, 2)) == (first, {"load": "1"})
    # Leases can require pushed values at once.
    wanted = hosts(resource_properties=[">", "$firmware", "1.9"])
    lease = site.ok("POST", "/v2/leases", site.asking(reservations=[wanted]))
    assert site.hosts_of(lease["id"]) == [shown(site)["id"]]
    # A lease keeps its host, whatever the stats are then.
    assert push(site, item("sim-1", 8, firmware="1.8", load=None)) == [("applied", 8)]
    assert own(site) == {"ram_gib": "128", "firmware": "1.8", "cpu_flags": "avx,avx2"}
    assert site.hosts_of(lease["id"]) == [shown(site)["id"]]


def test_only_a_newer_generation_changes_a_resource(site: Story) -> None:
    cases = [
        (item("sim-1", 5, load=5), ("applied", 5), "5"),
        (item("sim-1", 5, load=6), ("unchanged", 5), "5"),
        (item("sim-1", 4, load=4), ("stale", 5), "5"),
        (item("sim-1", 6, load=6), ("applied", 6), "6"),
        (item("sim-1", 2**63 - 1), ("applied", 2**63 - 1), "6"),
    ]
    for given, result, load in cases:
        assert push(site, given) == [result]
        assert own(site)["load"] == load


def test_a_push_neither_prevents_a_change_nor_notifies(site: Story) -> None:
    path = f"{RESOURCES}/{shown(site)['id']}"
    before, published = site.call("GET", path), site.published()
    push(site, item("sim-1", 1, load=5))
    known = {"If-None-Match": before.headers["ETag"]}
    after = site.call("GET", path, headers=known)
    assert after.get_json()["properties"]["load"] == "5"
    assert after.get_json()["updated_at"] == before.get_json()["updated_at"]
    assert site.published() == published
    known = {"If-None-Match": after.headers["ETag"]}
    assert site.call("GET", path, headers=known).status_code == 304
    read = {"If-Match": before.headers["ETag"]}
    site.problem(412, "GET", path, headers=read)
    body = {"properties": {"rack": "r1"}}
    assert site.call("PATCH", path, body, headers=read).status_code == 200
    assert site.problem(412, "PATCH", path, body, headers=read)["code"] == "precondition_failed"


@each_case(
    "wrong, pointer, reason",
    [
        (item("sim-2", 1, ram_gib="big"), "/stats", "ram_gib: the property is declared as number"),
        (item("sim-2", 1, vcpus=4), "/stats", "the cloud reports these properties"),
        (item("sim-2", 1, id=None), "/stats", "the cloud reports these properties"),
        (item("sim-2", 1, load={}), "/stats", "load must be a text"),
        (item("sim-2", 1, **{"x" * 65: 1}), "/stats", "key too long"),
        (item("sim-2", 1, **{f"x{n}": 1 for n in range(101)}), "/stats", "Longer than maximum"),
        (item("sim-1", 2, load=1), "", "sim-1 is the resource of item 0, too"),
        (item("sim-2", -1, load=1), "/generation", "greater than or equal to 0"),
        (item("sim-2", 2**63, load=1), "/generation", "less than or equal to"),
        (item("sim-2", 1.5, load=1), "/generation", "Not a valid integer"),
        ({"resource": "sim-2", "stats": {}}, "/generation", "This is required"),
        ({**item("sim-2", 1), "statz": {}}, "/statz", "Did you mean stats?"),
    ],
)
def test_an_invalid_item_stores_nothing(
    site: Story, wrong: dict[str, Any], pointer: str, reason: str
) -> None:
    body = {"items": [item("sim-1", 1, load=1), wrong]}
    problem = site.problem(400, "POST", STATS, body)
    assert problem["errors"][0]["pointer"] == f"#/items/1{pointer}"
    assert reason in problem["errors"][0]["detail"]
    assert own(site) == own(site, 2) == {}


def test_a_rejected_push_stores_no_generation(site: Story) -> None:
    items = [item("sim-1", 1, load=1), item("sim-2", 1, vcpus=4)]
    site.problem(400, "POST", STATS, {"items": items})
    assert push(site, item("sim-1", 0, load=1)) == [("applied", 0)]


def test_a_batch_has_1_to_1000_items(site: Story) -> None:
    for count in (0, 1001):
        items = [item(f"host-{number}", 1) for number in range(count)]
        site.problem(400, "POST", STATS, {"items": items})
    assert push(site, *(item(f"host-{n}", 1) for n in range(1000))) == [("unknown", None)] * 1000


def test_the_type_and_the_capacity_of_a_resource_are_checked(make_story: MakeStory) -> None:
    story = make_story(manager__plugins=PLUGINS)
    story.register(1)
    volume = {"resource_type": "virtual:volume", "name": "gold", "properties": {}}
    gold = story.ok("POST", RESOURCES, volume)
    given = {**item(gold["name"], 1, gigabytes="lots"), "resource_type": "virtual:volume"}
    problem = story.problem(400, "POST", STATS, {"items": [given]})
    assert "must be a whole number" in problem["detail"]
    assert push(story, {**given, "stats": {"gigabytes": 9}}) == [("applied", 1)]
    assert story.ok("GET", f"{RESOURCES}/{gold['id']}")["properties"]["gigabytes"] == "9"
    assert push(story, {**given, "resource_type": "physical:host"}) == [("unknown", None)]


def test_only_operators_push(site: Story) -> None:
    body = {"items": [item("sim-1", 1, load=1)]}
    site.problem(403, "POST", STATS, body, token="jane:lab:member")
