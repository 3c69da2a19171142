"""Connections and transactions: only this module opens, commits and retries transactions.

``Database.read`` opens a session for reading. ``Database.write`` runs a function ``work(session)``
in one transaction. If the transaction lost a race with another one, ``write`` runs ``work`` again.
So ``work`` must change nothing but the database: it must not send a message or call a plug-in.

PostgreSQL and MariaDB use READ COMMITTED: each statement sees the latest commits. SQLite uses BEGIN
IMMEDIATE: one writer at a time.
"""

import contextlib
import logging
import select
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
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
    stop_after_delay,
    wait_random_exponential,
)

from climate.core.errors import Contention
from climate.db.engine import (
    driver_statement,
    galera,
    redaction,
    servers,
    sqlite,
    triggers,
)
from climate.db.engine.driver_statement import DriverStatement
from climate.db.engine.galera import GUARD
from climate.db.engine.types import decode_json, encode_json

LOG = logging.getLogger(__name__)

ATTEMPTS = 10
# From this attempt on, a writer waits for locked rows in id order instead of skipping them.
PATIENT_ATTEMPT = 3
# Seconds after which ``write`` begins no further attempt, so a locked database does not hold the
# threads of an API for ``ATTEMPTS`` times ``_LOCK_WAIT``.
_WRITE_WAIT = 30.0

_LOCK_WAIT = 10
_STATEMENT_WAIT = 30
# Seconds after the end of a statement until climate gives up a MariaDB server that says nothing.
_ANSWER_WAIT = 5
#: Seconds that each statement of a migration may take, which can rewrite a large table.
MIGRATION_WAIT = 6 * 3600
# Bounds how long a frozen process (a paused machine) holds the locks of its transaction.
_IDLE_WAIT = 30
# PostgreSQL: serialization failure, deadlock, lock timeout, exclusion violation (the guard), unique
# violation (another transaction inserted the key, and the next attempt sees its row), and a server
# that is a standby now.
_PG_TRANSIENT = {"40001", "40P01", "55P03", "23P01", "23505", servers.PG_READ_ONLY}
# A server whose machine is gone does not close its connections: the kernel gives them up after 15 s
# without an answer to a packet (``tcp_user_timeout`` in ms) or to keep-alive probes.
_PG_TIMEOUTS = {
    "connect_timeout": 5,
    "tcp_user_timeout": 15_000,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 2,
}
# libpq's PQTRANS_INTRANS and PQTRANS_INERROR.
_PG_IN_TRANSACTION = {2, 3}
# MariaDB: deadlock (on Galera also a conflict with another node), lock wait timeout, record changed
# since last read, duplicate key (as above, and the guard), and a server that refuses writes.
_MARIADB_TRANSIENT = {1213, 1205, 1020, 1062, *servers.MARIADB_NOT_WRITABLE}


T = TypeVar("T")


class LostRace(Contention):
    """Raised if a transaction loses a race with another one for the same resources or events.

    ``Database.write`` then runs the transaction again. If all attempts fail, the client receives
    this error.
    """

    def __init__(self) -> None:
        """Set the message that the client receives if all attempts of the transaction fail."""
        super().__init__("Others are booking the same resources right now: try again shortly")


class _Undo(Exception):
    """Raised by ``Database.rehearse`` to roll back its transaction.

    ``result`` carries the result of the rehearsed function to the caller.
    """

    def __init__(self, result: Any) -> None:  # noqa: ANN401 - whatever work returns
        super().__init__()
        self.result = result


