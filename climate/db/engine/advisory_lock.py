"""Advisory locks: one holder per name, among all threads of all processes of one database.

They serialise calls to clouds that lose concurrent updates. Such calls are slow, so the lock is not
a row lock: it is an advisory lock on its own connection. The server releases it when the process
dies. On SQLite it is the lock of an empty database file beside the main one.

A process holds one lock at a time, whatever its name, and so needs one connection. If each waiting
thread used a connection, none might remain for the thread that holds the lock.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import sqlalchemy as sa
from sqlalchemy import exc

from climate.core.errors import Contention
from climate.db.engine.database import Database

LOG = logging.getLogger(__name__)

# Seconds that a caller waits for a lock.
WAIT = 60
# Seconds after which the server releases the lock of a process that is frozen or unreachable.
# Longer than a request to a cloud, which times out after 60.
HOLD = 120
# Seconds that a statement waits on MariaDB: less than the read timeout of connections.
_SLICE = 20

# Set for the transaction: a connection pooler may reuse the session for other clients.
_PG_BOUNDS = sa.text(
    "SELECT set_config('statement_timeout', '0', true), set_config('lock_timeout', :wait, true),"
    " set_config('idle_in_transaction_session_timeout', :hold, true)"
)
_PG_LOCK = sa.text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))")
_PG_LATE = "55P03"
# Lock names are global to the server and have at most 64 characters.
_MARIADB_NAME = "SHA1(CONCAT_WS(' ', 'climate', DATABASE(), :name))"
_MARIADB_LOCK = sa.text(f"SELECT GET_LOCK({_MARIADB_NAME}, :wait)")
_MARIADB_UNLOCK = sa.text(f"SELECT RELEASE_LOCK({_MARIADB_NAME})")


class AdvisoryLocks:
    """The advisory locks of one process; create one object per database."""

    def __init__(self, database: Database) -> None:
        """Prepare; the connection is opened by ``hold``."""
        self._engine = database.engine
        self._in_process = threading.Lock()
        specific = {"sqlite": _on_sqlite, "postgresql": _on_postgresql}
        self._in_database = specific.get(database.dialect, _on_mariadb)

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:
        """Hold the lock ``name``; raises Contention after waiting ``WAIT`` seconds.

        The caller must not hold another lock: the process has one, so the thread would wait for
        itself.
        """
        deadline = time.monotonic() + WAIT
        if not self._in_process.acquire(timeout=WAIT):
            raise _contention(name)
        try:
            with self._in_database(self._engine, name, deadline):
                yield
        finally:
            self._in_process.release()


def _contention(name: str) -> Contention:
    return Contention(f"Others have been busy with {name} for {WAIT} seconds: try again shortly")


def _remaining(deadline: float) -> float:
    """Return the remaining seconds; never 0, which means no limit to PostgreSQL."""
    return max(deadline - time.monotonic(), 0.001)


@contextmanager
def _on_sqlite(engine: sa.Engine, name: str, deadline: float) -> Iterator[None]:
    path = f"{engine.url.database}.turn"
    with closing(
        sqlite3.connect(path, timeout=_remaining(deadline), isolation_level=None)
    ) as connection:
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            raise (
                _contention(name) if error.sqlite_errorcode == sqlite3.SQLITE_BUSY else error
            ) from None
        yield


@contextmanager
def _on_postgresql(engine: sa.Engine, name: str, deadline: float) -> Iterator[None]:
    with engine.connect() as connection:
        limits = {"wait": f"{_remaining(deadline) * 1000:.0f}ms", "hold": f"{HOLD}s"}
        connection.execute(_PG_BOUNDS, limits)
        try:
            connection.execute(_PG_LOCK, {"name": f"climate {name}"})
        except exc.OperationalError as error:
            is_late = getattr(error.orig, "sqlstate", None) == _PG_LATE
            raise (_contention(name) if is_late else error) from None
        try:
            yield
        finally:
            with _logged_if_lost(connection, name):
                connection.rollback()


@contextmanager
def _on_mariadb(engine: sa.Engine, name: str, deadline: float) -> Iterator[None]:
    with engine.connect() as connection:
        # Never reset: the pool detects connections that the server closed while they were idle.
        connection.exec_driver_sql(f"SET wait_timeout = {HOLD}")
        lock = {"name": name}
        while not connection.scalar(
            _MARIADB_LOCK, {**lock, "wait": min(_SLICE, _remaining(deadline))}
        ):
            if time.monotonic() > deadline:
                raise _contention(name)
        try:
            yield
        finally:
            with _logged_if_lost(connection, name):
                connection.execute(_MARIADB_UNLOCK, lock)


@contextmanager
def _logged_if_lost(connection: sa.Connection, name: str) -> Iterator[None]:
    """Log a lock that was lost while it was held; the work under it is already done."""
    try:
        yield
    except exc.DBAPIError as error:
        connection.invalidate()
        LOG.warning("others may have been at %s with us: %s", name, error.orig)
