"""/v2/limits: the leases that use limits, and the limits of others for operators."""

from typing import Any

from tests.support.service import Story, hosts

LIMITS = "/v2/limits"
ALICE, OTHER, ADMIN = "alice:lab", "alice:other", "boss:ops:admin"


def book(story: Story, name: str, amount: int, first: float, last: float, token: str) -> str:
    body = story.asking(first, last, name=name, reservations=[hosts(amount, amount)])
    return str(story.ok("POST", "/v2/leases", body, token=token)["id"])


def used(party: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(use["lease_name"], use["hosts"], use["host_hours"]) for use in party["leases"]]


def test_leases_that_use_most_come_first_and_other_projects_have_no_names(
    story_everywhere: Story,
) -> None:
    story = story_everywhere
    small = book(story, "small", 1, 60, 120, ALICE)
    book(story, "large", 2, 60, 240, ALICE)
    book(story, "hidden", 1, 60, 180, OTHER)
    project, user = story.ok("GET", f"{LIMITS}?leases=true", token=ALICE)["parties"]
    assert used(project) == [("large", 2, 6.0), ("small", 1, 1.0)]
    vcpus = project["leases"][1]["vcpus"]
    assert vcpus in {16.0, 64.0}
    assert project["leases"][1] == {
        "lease_id": small,
        "lease_name": "small",
        "start": story.moment(60),
        "end": story.moment(120),
        "hosts": 1,
        "vcpus": vcpus,
        "host_hours": 1.0,
    }
    assert used(user) == [("large", 2, 6.0), (None, 1, 2.0), ("small", 1, 1.0)]
    assert user["leases"][1]["lease_id"] is None
    assert "leases" not in story.ok("GET", LIMITS, token=ALICE)["parties"][0]


def test_only_operators_see_the_limits_of_others(story_everywhere: Story) -> None:
    book(story_everywhere, "training", 1, 60, 120, ALICE)
    path = f"{LIMITS}?leases=true&project_id=lab"
    (project,) = story_everywhere.ok("GET", path, token=ADMIN)["parties"]
    assert (project["scope"], project["id"]) == ("project", "lab")
    assert used(project) == [("training", 1, 1.0)]
    both = story_everywhere.ok("GET", f"{LIMITS}?project_id=lab&user_id=alice", token=ADMIN)
    assert [party["id"] for party in both["parties"]] == ["lab", "alice"]
    for query in ("project_id=lab", "user_id=alice"):
        problem = story_everywhere.problem(403, "GET", f"{LIMITS}?{query}", token=OTHER)
        assert "limits:get_all" in problem["detail"]
    problem = story_everywhere.problem(400, "GET", f"{LIMITS}?project_id=", token=ADMIN)
    assert problem["errors"][0]["parameter"] == "project_id"
