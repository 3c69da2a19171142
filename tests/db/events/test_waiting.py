"""Events that wait for a worker: their order, and what it costs to list them."""

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from climate.db.engine.database import Database
from climate.db.events import queue as event_queue
from climate.db.events import waiting as event_waiting
from climate.db.tables.leases import ReservationRow
from tests.support.backends import on_postgresql, on_sqlite
from tests.support.event_queue import add_hosts, add_lease, at


def waiting(database: Database, limit: int, skip: int = 0) -> list[str]:
    """Return the ids of the events that wait 50 minutes after noon."""
    with database.read() as session:
        return [event.event_id for event in event_waiting.pending(session, at(50), limit, skip)]


def become_stacks(database: Database, *leases: str) -> None:
    """Change the resource type of leases."""
    change = sa.update(ReservationRow).where(ReservationRow.lease_id.in_(leases))
    with database.engine.begin() as connection:
        connection.execute(change.values(resource_type="virtual:stack"))


@pytest.fixture
def crowd(database: Database) -> Database:
    """Return a database in which five leases of hosts start, and then one of a stack."""
    for number in range(5):
        add_lease(database, f"host-{number}", number, 100)
    add_lease(database, "stack", 10, 100)
    become_stacks(database, "stack")
    return database


HOSTS = [f"host-{number} start" for number in range(5)]


@on_sqlite
def test_a_short_queue_is_in_the_order_of_due_times(crowd: Database) -> None:
    assert waiting(crowd, 6) == [*HOSTS, "stack start"]


def test_a_long_queue_alternates_between_resource_types(crowd: Database) -> None:
    assert waiting(crowd, 3) == [HOSTS[0], "stack start", HOSTS[1]]
    assert waiting(crowd, 3, 3) == HOSTS[2:]
    assert waiting(crowd, 3, 6) == []


@on_sqlite
def test_each_event_has_its_project_and_resource_types(crowd: Database) -> None:
    with crowd.read() as session:
        for limit in (6, 5):
            groups = {
                event.event_id: event.group
                for event in event_waiting.pending(session, at(50), limit)
            }
            assert groups[HOSTS[0]] == ("project", frozenset({"physical:host"}))
            assert groups["stack start"] == ("project", frozenset({"virtual:stack"}))


@on_sqlite
def test_known_events_need_no_second_statement(crowd: Database) -> None:
    statements: list[str] = []
    with crowd.read() as session:
        known = {event.event_id: event for event in event_waiting.pending(session, at(50), 7)}
        sa.event.listen(
            crowd.engine,
            "before_cursor_execute",
            lambda *arguments: statements.append(arguments[2]),
        )
        assert event_waiting.pending(session, at(50), 7, known=known) == list(known.values())
    assert len(statements) == 1


@on_sqlite
def test_newly_due_events_are_those_since_a_time_that_are_not_known(crowd: Database) -> None:
    with crowd.read() as session:
        newly_due = event_waiting.newly_due(session, at(3), at(9), 7, {"host-4 start"})
        assert [(event.event_id, event.project_id) for event in newly_due] == [
            ("host-3 start", "project")
        ]
        newly_due = event_waiting.newly_due(session, at(3), at(10), 7, ())
        assert [event.event_id for event in newly_due] == [*HOSTS[3:], "stack start"]
        assert newly_due[2].types == frozenset({"virtual:stack"})
        assert [
            event.event_id for event in event_waiting.newly_due(session, at(3), at(10), 2, ())
        ] == HOSTS[3:]


@on_sqlite
def test_unclaimed_events_are_still_waiting(crowd: Database) -> None:
    crowd.write(lambda session: event_queue.claim(session, "me", at(50), at(51), HOSTS[:2]))
    with crowd.read() as session:
        assert event_waiting.unclaimed(session, HOSTS) == set(HOSTS[2:])


PAST = sa.text(
    "INSERT INTO events (id, lease_id, kind, rank, due_at, run_at, status, attempt, created_at)"
    " SELECT 'past-' || n, NULL, 'told', 0, moment, moment, 'DONE', 1, moment FROM"
    " (SELECT n, timestamptz '2000-01-01' + n * interval '1 minute' AS moment"
    " FROM generate_series(1, 100000) AS n) AS past"
)


@on_postgresql
def test_postgresql_does_not_read_past_events(
    database: Database, subtests: pytest.Subtests
) -> None:
    """Also with generic plans, which our prepared statements use."""
    [host] = add_hosts(database, 1)
    add_lease(database, "a", 0, 100, [host])
    statements = [
        event_waiting._FEW,
        event_waiting._DESCRIBED,
        event_queue._CLAIMS,
        event_queue._NEXT,
        event_queue._CLAIMABLE,
    ]
    with database.engine.begin() as connection:
        connection.execute(PAST)
        connection.exec_driver_sql("ANALYZE events")
        for statement in statements:
            with subtests.test(statement=str(statement)):
                steps = plan(connection, statement)
                assert "Index" in steps
                assert "Seq Scan on events" not in steps, steps


def plan(connection: sa.Connection, statement: sa.Select[int]) -> str:
    """Return PostgreSQL's plan of a statement for unknown parameters."""
    numbered = postgresql.dialect(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]
    bound = statement.params(now=at(0), since=at(0), ids=["a"], limit=1)
    text = bound.compile(dialect=numbered, compile_kwargs={"render_postcompile": True})
    connection.exec_driver_sql(f"PREPARE examined AS {text}")
    types = "SELECT coalesce(cardinality(parameter_types), 0) FROM pg_prepared_statements"
    count = connection.exec_driver_sql(f"{types} WHERE name = 'examined'").scalar_one()
    parameters = f"({', '.join(['NULL'] * count)})" if count else ""
    steps = connection.exec_driver_sql(f"EXPLAIN EXECUTE examined{parameters}").scalars().all()
    connection.exec_driver_sql("DEALLOCATE examined")
    return "\n".join(steps)
