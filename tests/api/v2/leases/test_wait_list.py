"""The list of waiting leases: order, pages, and which leases have a name."""

from typing import Any

import pytest

from climate.core.lease.model import HOST
from tests.conftest import MakeStory
from tests.support.service import Story, hosts
from tests.support.waiting import only_this_order, wait_for, waiting

LIST = "/v2/wait-list"
OWNER, STRANGER = "ann:lab:reader", "eve:other:member"


@pytest.fixture
def crowded(story: Story) -> list[str]:
    """Let five leases of two projects wait for hosts; return the ids of the leases."""
    return crowd(story)


def crowd(story: Story) -> list[str]:
    only_this_order(story)
    wait_for(story, 4, 60)
    tokens = ["ann:lab:member", STRANGER, "ann:lab:member", STRANGER, STRANGER]
    return [wait_for(story, 2, 30 + number, token=token) for number, token in enumerate(tokens)]


def listed(story: Story, query: str = "", token: str = OWNER) -> list[dict[str, Any]]:
    """Return all entries, in pages of two."""
    entries, following = [], f"{LIST}?limit=2{query}"
    while following:
        page = story.ok("GET", following, token=token)
        entries += page["wait_list"]
        following = page["next"]
    return entries


def test_names_only_the_leases_of_the_project(story: Story, crowded: list[str]) -> None:
    first, second, *_ = listed(story)
    assert first == {
        "position": 1,
        "resource_types": ["physical:host"],
        "needs": [
            {"resource_type": "physical:host", "minimum": 2, "maximum": 2, "amounts": {}},
        ],
        "duration": 1800,
        "priority": 0,
        "promised_start": None,
        "lease_id": crowded[0],
        "lease_name": "lease",
        "project_id": "lab",
        "until": "2031-01-16T11:30:00Z",
        "held_back": None,
    }
    own = ("lease_id", "lease_name", "project_id", "until", "held_back")
    assert [second[name] for name in own] == [None] * 5
    assert (second["position"], second["duration"]) == (2, 1860)


def test_pages_have_all_entries_once_in_their_order(make_story_everywhere: MakeStory) -> None:
    """All requests arrived at the same time, so the ids decide, and no marker contains one."""
    story = make_story_everywhere()
    story.register(4)
    crowded = crowd(story)
    entries = listed(story, "&all_projects=true", token="root:lab:admin")
    assert [entry["position"] for entry in entries] == [1, 2, 3, 4, 5]
    assert [entry["lease_id"] for entry in entries] == sorted(crowded)


def test_each_resource_type_has_its_own_list(story: Story, crowded: list[str]) -> None:
    assert len(listed(story, "&resource_type=physical:host")) == len(crowded)
    assert listed(story, "&resource_type=virtual:instance") == []


def test_shows_the_promised_start(story: Story) -> None:
    wait_for(story, 4, 60)
    wait_for(story, 4, 60)
    (entry,) = listed(story)
    assert entry["promised_start"] == story.moment(60)


def test_only_operators_see_the_names_of_other_projects(story: Story, crowded: list[str]) -> None:
    problem = story.problem(403, "GET", f"{LIST}?all_projects=true", token=OWNER)
    assert problem["code"] == "forbidden"


@pytest.mark.parametrize("query", ["marker=x", "limit=0", "pool=x"])
def test_rejects_bad_queries(story: Story, query: str) -> None:
    assert story.problem(400, "GET", f"{LIST}?{query}")["code"] == "invalid_input"


def test_a_lease_for_which_climate_needs_the_token_cannot_wait(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for(story, 4, 60)
    monkeypatch.setattr(type(story.runtime.plugins[HOST]), "needs_preparation", True)
    problem = story.problem(409, "POST", "/v2/leases", waiting(1, 60))
    assert (problem["code"], "cannot wait" in problem["detail"]) == ("conflict", True)
    refused = story.problem(409, "POST", "/v2/leases", story.asking(0, 30))
    assert (refused["code"], refused["can_wait"]) == ("not_enough_resources", False)


def test_a_refusal_says_whether_the_lease_can_wait(story: Story) -> None:
    wait_for(story, 4, 60)
    full = story.problem(409, "POST", "/v2/leases", story.asking(0, 30, reservations=[hosts(4, 4)]))
    never = story.problem(
        409, "POST", "/v2/leases", story.asking(0, 30, reservations=[hosts(5, 5)])
    )
    assert (full["can_wait"], never["can_wait"]) == (True, False)
    many = hosts(3, 3, resource_properties='["==", "$hypervisor_hostname", "sim-1"]')
    for reservations in ([hosts(), many], [many, hosts()]):
        body = story.asking(0, 30, reservations=reservations)
        assert story.problem(409, "POST", "/v2/leases", body)["can_wait"] is False
