"""The number of statements of a request does not depend on the amount of data."""

import datetime as dt
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from climate.core.lease.model import HOST
from climate.db.engine import driver_statement
from climate.db.engine.database import Database
from climate.db.engine.driver_statement import DriverStatement
from climate.db.tables.leases import (
    AllocationRow,
    EventRow,
    LeaseRow,
    ReservationRow,
    ResourceProperty,
    ResourceRow,
)
from climate.manager.process.calendar_memory.memory import CalendarMemory
from tests.conftest import MakeStory
from tests.support.service import Story, host_reservation

# Bookings are every other hour from here on; the hours in between are free.
FIRST_MINUTE = 24 * 60
FIRST = dt.timedelta(minutes=FIRST_MINUTE)
STEP = dt.timedelta(hours=2)
HOUR = dt.timedelta(hours=1)


@pytest.fixture(autouse=True)
def _no_calendar_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the thread of the calendar in memory from sending statements at any time."""
    monkeypatch.setattr(CalendarMemory, "_start", lambda _: None)


@contextmanager
def _statements(database: Database) -> Iterator[list[str]]:
    """Collect every statement except the hints that a thread sends later."""
    statements: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if "pg_notify" not in statement:
            statements.append(" ".join(statement.split())[:120])

    def run(engine: sa.Engine, statement: DriverStatement, values: Any) -> Any:
        note(None, None, statement.text.decode())
        return run_by_driver(engine, statement, values)

    run_by_driver = driver_statement.run
    sa.event.listen(database.engine, "before_cursor_execute", note)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(driver_statement, "run", run)
            yield statements
    finally:
        sa.event.remove(database.engine, "before_cursor_execute", note)


def _add_hosts(story: Story, count: int) -> None:
    now = story.clock.now()
    with story.runtime.database.engine.begin() as connection:
        counting = sa.select(sa.func.count()).select_from(ResourceRow)
        present = connection.scalars(counting).one()
        names = [f"host-{number}" for number in range(present, count)]
        rows = [
            {"type": HOST, "external_id": name, "reservable": True, "created_at": now}
            for name in names
        ]
        connection.execute(sa.insert(ResourceRow), rows)
        created = sa.select(ResourceRow.id).where(ResourceRow.external_id.in_(names))
        properties = [
            {"resource_id": id_, "name": "vcpus", "value": "16", "number": 16.0, "native": True}
            for id_ in connection.scalars(created)
        ]
        connection.execute(sa.insert(ResourceProperty), properties)


def _add_bookings(story: Story, present: int, count: int) -> None:
    """Book every host for ``count`` slots; the first ``present`` leases are there already."""
    for number in range(present, count):
        start = story.clock.now() + FIRST + number * STEP
        lease_id, reservation_id = str(uuid.uuid4()), str(uuid.uuid4())
        common = {"status": "PENDING", "created_at": story.clock.now()}
        window = {"start_at": start, "end_at": start + HOUR}
        with story.runtime.database.engine.begin() as connection:
            owner = {"name": "lease", "user_id": "admin", "project_id": "admin"}
            lease = {"id": lease_id, **owner, **common, **window, "degraded": False, "notices": []}
            connection.execute(sa.insert(LeaseRow).values(**lease))
            reservation = {
                "id": reservation_id,
                "lease_id": lease_id,
                "position": 0,
                "resource_type": HOST,
                "params": host_reservation(before_end="default"),
                "details": {},
                "missing_resources": False,
                "resources_changed": False,
                **common,
                "status": "pending",
            }
            connection.execute(sa.insert(ReservationRow).values(**reservation))
            event: dict[str, Any] = {
                "id": str(uuid.uuid4()),
                "lease_id": lease_id,
                "kind": "start_lease",
            }
            event |= {"rank": 1, "due_at": start, "run_at": start, "attempt": 0, **common}
            connection.execute(sa.insert(EventRow).values(**{**event, "status": "UNDONE"}))
            hosts = connection.scalars(sa.select(ResourceRow.id)).all()
            booking = {
                "reservation_id": reservation_id,
                "start_at": start,
                "busy_until": start + HOUR,
            }
            rows = [{**booking, "resource_id": host} for host in hosts]
            connection.execute(sa.insert(AllocationRow), rows)


# Requests with the id of a lease, and that of one of its hosts.
_READ = [
    "/v2/leases?limit=1000",
    "/v2/leases?limit=2&status=PENDING&resource_type=physical:host&sort=name",
    "/v2/leases/{0}",
    "/v2/leases/{0}/resources?limit=1000",
    "/v2/resources?limit=1000",
    "/v2/resources?limit=2&properties=%5B%22==%22,%22$vcpus%22,16%5D",
    "/v2/resources?limit=1000&bookings=true&sort=name&q=host&state=ready",
    "/v2/resources/{1}/bookings?limit=1000",
    "/v2/resource-types/physical:host/properties",
    "/v2/managers",
]


def _count(story: Story, size: int = 4) -> dict[str, list[str]]:
    """Send each request once; return its statements by request."""
    reservation = host_reservation(2, size, hypervisor_properties='[">=", "$vcpus", "16"]')
    start = FIRST_MINUTE + 5 * 120 + 60  # between two bookings
    body = story.lease_body(start, start + 60, reservations=[reservation])
    too_many = story.lease_body(
        start, start + 60, reservations=[{**reservation, "min": 9_000, "max": 9_000}]
    )
    statements: dict[str, list[str]] = {}

    def send(method: str, path: str, body: Any = None, status: int = 200) -> Any:
        with _statements(story.runtime.database) as statements[f"{method} {path} {status}"]:
            response = story.call(method, path.format(*lease), body)
        assert response.status_code == status, response.get_data(as_text=True)
        return response.get_json()

    lease: list[str] = []
    created = send("POST", "/v1/leases", body, 201)["lease"]
    lease.append(created["id"])
    grown = {"id": created["reservations"][0]["id"], "min": size, "max": 2 * size}
    moved = {"start_date": story.date(start + 10), "end_date": story.date(start + 50)}
    send("PUT", "/v1/leases/{0}", {"reservations": [grown], **moved})
    send("GET", "/v1/leases/{0}")
    send("POST", "/v1/leases", too_many, 409)
    send("GET", "/v1/leases")
    send("GET", "/v1/os-hosts")
    send("GET", "/v1/os-hosts/allocations")
    lease.append(story.hosts_of(lease[0])[0])
    for path in _READ:
        send("GET", path)
    grown = {"id": created["reservations"][0]["id"], "params": {"min": size, "max": 2 * size}}
    send("PATCH", "/v2/leases/{0}", {"reservations": [grown]})
    send("DELETE", "/v1/leases/{0}", status=204)
    return statements


def _assert_same(before: dict[str, list[str]], after: dict[str, list[str]]) -> None:
    assert {name: len(sent) for name, sent in before.items()} == {
        name: len(sent) for name, sent in after.items()
    }, {name: [before[name], after[name]] for name in before}


@pytest.fixture
def small(story_everywhere: Story) -> Story:
    """Return a service with ten hosts and one booking of each."""
    _add_hosts(story_everywhere, 10)
    _add_bookings(story_everywhere, 0, 1)
    return story_everywhere


def test_admission_takes_few_statements_on_each_database(story_everywhere: Story) -> None:
    with _statements(story_everywhere.runtime.database) as sent:
        story_everywhere.reserve(FIRST_MINUTE + 60, FIRST_MINUTE + 120)
    verbs = [statement.split()[0] for statement in sent]
    if story_everywhere.runtime.database.dialect == "postgresql":
        assert verbs == ["WITH"], sent
    else:
        # Count the leases, find, lock, check again; lease, reservations, events, allocations,
        # notification.
        assert verbs == ["SELECT"] * 4 + ["INSERT"] * 5, sent


def test_counts_do_not_depend_on_hosts_bookings_or_the_size_of_a_lease(small: Story) -> None:
    before = _count(small)
    _add_hosts(small, 250)
    _assert_same(before, _count(small))
    _assert_same(before, _count(small, 100))
    _add_bookings(small, 1, 12)
    _assert_same(before, _count(small))


def test_a_push_of_stats_takes_the_same_statements_for_one_host_and_for_many(small: Story) -> None:
    def sent(numbers: range, generation: int) -> list[str]:
        items = [
            {"resource": f"host-{n}", "generation": generation, "stats": {"load": generation}}
            for n in numbers
        ]
        with _statements(small.runtime.database) as statements:
            small.ok("POST", "/v2/resources/stats", {"items": items})
        return [statement.split()[0] for statement in statements]

    few, many = range(4, 5), range(4, 10)
    # Resources, generations, values; new values and generations; the definition of the property.
    assert sent(few, 1) == ["SELECT"] * 3 + ["INSERT"] * 2 + ["SELECT", "INSERT"]
    assert sent(range(5, 10), 1) == ["SELECT"] * 3 + ["INSERT"] * 2 + ["SELECT"]
    assert sent(few, 2) == sent(many, 3) == ["SELECT"] * 3 + ["UPDATE"] * 2
    assert sent(many, 3) == ["SELECT"] * 3


def _sent_for_a_lease(story: Story) -> list[str]:
    """Create, change, start, end and delete leases; return the statements."""
    with _statements(story.runtime.database) as statements:
        lease = story.reserve(60, 120)
        story.ok("PUT", f"/v1/leases/{lease['id']}", {"end_date": story.date(180)})
        story.ok("DELETE", f"/v1/leases/{lease['id']}")
        lease = story.reserve(0, 60)
        story.run()
        story.ok("PUT", f"/v1/leases/{lease['id']}", {"end_date": story.date(90)})
        story.at(90)
        story.ok("DELETE", f"/v1/leases/{lease['id']}")
        story.dispatcher.upkeep.renew()
        story.dispatcher.upkeep.tidy()
    return statements


def test_limits_and_enforcement_take_no_statement_unless_configured(
    make_story: MakeStory,
) -> None:
    story = make_story(limits__project_leases=-1)
    story.register(4)
    sent = _sent_for_a_lease(story)
    assert len(sent) > 50
    assert [statement for statement in sent if re.search(r"\b(limits|past_use)\b", statement)] == []
    # Events that outlive their lease have a statement of their own.
    assert [
        statement for statement in sent if statement.startswith("INSERT INTO events (id, kind")
    ] == []
    with _statements(story.runtime.database) as reserving:
        story.reserve(60, 120)
    # Find, lock, check again, store.
    assert [statement.split()[0] for statement in reserving] == [
        *["SELECT"] * 3,
        *["INSERT"] * 5,
    ]


def _sent_to_reserve(story: Story, token: str) -> list[str]:
    with _statements(story.runtime.database) as statements:
        story.ok("POST", "/v1/leases", story.lease_body(), token=token)
    return statements


def test_limits_cost_one_statement_without_a_limit_and_none_for_the_exempt(
    make_story: MakeStory,
) -> None:
    options = {"limits__project_leases": -1, "limits__exempt_users": ["root"]}
    story = make_story(limits__enabled=True, **options)
    story.register(4)
    exempt, unlimited = (_sent_to_reserve(story, user) for user in ("root:a", "alice:a"))
    assert [statement for statement in exempt if "limits" in statement] == []
    [read] = [statement for statement in unlimited if "limits" in statement]
    assert read.startswith("SELECT")
    assert len(unlimited) == len(exempt) + 1


def test_enforcing_limits_takes_four_statements_whatever_the_usage(make_story: MakeStory) -> None:
    high_limits = {"leases": 99, "hosts": 99, "vcpus": 9999, "host_hours": 9999}
    options = {f"limits__project_{name}": value for name, value in high_limits.items()}
    story = make_story(limits__enabled=True, **options)
    story.register(4)
    _sent_to_reserve(story, "admin:admin")  # creates the row that later requests lock
    before = _sent_to_reserve(story, "admin:admin")
    _add_hosts(story, 20)
    _add_bookings(story, 0, 30)
    after = _sent_to_reserve(story, "admin:admin")
    assert len(before) == len(after)
    # Read the limits, lock the row, count the leases, add up their usage.
    exempt = _sent_to_reserve(make_story(limits__project_leases=-1), "admin:admin")
    assert len(after) == len(exempt) + 4
