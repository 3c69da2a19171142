"""Resources that only some projects may book, on every database."""

import json
from typing import Any
from urllib.parse import urlencode

import pytest

from climate.manager.resources.inventory_sync import synchronise
from tests.conftest import MakeStory
from tests.support.service import Story, hosts
from tests.support.waiting import rules, settle, wait_for

RESOURCES, LEASES = "/v2/resources", "/v2/leases"
LAB, OTHER = "jane:lab:member", "omar:other:member"


@pytest.fixture
def site(make_story_everywhere: MakeStory) -> Story:
    """Return a service with hosts 1 to 3; only the project lab may book hosts 1 and 2."""
    return restricted(make_story_everywhere)


def restricted(make: MakeStory, **options: Any) -> Story:
    story = make(resources__project_restrictions=True, **options)
    story.register(3)
    for number in (1, 2):
        allow(story, number, ["lab"])
    return story


def path_of(story: Story, number: int) -> str:
    (host,) = story.ok("GET", f"{RESOURCES}?q=sim-{number}")["resources"]
    return f"{RESOURCES}/{host['id']}"


def allow(story: Story, number: int, projects: list[str] | None, status: int = 200) -> Any:
    body = {"properties": {"allowed_projects": projects}}
    response = story.call("PATCH", path_of(story, number), body)
    assert response.status_code == status, response.get_data(as_text=True)
    return response.get_json()


def book(story: Story, count: int, token: str, status: int = 201, **fields: Any) -> Any:
    body = story.asking(reservations=[hosts(count, count)], **fields)
    response = story.call("POST", LEASES, body, token=token)
    assert response.status_code == status, response.get_data(as_text=True)
    return response.get_json()


def names(story: Story, lease_id: str) -> set[str]:
    found = story.ok("GET", f"{LEASES}/{lease_id}/resources")["resources"]
    return {each["name"] for each in found}


def refuses_others(story: Story) -> None:
    refusal = book(story, 2, OTHER, 409)
    assert (refusal["matching"], refusal["free"]) == (1, 1)
    assert {each["amount"] for each in refusal["alternatives"]} == {1}
    assert names(story, book(story, 1, OTHER)["id"]) == {"sim-3"}
    assert names(story, book(story, 2, LAB)["id"]) == {"sim-1", "sim-2"}


def test_admission_books_only_permitted_resources(site: Story) -> None:
    refuses_others(site)


def test_a_named_host_of_other_projects_looks_like_an_unknown_one(site: Story) -> None:
    def add(lease: dict[str, Any], name: str, token: str, status: int) -> Any:
        change = {"reservations": [{"id": lease["reservations"][0]["id"], "add_hosts": [name]}]}
        response = site.call("PATCH", f"{LEASES}/{lease['id']}", change, token=token)
        assert response.status_code == status
        return response.get_json()

    others, labs = book(site, 1, OTHER), book(site, 1, LAB)
    details = [add(others, name, OTHER, 400)["detail"] for name in ("sim-1", "sim-9")]
    assert details[0] == details[1].replace("sim-9", "sim-1")
    (free,) = {"sim-1", "sim-2"} - names(site, labs["id"])
    add(labs, free, LAB, 200)
    assert names(site, labs["id"]) == {"sim-1", "sim-2"}


def test_the_list_leaves_out_what_the_project_may_not_book(site: Story) -> None:
    def listed(token: str) -> list[str]:
        answer = site.call("GET", f"{RESOURCES}?sort=name", token=token).get_json()
        return [each["name"] for each in answer["resources"]]

    assert listed(OTHER) == ["sim-3"]
    assert listed(LAB) == listed("root:admin:admin") == ["sim-1", "sim-2", "sim-3"]
    path = path_of(site, 1)
    feed = {"scope": "resource", "id": path.rpartition("/")[2]}
    for token, status, made in ((OTHER, 404, 404), (LAB, 200, 201)):
        assert site.call("GET", path, token=token).status_code == status
        assert site.call("POST", "/v2/feeds", feed, token=token).status_code == made


def test_a_waiting_lease_takes_a_host_that_an_earlier_one_may_not_take(
    make_story: MakeStory,
) -> None:
    story = restricted(make_story)
    rules(story, promises=0)
    running = [wait_for(story, 1, 120, token=LAB) for _ in range(3)]
    others, own = (wait_for(story, 1, 60, token=token) for token in (OTHER, LAB))
    (first,) = (id_ for id_ in running if names(story, id_) == {"sim-1"})
    story.call("DELETE", f"{LEASES}/{first}", token=LAB)
    settle(story)
    states = [story.ok("GET", f"{LEASES}/{id_}")["status"] for id_ in (others, own)]
    assert states == ["WAITING", "ACTIVE"]
    assert names(story, own) == {"sim-1"}


