"""Long lists of v2: pages that neither repeat nor lose anything, filters, orders, and privacy."""

import base64
import json
from typing import Any
from urllib.parse import quote, urlencode

import pytest
import sqlalchemy as sa

from climate.core.page import LEASE_SORTS
from climate.db import resources
from tests.support.service import Story, hosts

LEASES, RESOURCES = "/v2/leases", "/v2/resources"
ALICE, EVE, ADMIN = "alice:lab", "eve:other", "boss:ops:admin"


def ask(story: Story, path: str, token: str | None = None, **asked: Any) -> dict[str, Any]:
    """Return a page."""
    return dict(story.ok("GET", f"{path}?{urlencode(asked, doseq=True)}", token=token))


def walk(story: Story, path: str, token: str | None = None, **asked: Any) -> list[dict[str, Any]]:
    """Return the items of all pages."""
    key = path.rpartition("/")[2]
    page = ask(story, path, token, **asked)
    found = page[key]
    while page["next"]:
        assert len(page[key]) == int(asked.get("limit", 100))
        page = story.ok("GET", page["next"], token=token)
        found += page[key]
    return list(found)


def names(found: list[dict[str, Any]]) -> list[str]:
    return [one["name"] for one in found]


def make(story: Story, name: str, start: str, end: str, token: str = ALICE) -> str:
    """Make a lease between two times of a day and return its id."""
    body = story.asking(name=name, start=f"2030-01-16T{start}Z", end=f"2030-01-16T{end}Z")
    return str(story.ok("POST", LEASES, body, token=token)["id"])


@pytest.fixture
def fleet(story_everywhere: Story) -> Story:
    """Return a service with leases of two projects, several of them equal in what sorts them."""
    story = story_everywhere
    for name, start, end in [
        ("b", "13:00", "14:00"),
        ("a", "13:00", "15:00"),
        ("d", "14:00", "15:00"),
        ("c", "16:00", "17:00"),
        ("a", "16:00", "17:00"),
    ]:
        make(story, name, start, end)
        story.clock.advance(1)
    make(story, "e", "18:00", "19:00", EVE)
    return story


@pytest.mark.parametrize("sort", [way + name for name in LEASE_SORTS for way in ("", "-")])
def test_pages_of_any_size_make_up_the_list_in_its_order(fleet: Story, sort: str) -> None:
    keys = {"start": "start", "end": "end", "created": "created_at", "name": "name"}
    whole = walk(fleet, LEASES, ALICE, sort=sort)
    key = keys[sort.removeprefix("-")]
    found = [(one[key], one["id"]) for one in whole]
    assert len(found) == 5
    assert found == sorted(found, reverse=sort.startswith("-"))
    for limit in (1, 2, 3, 4, 5):
        assert walk(fleet, LEASES, ALICE, sort=sort, limit=limit) == whole


def test_the_latest_start_comes_first_unless_asked_otherwise(fleet: Story) -> None:
    assert walk(fleet, LEASES, ALICE) == walk(fleet, LEASES, ALICE, sort="-start")


def test_what_is_made_or_removed_meanwhile_moves_nothing_else(fleet: Story) -> None:
    before = walk(fleet, LEASES, ALICE, sort="start")
    page = ask(fleet, LEASES, ALICE, sort="start", limit=2)
    make(fleet, "early", "12:00", "12:30")
    late = make(fleet, "late", "20:00", "21:00")
    fleet.ok("DELETE", f"{LEASES}/{page['leases'][0]['id']}")
    fleet.ok("DELETE", f"{LEASES}/{page['leases'][1]['id']}")
    rest = fleet.ok("GET", page["next"].replace("limit=2", "limit=9"), token=ALICE)["leases"]
    assert [one["id"] for one in rest] == [*(one["id"] for one in before[2:]), late]


def test_a_page_that_is_just_full_is_the_last(fleet: Story) -> None:
    assert ask(fleet, LEASES, ALICE, limit=5)["next"] is None
    assert ask(fleet, LEASES, ALICE, limit=4)["next"] is not None
    assert ask(fleet, LEASES, "new:project") == {"leases": [], "next": None}


def test_filters_leave_out_what_does_not_match(fleet: Story) -> None:
    hour = {hour: f"2030-01-16T{hour}:00:00Z" for hour in (14, 15, 16)}
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({"name": "a"}, ["a", "a"]),
        ({"name": "A"}, []),
        ({"status": "PENDING"}, ["a", "b", "d", "a", "c"]),
        ({"status": "ACTIVE"}, []),
        ({"status": ["ACTIVE", "PENDING"]}, ["a", "b", "d", "a", "c"]),
        ({"resource_type": "physical:host"}, ["a", "b", "d", "a", "c"]),
        ({"resource_type": "virtual:instance"}, []),
        ({"starts_before": hour[14]}, ["a", "b"]),
        ({"starts_after": hour[14]}, ["a", "c"]),
        ({"ends_before": hour[15]}, ["b"]),
        ({"ends_after": hour[15]}, ["a", "c"]),
        ({"starts_after": hour[14], "ends_before": hour[16], "name": "a"}, []),
    ]
    for asked, expected in cases:
        for limit in (1, 100):
            found = names(walk(fleet, LEASES, ALICE, sort="start", limit=limit, **asked))
            assert sorted(found) == sorted(expected), asked


