"""Column types and JSON texts that behave the same on every database.

msgspec encodes and decodes JSON several times faster than the standard library. Values that
msgspec rejects (integers beyond 64 bits, NaN) go to the standard library.
"""

import json
from datetime import UTC, datetime
from typing import Any

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
    """A text to sort by code point, which is fast; on PostgreSQL that is the collation "C"."""

    type = sa.String()
    inherit_cache = True


@compiles(code_points)
def _unchanged(element: code_points, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.clauses, **options)


@compiles(code_points, "postgresql")
def _collated(element: code_points, compiler: SQLCompiler, **options: Any) -> str:
    return f'{compiler.process(element.clauses, **options)} COLLATE "C"'


class UtcDateTime(sa.types.TypeDecorator[datetime]):
    """An aware UTC time with microseconds, on every database."""

    impl = sa.DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[datetime]:
        """Return the column type that stores microseconds."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(sa.DateTime(timezone=True))
        if dialect.name in {"mysql", "mariadb"}:
            return dialect.type_descriptor(mysql.DATETIME(fsp=6))
        return dialect.type_descriptor(sa.DateTime())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to UTC; only PostgreSQL's type stores a time zone."""
        if value is None:
            return None
        if value.tzinfo is not UTC:
            value = value.astimezone(UTC)
        return value if dialect.name == "postgresql" else value.replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        """Return the stored time as aware UTC."""
        if value is None or value.tzinfo is UTC:
            return value
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)


def encode_json(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return a value as JSON text; raises TypeError for values that JSON cannot represent."""
    try:
        return _ENCODE(value).decode()
    except (TypeError, ValueError):  # subclasses of str and numbers, half a surrogate pair
        return json.dumps(value, default=_plain)


def decode_json(text: str | bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value of a JSON text."""
    try:
        return _DECODE(text)
    except msgspec.DecodeError:  # only Python writes NaN, 1e400 or half a surrogate pair
        return json.loads(text)


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"not to be stored: {value!r}")