def test_the_calendar_in_memory_refuses_by_the_same_rule(make_story: MakeStory) -> None:
    story = restricted(make_story, manager__calendar_memory="on")
    story.runtime.calendar.load()
    refuses_others(story)


def test_searches_and_numbers_count_only_permitted_resources(site: Story) -> None:
    query = {"resource_type": "physical:host", "end": site.moment(60)}
    for more in ({}, {"resolution": 300}):
        path = f"/v2/availability?{urlencode({**query, **more})}"
        for token, free in ((LAB, 3), (OTHER, 1)):
            assert {s["free"] for s in site.ok("GET", path, token=token)["steps"]} == {free}
    search = {"reservations": [hosts(2, 2)], "duration": 600, "end_by": site.moment(600)}
    for token, is_found in ((LAB, True), (OTHER, False)):
        found = site.ok("POST", "/v2/availability/search", search, token=token)["windows"]
        assert bool(found) is is_found
    soon = {"start": "asap", "duration": 600, "end_by": site.moment(600)}
    body = {"name": "soon", "reservations": [hosts(2, 2)], **soon}
    site.problem(409, "POST", LEASES, body, token=OTHER)
    site.ok("POST", LEASES, body, token=LAB)
    calendar = f"/v2/calendar?{urlencode({**query, 'start': site.moment()})}"
    for caller, total in ((LAB, 3), (OTHER, 1), (None, 3)):
        assert site.ok("GET", calendar, token=caller)["total"] == total


def test_changes_and_healing_take_only_permitted_resources(site: Story) -> None:
    lease = book(site, 1, OTHER, start=site.moment(5))
    reservation = lease["reservations"][0]["id"]
    grown = {"reservations": [{"id": reservation, "params": {"min": 2, "max": 2}}]}
    site.problem(409, "PATCH", f"{LEASES}/{lease['id']}", grown, token=OTHER)
    site.cloud.fail_host("sim-3")
    lost = synchronise(site.runtime)
    synchronise(site.runtime, lost)
    assert names(site, lease["id"]) == {"sim-3"}
    assert site.ok("GET", f"{LEASES}/{lease['id']}")["degraded"]


def test_waiting_leases_wait_for_permitted_resources(site: Story) -> None:
    site.ok("POST", LEASES, site.asking(0, 60, reservations=[hosts(1, 1)]), token=OTHER)
    wanted = {"start": "asap", "duration": 600, "end_by": site.moment(600), "wait": {}}
    body = {"name": "waiting", "reservations": [hosts(1, 1)], **wanted}
    waiting = site.ok("POST", LEASES, body, token=OTHER)
    assert waiting["waiting"]["promised_start"] == site.moment(60)
    assert names(site, waiting["id"]) == {"sim-3"}
    too_many = {**body, "reservations": [hosts(2, 2)]}
    assert site.problem(409, "POST", LEASES, too_many, token=OTHER)["matching"] == 1


def test_a_restriction_does_not_exclude_projects_with_leases(site: Story) -> None:
    lease = book(site, 1, OTHER)
    assert "other" in allow(site, 3, ["lab"], 409)["detail"]
    allow(site, 3, ["lab", "other"])
    site.ok("DELETE", f"{LEASES}/{lease['id']}")
    allow(site, 3, [])
    book(site, 3, LAB, 409)
    allow(site, 3, None)
    book(site, 3, LAB)


def test_only_operators_see_the_projects(site: Story) -> None:
    path = path_of(site, 1)
    assert site.ok("GET", path)["properties"]["allowed_projects"] == "lab"
    assert "allowed_projects" not in site.ok("GET", path, token=LAB)["properties"]
    query = json.dumps(["contains", "$allowed_projects", "lab"])
    parameters = urlencode({"properties": query})
    assert len(site.ok("GET", f"{RESOURCES}?{parameters}")["resources"]) == 2
    site.problem(400, "GET", f"{RESOURCES}?{parameters}", token=LAB)
    item = {"resource": "sim-1", "generation": 1, "stats": {"allowed_projects": ["x"]}}
    problem = site.problem(400, "POST", f"{RESOURCES}/stats", {"items": [item]})
    assert "only PATCH of the resource changes it" in problem["detail"]


def test_without_the_option_a_restriction_is_an_error(make_story: MakeStory) -> None:
    story = make_story()
    story.register(1)
    assert "[resources] project_restrictions" in allow(story, 1, ["lab"], 400)["detail"]
    host = path_of(story, 1).rpartition("/")[2]
    story.refused(400, "PUT", f"/v1/os-hosts/{host}", {"allowed_projects": "lab"})
