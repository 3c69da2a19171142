"""How many statements a request takes must not depend on how much there is."""

import datetime as dt
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from climate.db.engine import Database
from climate.db.tables import (
    AllocationRow,
    EventRow,
    LeaseRow,
    ReservationRow,
    ResourceProperty,
    ResourceRow,
)
from tests.conftest import MakeStory
from tests.service import Story, host_reservation

HOST = "physical:host"
# Bookings are every other hour from here on; the hours in between are free.
FIRST_MINUTE = 24 * 60
FIRST = dt.timedelta(minutes=FIRST_MINUTE)
STEP = dt.timedelta(hours=2)
HOUR = dt.timedelta(hours=1)


@contextmanager
def _statements(database: Database) -> Iterator[list[str]]:
    """Collect all that is sent to the database, but for the hints that a thread sends later."""
    found: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if not statement.startswith("NOTIFY"):
            found.append(" ".join(statement.split())[:120])

    sa.event.listen(database.engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        sa.event.remove(database.engine, "before_cursor_execute", note)


def _add_hosts(story: Story, count: int) -> None:
    now = story.clock.now()
    with story.runtime.database.engine.begin() as connection:
        present = connection.scalar(sa.select(sa.func.count()).select_from(ResourceRow))
        names = [f"host-{number}" for number in range(present, count)]
        rows = [
            {"type": HOST, "external_id": name, "reservable": True, "created_at": now}
            for name in names
        ]
        connection.execute(sa.insert(ResourceRow), rows)
        made = sa.select(ResourceRow.id).where(ResourceRow.external_id.in_(names))
        properties = [
            {"resource_id": id_, "name": "vcpus", "value": "16", "number": 16.0, "native": True}
            for id_ in connection.scalars(made)
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
            event = {"id": str(uuid.uuid4()), "lease_id": lease_id, "kind": "start_lease"}
            event |= {"rank": 1, "due_at": start, "run_at": start, "attempt": 0, **common}
            connection.execute(sa.insert(EventRow).values(**{**event, "status": "UNDONE"}))
            hosts = connection.scalars(sa.select(ResourceRow.id)).all()
            taken = {
                "reservation_id": reservation_id,
                "start_at": start,
                "busy_until": start + HOUR,
            }
            rows = [{**taken, "resource_id": host} for host in hosts]
            connection.execute(sa.insert(AllocationRow), rows)


def _count(story: Story, size: int = 4) -> dict[str, list[str]]:
    """Make each request once; return by request what it sent to the database."""
    asked = host_reservation(2, size, hypervisor_properties='[">=", "$vcpus", "16"]')
    start = FIRST_MINUTE + 5 * 120 + 60  # between two bookings
    body = story.lease_body(start, start + 60, reservations=[asked])
    too_many = story.lease_body(
        start, start + 60, reservations=[{**asked, "min": 9_000, "max": 9_000}]
    )
    found: dict[str, list[str]] = {}

    def send(method: str, path: str, body: Any = None, status: int = 200) -> Any:
        with _statements(story.runtime.database) as found[f"{method} {path} {status}"]:
            answer = story.call(method, path.format(*lease), body)
        assert answer.status_code == status, answer.get_data(as_text=True)
        return answer.get_json()

    lease: list[str] = []
    made = send("POST", "/v1/leases", body, 201)["lease"]
    lease.append(made["id"])
    grown = {"id": made["reservations"][0]["id"], "min": size, "max": 2 * size}
    moved = {"start_date": story.date(start + 10), "end_date": story.date(start + 50)}
    send("PUT", "/v1/leases/{0}", {"reservations": [grown], **moved})
    send("GET", "/v1/leases/{0}")
    send("POST", "/v1/leases", too_many, 409)
    send("GET", "/v1/leases")
    send("GET", "/v1/os-hosts")
    send("GET", "/v1/os-hosts/allocations")
    send("GET", "/v2/leases?limit=1000")
    send("GET", "/v2/leases?limit=2&status=PENDING&resource_type=physical:host&sort=name")
    send("GET", "/v2/leases/{0}")
    send("GET", "/v2/resources?limit=1000")
    send("GET", "/v2/resources?limit=2&properties=%5B%22==%22,%22$vcpus%22,16%5D")
    grown = {"id": made["reservations"][0]["id"], "params": {"min": size, "max": 2 * size}}
    send("PATCH", "/v2/leases/{0}", {"reservations": [grown]})
    send("DELETE", "/v1/leases/{0}", status=204)
    return found


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


def test_a_lease_is_admitted_in_few_statements(small: Story) -> None:
    with _statements(small.runtime.database) as sent:
        small.reserve(FIRST_MINUTE + 60, FIRST_MINUTE + 120)
    verbs = [one.split()[0] for one in sent]
    if small.runtime.database.dialect == "postgresql":
        # Find and lock, store all.
        assert verbs == ["WITH", "WITH"], sent
    else:
        # Find, lock, look again; lease, reservations, events, allocations, notification.
        assert verbs == ["SELECT"] * 3 + ["INSERT"] * 5, sent


def test_a_thousand_hosts_take_no_more_statements_than_ten(small: Story) -> None:
    before = _count(small)
    _add_hosts(small, 1_000)
    _assert_same(before, _count(small))


def test_a_lease_of_a_hundred_hosts_takes_no_more_statements_than_one_of_a_few(
    small: Story,
) -> None:
    _add_hosts(small, 250)
    _assert_same(_count(small), _count(small, 100))


def test_fifty_bookings_of_each_host_take_no_more_statements_than_one(small: Story) -> None:
    before = _count(small)
    _add_bookings(small, 1, 50)
    _assert_same(before, _count(small))


def _sent_for_a_lease(story: Story) -> list[str]:
    """Make, change, start, end and delete leases; return what went to the database."""
    with _statements(story.runtime.database) as found:
        lease = story.reserve(60, 120)
        story.ok("PUT", f"/v1/leases/{lease['id']}", {"end_date": story.date(180)})
        story.ok("DELETE", f"/v1/leases/{lease['id']}")
        lease = story.reserve(0, 60)
        story.run()
        story.ok("PUT", f"/v1/leases/{lease['id']}", {"end_date": story.date(90)})
        story.at(90)
        story.ok("DELETE", f"/v1/leases/{lease['id']}")
        story.dispatcher.keep()
        story.dispatcher.tidy()
    return found


def test_limits_and_enforcement_that_are_not_configured_take_no_statement(
    story: Story,
) -> None:
    sent = _sent_for_a_lease(story)
    assert len(sent) > 50
    assert [one for one in sent if re.search(r"\b(limits|past_use)\b", one)] == []
    # Events that outlive their lease are written without it.
    assert [one for one in sent if one.startswith("INSERT INTO events (id, kind")] == []
    with _statements(story.runtime.database) as reserving:
        story.reserve(60, 120)
    # A search, a lock, a second look, and what is stored.
    assert [one.split()[0] for one in reserving] == [
        *["SELECT"] * 3,
        *["INSERT"] * 5,
    ]


def _sent_to_reserve(story: Story, token: str) -> list[str]:
    with _statements(story.runtime.database) as found:
        story.ok("POST", "/v1/leases", story.lease_body(), token=token)
    return found


def test_who_has_no_limits_pays_one_look_at_them_and_who_is_exempt_not_even_that(
    make_story: MakeStory,
) -> None:
    story = make_story(limits__enabled=True, limits__exempt_users=["root"])
    story.register(4)
    exempt, unlimited = (_sent_to_reserve(story, user) for user in ("root:a", "alice:a"))
    assert [one for one in exempt if "limits" in one] == []
    [looked] = [one for one in unlimited if "limits" in one]
    assert looked.startswith("SELECT")
    assert len(unlimited) == len(exempt) + 1


def test_counting_takes_as_many_statements_however_much_there_is(make_story: MakeStory) -> None:
    everything = {"leases": 99, "hosts": 99, "vcpus": 9999, "host_hours": 9999}
    options = {f"limits__project_{name}": value for name, value in everything.items()}
    story = make_story(limits__enabled=True, **options)
    story.register(4)
    _sent_to_reserve(story, "admin:admin")  # makes the row that is locked from then on
    before = _sent_to_reserve(story, "admin:admin")
    _add_hosts(story, 20)
    _add_bookings(story, 0, 30)
    after = _sent_to_reserve(story, "admin:admin")
    assert len(before) == len(after)
    # A look, a lock, how many leases, and all that they use.
    exempt = _sent_to_reserve(make_story(), "admin:admin")
    assert len(after) == len(exempt) + 4