class Database:
    """One SQLite, PostgreSQL or MariaDB database: its connections and its transactions.

    ``dialect`` is "sqlite", "postgresql" or "mysql" (MariaDB). Up to ``pool_size`` connections stay
    open while they are not in use.
    """

    def __init__(
        self, url: str, pool_size: int = 10, *, statement_wait: int = _STATEMENT_WAIT
    ) -> None:
        """Prepare a pool of up to twice ``pool_size`` connections to ``url``, and open none yet.

        A statement that takes more than ``statement_wait`` seconds fails, except on SQLite.
        """
        self.engine = sa.create_engine(
            url,
            json_serializer=encode_json,
            json_deserializer=decode_json,
            hide_parameters=True,
            **_engine_options(sa.make_url(url), pool_size, statement_wait),
        )
        self._writer = self.engine.execution_options(climate_write=True)
        self._autocommit = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        self.dialect = self.engine.dialect.name
        # The error of the last write if the database failed; None after a write that committed.
        self.write_error: exc.DBAPIError | None = None
        # Called with the reason of each retry (a bounded set of words), for a metric.
        self.on_conflict: Callable[[str], object] = str
        self._retrying = Retrying(
            retry=retry_if_exception(is_transient),
            stop=stop_after_attempt(ATTEMPTS) | stop_after_delay(_WRITE_WAIT),
            wait=wait_random_exponential(multiplier=0.004, max=0.25),
            before_sleep=self._before_retry,
            reraise=True,
        )
        # SQLite's busy wait is unfair (seconds in the worst case); a lock in the process is fair.
        self._writers = threading.Lock() if self.dialect == "sqlite" else None
        # Checks each commit where a server may report one that its standby does not have.
        self._confirmed: Callable[[], contextlib.AbstractContextManager[None]]
        is_pg = self.dialect == "postgresql"
        self._confirmed = servers.confirmed_commit if is_pg else contextlib.nullcontext
        self._listen()

    def _listen(self) -> None:
        """Register what happens at events of the engine, such as a new connection."""
        redaction.watch(self.engine)
        servers.watch(self.engine)
        if self.dialect == "sqlite":
            sqlite.watch(self.engine)
            event.listen(self.engine, "begin", _sqlite_begin)
        if self.dialect == "mysql":
            event.listen(self.engine, "connect", galera.detect)
        if self.dialect == "postgresql":
            event.listen(self.engine, "connect", servers.watch_confirmations)
            event.listen(self.engine, "checkout", _pg_checkout)
            event.listen(self.engine, "rollback", _pg_rollback)

    @contextlib.contextmanager
    def read(self) -> Iterator[Session]:
        """Return a context with a session for reading, which the context rolls back at the end."""
        with Session(self.engine) as session:
            yield session

    @contextlib.contextmanager
    def read_at_once(self) -> Iterator[Session]:
        """Return a context with a session for one query, which needs no transaction.

        On SQLite, the context is the same as ``read``.
        """
        engine = self.engine if self.dialect == "sqlite" else self._autocommit
        with Session(engine) as session:
            yield session

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Session]:
        """Return a context with a session for reading, in which all statements see the same state.

        On SQLite, that is true of any transaction. On other databases, the context uses REPEATABLE
        READ.
        """
        with Session(self.engine) as session:
            if self.dialect != "sqlite":  # SQLite has no other isolation level
                session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
            yield session

    def write(self, work: Callable[[Session], T]) -> T:
        """Run ``work(session)`` in a transaction, commit it, and return the result of ``work``.

        If the transaction fails with a transient error (see ``is_transient``), run ``work`` again
        in a new transaction after a random pause. Transient errors are lost races, deadlocks, lock
        time-outs, violations of unique keys or of the constraint against double bookings, and
        broken triggers of MariaDB, which are first repaired. Other errors are raised at once.

        ``session.info["attempt"]`` counts the attempts from 1 to ``ATTEMPTS``. No attempt begins
        after ``_WRITE_WAIT`` seconds. If all attempts fail, the error of the last one is raised.
        """
        try:
            for attempt in self._retrying:
                with attempt:
                    result = self._write_once(work, attempt.retry_state.attempt_number)
                    self.write_error = None
                    return result
        except (exc.OperationalError, exc.InterfaceError, exc.InternalError) as error:
            self.write_error = error
            raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _before_retry(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        self.on_conflict(conflict(error) if error else "none")
        if isinstance(error, exc.DBAPIError) and _has_broken_trigger(error):
            LOG.warning("MariaDB has an open table with a broken trigger: closing the table")
            triggers.reopen(self.engine)

    def rehearse(self, work: Callable[[Session], T]) -> T:
        """Run ``work(session)`` in a transaction, roll it back, and return the result of ``work``.

        Nothing is stored, so a caller can find out what ``work`` would do. After a transient error,
        run ``work`` again as in ``write``.
        """

        def work_and_undo(session: Session) -> None:
            raise _Undo(work(session))

        try:
            self.write(work_and_undo)
        except _Undo as undo:
            return undo.result  # type: ignore[no-any-return]  # the result of work
        raise AssertionError("unreachable: the rehearsal always ends in _Undo")

    def run_at_once(
        self, statement: DriverStatement, values: Mapping[str, Any]
    ) -> list[tuple[Any, ...]]:
        """Run one SQL statement that commits by itself, and return its rows. For PostgreSQL.

        Unlike ``write``, the function does not try again after a transient error.
        """
        try:
            with self._confirmed():
                rows = driver_statement.run(self.engine, statement, values)
        except (exc.OperationalError, exc.InterfaceError, exc.InternalError) as error:
            self.write_error = None if is_transient(error) else error
            raise
        self.write_error = None
        return rows

    def query_at_once(
        self, statement: DriverStatement, values: Mapping[str, Any]
    ) -> list[tuple[Any, ...]]:
        """Run one query without a transaction, and return its rows. For PostgreSQL."""
        return driver_statement.run(self.engine, statement, values)

    def _write_once(self, work: Callable[[Session], T], attempt: int) -> T:
        session = Session(self._writer, info={"attempt": attempt})
        with self._writer_turn(), session, self._confirmed(), session.begin():
            return work(session)

    @contextlib.contextmanager
    def _writer_turn(self) -> Iterator[None]:
        """Return a context in which this thread may write to the database.

        On SQLite, the context first waits until no other thread of this process writes. It raises
        OperationalError after waiting ``_WRITE_WAIT`` seconds.
        """
        if self._writers is None:
            yield
        elif self._writers.acquire(timeout=_WRITE_WAIT):
            try:
                yield
            finally:
                self._writers.release()
        else:
            locked = sqlite3.OperationalError("database is locked by writers of this process")
            raise exc.OperationalError(None, None, locked)

    def connections(self) -> tuple[Callable[[], int], Callable[[], int]]:
        """Return two functions about the pool, for metrics.

        The first one returns how many connections are in use. The second one returns how many can
        be in use at most.
        """
        pool = self.engine.pool
        assert isinstance(pool, QueuePool)  # noqa: S101 - every named database has one
        return pool.checkedout, lambda: 2 * pool.size()

    def dispose(self) -> None:
        """Close all connections that are in the pool."""
        self.engine.dispose()


def on_commit(session: Session, action: Callable[[], object]) -> None:
    """Call ``action`` once, after the session's transaction commits. ``action`` must not raise.

    If the transaction fails, ``action`` is not called.
    """
    event.listen(session, "after_commit", lambda _: action(), once=True)


def is_retried(session: Session) -> bool:
    """Return whether the session's transaction runs again, because an earlier attempt failed."""
    return bool(session.info.get("attempt", 1) > 1)


def is_patient(session: Session) -> bool:
    """Return whether this attempt of the session's transaction should wait for locked rows.

    The first attempts skip locked rows. From attempt ``PATIENT_ATTEMPT`` on, attempts wait.
    """
    return bool(session.info.get("attempt", 1) >= PATIENT_ATTEMPT)


def is_transient(error: BaseException) -> bool:
    """Return whether a transaction that failed with this error may succeed if it runs again."""
    if not isinstance(error, exc.DBAPIError):
        return isinstance(error, LostRace)
    state, detail = _codes(error)
    if isinstance(detail, str) and state not in _PG_TRANSIENT:
        return GUARD in detail or "database is locked" in detail
    if state in _PG_TRANSIENT or detail in _MARIADB_TRANSIENT:
        return True
    return _has_broken_trigger(error)


def _has_broken_trigger(error: exc.DBAPIError) -> bool:
    return error.orig is not None and triggers.is_broken(*(*error.orig.args, None, None)[:2])


def conflict(error: BaseException) -> str:
    """Return the kind of a transient error: the error code of the database, or a word.

    A metric counts the kinds. The words are "guard" (a double booking), "locked" (SQLite's lock),
    and "lost" (a lost race).
    """
    if not isinstance(error, exc.DBAPIError):
        return "lost"
    state, detail = _codes(error)
    if isinstance(detail, str) and state is None:
        return "guard" if GUARD in detail else "locked"
    return str(state or detail)


def _codes(error: exc.DBAPIError) -> tuple[str | None, Any]:
    """Return two codes of a database error: SQLSTATE, and the first argument of the driver's error.

    The SQLSTATE is None except on PostgreSQL. The argument is an error number or a message.
    """
    arguments = error.orig.args if error.orig is not None else ()
    return getattr(error.orig, "sqlstate", None), arguments[0] if arguments else None


def is_unavailable(error: BaseException) -> bool:
    """Return whether the database did not answer, or no pooled connection became free in time.

    Or MariaDB has a broken trigger that climate could not repair.
    """
    if isinstance(error, exc.DBAPIError) and _has_broken_trigger(error):
        return True
    return isinstance(error, exc.OperationalError | exc.InterfaceError | exc.TimeoutError)


def _engine_options(url: sa.URL, pool_size: int, statement_wait: int) -> dict[str, Any]:
    backend = url.get_backend_name()
    is_pg = backend == "postgresql"
    # A file of SQLite never disconnects, and _pg_checkout checks connections without a query.
    has_pings = backend not in {"sqlite", "postgresql"}
    options: dict[str, Any] = {"pool_pre_ping": has_pings, "pool_timeout": _STATEMENT_WAIT}
    if backend != "sqlite" or url.database not in {None, "", ":memory:"}:
        options |= {"pool_size": pool_size, "max_overflow": pool_size}
    if backend == "sqlite":
        return {**options, "connect_args": {"timeout": _STATEMENT_WAIT}}
    options["isolation_level"] = "READ COMMITTED"
    if is_pg:
        # JIT compilation of long property expressions takes seconds, their execution far less.
        # Planning the query for each window would take longer than everything else.
        settings = (
            "-c timezone=utc -c jit=off -c plan_cache_mode=force_generic_plan"
            f" -c lock_timeout={_LOCK_WAIT}s -c statement_timeout={statement_wait}s"
            f" -c idle_in_transaction_session_timeout={_IDLE_WAIT}s"
        )
        return {**options, "connect_args": {"options": settings, **_PG_TIMEOUTS}}
    # wsrep_sync_wait acts on Galera: the first statement of a transaction waits until the node has
    # applied what other nodes have committed, so a client finds its lease through any node.
    session = (
        f"SET time_zone = '+00:00', innodb_lock_wait_timeout = {_LOCK_WAIT},"
        f" idle_transaction_timeout = {_IDLE_WAIT}, wsrep_sync_wait = 7,"
        f" max_statement_time = {statement_wait}"
    )
    # The server stops a statement first. Otherwise the statement would go on without a client.
    patience = statement_wait + _ANSWER_WAIT
    timeouts = {"connect_timeout": 5, "read_timeout": patience, "charset": "utf8mb4"}
    return {**options, "connect_args": {"init_command": session, **timeouts}}


def _pg_checkout(connection: Any, record: Any, _proxy: object) -> None:  # noqa: ANN401
    """Make the pool replace a connection that the server closed while the connection was idle.

    The check needs no query: the socket of a closed connection is readable. Connections that were
    never used are not checked.
    """
    # A new connection may be the replacement. If it failed the check, the pool would give up.
    was_used = record.info.get("used", False)
    record.info["used"] = True
    if was_used and (connection.closed or _is_readable(connection)):
        raise exc.DisconnectionError


def _is_readable(connection: Any) -> bool:  # noqa: ANN401 - DBAPI is untyped
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _pg_rollback(connection: sa.Connection) -> None:
    """Roll back the transaction in a way that keeps the prepared statements of the connection.

    The rollback of the driver psycopg would discard them, and to prepare them again is slow.
    """
    if connection.invalidated:
        return
    raw: Any = connection.connection.dbapi_connection
    if raw.info.transaction_status in _PG_IN_TRANSACTION:
        raw.pgconn.exec_(b"ROLLBACK")


def _sqlite_begin(connection: sa.Connection) -> None:
    """Begin a transaction on SQLite; a transaction that writes locks the database at once.

    If it began with a read lock, the later upgrade to a write lock could fail.
    """
    writing = connection.get_execution_options().get("climate_write")
    raw: Any = connection.connection.dbapi_connection
    statement = "BEGIN IMMEDIATE" if writing else "BEGIN"
    try:
        raw.execute(statement)
    except sqlite3.Error as error:  # as SQLAlchemy would raise it: another process is writing
        raise exc.DBAPIError.instance(
            statement, (), error, sqlite3.Error, dialect=connection.dialect
        ) from error
