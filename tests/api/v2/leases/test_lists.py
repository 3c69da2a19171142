"""GET /v2/leases: pages that neither repeat nor lose a lease, orders, filters and projects."""

from typing import Any
from urllib.parse import urlencode

import pytest
import sqlalchemy as sa

from climate.core.page import LEASE_SORTS
from tests.support.service import Story

LEASES = "/v2/leases"
ALICE, EVE, ADMIN = "alice:lab", "eve:other", "boss:ops:admin"


def get_page(story: Story, token: str | None = None, **query: Any) -> dict[str, Any]:
    return dict(story.ok("GET", f"{LEASES}?{urlencode(query, doseq=True)}", token=token))


def walk(story: Story, token: str | None = None, **query: Any) -> list[dict[str, Any]]:
    """Return the leases of all pages."""
    page = get_page(story, token, **query)
    found = page["leases"]
    while page["next"]:
        assert len(page["leases"]) == int(query.get("limit", 100))
        page = story.ok("GET", page["next"], token=token)
        found += page["leases"]
    return list(found)


def names(found: list[dict[str, Any]]) -> list[str]:
    return sorted(lease["name"] for lease in found)


def create(story: Story, name: str, start: str, end: str, token: str = ALICE) -> str:
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
        create(story, name, start, end)
        story.clock.advance(1)
    create(story, "e", "18:00", "19:00", EVE)
    return story


def test_pages_of_any_size_make_up_the_list_in_every_order(fleet: Story) -> None:
    keys = {"start": "start", "end": "end", "created": "created_at", "name": "name"}
    for name in LEASE_SORTS:
        for sort in (name, f"-{name}"):
            whole = walk(fleet, ALICE, sort=sort)
            found = [(lease[keys[name]], lease["id"]) for lease in whole]
            assert len(found) == 5
            assert found == sorted(found, reverse=sort != name), sort
            for limit in (1, 2, 3, 4, 5):
                assert walk(fleet, ALICE, sort=sort, limit=limit) == whole
    assert walk(fleet, ALICE) == walk(fleet, ALICE, sort="-start")
    assert get_page(fleet, ALICE, limit=5)["next"] is None
    assert get_page(fleet, ALICE, limit=4)["next"] is not None
    assert get_page(fleet, "new:project") == {"leases": [], "next": None}


def test_leases_created_or_removed_meanwhile_move_no_other_lease(fleet: Story) -> None:
    before = walk(fleet, ALICE, sort="start")
    page = get_page(fleet, ALICE, sort="start", limit=2)
    create(fleet, "early", "12:00", "12:30")
    late = create(fleet, "late", "20:00", "21:00")
    for lease in page["leases"]:
        fleet.ok("DELETE", f"{LEASES}/{lease['id']}")
    rest = fleet.ok("GET", page["next"].replace("limit=2", "limit=9"), token=ALICE)["leases"]
    assert [lease["id"] for lease in rest] == [*(lease["id"] for lease in before[2:]), late]


def test_filters_by_name_status_type_times_and_project(fleet: Story) -> None:
    hour = {hour: f"2030-01-16T{hour}:00:00Z" for hour in (14, 15, 16)}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"name": "a"}, "aa"),
        ({"name": "A"}, ""),
        ({"status": "PENDING"}, "aabcd"),
        ({"status": "ACTIVE"}, ""),
        ({"status": ["ACTIVE", "PENDING"]}, "aabcd"),
        ({"resource_type": "physical:host"}, "aabcd"),
        ({"resource_type": "virtual:instance"}, ""),
        ({"starts_before": hour[14]}, "ab"),
        ({"starts_before": "2030-01-16T14:59:59+01:00"}, "ab"),
        ({"starts_after": hour[14]}, "ac"),
        ({"ends_before": hour[15]}, "b"),
        ({"ends_after": hour[15]}, "ac"),
        ({"starts_after": hour[14], "ends_before": hour[16], "name": "a"}, ""),
    ]
    for query, expected in cases:
        for limit in (1, 100):
            found = walk(fleet, ALICE, sort="start", limit=limit, **query)
            assert names(found) == list(expected), query
    assert names(walk(fleet, EVE)) == ["e"]
    assert names(walk(fleet, ADMIN, all_projects="true", limit=2)) == list("aabcde")
    for query in ({}, {"all_projects": "false"}):
        assert walk(fleet, ADMIN, **query) == []
    problem = fleet.problem(403, "GET", f"{LEASES}?all_projects=true", token=ALICE)
    assert problem["code"] == "forbidden"


def test_the_default_orders_are_read_from_an_index(story: Story) -> None:
    sent: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_rest: Any) -> None:
        if "FROM leases" in statement:
            sent.append((statement, parameters))

    engine = story.runtime.database.engine
    for name in ("a", "b"):
        create(story, name, "13:00", "14:00")
    sa.event.listen(engine, "before_cursor_execute", note)
    walk(story, ALICE, limit=1)
    walk(story, None, limit=1, all_projects=1, sort="start")
    sa.event.remove(engine, "before_cursor_execute", note)
    assert len(sent) == 4
    with engine.connect() as connection:
        for statement, parameters in sent:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
            steps = " ".join(row[3] for row in plan)
            assert "USING INDEX leases_" in steps, steps
            assert "TEMP B-TREE" not in steps, steps
