"""A migration that is interrupted on MariaDB can be run again, from any point."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from climate.db.engine import schema
from climate.db.engine.database import Database
from tests.support import servers
from tests.support.schema_description import described, tables

#: MariaDB commits each schema change by itself; other databases roll the whole migration back.
pytestmark = pytest.mark.parametrize("backend", ["mariadb"], indirect=True)
EVERY_POINT = pytest.mark.nightly(reason="CI interrupts each migration at one point")

Step = Callable[[Database, str], None]
# The statements of one migration that change something, and a choice of their numbers, from 1.
Choice = Callable[[int], set[int]]


class _Interrupted(Exception):
    """Ends a migration between two statements."""


@pytest.fixture
def make(backend: str) -> Iterator[Callable[[], Database]]:
    """Return a function that makes a database without a schema."""
    made: list[Database] = []

    def make_one() -> Database:
        made.append(Database(servers.create(backend)))
        return made[-1]

    yield make_one
    for database in made:
        database.dispose()


@contextmanager
def _after_each_change(database: Database, act: Callable[[str], None]) -> Iterator[None]:
    """Call ``act`` with each statement that changes the database, after the statement."""

    def listen(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        text = statement.lstrip()
        is_change = not text.startswith(("SELECT", "SHOW", "DESCRIBE", "SET"))
        if is_change and not (text.startswith("CREATE TABLE") and "alembic_version" in text):
            act(statement)

    event.listen(database.engine, "after_cursor_execute", listen)
    try:
        yield
    finally:
        event.remove(database.engine, "after_cursor_execute", listen)


def _counts(database: Database, step: Step, revision: str) -> list[int]:
    """Migrate to ``revision``, and return how many statements of each migration change something.

    The last statement of a migration writes the version.
    """
    counts = [0]

    def act(statement: str) -> None:
        counts[-1] += 1
        if "alembic_version" in statement:
            counts.append(0)

    with _after_each_change(database, act):
        step(database, revision)
    return [count for count in counts if count]


def _interrupt(database: Database, step: Step, revision: str, point: int) -> None:
    """Migrate to ``revision``, and stop after ``point`` statements."""
    changes: list[str] = []

    def act(statement: str) -> None:
        changes.append(statement)
        if len(changes) == point:
            raise _Interrupted

    with _after_each_change(database, act), pytest.raises(_Interrupted):
        step(database, revision)


def _migrate_with_interruptions(
    database: Database, step: Step, revision: str, counts: list[int], choose: Choice
) -> None:
    """Migrate to ``revision``, and interrupt each migration after the chosen statements.

    ``counts`` contains the number of statements of each migration.
    """
    unfinished = 0  # the statements of the migration before, which run again
    for count in counts:
        for point in sorted(choose(count)):
            _interrupt(database, step, revision, unfinished + point)
            unfinished = 0
        unfinished = count
    step(database, revision)


def _last(count: int) -> set[int]:
    """Choose the statement before the version is written: all statements run again."""
    return {max(1, count - 1)}


def _every(count: int) -> set[int]:
    return set(range(1, count + 1))


def _content(database: Database) -> list[str]:
    with database.engine.connect() as connection:
        triggers = connection.exec_driver_sql("SHOW TRIGGERS").all()
        relay = connection.exec_driver_sql("SELECT * FROM relay").all()
    return [*described(database), *(f"{row[0]} {row[3]}" for row in triggers), str(relay)]


@pytest.mark.parametrize(
    "choose",
    [pytest.param(_last, id="last"), pytest.param(_every, id="every", marks=EVERY_POINT)],
)
def test_an_interrupted_migration_can_be_run_again(
    make: Callable[[], Database], choose: Choice
) -> None:
    whole, interrupted = make(), make()
    counts = _counts(whole, schema.upgrade, "head")
    assert len(counts) == len(schema.revisions())
    _migrate_with_interruptions(interrupted, schema.upgrade, "head", counts, choose)
    assert _content(interrupted) == _content(whole)
    schema.check(interrupted)

    counts = _counts(whole, schema.downgrade, "base")
    assert len(counts) == len(schema.revisions())
    _migrate_with_interruptions(interrupted, schema.downgrade, "base", counts, choose)
    assert tables(interrupted) == tables(whole) == ["alembic_version"]


def test_the_relays_progress_survives_interruptions(make: Callable[[], Database]) -> None:
    """Revision 0018 computes rows from a column that its downgrade drops."""
    database = make()
    schema.upgrade(database, "0017")
    _execute(database, "UPDATE relay SET last_seq = 7")
    _interrupt(database, schema.upgrade, "0018", 2)
    schema.upgrade(database, "0018")
    assert _scalar(database, "SELECT published_seq FROM relay") == 7
    _execute(
        database,
        "INSERT INTO outbox (seq, message_id, event_type, project_id, payload, created_at)"
        " VALUES (7, 'm', 'kind', 'p', '{}', now()), (8, 'm', 'kind', 'p', '{}', now())",
    )
    _interrupt(database, schema.downgrade, "0017", 2)
    schema.downgrade(database, "0017")
    assert _scalar(database, "SELECT max(seq) FROM outbox WHERE published_at IS NOT NULL") == 7


def _execute(database: Database, statement: str) -> None:
    with database.engine.begin() as connection:
        connection.exec_driver_sql(statement)


def _scalar(database: Database, query: str) -> Any:
    with database.engine.connect() as connection:
        return connection.scalar(sa.text(query))
