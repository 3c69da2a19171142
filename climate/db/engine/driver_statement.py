"""Statements that climate passes to PostgreSQL's driver itself, without SQLAlchemy.

SQLAlchemy and the driver both work on the text of a statement at each execution, and SQLAlchemy
changes the connection's mode in several steps. For a large statement with many parameters, this
takes longer than to send it. ``convert`` does that work once.

The driver also prepares the statement at its first execution: the database takes longer to plan a
large statement than to execute it.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.dialects.postgresql.psycopg import dialect

from climate.db.engine import redaction, servers

#: Compiles statements to texts for ``convert``.
POSTGRESQL = dialect(paramstyle="pyformat")  # type: ignore[no-untyped-call]
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
    with _autocommitting(engine, driver.Error) as connection:
        cursor = driver.RawCursor(connection)
        cursor.execute(statement.text, [values[name] for name in statement.names], prepare=True)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


@contextmanager
def _autocommitting(engine: sa.Engine, errors: type[Exception]) -> Iterator[Any]:
    """Return a context with a connection of the pool, in which each statement is a transaction.

    ``errors`` is the class of the driver's errors.
    """
    try:
        pooled = engine.raw_connection()
    except errors as error:
        raise _wrapped(error, errors, is_lost=True) from error
    connection: Any = pooled.driver_connection
    try:
        connection.autocommit = True
        yield connection
        connection.autocommit = False
    except errors as error:
        is_lost = bool(connection.closed) or servers.refuses_writes(error)
        if is_lost:
            pooled.invalidate(error)
            engine.dispose()
        else:
            connection.autocommit = False
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
