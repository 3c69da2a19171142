"""Statements that climate passes to PostgreSQL's driver itself, without SQLAlchemy.

SQLAlchemy and the driver both work on the text of a statement at each execution, and both keep
track of transactions. For a large statement with many parameters, this takes longer than to send
it. ``convert`` does the work on the text once. ``run`` prepares the statement at its first
execution, because the database takes longer to plan a large statement than to execute it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.dialects.postgresql.psycopg import dialect

from climate.db.engine import redaction, servers

#: Compiles statements to texts for ``convert``.
POSTGRESQL = dialect(paramstyle="pyformat")  # type: ignore[no-untyped-call]
# Statements that are prepared on one connection at the same time.
_PREPARED = 100
_PARAMETER = re.compile(r"%\((\w+)\)s")


@dataclass(frozen=True, slots=True)
class DriverStatement:
    """An SQL text with the parameters ``$1``, ``$2``, and so on, and their names in this order."""

    text: bytes
    names: tuple[str, ...]


def convert(text: str) -> DriverStatement:
    """Return the statement for a text with parameters such as ``%(start)s``.

    A percent sign that is not part of a parameter is written ``%%``.
    """
    names = tuple(dict.fromkeys(_PARAMETER.findall(text)))
    numbers = {name: f"${number}" for number, name in enumerate(names, 1)}
    numbered = _PARAMETER.sub(lambda found: numbers[found[1]], text)
    return DriverStatement(numbered.replace("%%", "%").encode(), names)


def run(
    engine: sa.Engine, statement: DriverStatement, values: Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    """Run a statement that commits by itself, and return its rows.

    ``engine`` must be one of PostgreSQL. An error is a DBAPIError, as SQLAlchemy would raise it: if
    the server is gone or refuses writes, the pool drops its connections.
    """
    driver: Any = engine.dialect.loaded_dbapi
    wanted = [values[name] for name in statement.names]
    with _pooled(engine, driver.Error) as pooled:
        try:
            return _execute(driver, pooled, statement, wanted)
        except driver.errors.InvalidSqlStatementName:
            # The driver ends all prepared statements of a connection after some errors and schema
            # changes. The server has executed nothing.
            _known(pooled)[0].clear()
            return _execute(driver, pooled, statement, wanted)


def _execute(
    driver: Any,  # noqa: ANN401 - the driver has no types for a checker
    pooled: sa.PoolProxiedConnection,
    statement: DriverStatement,
    values: Sequence[Any],
) -> list[tuple[Any, ...]]:
    """Send a prepared statement, and return its rows.

    The function uses the driver's interface to libpq, where a statement outside a transaction block
    commits by itself.
    """
    connection: Any = pooled.driver_connection
    converter = driver.adapt.Transformer(connection)
    sent = converter.dump_sequence(values, [driver.adapt.PyFormat.AUTO] * len(values))
    server = connection.pgconn
    name = _prepared(driver, pooled, statement.text, converter.types)
    result = _checked(driver, server, server.exec_prepared(name, sent, converter.formats))
    converter.set_pgresult(result)
    rows: list[tuple[Any, ...]] = converter.load_rows(0, result.ntuples, tuple)
    return rows


def _prepared(
    driver: Any,  # noqa: ANN401
    pooled: sa.PoolProxiedConnection,
    text: bytes,
    types: tuple[int, ...] | None,
) -> bytes:
    """Return the name of a statement that is prepared on this connection.

    ``types`` are the PostgreSQL types of the parameters. A connection keeps the ``_PREPARED``
    statements that were used last, because each takes memory of the server.
    """
    server: Any = pooled.driver_connection.pgconn  # type: ignore[union-attr]
    known, numbers = _known(pooled)
    name = known.pop((text, types), None)
    if name is None:
        if len(known) >= _PREPARED:
            unused = known.pop(next(iter(known)))
            _checked(driver, server, server.exec_(b"DEALLOCATE " + unused))
        name = b"climate_%d" % next(numbers)
        _checked(driver, server, server.prepare(name, text, types))
    known[text, types] = name  # now the last one
    return name


def _known(pooled: sa.PoolProxiedConnection) -> tuple[dict[Any, bytes], Iterator[int]]:
    """Return the names of the connection's prepared statements, and numbers for new names."""
    known: tuple[dict[Any, bytes], Iterator[int]] = pooled.info.setdefault(
        "climate_prepared", ({}, count())
    )
    return known


def _checked(driver: Any, server: Any, result: Any) -> Any:  # noqa: ANN401
    """Return the result of a statement; raise the driver's error if the statement failed."""
    status = driver.pq.ExecStatus
    if result.status in {status.TUPLES_OK, status.COMMAND_OK}:
        return result
    if server.status != driver.pq.ConnStatus.OK:
        raise driver.OperationalError(server.get_error_message())
    raise driver.errors.error_from_result(result)


@contextmanager
def _pooled(engine: sa.Engine, errors: type[Exception]) -> Iterator[sa.PoolProxiedConnection]:
    """Return a context with a connection of the pool, outside of a transaction.

    ``errors`` is the class of the driver's errors.
    """
    try:
        pooled = engine.raw_connection()
    except errors as error:
        raise _wrapped(error, errors, is_lost=True) from error
    try:
        yield pooled
    except errors as error:
        connection: Any = pooled.driver_connection
        is_lost = bool(connection.closed) or servers.refuses_writes(error)
        if is_lost:
            pooled.invalidate(error)
            engine.dispose()
        raise _wrapped(error, errors, is_lost=is_lost) from error
    except BaseException as error:
        pooled.invalidate(error)
        raise
    finally:
        pooled.close()


def _wrapped(error: Exception, errors: type[Exception], *, is_lost: bool) -> BaseException:
    """Return the error that SQLAlchemy raises for an error of the driver, without any values."""
    redaction.redact(error, "postgresql")
    return exc.DBAPIError.instance(
        None, None, error, errors, hide_parameters=True, connection_invalidated=is_lost
    )
