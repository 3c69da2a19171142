"""Column types, JSON texts and list parameters that behave the same on every database.

msgspec encodes and decodes JSON several times faster than the standard library. If msgspec rejects
a value (integers beyond 64 bits, NaN), the standard library handles the value.

``any_of`` is ``column IN (...)`` for lists of any length. On PostgreSQL it becomes ``column =
ANY(array)``. On SQLite it becomes a query on a JSON list. Both databases receive the list as one
parameter, so they compile, parse and plan the statement only once. On MariaDB, each value is part
of the statement: split long lists with ``chunks``.
"""

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

# Compares text by code point, with trailing spaces, like Python, PostgreSQL "C" and SQLite.
MARIADB = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_nopad_bin",
}
Id = sa.String(36)
Serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")
Code = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
# Number of characters of a long text that an index contains.
HEAD = 64
Head = sa.String(HEAD).with_variant(sa.String(HEAD, collation="C"), "postgresql")
HEAD_OF_VALUE = sa.Computed(f"substr(value, 1, {HEAD})", persisted=True)

_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder().decode


class code_points(FunctionElement[str]):  # noqa: N801 - reads like a function of SQLAlchemy's
    """An SQL expression that makes a text sort by code point, which is fast.

    On PostgreSQL, it adds the collation "C" to the text. On other databases, it is the text itself.
    """

    type = sa.String()
    inherit_cache = True


@compiles(code_points)
def _unchanged(element: code_points, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.clauses, **options)


@compiles(code_points, "postgresql")
def _collated(element: code_points, compiler: SQLCompiler, **options: Any) -> str:
    return f'{compiler.process(element.clauses, **options)} COLLATE "C"'


class UtcDateTime(sa.types.TypeDecorator[datetime]):
    """A column type for aware UTC times with microseconds, on every database."""

    impl = sa.DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[datetime]:
        """Return the column type that stores microseconds on the database of ``dialect``."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(sa.DateTime(timezone=True))
        if dialect.name in {"mysql", "mariadb"}:
            return dialect.type_descriptor(mysql.DATETIME(fsp=6))
        return dialect.type_descriptor(sa.DateTime())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the time to send to the database: in UTC, with a zone on PostgreSQL only.

        None stays None.
        """
        if value is None:
            return None
        if value.tzinfo is not UTC:
            value = value.astimezone(UTC)
        return value if dialect.name == "postgresql" else value.replace(tzinfo=None)

    def result_processor(
        self, dialect: Dialect, coltype: object
    ) -> Callable[[Any], datetime | None] | None:
        """Return the function that converts a time from the database; None if none is needed."""
        if dialect.name == "postgresql":  # connections have the time zone UTC, see ``database``
            return None
        return super().result_processor(dialect, coltype)

    def process_result_value(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        """Return a time from the database as an aware time in UTC; None stays None."""
        if value is None or value.tzinfo is UTC:
            return value
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)


def encode_json(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return ``value`` as JSON text; raise TypeError if JSON cannot represent the value."""
    try:
        return _ENCODE(value).decode()
    except (TypeError, ValueError):  # subclasses of str and numbers, half a surrogate pair
        return json.dumps(value, default=_plain)


def decode_json(text: str | bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value that a JSON text represents."""
    try:
        return _DECODE(text)
    except msgspec.DecodeError:  # only Python writes NaN, 1e400 or half a surrogate pair
        return json.loads(text)


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"not to be stored: {value!r}")


T = TypeVar("T")


class any_of(FunctionElement[Any]):  # noqa: N801 - reads like a function of SQLAlchemy's
    """The SQL condition that a column has one of the given values, for lists of any length."""

    # Not typed Boolean: MariaDB would render `= 1` and skip the index.
    type = sa.types.NULLTYPE
    inherit_cache = True

    def __init__(self, column: Any, values: Collection[Any] | str) -> None:  # noqa: ANN401
        """Accept the list of values, or the name of an SQL parameter for the list.

        Each value is an integer, or a text without NUL.
        """
        if isinstance(values, str):
            parameter = sa.bindparam(values, type_=column.type, expanding=True)
        else:
            listed = list(values)
            parameter = sa.bindparam(None, listed, type_=column.type, expanding=True, unique=True)
        super().__init__(column, parameter)


def chunks(values: Sequence[T], size: int = 10_000) -> Iterable[Sequence[T]]:
    """Return slices of ``values`` in order, each with at most ``size`` items.

    Use them for long lists in a statement: MariaDB limits the length of a statement, and SQLite
    limits the number of its parameters (32,766).
    """
    return (values[at : at + size] for at in range(0, len(values), size))


class _Array(sa.types.TypeDecorator[Collection[Any]]):
    """A type for an SQL parameter that is a list: it becomes one text like ``{"first","second"}``.

    The driver psycopg sends such a text faster than a Python list.
    """

    # Not a text that the statement casts to an array: PostgreSQL would parse it for each row.

    impl = sa.ARRAY
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], str]:  # noqa: ARG002
        """Return the function that writes a list as the text ``{"first","second"}``."""
        return array_text


def array_text(values: Collection[Any]) -> str:
    """Return a list as PostgreSQL writes it: ``{"first","second"}``."""
    texts = list(map(str, values))
    together = "".join(texts)
    if '"' in together or "\\" in together:  # not in ids, which most lists contain
        texts = [text.replace("\\", "\\\\").replace('"', '\\"') for text in texts]
    joined = '","'.join(texts)
    return f'{{"{joined}"}}' if texts else "{}"


@compiles(any_of)
def _in(element: any_of, compiler: SQLCompiler, **options: Any) -> str:
    column, values = element.clauses
    return compiler.process(column.in_(values), **options)


@compiles(any_of, "sqlite")
def _in_json(element: any_of, compiler: SQLCompiler, **options: Any) -> str:
    column, values = element.clauses
    listed = compiler.process(_retyped(values, sa.JSON()), **options)
    compared = compiler.process(column, **options)
    return f"{compared} IN (SELECT value FROM json_each({listed}))"  # noqa: S608 - a parameter's name


@compiles(any_of, "postgresql")
def _any(element: any_of, compiler: SQLCompiler, **options: Any) -> str:
    column, values = element.clauses
    # PostgreSQL truncates values that it casts to text of a fixed length.
    item = sa.String() if isinstance(column.type, sa.String) else column.type
    array = _retyped(values, _Array(item))
    return compiler.process(column == sa.any_(array), **options)


def _retyped(values: Any, type_: sa.types.TypeEngine[Any]) -> sa.BindParameter[Any]:  # noqa: ANN401
    return sa.bindparam(values.key, values.value, type_=type_, required=values.required)
