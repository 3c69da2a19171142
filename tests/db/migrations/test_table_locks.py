"""A migration does not keep requests waiting for a table that another transaction uses."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from climate.db.engine import galera, schema
from climate.db.engine.database import Database
from climate.db.migrations import table_locks
from climate.db.migrations.table_locks import TableInUse
from tests.support import servers
from tests.support.backends import on_servers

on_mariadb = pytest.mark.parametrize("backend", ["mariadb"], indirect=True)
_QUERY = "SELECT count(*) FROM outbox"
_WAITING = sa.text(
    "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database"
    " WHERE NOT granted AND datname = current_database()"
)
# The next migration changes the table "outbox" in its last statement.
_BEFORE = "0029"
# Limits waits that never end if a guard is missing, in seconds.
_DEADLINE = 10


@pytest.fixture
def previous(backend: str) -> Iterator[Database]:
    """Return a database of each server with the schema before the migration."""
    database = Database(servers.create(backend), statement_wait=_DEADLINE)
    schema.upgrade(database, _BEFORE)
    yield database
    database.dispose()


@contextmanager
def _held(database: Database) -> Iterator[None]:
    """Return a context in which an open transaction has read the table."""
    with database.engine.connect() as holder:
        holder.exec_driver_sql(_QUERY)
        yield


@on_mariadb
def test_requests_are_answered_while_a_migration_waits_for_their_table(
    previous: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL ends the migration instead."""
    waiting = threading.Event()
    monkeypatch.setattr(table_locks, "WAIT", 1)
    monkeypatch.setattr(table_locks, "PAUSE", 0.5)
    monkeypatch.setattr(table_locks, "_report", lambda *_: waiting.set())
    migrating = Database(previous.engine.url.render_as_string(hide_password=False))
    thread = threading.Thread(target=schema.upgrade, args=(migrating,))
    with _held(previous):
        thread.start()
        is_waiting = waiting.wait(_DEADLINE)
        with previous.engine.connect() as request:
            request.exec_driver_sql(_QUERY)
        has_waited = thread.is_alive()
    thread.join()
    migrating.dispose()
    assert is_waiting
    assert has_waited
    schema.check(previous)


@pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
@pytest.mark.parametrize("revisions", [("0033", "0034"), ("0034", "0033")], ids=["up", "down"])
def test_a_migration_of_two_tables_has_no_deadlock_with_a_request(
    previous: Database, revisions: tuple[str, str]
) -> None:
    """A request writes its lease before its notification, so the migration 0034 locks so, too."""
    before, after = revisions
    schema.upgrade(previous, before)
    change = schema.upgrade if before < after else schema.downgrade
    with (
        ThreadPoolExecutor() as threads,
        previous.engine.connect() as request,
    ):
        request.exec_driver_sql("LOCK TABLE leases IN ROW EXCLUSIVE MODE")
        migration = threads.submit(change, previous, after)
        while not request.scalar(_WAITING):
            assert not migration.done(), migration.exception()
        request.exec_driver_sql("LOCK TABLE outbox IN ROW EXCLUSIVE MODE")
        request.commit()
        migration.result(_DEADLINE)


@on_servers
def test_a_migration_that_does_not_get_its_table_names_it_and_can_be_run_again(
    previous: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_locks, "WAIT", 0)
    monkeypatch.setattr(table_locks, "ATTEMPTS", 1)
    migrating = Database(previous.engine.url.render_as_string(hide_password=False))
    if previous.dialect == "postgresql":
        event.listen(migrating.engine, "connect", _wait_briefly)
    with _held(previous), pytest.raises(TableInUse, match=r"lock the table outbox, .* again: it"):
        schema.upgrade(migrating)
    schema.upgrade(migrating)
    schema.check(migrating)
    if previous.dialect == "mysql":
        with migrating.engine.connect() as connection:
            shown = connection.scalar(sa.text("SELECT @@lock_wait_timeout"))
        assert shown > 0, "connections for other purposes keep their setting"
    migrating.dispose()


@on_mariadb
def test_a_migration_of_a_galera_cluster_has_no_limit(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(galera, "is_galera", lambda _: True)
    shown = sa.text("SELECT @@lock_wait_timeout = @@global.lock_wait_timeout")
    with database.engine.connect() as connection, table_locks.limited(connection):
        assert connection.scalar(shown)


def _wait_briefly(connection: Any, _record: object) -> None:
    connection.execute("SET lock_timeout = '100ms'")
    connection.commit()


_STATEMENTS = {
    "ALTER TABLE leases ADD COLUMN IF NOT EXISTS version BIGINT": "the table leases",
    "ALTER TABLE leases ADD INDEX IF NOT EXISTS leases_trust_id (a)": "the table leases",
    """
    CREATE TABLE IF NOT EXISTS waits (
        id INT, FOREIGN KEY(id) REFERENCES leases (id) ON DELETE CASCADE
    )
    """: "the tables waits, leases",
    """
    CREATE OR REPLACE TRIGGER changed AFTER UPDATE ON resources FOR EACH ROW
    BEGIN INSERT INTO booking_changes VALUES (1); END
    """: "the table resources",
    "CREATE UNIQUE INDEX outbox_new ON outbox (id)": "the table outbox",
    "UPDATE relay SET published_seq = (SELECT min(seq) FROM outbox)": "the table relay",
    "DELETE FROM leases WHERE status = 'WAITING'": "the table leases",
    "DROP TRIGGER IF EXISTS changed": "the table of 'DROP TRIGGER IF EXISTS changed'",
}


def test_describes_the_tables_that_a_statement_locks() -> None:
    described = {statement: table_locks.described(statement) for statement in _STATEMENTS}
    assert described == _STATEMENTS
