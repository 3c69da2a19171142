"""The state of resources in /v2/resources, the filter by it, and what operators see of power."""

from typing import Any
from urllib.parse import urlencode

import pytest
import sqlalchemy as sa

from climate.core.lease.model import HOST
from climate.db.tables.provisioning import ReadinessRow
from climate.manager.resources.inventory_sync import synchronise
from tests.conftest import MakeStory
from tests.support.provisioners import plan, preparations, report
from tests.support.service import Story, hosts

ALICE = "alice:lab"


@pytest.fixture
def farm(make_story_everywhere: MakeStory) -> Story:
    """Return a service with four hosts and provisioning."""
    story = make_story_everywhere(provisioning__enabled=True, provisioning__prior=600.0)
    story.register(4)
    return story


def states(story: Story, **query: Any) -> dict[str, str]:
    path = f"/v2/resources?{urlencode(query, doseq=True)}"
    found = story.ok("GET", path, token=ALICE)["resources"]
    return {resource["name"]: resource["state"] for resource in found}


def test_lists_and_filters_by_state(farm: Story) -> None:
    assert set(states(farm).values()) == {"ready"}
    farm.ok("POST", "/v2/leases", farm.asking(10, 60, reservations=[hosts(2, 2)]))
    plan(farm)
    task, failing = preparations(farm)
    idle, other = sorted(states(farm, state="ready"))
    farm.ok("PATCH", f"/v2/resources/{_id(farm, idle)}/readiness", {"set_aside": "broken fan"})
    report(farm, failing, "accepted")
    report(farm, failing, "failed", reason="no boot")
    expected = {
        task["node"]: "preparing",
        failing["node"]: "failing",
        idle: "set_aside",
        other: "ready",
    }
    assert states(farm) == expected
    for state in ("preparing", "failing", "set_aside", "ready", "off"):
        chosen = {name: other for name, other in expected.items() if other == state}
        assert states(farm, state=state) == chosen
    two = states(farm, state=["failing", "set_aside"], sort="name", limit=1000)
    assert two == {failing["node"]: "failing", idle: "set_aside"}


@pytest.mark.parametrize("resolution", [0, 3600])
def test_the_calendar_shows_the_same_states(farm: Story, resolution: int) -> None:
    farm.ok("POST", "/v2/leases", farm.asking(10, 60, reservations=[hosts(2, 2)]))
    plan(farm)
    _task, failing = preparations(farm)
    aside, off = (_id(farm, name) for name in sorted(states(farm, state="ready")))
    farm.ok("PATCH", f"/v2/resources/{aside}/readiness", {"set_aside": "broken fan"})
    known = {"resource_id": int(off), "hardware": "", "times": [], "up": False}
    with farm.runtime.database.engine.begin() as connection:  # as the inventory reports it
        connection.execute(sa.insert(ReadinessRow).values(known))
    report(farm, failing, "accepted")
    report(farm, failing, "failed", reason="no boot")
    listed = states(farm)
    assert sorted(listed.values()) == ["failing", "off", "preparing", "set_aside"]
    query = {"resource_type": HOST, "end": "2030-01-16T00:00:00Z", "resolution": resolution}
    shown = farm.ok("GET", f"/v2/calendar?{urlencode(query)}", token=ALICE)
    assert {row["name"]: row["state"] for row in shown["rows"]} == listed


def test_a_quarantine_lasts_without_provisioning(story_everywhere: Story) -> None:
    story = story_everywhere
    path = f"/v2/resources/{_id(story, 'sim-1')}/readiness"
    story.ok("PATCH", path, {"set_aside": "broken fan"})
    synchronise(story.runtime)
    assert states(story, state="set_aside") == {"sim-1": "set_aside"}
    story.ok("PATCH", path, {"set_aside": None})
    synchronise(story.runtime)
    assert set(states(story).values()) == {"ready"}


def test_only_operators_see_the_power_of_hosts(farm: Story) -> None:
    path = f"/v2/resources/{_id(farm, 'sim-1')}"
    farm.ok("PATCH", f"{path}/readiness", {"set_aside": "broken fan"})
    assert farm.ok("GET", path)["power"] == {
        "up": None,
        "seen_at": None,
        "shutdown": None,
        "off_at": None,
        "preparation": None,
        "needed_at": None,
        "ready_at": None,
        "set_aside": "broken fan",
        "set_aside_at": farm.moment(),
    }
    shown = farm.ok("GET", path, token=ALICE)
    assert (shown["state"], shown["power"]) == ("set_aside", None)
    (listed, *_) = farm.ok("GET", "/v2/resources?q=sim-1", token=ALICE)["resources"]
    assert listed == shown


def _id(story: Story, name: str) -> str:
    (found,) = story.ok("GET", f"/v2/resources?q={name}")["resources"]
    return str(found["id"])
