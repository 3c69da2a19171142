"""Bulk INSERT and UPDATE (one statement on PostgreSQL, one per row elsewhere), rows as records."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.db.engine.types import encode_json
from climate.db.tables.leases import Base

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

R = TypeVar("R", bound="DataclassInstance")

#: Rows of one table, all with the same columns.
Rows = tuple[type[Base], Sequence[Mapping[str, Any]]]


def record(kind: type[R], row: Base, **replaced: object) -> R:
    """Return a row as a dataclass: its fields are the columns of the same names, or replaced."""
    names = (field.name for field in fields(kind) if field.name not in replaced)
    return kind(**{name: getattr(row, name) for name in names}, **replaced)


def insert(session: Session, *tables: Rows) -> None:
    """Insert the rows of several tables; a table comes after those that it refers to."""
    given = [(table, rows) for table, rows in tables if rows]
    connection = session.connection()
    if connection.dialect.name == "postgresql" and given:
        statement = _all_at_once(tuple((table, tuple(rows[0])) for table, rows in given))
        texts = {f"rows_{n}": encode_json(rows) for n, (_, rows) in enumerate(given)}
        connection.execute(statement, texts)
        return
    for table, rows in given:
        connection.execute(_insert(table), list(rows))


def update(session: Session, table: type[Base], rows: Sequence[Mapping[str, Any]]) -> None:
    """Update rows by ``id``; all have the same columns."""
    if not rows:
        return
    connection = session.connection()
    if connection.dialect.name == "postgresql":
        text = encode_json(rows)
        if "\\u0000" not in text:  # plugins may return it, and PostgreSQL cannot read it from JSON
            connection.execute(_change_all(table, tuple(rows[0])), {"rows": text})
            return
    given = [{f"new_{name}": value for name, value in row.items()} for row in rows]
    connection.execute(_change_one(table, tuple(rows[0])), given)


@lru_cache
def _change_one(row: type[Base], columns: tuple[str, ...]) -> sa.Update:
    """Return the statement; its parameters are the column names with the prefix ``new_``."""
    table = row.metadata.tables[row.__tablename__]
    given: dict[str, Any] = {name: sa.bindparam(f"new_{name}") for name in columns}
    return sa.update(table).where(table.c.id == given.pop("id")).values(given)


@lru_cache
def _change_all(table: type[Base], columns: tuple[str, ...]) -> sa.TextClause:
    """Return the statement. Its text depends on the columns, not on the number of rows."""
    name = table.__tablename__
    values = ", ".join(f'"{column}" = given."{column}"' for column in columns if column != "id")
    source = f"json_populate_recordset(NULL\\:\\:{name}, :rows)"
    return sa.text(
        f"UPDATE {name} SET {values} FROM {source} AS given WHERE {name}.id = given.id"  # noqa: S608 - our own tables
    )


@lru_cache
def _insert(table: type[Base]) -> sa.Insert:
    return sa.insert(table)


@lru_cache
def _all_at_once(tables: tuple[tuple[type[Base], tuple[str, ...]], ...]) -> sa.TextClause:
    """Return the statement. Its text depends on the columns, not on the number of rows.

    PostgreSQL checks the foreign keys at the end of the statement.
    """
    inserts = []
    for number, (table, columns) in enumerate(tables):
        name = table.__tablename__
        names = ", ".join(f'"{column}"' for column in columns)
        source = f"json_populate_recordset(NULL\\:\\:{name}, :rows_{number})"
        inserts.append(f"INSERT INTO {name} ({names}) SELECT {names} FROM {source}")  # noqa: S608 - our own tables
    *before, last = inserts
    parts = ", ".join(f"part_{number} AS ({statement})" for number, statement in enumerate(before))
    return sa.text(f"WITH {parts} {last}" if before else last)