def test_the_times_of_a_filter_may_have_any_zone(fleet: Story) -> None:
    asked = {"starts_before": "2030-01-16T14:59:59+01:00"}
    assert sorted(names(walk(fleet, LEASES, ALICE, **asked))) == ["a", "b"]


def test_each_project_has_its_own_list_and_admins_all_if_they_ask(fleet: Story) -> None:
    assert names(walk(fleet, LEASES, EVE)) == ["e"]
    assert walk(fleet, LEASES, ADMIN) == []
    everything = walk(fleet, LEASES, ADMIN, all_projects="true", limit=2)
    assert sorted(names(everything)) == ["a", "a", "b", "c", "d", "e"]
    assert walk(fleet, LEASES, ADMIN, all_projects="false") == []
    found = fleet.problem(403, "GET", f"{LEASES}?all_projects=true", token=ALICE)
    assert found["code"] == "forbidden"


def _marker(*parts: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "asked",
    [
        *("limit=0", "limit=1001", "limit=x", "limit=-1", "limit=", "limit=%D9%A3", "limit=1_0"),
        *("limit=1&limit=2", "sort=", "sort=id", "sort=--start", "sort=start,end"),
        *("status=active", "status=", "starts_before=2030-01-15", "ends_after=now"),
        *("starts_after=2030-01-15T12:00:00", "all_projects=maybe", "unknown=1", "name=a&name=b"),
        *("marker=", "marker=x", "marker=%C3%A9", "marker=AAAA", "marker=bnVsbA", "marker=e30"),
        *(
            f"marker={_marker(*parts)}"
            for parts in [
                ("start", "2030-01-15T12:00:00+00:00", "x"),  # another order
                ("-start", "x", "x"),
                ("-start", 5, "x"),
                ("-start", "0001-01-01T00:00:00+23:00", "x"),
                ("-start", "2030-01-15T12:00:00+00:00", 5),
                ("-start", "2030-01-15T12:00:00+00:00", "a\x00b"),
                ("-start", "2030-01-15T12:00:00+00:00", "\ud800"),
                ("-start", "2030-01-15T12:00:00+00:00"),
                ("-start", None, None),
                ("-start", [], {}),
            ]
        ),
        f"sort=name&marker={_marker('name', chr(0), 'x')}",
        f"sort=name&marker={_marker('name', ['a'], 'x')}",
    ],
)
def test_what_cannot_be_asked_is_refused_with_the_parameter(
    story_everywhere: Story, asked: str
) -> None:
    found = story_everywhere.problem(400, "GET", f"{LEASES}?{asked}")
    assert found["errors"][0]["parameter"] in asked


@pytest.mark.parametrize("number", [-1, 2**63, 2**80, "1", None, True, 1.5])
def test_a_forged_place_among_resources_is_refused(story_everywhere: Story, number: Any) -> None:
    asked = f"marker={_marker('id', number, number)}"
    story_everywhere.problem(400, "GET", f"{RESOURCES}?{asked}")


def test_the_orders_by_default_are_read_from_an_index(story: Story) -> None:
    sent: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_rest: Any) -> None:
        if "FROM leases" in statement:
            sent.append((statement, parameters))

    engine = story.runtime.database.engine
    for name in ("a", "b"):
        make(story, name, "13:00", "14:00")
    sa.event.listen(engine, "before_cursor_execute", note)
    walk(story, LEASES, ALICE, limit=1)
    walk(story, LEASES, None, limit=1, all_projects=1, sort="start")
    sa.event.remove(engine, "before_cursor_execute", note)
    assert len(sent) == 4
    with engine.connect() as connection:
        for statement, parameters in sent:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
            steps = " ".join(row[3] for row in plan)
            assert "USING INDEX leases_" in steps, steps
            assert "TEMP B-TREE" not in steps, steps


