"""The line of events that wait for a worker: in which order, and what it takes to look at it."""

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from climate.db import events, line
from climate.db.engine import Database
from climate.db.tables import ReservationRow
from tests.support.event_queue import add_hosts, add_lease, at


def waiting(database: Database, limit: int, skip: int = 0) -> list[str]:
    """Return what waits at noon and 50 minutes."""
    with database.read() as session:
        return [one.event_id for one in line.waiting(session, at(50), limit, skip)]


def become_stacks(database: Database, *leases: str) -> None:
    """Have leases be of another resource type."""
    mine = sa.update(ReservationRow).where(ReservationRow.lease_id.in_(leases))
    with database.engine.begin() as connection:
        connection.execute(mine.values(resource_type="virtual:stack"))


@pytest.fixture
def crowd(database: Database) -> Database:
    """Return a database in which five leases of hosts are to start, and then one of a stack."""
    for number in range(5):
        add_lease(database, f"host-{number}", number, 100)
    add_lease(database, "stack", 10, 100)
    become_stacks(database, "stack")
    return database


HOSTS = [f"host-{number} start" for number in range(5)]


def test_few_come_as_they_are_due(crowd: Database) -> None:
    assert waiting(crowd, 6) == [*HOSTS, "stack start"]


def test_of_many_the_first_of_each_resource_type_come_first(crowd: Database) -> None:
    assert waiting(crowd, 3) == [HOSTS[0], "stack start", HOSTS[1]]
    assert waiting(crowd, 3, 3) == HOSTS[2:]
    assert waiting(crowd, 3, 6) == []


def test_each_comes_with_its_project_and_its_types(crowd: Database) -> None:
    with crowd.read() as session:
        for limit in (6, 5):
            found = {one.event_id: one.group for one in line.waiting(session, at(50), limit)}
            assert found[HOSTS[0]] == ("project", frozenset({"physical:host"}))
            assert found["stack start"] == ("project", frozenset({"virtual:stack"}))


def test_who_is_known_is_not_asked_about_again(crowd: Database) -> None:
    asked: list[str] = []
    with crowd.read() as session:
        known = {one.event_id: one for one in line.waiting(session, at(50), 7)}
        sa.event.listen(
            crowd.engine, "before_cursor_execute", lambda *given: asked.append(given[2])
        )
        assert line.waiting(session, at(50), 7, known=known) == list(known.values())
    assert len(asked) == 1


def test_newcomers_are_those_who_became_due_since_and_are_not_known(crowd: Database) -> None:
    with crowd.read() as session:
        seen = line.newcomers(session, at(3), at(9), 7, {"host-4 start"})
        assert [(one.event_id, one.project_id) for one in seen] == [("host-3 start", "project")]
        seen = line.newcomers(session, at(3), at(10), 7, ())
        assert [one.event_id for one in seen] == [*HOSTS[3:], "stack start"]
        assert seen[2].types == frozenset({"virtual:stack"})
        assert [one.event_id for one in line.newcomers(session, at(3), at(10), 2, ())] == HOSTS[3:]


def test_those_still_wait_whom_nobody_has_claimed(crowd: Database) -> None:
    crowd.write(lambda session: events.claim(session, "me", at(50), at(51), HOSTS[:2]))
    with crowd.read() as session:
        assert line.still_waiting(session, HOSTS) == set(HOSTS[2:])


PAST = sa.text(
    "INSERT INTO events (id, lease_id, kind, rank, due_at, run_at, status, attempt, created_at)"
    " SELECT 'past-' || n, NULL, 'told', 0, moment, moment, 'DONE', 1, moment FROM"
    " (SELECT n, timestamptz '2000-01-01' + n * interval '1 minute' AS moment"
    " FROM generate_series(1, 100000) AS n) AS past"
)


@pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
@pytest.mark.parametrize(
    "statement", [line._FEW, line._DESCRIBED, events._CLAIMS, events._NEXT, events._CLAIMABLE]
)
def test_what_is_over_need_not_be_read(database: Database, statement: sa.Select[int]) -> None:
    """Nor though PostgreSQL plans for values that it does not know, as our connections have it."""
    [host] = add_hosts(database, 1)
    add_lease(database, "a", 0, 100, [host])
    with database.engine.begin() as connection:
        connection.execute(PAST)
        connection.exec_driver_sql("ANALYZE events")
        steps = plan(connection, statement)
    assert "Index" in steps
    assert "Seq Scan on events" not in steps, steps


def plan(connection: sa.Connection, statement: sa.Select[int]) -> str:
    """Return how PostgreSQL goes about a statement, whatever its parameters are."""
    numbered = postgresql.dialect(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]
    asked = statement.params(now=at(0), since=at(0), ids=["a"], limit=1)
    text = asked.compile(dialect=numbered, compile_kwargs={"render_postcompile": True})
    connection.exec_driver_sql(f"PREPARE asked AS {text}")
    known = "SELECT coalesce(cardinality(parameter_types), 0) FROM pg_prepared_statements"
    count = connection.exec_driver_sql(f"{known} WHERE name = 'asked'").scalar_one()
    given = f"({', '.join(['NULL'] * count)})" if count else ""
    return "\n".join(connection.exec_driver_sql(f"EXPLAIN EXECUTE asked{given}").scalars())
