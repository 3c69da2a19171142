"""Advisory locks: a lock with a name, which at most one thread of all processes holds at a time.

The processes that use the same database share the locks. A caller holds a lock during calls to a
cloud service that would lose one of two concurrent updates. As such calls are slow, the lock is not
a row lock, but an advisory lock of the database server, on a connection of its own. When a process
dies, the server releases the lock of that process.

Two databases need a substitute. On SQLite, the caller locks an empty database file beside the main
one. On a Galera cluster, advisory locks act only within one node, so there the lock is a row with
an owner and an expiry time.

A process holds only one lock at a time, whatever the name of the lock. Threads of the process that
wait for a lock use no connection. Otherwise, they could use up the pool, and no connection would
remain for the thread that holds the lock.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.orm import Session

from climate.core.errors import Contention
from climate.db.engine import ids
from climate.db.engine.database import Database
from climate.db.engine.galera import is_galera
from climate.db.engine.sqlite import create_private

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
# Seconds between attempts to take a row.
_GALERA_PAUSE = 0.2
_GALERA_INSERT = sa.text("INSERT IGNORE INTO advisory_locks (name) VALUES (SHA1(:name))")
_GALERA_LOCK = sa.text(
    "UPDATE advisory_locks SET owner = :owner,"
    " held_until = UTC_TIMESTAMP(6) + INTERVAL :hold SECOND"
    " WHERE name = SHA1(:name) AND (owner IS NULL OR held_until < UTC_TIMESTAMP(6))"
)
_GALERA_UNLOCK = sa.text(
    "UPDATE advisory_locks SET owner = NULL WHERE name = SHA1(:name) AND owner = :owner"
)


class AdvisoryLocks:
    """The advisory locks of this process in one database; create one object per database.

    An advisory lock has a name. At most one thread of all processes holds it at a time.
    """

    def __init__(self, database: Database) -> None:
        """Remember the database; do not connect to it yet."""
        self._database = database
        self._in_process = threading.Lock()
        specific = {"sqlite": _on_sqlite, "postgresql": _on_postgresql}
        self._in_database = specific.get(database.dialect, _on_mariadb)

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:
        """Return a context that holds the lock ``name``; wait until other holders release it.

        Raises Contention after waiting ``WAIT`` seconds. The caller must not hold another advisory
        lock: a process holds only one at a time, so the thread would wait for itself.
        """
        deadline = time.monotonic() + WAIT
        if not self._in_process.acquire(timeout=WAIT):
            raise _contention(name)
        try:
            with self._in_database(self._database, name, deadline):
                yield
        finally:
            self._in_process.release()


def _contention(name: str) -> Contention:
    return Contention(f"Other requests have used {name} for {WAIT} seconds: try again shortly")


def _remaining(deadline: float) -> float:
    """Return the seconds until ``deadline``, a time of ``time.monotonic``; at least 0.001.

    The result is never 0, because PostgreSQL takes a time-out of 0 as no limit.
    """
    return max(deadline - time.monotonic(), 0.001)


@contextmanager
def _on_sqlite(database: Database, name: str, deadline: float) -> Iterator[None]:
    path = f"{database.engine.url.database}.turn"
    create_private(path)
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
def _on_postgresql(database: Database, name: str, deadline: float) -> Iterator[None]:
    with database.engine.connect() as connection:
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
def _on_mariadb(database: Database, name: str, deadline: float) -> Iterator[None]:
    with database.engine.connect() as connection:
        on_galera = is_galera(connection)
    if on_galera:
        with _on_galera(database, name, deadline):
            yield
        return
    with database.engine.connect() as connection:
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
def _on_galera(database: Database, name: str, deadline: float) -> Iterator[None]:
    """Return a context that holds the lock ``name`` on a Galera cluster: a row with an owner.

    Raises Contention if the lock is still taken at ``deadline``, a time of ``time.monotonic``. If
    transactions on two nodes set the owner at the same time, one of the transactions fails.
    """
    values = {"name": f"climate {name}", "owner": ids.new_id(), "hold": HOLD}

    def execute(session: Session, statement: sa.TextClause) -> bool:
        return bool(session.execute(statement, values).rowcount)  # type: ignore[attr-defined]

    database.write(lambda session: execute(session, _GALERA_INSERT))
    while not database.write(lambda session: execute(session, _GALERA_LOCK)):
        if time.monotonic() > deadline:
            raise _contention(name)
        time.sleep(_GALERA_PAUSE)
    try:
        yield
    finally:
        if not database.write(lambda session: execute(session, _GALERA_UNLOCK)):
            LOG.warning(
                "the lock of %s expired before its release, another process may have changed it",
                name,
            )


@contextmanager
def _logged_if_lost(connection: sa.Connection, name: str) -> Iterator[None]:
    """Return a context for the release of a lock; if the release fails, only log a warning.

    The release fails if the connection was lost, and with the connection the lock. The work that
    needed the lock is already done by then, so an error would be of no use.
    """
    try:
        yield
    except exc.DBAPIError as error:
        connection.invalidate()
        LOG.warning(
            "lost the lock of %s, another process may have changed it: %s", name, error.orig
        )
