"""/v2/calendar: what resources are occupied by, for viewers of one project or of all."""

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeStory
from tests.support.bodies import HOSTS_AND_INSTANCES, copy_hosts
from tests.support.service import Story, hosts

ALICE, BOB, ADMIN = "alice:mine:member", "bob:other:member", "boss:mine:admin"
END = "2030-01-16T00:00:00Z"


@pytest.fixture
def story(make_story: MakeStory, hosts_template: Path, tmp_path: Path) -> Story:
    copy_hosts(hosts_template, tmp_path)
    return make_story(manager__plugins=HOSTS_AND_INSTANCES, DEFAULT__cleaning_time=10)


def calendar(story: Story, more: str = "", token: str = ALICE) -> Any:
    path = f"/v2/calendar?resource_type=physical:host&end={END}{more}"
    return story.ok("GET", path, token=token)


def book(story: Story, name: str, start: float, end: float, token: str = ALICE) -> Any:
    """Reserve sim-1."""
    only = hosts(1, 1, resource_properties=["==", "$id", "1"])
    body = story.asking(start, end, reservations=[only], name=name)
    return story.ok("POST", "/v2/leases", body, token=token)


def intervals(story: Story, more: str = "", token: str = ALICE) -> list[int]:
    """Return the intervals of sim-1."""
    x: list[int] = calendar(story, more, token)["rows"][0]["x"]
    return x


def test_own_leases_are_named_and_others_merged_with_their_cleaning_time(story: Story) -> None:
    lease = book(story, "mine", 60, 120)
    book(story, "first", 130, 190, BOB)
    book(story, "second", 200, 260, BOB)
    shown = calendar(story)
    assert shown["rows"][0]["x"] == [3600, 3600, 1, 0, 7200, 600, 2, 7800, 8400, 0]
    assert shown["leases"] == [
        {
            "id": lease["id"],
            "name": "mine",
            "status": "PENDING",
            "degraded": False,
            "start": "2030-01-15T13:00:00Z",
            "end": "2030-01-15T14:00:00Z",
            "project_id": "mine",
            "mine": True,
        }
    ]


def test_buckets_show_how_much_is_taken_and_where_own_leases_are(story: Story) -> None:
    book(story, "mine", 60, 120)
    book(story, "other", 150, 180, BOB)
    row = calendar(story, "&resolution=3600")["rows"][0]
    assert (row["b"], row["own"]) == ("096200000000", "011000000000")
    assert "x" not in row
