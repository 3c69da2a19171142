"""Turns: what one may do at a time, among all threads of all processes at one database.

They are for calls to a cloud that spoils what two do to it at once. Such a call is slow, so no row
is locked for it and nothing written: a turn is an advisory lock on a connection of its own, which
the server frees when the process dies. On SQLite it is the lock of an empty database beside ours.

A process takes one turn at a time, whatever its name, and so needs one connection for all threads
that wait: if each had one, none might be left for the thread that they wait for.
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

# Seconds that somebody waits for a turn.
WAIT = 60
# Seconds after which the server takes a turn from a process that is frozen, or whose machine is
# off. More than a request to a cloud may take, which is given up after 60.
HOLD = 120
# Seconds that one statement may wait on MariaDB: less than the read timeout of our connections.
_SLICE = 20

# Of the transaction, not the session: a pooler may give the session to others after it.
_PG_BOUNDS = sa.text(
    "SELECT set_config('statement_timeout', '0', true), set_config('lock_timeout', :wait, true),"
    " set_config('idle_in_transaction_session_timeout', :hold, true)"
)
_PG_LOCK = sa.text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))")
_PG_LATE = "55P03"
# Such a name is known to the whole server, and has 64 characters at most.
_MARIADB_NAME = "SHA1(CONCAT_WS(' ', 'climate', DATABASE(), :name))"
_MARIADB_LOCK = sa.text(f"SELECT GET_LOCK({_MARIADB_NAME}, :wait)")
_MARIADB_UNLOCK = sa.text(f"SELECT RELEASE_LOCK({_MARIADB_NAME})")


class Turns:
    """The turns of one process; make one for each database."""

    def __init__(self, database: Database) -> None:
        """Prepare; nothing is opened yet."""
        self._engine = database.engine
        self._here = threading.Lock()
        known = {"sqlite": _on_sqlite, "postgresql": _on_postgresql}
        self._everywhere = known.get(database.dialect, _on_mariadb)

    @contextmanager
    def take(self, name: str) -> Iterator[None]:
        """Have the turn of this name to oneself; take no other before it is over.

        Raises Contention if it does not come within a minute.
        """
        until = time.monotonic() + WAIT
        if not self._here.acquire(timeout=WAIT):
            raise _late(name)
        try:
            with self._everywhere(self._engine, name, until):
                yield
        finally:
            self._here.release()


def _late(name: str) -> Contention:
    return Contention(f"Others have been busy with {name} for {WAIT} seconds: try again shortly")


def _left(until: float) -> float:
    """Return the seconds left; never 0, which is without limit for PostgreSQL."""
    return max(until - time.monotonic(), 0.001)


@contextmanager
def _on_sqlite(engine: sa.Engine, name: str, until: float) -> Iterator[None]:
    path = f"{engine.url.database}.turn"
    with closing(sqlite3.connect(path, timeout=_left(until), isolation_level=None)) as beside:
        try:
            beside.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            raise (
                _late(name) if error.sqlite_errorcode == sqlite3.SQLITE_BUSY else error
            ) from None
        yield


@contextmanager
def _on_postgresql(engine: sa.Engine, name: str, until: float) -> Iterator[None]:
    with engine.connect() as connection:
        bounds = {"wait": f"{_left(until) * 1000:.0f}ms", "hold": f"{HOLD}s"}
        connection.execute(_PG_BOUNDS, bounds)
        try:
            connection.execute(_PG_LOCK, {"name": f"climate {name}"})
        except exc.OperationalError as error:
            late = getattr(error.orig, "sqlstate", None) == _PG_LATE
            raise (_late(name) if late else error) from None
        try:
            yield
        finally:
            with _told_if_lost(connection, name):
                connection.rollback()


@contextmanager
def _on_mariadb(engine: sa.Engine, name: str, until: float) -> Iterator[None]:
    with engine.connect() as connection:
        # For good: the pool notices a connection that was closed while nobody used it.
        connection.exec_driver_sql(f"SET wait_timeout = {HOLD}")
        lock = {"name": name}
        while not connection.scalar(_MARIADB_LOCK, {**lock, "wait": min(_SLICE, _left(until))}):
            if time.monotonic() > until:
                raise _late(name)
        try:
            yield
        finally:
            with _told_if_lost(connection, name):
                connection.execute(_MARIADB_UNLOCK, lock)


@contextmanager
def _told_if_lost(connection: sa.Connection, name: str) -> Iterator[None]:
    """Pass over a turn that was lost while we had it: what was done in it is done."""
    try:
        yield
    except exc.DBAPIError as error:
        connection.invalidate()
        LOG.warning("others may have been at %s with us: %s", name, error.orig)
