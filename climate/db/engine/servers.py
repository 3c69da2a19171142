"""Several servers behind one database URL, and servers that no longer accept writes.

A URL names several servers as ``?host=HOST:PORT&host=HOST:PORT``. For a new connection, climate
tries the servers one after the other, beginning with the server of the last connection, until one
accepts writes. If the URL names only one server, which may be a proxy, all connections go to this
server.

A server can lose its role while connections to it are open. A demoted PostgreSQL primary becomes
read-only. A Galera node without a majority refuses all statements. After an error of this kind, the
connection pool drops its connections, so the next transaction uses another server.

If something interrupts the wait of PostgreSQL for its synchronous standby (a statement time-out, an
administrator), PostgreSQL commits on the primary alone, sends a warning, and reports success. If
the standby is then promoted to primary, the commit is lost. So climate treats the warning as a
failure: the API answers the request with 503. Source: PostgreSQL's ``SyncRepWaitForLSN``
(src/backend/replication/syncrep.c).
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, exc

Address = dict[str, str | int]
Connect = Callable[..., Any]

# The first eight digits of a WAL file's name are its timeline. Each promotion begins a new one.
#: The SQL of the timeline of a PostgreSQL primary; NULL on a standby.
PG_TIMELINE = (
    "CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_lsn()), 8) END"
)
_MARIADB_READ_ONLY = "SELECT @@read_only"
_GALERA_READY = "SHOW STATUS LIKE 'wsrep_ready'"
PG_READ_ONLY = "25006"
# A Galera node without a majority or not synced; two kinds of read-only server.
MARIADB_NOT_WRITABLE = {1047, 1290, 1836}
_NOT_CONFIRMED = "SyncRepWaitForLSN"
# The driver calls the handler of warnings in the thread that commits.
_here = threading.local()


class NotWritable(Exception):
    """Raised if a server answers, but must not be used for writes.

    The server refuses writes, or it is a former primary that a promoted standby has replaced.
    """


def addresses(url: sa.URL) -> list[Address]:
    """Return the servers that a URL names, each with ``host`` and possibly ``port``.

    The list is empty if the URL names only one server.
    """
    hosts = url.query.get("host", ())
    if isinstance(hosts, str) or len(hosts) < 2:  # noqa: PLR2004 - several
        return []
    parts = [host.rpartition(":") if ":" in host else (host, "", "") for host in hosts]
    return [{"host": host} | ({"port": int(port)} if port else {}) for host, _, port in parts]


def watch(engine: sa.Engine) -> None:
    """Let the pool of an engine drop connections to servers that refuse writes.

    The next connections of the engine go to a server that accepts writes.
    """
    event.listen(engine, "handle_error", _judge)
    several = addresses(engine.url)
    if several:
        event.listen(engine, "do_connect", _Connector(several))


class _Connector:
    """Connects to the first server that accepts writes, whenever SQLAlchemy opens a connection."""

    def __init__(self, servers: list[Address]) -> None:
        self._servers = servers
        # The highest timeline seen: a primary with a lower one was replaced, and has come back.
        self._timeline = ""
        self._lock = threading.Lock()

    def __call__(
        self, dialect: sa.Dialect, _record: object, positional: list[Any], named: dict[str, Any]
    ) -> Any:  # noqa: ANN401 - DBAPI is untyped
        named = {name: value for name, value in named.items() if name not in {"host", "port"}}
        connect = partial(dialect.connect, *positional, **named)
        dbapi = dialect.loaded_dbapi
        if not self._timeline and dialect.name == "postgresql":
            self._compare(connect, dbapi.Error)
        failures: list[str] = []
        for server in list(self._servers):
            try:
                connection = self._open(connect, server, dialect.name)
            except (NotWritable, dbapi.Error) as error:
                failures.append(f"{server}: {error}")
                continue
            self._prefer(server)
            return connection
        raise dbapi.OperationalError(f"no database server accepts writes: {'; '.join(failures)}")

    def _compare(self, connect: Connect, errors: type[Exception]) -> None:
        """Connect to each PostgreSQL server once, to learn the highest timeline of all servers.

        A timeline is a number that grows with each promotion of a standby. If the timeline of a
        primary is not the highest, the primary was replaced, and later connections avoid it.
        ``errors`` is the class of the driver's errors; servers that raise one are skipped.
        """
        for server in list(self._servers):
            with suppress(NotWritable, errors):
                self._open(connect, server, "postgresql").close()

    def _open(self, connect: Connect, server: Address, dialect: str) -> Any:  # noqa: ANN401 - DBAPI
        """Return a connection to a server; raise NotWritable if it does not accept writes."""
        connection = connect(**server)
        try:
            with connection.cursor() as cursor:
                if dialect == "postgresql":
                    self._check_timeline(_value(cursor, f"SELECT {PG_TIMELINE}"))
                else:
                    _check_mariadb(cursor)
            connection.rollback()
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_timeline(self, timeline: str | None) -> None:
        if timeline is None:
            raise NotWritable("it is a standby")
        with self._lock:
            if timeline < self._timeline:
                raise NotWritable(f"its timeline {timeline} is older than {self._timeline}")
            self._timeline = timeline

    def _prefer(self, server: Address) -> None:
        with self._lock:
            self._servers.remove(server)
            self._servers.insert(0, server)


def _check_mariadb(cursor: Any) -> None:  # noqa: ANN401 - DBAPI is untyped
    if _value(cursor, _MARIADB_READ_ONLY) or _value(cursor, _GALERA_READY) == "OFF":
        raise NotWritable("it is read-only, or a cluster node that is not ready")


def _value(cursor: Any, query: str) -> Any:  # noqa: ANN401 - DBAPI is untyped
    """Run the SQL ``query``; return the last column of its first row, or None if it has no row."""
    cursor.execute(query)
    row = cursor.fetchone()
    return row[-1] if row else None


def _judge(context: sa.engine.ExceptionContext) -> None:
    """Mark the error of a server that refuses writes as a lost connection.

    Then SQLAlchemy's pool drops the connections to this server.
    """
    if refuses_writes(context.original_exception):
        context.is_disconnect = True


def refuses_writes(error: BaseException) -> bool:
    """Return whether the server that sent this error refuses writes."""
    code = error.args[0] if error.args else None
    return getattr(error, "sqlstate", None) == PG_READ_ONLY or code in MARIADB_NOT_WRITABLE


def watch_confirmations(connection: Any, _record: object) -> None:  # noqa: ANN401 - DBAPI is untyped
    """Let a new connection store the warning that the standby has not confirmed a commit.

    ``confirmed_commit`` reads the stored warning.
    """
    connection.add_notice_handler(_note)


def _note(diagnostic: Any) -> None:  # noqa: ANN401 - DBAPI is untyped
    # The text of the warning depends on the language.
    if diagnostic.source_function == _NOT_CONFIRMED:
        _here.warning = diagnostic.message_primary


@contextmanager
def confirmed_commit() -> Iterator[None]:
    """Return a context for a commit; raise OperationalError if the standby does not confirm it.

    The caller commits inside the context. The error is raised at the end of the context.
    """
    _here.warning = None
    yield
    if _here.warning is not None:
        reason = RuntimeError(f"only the primary has the commit: {_here.warning}")
        raise exc.OperationalError("COMMIT", None, reason)
