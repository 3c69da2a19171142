"""Transactions: which failures are retried, how often, and what a failed one leaves behind."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm import Session
from tenacity import stop_after_attempt

from climate.core.errors import Contention
from climate.db.engine import database as engine_database
from climate.db.engine import sqlite
from climate.db.engine.advisory_lock import AdvisoryLocks
from climate.db.engine.database import (
    ATTEMPTS,
    PATIENT_ATTEMPT,
    Database,
    LostRace,
    is_patient,
    is_transient,
    is_unavailable,
)
from climate.db.tables.leases import AllocationRow, ResourceRow
from tests.conftest import NOON
from tests.support.backends import on_postgresql, on_servers, on_sqlite


@pytest.fixture
def hasty(database: Database) -> Database:
    """Return a database that does not pause between attempts."""
    return without_pauses(database)


def without_pauses(database: Database) -> Database:
    """Retry at once."""
    database._retrying.sleep = lambda _seconds: None
    return database


def _add(session: Session, name: str) -> None:
    session.execute(
        sa.insert(ResourceRow).values(
            type="physical:host", external_id=name, reservable=True, created_at=NOON
        )
    )


def _rename(session: Session, name: str, new: str) -> None:
    session.execute(
        sa.update(ResourceRow).where(ResourceRow.external_id == name).values(external_id=new)
    )


def _names(database: Database) -> list[str]:
    with database.read() as session:
        return list(
            session.scalars(sa.select(ResourceRow.external_id).order_by(ResourceRow.external_id))
        )


def _losing(times: int, attempts: list[int]) -> Callable[[Session], str]:
    """Return work that adds a row and loses its race ``times`` times."""

    def work(session: Session) -> str:
        attempts.append(session.info["attempt"])
        _add(session, f"added by attempt {attempts[-1]}")
        if len(attempts) <= times:
            raise LostRace
        return "done"

    return work


@on_sqlite
@pytest.mark.parametrize("losses", [0, ATTEMPTS - 1])
def test_a_lost_race_is_retried_and_leaves_nothing_behind(hasty: Database, losses: int) -> None:
    attempts: list[int] = []
    assert hasty.write(_losing(losses, attempts)) == "done"
    assert attempts == list(range(1, losses + 2))
    assert _names(hasty) == [f"added by attempt {losses + 1}"]


@on_sqlite
def test_a_race_lost_too_often_is_reported_as_contention(hasty: Database) -> None:
    attempts: list[int] = []
    with pytest.raises(Contention) as error:
        hasty.write(_losing(1000, attempts))
    assert error.value.status == 503
    assert attempts == list(range(1, ATTEMPTS + 1))
    assert _names(hasty) == []


@on_sqlite
def test_later_attempts_are_patient(hasty: Database) -> None:
    patient: list[bool] = []

    def work(session: Session) -> None:
        patient.append(is_patient(session))
        raise LostRace

    with pytest.raises(LostRace):
        hasty.write(work)
    assert patient == [attempt >= PATIENT_ATTEMPT for attempt in range(1, ATTEMPTS + 1)]
    assert any(patient)
    assert not all(patient)


@on_sqlite
def test_any_other_error_is_raised_without_a_retry_and_rolled_back(database: Database) -> None:
    attempts: list[int] = []

    def work(session: Session) -> None:
        attempts.append(session.info["attempt"])
        _add(session, "half")
        raise ValueError("not the database's fault")

    with pytest.raises(ValueError, match="fault"):
        database.write(work)
    assert attempts == [1]
    assert _names(database) == []


def test_a_violated_foreign_key_is_not_retried(database: Database) -> None:
    attempts: list[int] = []

    def work(session: Session) -> None:
        attempts.append(session.info["attempt"])
        _add(session, "half")
        row = {"resource_id": 987654321, "start_at": NOON, "busy_until": NOON.replace(hour=13)}
        session.execute(sa.insert(AllocationRow).values(**row))

    with pytest.raises(IntegrityError):
        database.write(work)
    assert attempts == [1]
    assert _names(database) == []


@on_sqlite
def test_a_read_session_is_rolled_back(database: Database) -> None:
    with database.read() as session:
        _add(session, "not to be kept")
        session.flush()
    assert _names(database) == []


@on_servers
def test_a_deadlock_is_retried(database: Database) -> None:
    def add_both(session: Session) -> None:
        for name in ("a", "b"):
            _add(session, name)

    database.write(add_both)
    both_hold_a_lock = threading.Barrier(2)
    attempts: list[str] = []

    def swap(first: str, second: str) -> None:
        def work(session: Session) -> None:
            attempts.append(first)
            _rename(session, first, first)
            if session.info["attempt"] == 1:
                both_hold_a_lock.wait(10)
            _rename(session, second, second)
            _add(session, f"{first} then {second}")

        database.write(work)

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(swap, "a", "b"), threads.submit(swap, "b", "a")]:
            done.result(60)
    assert len(attempts) > 2, "no deadlock occurred"
    assert _names(database) == ["a", "a then b", "b", "b then a"]


@on_servers
def test_a_duplicate_key_is_retried_and_the_next_attempt_sees_the_row(
    database: Database,
) -> None:
    def work(session: Session) -> str:
        known = session.scalar(sa.select(ResourceRow).where(ResourceRow.external_id == "a"))
        if known is not None:
            return f"seen by attempt {session.info['attempt']}"
        with Session(database.engine) as other, other.begin():
            _add(other, "a")
        _add(session, "a")
        return "added twice"

    assert database.write(work) == "seen by attempt 2"
    assert _names(database) == ["a"]


@on_servers
def test_each_statement_sees_what_others_have_committed(database: Database) -> None:
    def work(session: Session) -> tuple[int, int]:
        count = sa.select(sa.func.count()).select_from(ResourceRow)
        before = session.scalars(count).one()
        with Session(database.engine) as other, other.begin():
            _add(other, "a")
        return before, session.scalars(count).one()

    assert database.write(work) == (0, 1)


@on_servers
def test_the_server_ends_an_idle_transaction_after_30_seconds(database: Database) -> None:
    setting = {
        "postgresql": "SHOW idle_in_transaction_session_timeout",
        "mysql": "SELECT @@idle_transaction_timeout",
    }[database.dialect]
    with database.read() as session:
        assert session.connection().exec_driver_sql(setting).scalar() in {"30s", 30}


@pytest.mark.parametrize(
    ("backend", "sleep", "list_"),
    [
        ("postgresql", "SELECT pg_sleep(60)", "SELECT query FROM pg_stat_activity"),
        ("mariadb", "SELECT SLEEP(60)", "SELECT info FROM information_schema.processlist"),
    ],
    indirect=["backend"],
)
def test_the_server_stops_a_statement_that_takes_too_long(
    database: Database, sleep: str, list_: str
) -> None:
    url = database.engine.url.render_as_string(hide_password=False)
    hasty = Database(url, statement_wait=1)
    with hasty.read() as session, pytest.raises(OperationalError):
        session.execute(sa.text(sleep))
    hasty.dispose()
    with database.read() as session:
        assert sleep not in session.scalars(sa.text(list_)).all()


def test_sqlite_locks_the_database_when_a_write_begins(sqlite_url: str) -> None:
    database = Database(sqlite_url)
    impatient = sa.create_engine(sqlite_url, connect_args={"timeout": 0})

    def work(session: Session) -> OperationalError:
        session.connection()
        with pytest.raises(OperationalError) as error, impatient.connect() as other:
            other.exec_driver_sql("BEGIN IMMEDIATE")
        return error.value

    error = database.write(work)
    assert "database is locked" in str(error)
    assert is_transient(error)
    database.dispose()
    impatient.dispose()


def test_sqlite_is_retried_while_another_process_writes(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_database, "_STATEMENT_WAIT", 0)
    database, others = without_pauses(Database(sqlite_url)), sa.create_engine(sqlite_url)
    conflicts: list[str] = []
    database.on_conflict = conflicts.append
    with others.connect() as writing:
        writing.exec_driver_sql("BEGIN IMMEDIATE")
        with pytest.raises(OperationalError, match="database is locked") as error:
            database.write(lambda session: session.connection())
    assert conflicts == ["locked"] * (engine_database.ATTEMPTS - 1)
    assert engine_database.is_unavailable(error.value)
    database.dispose()
    others.dispose()


def test_sqlite_commits_are_durable_and_foreign_keys_are_enforced(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "SETTINGS", sqlite.SETTINGS[:-1])  # without that of conftest.py
    database = Database(sqlite_url)
    with database.read() as session:
        pragmas = {
            name: session.connection().exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
    database.dispose()


def test_only_the_owner_can_read_the_files_of_sqlite(tmp_path: Path) -> None:
    umask = os.umask(0o022)
    try:
        database = Database(f"sqlite:///{tmp_path / 'climate.sqlite'}")
        with AdvisoryLocks(database).hold("a host"):
            database.write(lambda session: session.execute(sa.text("CREATE TABLE made (id INT)")))
            modes = {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()}
        database.dispose()
    finally:
        os.umask(umask)
    assert {f"climate.sqlite{end}" for end in ("", "-shm", "-wal", ".turn")} <= modes.keys()
    assert set(modes.values()) == {"0o600"}


@on_postgresql
def test_prepared_statements_survive_a_rollback(database: Database) -> None:
    """If the driver dropped them, PostgreSQL would plan the next search again."""
    for _ in range(7):  # psycopg prepares what was run five times
        with database.read() as session:
            session.execute(sa.text("SELECT 1 AS prepared"))
    with database.read() as session:
        query = (
            "SELECT count(*) FROM pg_prepared_statements WHERE statement = 'SELECT 1 AS prepared'"
        )
        assert session.scalar(sa.text(query)) == 1


def _end(database: Database, process: int | None) -> None:
    """Terminate a connection on the server, and wait until it is gone."""
    alive = sa.text("SELECT count(*) FROM pg_stat_activity WHERE pid = :pid")
    with database.engine.begin() as other:
        other.execute(sa.text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": process})
        assert other.scalar(alive, {"pid": process}) == 0


@on_postgresql
def test_a_dead_connection_is_an_outage_in_use_and_is_replaced_in_the_pool(
    database: Database,
) -> None:
    with database.read() as session:
        _end(database, session.scalar(sa.text("SELECT pg_backend_pid()")))
        with pytest.raises(sa.exc.OperationalError):
            session.execute(sa.text("SELECT 1"))
    for _ in range(2):
        with database.read() as session:
            pid = session.scalar(sa.text("SELECT pg_backend_pid()"))
        other = Database(database.engine.url.render_as_string(hide_password=False))
        _end(other, pid)
        other.dispose()


@on_sqlite
def test_no_attempt_begins_after_the_deadline(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_database, "_WRITE_WAIT", 0.0)
    hasty = without_pauses(Database(database_url))
    attempts: list[int] = []
    with pytest.raises(Contention):
        hasty.write(_losing(1000, attempts))
    hasty.dispose()
    assert attempts == [1]


@on_sqlite
def test_a_writer_does_not_wait_for_a_stuck_one_forever(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_database, "_WRITE_WAIT", 0.05)
    without_pauses(database)
    database._retrying.stop = stop_after_attempt(1)
    begun, finish = threading.Event(), threading.Event()

    def work(_session: Session) -> None:
        begun.set()
        finish.wait()

    with ThreadPoolExecutor(2) as pool:
        stuck = pool.submit(database.write, work)
        assert begun.wait(10)
        try:
            second = pool.submit(database.write, lambda session: _add(session, "second"))
            error = second.exception(timeout=10)
        finally:
            finish.set()
        stuck.result()
    assert error is not None
    assert is_unavailable(error)