class TestResources:
    @pytest.fixture
    def lab(self, story_everywhere: Story) -> Story:
        """Return a service with a private property (secret) and a public one (rack)."""
        story = story_everywhere
        first, second, *_ = story.ok("GET", "/v1/os-hosts")["hosts"]
        story.ok("PUT", f"/v1/os-hosts/{first['id']}", {"rack": "r1", "secret": "yes"})
        story.ok("PUT", f"/v1/os-hosts/{second['id']}", {"rack": "r2"})
        story.ok("PATCH", "/v1/os-hosts/properties/secret", {"private": True})
        return story

    def test_users_see_what_there_is_but_nothing_private(self, lab: Story) -> None:
        found = walk(lab, RESOURCES, ALICE)
        assert names(found) == ["sim-1", "sim-2", "sim-3", "sim-4"]
        first = found[0]
        assert first["properties"]["rack"] == "r1"
        assert first["properties"]["vcpus"] == "16"
        assert "secret" not in first["properties"]
        assert lab.ok("GET", f"{RESOURCES}/{first['id']}", token=ALICE) == first
        assert {**first, "properties": {}, "updated_at": None} == {
            "id": first["properties"]["id"],
            "resource_type": "physical:host",
            "name": "sim-1",
            "reservable": True,
            "properties": {},
            "created_at": "2030-01-15T12:00:00Z",
            "updated_at": None,
        }

    def test_admins_see_all_properties(self, lab: Story) -> None:
        first = walk(lab, RESOURCES, ADMIN)[0]
        assert first["properties"]["secret"] == "yes"
        assert lab.ok("GET", f"{RESOURCES}/{first['id']}", token=ADMIN) == first

    def test_nothing_is_told_about_who_has_them(self, lab: Story) -> None:
        before = lab.call("GET", RESOURCES, token=EVE).get_data()
        lab.ok("POST", LEASES, lab.asking(0, 60, reservations=[hosts(4, 4)]), token=ALICE)
        assert lab.call("GET", RESOURCES, token=EVE).get_data() == before

    def test_pages_make_up_the_list(self, lab: Story) -> None:
        whole = walk(lab, RESOURCES, ALICE)
        for limit in (1, 2, 3, 4):
            assert walk(lab, RESOURCES, ALICE, limit=limit) == whole
            backwards = walk(lab, RESOURCES, ALICE, limit=limit, sort="-id")
            assert backwards == whole[::-1]

    def test_a_type_and_an_expression_pick(self, lab: Story) -> None:
        cases: list[tuple[dict[str, str], list[str]]] = [
            ({"properties": '["==", "$vcpus", 64]'}, ["sim-4"]),
            ({"properties": '["in", "$rack", "r1", "r2"]'}, ["sim-1", "sim-2"]),
            ({"properties": '["not", ["==", "$rack", "r1"]]'}, ["sim-2", "sim-3", "sim-4"]),
            ({"properties": ""}, ["sim-1", "sim-2", "sim-3", "sim-4"]),
            ({"resource_type": "physical:host", "properties": '["==", "$rack", "r2"]'}, ["sim-2"]),
        ]
        for asked, expected in cases:
            for limit in (1, 100):
                assert names(walk(lab, RESOURCES, ALICE, limit=limit, **asked)) == expected

    def test_what_only_some_have_can_be_asked_about(self, lab: Story) -> None:
        """Clouds may tell of some hosts what they do not tell of all, such as traits."""
        database = lab.runtime.database
        with database.read() as session:
            host = resources.find_all(session, "physical:host")[2]
        native = {name: host.properties[name] for name in host.native}
        now = lab.clock.now()
        database.write(
            lambda session: resources.set_native(session, host, {**native, "rare": "yes"}, now)
        )
        found = walk(lab, RESOURCES, ALICE, properties='["==", "$rare", "yes"]')
        assert names(found) == ["sim-3"]

    def test_private_properties_cannot_be_guessed_by_asking(self, lab: Story) -> None:
        path = f"{RESOURCES}?properties={quote(json.dumps(['==', '$secret', 'yes']))}"
        found = lab.problem(400, "GET", path, token=ALICE)
        assert found["code"] == "invalid_query"
        unknown = lab.problem(400, "GET", path.replace("secret", "nosuch"), token=ALICE)
        assert found["detail"] == unknown["detail"].replace("nosuch", "secret")
        assert names(lab.ok("GET", path, token=ADMIN)["resources"]) == ["sim-1"]

    @pytest.mark.parametrize(
        ("asked", "code"),
        [
            ("resource_type=virtual:instance", "unsupported_resource_type"),
            ("properties=%5B%22x%22%5D", "invalid_query"),
            ("properties=%5B%22==%22,%22$vcpuss%22,1%5D", "invalid_query"),
            ("sort=name", "invalid_input"),
        ],
    )
    def test_what_cannot_be_asked_is_refused(self, lab: Story, asked: str, code: str) -> None:
        assert lab.problem(400, "GET", f"{RESOURCES}?{asked}")["code"] == code

    @pytest.mark.parametrize("name", ["0", "x", "-1", "1.0", "%D9%A1", "9" * 18, "9" * 99])
    def test_what_there_is_not_is_not_found(self, lab: Story, name: str) -> None:
        assert lab.problem(404, "GET", f"{RESOURCES}/{name}")["code"] == "not_found"
