"""Connections and transactions: the only place that opens, commits and retries them.

``read()`` is a short read-only scope. ``write(work)`` runs ``work(session)`` in one transaction
and runs it *again* if the database says that it lost a race, so ``work`` must be re-runnable: no
message, no plugin call, nothing but the session may be changed by it.

READ COMMITTED on PostgreSQL and MariaDB (a check in a new statement sees what others have just
committed); BEGIN IMMEDIATE on SQLite, one writer at a time.
"""

import contextlib
import select
import sqlite3
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.orm import Session
from sqlalchemy.pool import QueuePool
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    wait_random_exponential,
)

from climate.core.errors import Contention
from climate.db.engine.types import decode_json, encode_json

ATTEMPTS = 10
# From this attempt on, a writer waits for locked rows in id order instead of skipping them.
PATIENT_ATTEMPT = 3
# The name of the double-booking guard in every schema; violating it means a race was lost.
GUARD = "allocations_no_overlap"

_LOCK_WAIT = 10
_STATEMENT_WAIT = 30
# A process that is frozen in a transaction (a paused machine) must not hold its locks for ever.
_IDLE_WAIT = 30
# PostgreSQL: serialization failure, deadlock, lock timeout, exclusion violation (the guard), and
# a unique key that somebody else inserted after we looked: the next run will see it.
_PG_TRANSIENT = {"40001", "40P01", "55P03", "23P01", "23505"}
# As libpq counts them: in a transaction, and in a failed one.
_PG_IN_TRANSACTION = {2, 3}
# MariaDB: deadlock, lock wait timeout, record changed since last read, duplicate key (as above;
# the guard is one).
_MARIADB_TRANSIENT = {1213, 1205, 1020, 1062}


T = TypeVar("T")


class LostRace(Contention):
    """Raised by ``work`` when what it chose was taken meanwhile: roll back and run again."""

    def __init__(self) -> None:
        """Say what the caller should know if it was lost again and again."""
        super().__init__("Others are booking the same resources right now: try again shortly")


class _Undo(Exception):
    """Takes the result of a rehearsal out of its transaction, which this rolls back."""

    def __init__(self, result: Any) -> None:  # noqa: ANN401 - whatever work returns
        super().__init__()
        self.result = result


