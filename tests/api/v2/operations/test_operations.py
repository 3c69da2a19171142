"""/v2/managers and /v2/overdue-events."""

from typing import Any

import pytest
import sqlalchemy as sa

from climate.db import managers
from climate.db.tables.leases import EventRow
from tests.support.service import Story, hosts

ALICE, ADMIN = "alice:lab", "boss:ops:admin"
EVENTS, MANAGERS = "/v2/overdue-events", "/v2/managers"


@pytest.fixture
def lab(story_everywhere: Story) -> Story:
    return story_everywhere


def beat(story: Story, name: str = "manager-1", **loops: Any) -> None:
    now = story.clock.now()
    story.runtime.database.write(lambda session: managers.beat(session, name, now, loops))


def book(story: Story, name: str, first: float, last: float) -> dict[str, Any]:
    body = story.asking(first, last, name=name, reservations=[hosts(4, 4)])
    return dict(story.ok("POST", "/v2/leases", body, token=ALICE))


def change(story: Story, lease: dict[str, Any], kind: str, **values: Any) -> None:
    """Change the stored event of a lease."""
    is_event = (EventRow.lease_id == lease["id"], EventRow.kind == kind)
    with story.runtime.database.engine.begin() as connection:
        connection.execute(sa.update(EventRow).where(*is_event).values(**values))


def overdue(story: Story, query: str = "") -> list[dict[str, Any]]:
    path, found = f"{EVENTS}{query}", []
    while path:
        page = story.ok("GET", path, token=ADMIN)
        found += page["events"]
        path = page["next"]
    return found


def test_nothing_is_overdue_before_its_time(lab: Story) -> None:
    book(lab, "later", 7 * 24 * 60, 8 * 24 * 60)
    assert lab.ok("GET", EVENTS, token=ADMIN) == {"events": [], "next": None}


def test_an_overdue_event_has_its_lease_and_a_reason(lab: Story) -> None:
    lease = book(lab, "training", 10, 60)
    lab.clock.advance(11 * 60)
    (event,) = [each for each in overdue(lab) if each["type"] == "start_lease"]
    del event["id"]
    assert event == {
        "lease_id": lease["id"],
        "lease_name": "training",
        "project_id": "lab",
        "type": "start_lease",
        "due_at": lease["start"],
        "late_seconds": 60.0,
        "attempt": 0,
        "next_attempt_at": lease["start"],
        "owner": None,
        "last_error": None,
        "cause": "no_manager",
        "reason": "No manager runs.",
        "blocked_by": None,
    }


def test_a_start_names_the_lease_that_still_holds_its_host(lab: Story) -> None:
    first = book(lab, "first", 0, 30)
    book(lab, "second", 30, 60)
    lab.run()
    lab.clock.advance(31 * 60)
    beat(lab)
    found = {(each["lease_name"], each["type"]): each for each in overdue(lab)}
    blocked = found["second", "start_lease"]
    assert blocked["cause"] == "other_lease"
    blocker = blocked["blocked_by"]
    assert (blocker["lease_id"], blocker["lease_name"]) == (first["id"], "first")
    expected = f"It waits for the end of the lease first on {blocker['resource']}."
    assert blocked["reason"] == expected
    assert found["first", "end_lease"]["cause"] == "queued"


def test_claims_retries_and_siblings_are_reasons(lab: Story) -> None:
    lease = book(lab, "training", 0, 30)
    lab.clock.advance(31 * 60)
    beat(lab)
    now = lab.clock.now()
    change(lab, lease, "start_lease", status="IN_PROGRESS", owner="manager-1", attempt=1)
    causes = {each["type"]: each["cause"] for each in overdue(lab)}
    assert (causes["start_lease"], causes["end_lease"]) == ("running", "other_event")
    change(lab, lease, "start_lease", owner="gone", claimed_until=now)
    assert {each["type"]: each["cause"] for each in overdue(lab)}["start_lease"] == "claim_lost"
    for kind in ("start_lease", "before_end_lease"):
        change(lab, lease, kind, status="DONE", owner=None)
    later = now.replace(second=59)
    change(lab, lease, "end_lease", attempt=3, run_at=later, last_error="no answer from Nova")
    (event,) = [each for each in overdue(lab) if each["type"] == "end_lease"]
    assert (event["cause"], event["attempt"]) == ("retry", 3)
    assert event["last_error"] == "no answer from Nova"
    assert event["next_attempt_at"] == f"{later:%Y-%m-%dT%H:%M:%SZ}"


def test_overdue_events_are_paged_by_due_time(lab: Story) -> None:
    for number in range(3):
        book(lab, f"lease-{number}", 10 + 10 * number, 20 + 10 * number)
    lab.clock.advance(3600)
    whole = overdue(lab)
    due = [event["due_at"] for event in whole]
    assert due == sorted(due)
    assert len(whole) >= 6
    assert overdue(lab, "?limit=2") == whole
    assert overdue(lab, "?limit=2&sort=-due") == whole[::-1]


def test_managers_have_heartbeats_loops_and_lateness(lab: Story) -> None:
    beat(lab, "dead")
    lab.clock.advance(120)
    started_at = lab.moment()
    beat(lab, "busy", events={"age": 500.0, "interval": 1.0}, relay={"age": 0.5, "interval": 1.0})
    lease = book(lab, "training", 1, 60)
    lab.clock.advance(70)
    beat(lab, "busy", events={"age": 500.0, "interval": 1.0}, relay={"age": 0.5, "interval": 1.0})
    found = lab.ok("GET", MANAGERS, token=ADMIN)
    busy, dead = found["managers"]
    assert busy == {
        "id": "busy",
        "started_at": started_at,
        "beat_at": lab.moment(),
        "alive": True,
        "loops": {
            "events": {"age": 500.0, "interval": 1.0},
            "relay": {"age": 0.5, "interval": 1.0},
        },
        "stalled": {"events": 500.0},
    }
    assert (dead["id"], dead["alive"], dead["stalled"]) == ("dead", False, {})
    assert found["now"] == lab.moment()
    assert found["warnings"] == ["events has not succeeded for 500 s in 1 of 1 managers"]
    lateness = found["lateness"]
    assert lateness["due"]["start_lease"] == 1
    assert lateness["oldest_due_at"] <= lease["start"]
    assert lateness["unpublished"] >= 1


def test_only_operators_see_managers_and_overdue_events(lab: Story) -> None:
    book(lab, "private name", 0, 60)
    for path in (EVENTS, MANAGERS):
        for token in (ALICE, "ray:lab:reader"):
            problem = lab.problem(403, "GET", path, token=token)
            assert problem["code"] == "forbidden"
            assert "private name" not in str(problem)
    for query, parameter in (("sort=name", "sort"), ("marker=x", "marker"), ("limit=0", "limit")):
        problem = lab.problem(400, "GET", f"{EVENTS}?{query}", token=ADMIN)
        assert [error["parameter"] for error in problem["errors"]] == [parameter]
    assert lab.problem(400, "GET", f"{MANAGERS}?limit=1", token=ADMIN)["code"] == "invalid_input"
