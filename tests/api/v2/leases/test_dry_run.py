"""Dry runs of requests that create or change a lease."""

from typing import Any

from tests.conftest import MakeStory
from tests.support.rows import dump
from tests.support.service import Story, hosts

DRY, ALICE = "?dry_run=true", "alice:lab"


def test_a_dry_run_admits_what_the_request_admits_and_stores_nothing(
    story_everywhere: Story,
) -> None:
    story = story_everywhere
    body = story.asking(reservations=[hosts(2, 3)])
    before = dump(story.runtime.database)
    seen = story.ok("POST", f"/v2/leases{DRY}", body, token=ALICE)
    assert dump(story.runtime.database) == before
    [capacity] = seen["reservations"]
    assert [capacity[key] for key in ("asked", "free", "matching")] == [2, 4, 4]
    assert [host["name"] for host in capacity["resources"]] == ["sim-1", "sim-2", "sim-3", "sim-4"]
    lease = story.ok("POST", "/v2/leases", body, token=ALICE)
    before = dump(story.runtime.database)
    path = f"/v2/leases/{lease['id']}"
    seen = story.ok("PATCH", path + DRY, {"end": story.moment(180)}, token=ALICE)
    assert seen["lease"]["end"] == story.moment(180)
    assert seen["reservations"][0]["free"] == 4
    assert dump(story.runtime.database) == before
    story.problem(
        412, "PATCH", path + DRY, {"name": "b"}, token=ALICE, headers={"If-Match": '"old"'}
    )
    story.problem(400, "PATCH", path + "?dry=1", {"name": "b"}, token=ALICE)


def test_a_dry_run_shows_the_reminders_of_the_hosts(make_story: MakeStory) -> None:
    def events(lease: dict[str, Any]) -> list[tuple[str, str]]:
        return [(event["type"], event["at"]) for event in lease["events"]]

    rule = 'physical:host ["==", "$$vcpus", "16"]: 1200, 300'
    story = make_story(manager__reminder_rules=[rule])
    story.register(1)
    body = story.asking(60, 120)
    seen = story.ok("POST", f"/v2/leases{DRY}", body)["lease"]
    assert events(seen) == events(story.ok("POST", "/v2/leases", body))
    assert ("before_start_lease", story.moment(40)) in events(seen)


def test_a_dry_run_is_refused_like_the_request(story: Story) -> None:
    body = {**story.asking(), "start": "now", "reservations": [hosts(5, 5)]}
    dry, real = (story.problem(409, "POST", "/v2/leases" + query, body) for query in (DRY, ""))
    assert dry == real