class Database:
    """An engine for one of SQLite, PostgreSQL or MariaDB."""

    def __init__(self, url: str, pool_size: int = 10) -> None:
        """Prepare (but do not open) connections to ``url``, an SQLAlchemy URL."""
        self.engine = sa.create_engine(
            url,
            json_serializer=encode_json,
            json_deserializer=decode_json,
            **_engine_options(sa.make_url(url), pool_size),
        )
        self._writer = self.engine.execution_options(climate_write=True)
        self.dialect = self.engine.dialect.name
        # Told why a transaction runs again, by a word of a bounded set: to be counted.
        self.on_conflict: Callable[[str], object] = str
        self._retrying = Retrying(
            retry=retry_if_exception(is_transient),
            stop=stop_after_attempt(ATTEMPTS),
            wait=wait_random_exponential(multiplier=0.004, max=0.25),
            before_sleep=self._count_conflict,
            reraise=True,
        )
        # SQLite's own busy wait is unfair (seconds at the worst); a lock in the process is not.
        self._writers = threading.Lock() if self.dialect == "sqlite" else contextlib.nullcontext()
        if self.dialect == "sqlite":
            event.listen(self.engine, "connect", _sqlite_connect)
            event.listen(self.engine, "begin", _sqlite_begin)
        if self.dialect == "postgresql":
            event.listen(self.engine, "checkout", _pg_checkout)
            event.listen(self.engine, "rollback", _pg_rollback)

    @contextlib.contextmanager
    def read(self) -> Iterator[Session]:
        """Open a session for reading; whatever it did is rolled back."""
        with Session(self.engine) as session:
            yield session

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Session]:
        """Open a session whose statements all see the same state; else as ``read``."""
        with Session(self.engine) as session:
            if self.dialect != "sqlite":  # which knows nothing else
                session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
            yield session

    def write(self, work: Callable[[Session], T]) -> T:
        """Run ``work(session)`` in a transaction, commit it, and return what it returned.

        Runs it again (bounded, jittered) on serialization failures, deadlocks, violations of the
        double-booking guard and LostRace; ``session.info["attempt"]`` counts from 1. The last
        failure is raised.
        """
        for attempt in self._retrying:
            with attempt:
                return self._write_once(work, attempt.retry_state.attempt_number)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _count_conflict(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        self.on_conflict(conflict(error) if error else "none")

    def rehearse(self, work: Callable[[Session], T]) -> T:
        """Run ``work(session)`` as ``write`` does, undo all of it, and return what it returned."""

        def undone(session: Session) -> None:
            raise _Undo(work(session))

        try:
            self.write(undone)
        except _Undo as found:
            return found.result  # type: ignore[no-any-return]  # what work returned
        raise AssertionError("unreachable: the rehearsal always ends in _Undo")

    def _write_once(self, work: Callable[[Session], T], attempt: int) -> T:
        session = Session(self._writer, info={"attempt": attempt})
        with self._writers, session, session.begin():
            return work(session)

    def connections(self) -> tuple[Callable[[], int], Callable[[], int]]:
        """Return how to learn how many connections are in use, and how many there may be."""
        pool = self.engine.pool
        assert isinstance(pool, QueuePool)  # noqa: S101 - of all databases with a name
        return pool.checkedout, lambda: 2 * pool.size()

    def dispose(self) -> None:
        """Close all pooled connections."""
        self.engine.dispose()


def on_commit(session: Session, action: Callable[[], object]) -> None:
    """Have something counted once this transaction is committed; it must not raise."""
    event.listen(session, "after_commit", lambda _: action(), once=True)


def is_retried(session: Session) -> bool:
    """Tell whether this is not the first attempt of a transaction."""
    return bool(session.info.get("attempt", 1) > 1)


def is_patient(session: Session) -> bool:
    """Tell whether this attempt should wait for locked rows instead of skipping them."""
    return bool(session.info.get("attempt", 1) >= PATIENT_ATTEMPT)


def is_transient(error: BaseException) -> bool:
    """Tell whether running the same transaction again may succeed."""
    if isinstance(error, LostRace):
        return True
    if not isinstance(error, exc.DBAPIError) or error.orig is None:
        return False
    if getattr(error.orig, "sqlstate", None) in _PG_TRANSIENT:
        return True
    first = error.orig.args[0] if error.orig.args else None
    if isinstance(first, str):
        return GUARD in first or "database is locked" in first
    return first in _MARIADB_TRANSIENT


def conflict(error: BaseException) -> str:
    """Return what a transient error is called: the database's code, "guard", "locked", "lost"."""
    if not isinstance(error, exc.DBAPIError):
        return "lost"
    state = getattr(error.orig, "sqlstate", None)
    first = error.orig.args[0] if error.orig is not None and error.orig.args else None
    if isinstance(first, str) and state is None:
        return "guard" if GUARD in first else "locked"
    return str(state or first)


def is_unavailable(error: BaseException) -> bool:
    """Tell whether the database does not answer (and nobody is at fault here)."""
    return isinstance(error, exc.OperationalError | exc.InterfaceError | exc.TimeoutError)


def _engine_options(url: sa.URL, pool_size: int) -> dict[str, Any]:
    is_pg = url.get_backend_name() == "postgresql"
    options: dict[str, Any] = {"pool_pre_ping": not is_pg, "pool_timeout": _STATEMENT_WAIT}
    if url.database not in {None, "", ":memory:"} or url.get_backend_name() != "sqlite":
        options |= {"pool_size": pool_size, "max_overflow": pool_size}
    if url.get_backend_name() == "sqlite":
        return {**options, "connect_args": {"timeout": _STATEMENT_WAIT}}
    options["isolation_level"] = "READ COMMITTED"
    if is_pg:
        # Compiling the long conditions of property expressions takes seconds, running them not;
        # and planning them anew for each window takes longer than all else.
        settings = (
            "-c timezone=utc -c jit=off -c plan_cache_mode=force_generic_plan"
            f" -c lock_timeout={_LOCK_WAIT}s -c statement_timeout={_STATEMENT_WAIT}s"
            f" -c idle_in_transaction_session_timeout={_IDLE_WAIT}s"
        )
        return {**options, "connect_args": {"connect_timeout": 5, "options": settings}}
    session = (
        f"SET time_zone = '+00:00', innodb_lock_wait_timeout = {_LOCK_WAIT},"
        f" idle_transaction_timeout = {_IDLE_WAIT}"
    )
    timeouts = {"connect_timeout": 5, "read_timeout": _STATEMENT_WAIT, "charset": "utf8mb4"}
    return {**options, "connect_args": {"init_command": session, **timeouts}}


def _pg_checkout(connection: Any, record: Any, _proxy: object) -> None:  # noqa: ANN401
    """Have the pool replace a connection that was closed while nobody used it.

    It can be read from then, as a server says nothing unasked but goodbye: no need to ask. A
    fresh one is left alone: the pool gives up, with another error, if that is refused as well.
    """
    was_used = record.info.get("used", False)
    record.info["used"] = True
    if was_used and (connection.closed or _can_be_read(connection)):
        raise exc.DisconnectionError


def _can_be_read(connection: Any) -> bool:  # noqa: ANN401 - DBAPI is untyped
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _pg_rollback(connection: sa.Connection) -> None:
    """Roll back before psycopg does: with its own it would throw away all prepared statements.

    Every refusal and every read ends like this, and planning takes longer than admission.
    """
    if connection.invalidated:
        return
    raw: Any = connection.connection.dbapi_connection
    if raw.info.transaction_status in _PG_IN_TRANSACTION:
        raw.pgconn.exec_(b"ROLLBACK")


def _sqlite_connect(connection: Any, _record: Any) -> None:  # noqa: ANN401 - DBAPI is untyped
    """Hand transaction control to us and make commits durable."""
    connection.isolation_level = None
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _sqlite_begin(connection: sa.Connection) -> None:
    """Take the write lock at once if this is a write: an upgrade later could fail at once."""
    writing = connection.get_execution_options().get("climate_write")
    raw: Any = connection.connection.dbapi_connection
    statement = "BEGIN IMMEDIATE" if writing else "BEGIN"
    try:
        raw.execute(statement)
    except sqlite3.Error as error:  # as SQLAlchemy would say it: somebody else is writing
        raise exc.DBAPIError.instance(
            statement, (), error, sqlite3.Error, dialect=connection.dialect
        ) from error
