"""Storing, or changing, many rows at once: one statement on PostgreSQL, one for each elsewhere."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.db.tables import Base
from climate.db.types import encode_json

#: Rows of one table, all with the same columns.
Rows = tuple[type[Base], Sequence[Mapping[str, Any]]]


def insert(session: Session, *tables: Rows) -> None:
    """Store the rows, each table's after those that they may refer to."""
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
    """Change rows; of each its ``id`` is given, and of all the same columns."""
    if not rows:
        return
    connection = session.connection()
    if connection.dialect.name == "postgresql":
        text = encode_json(rows)
        if "\\u0000" not in text:  # which plugins may say, and PostgreSQL takes out of no JSON
            connection.execute(_change_all(table, tuple(rows[0])), {"rows": text})
            return
    given = [{f"new_{name}": value for name, value in row.items()} for row in rows]
    connection.execute(_change_one(table, tuple(rows[0])), given)


@lru_cache
def _change_one(row: type[Base], columns: tuple[str, ...]) -> sa.Update:
    """Return the statement that changes a row; its parameters are ``new_`` and a column's name."""
    table = row.metadata.tables[row.__tablename__]
    given: dict[str, Any] = {name: sa.bindparam(f"new_{name}") for name in columns}
    return sa.update(table).where(table.c.id == given.pop("id")).values(given)


@lru_cache
def _change_all(table: type[Base], columns: tuple[str, ...]) -> sa.TextClause:
    """Return the statement: its text depends on the columns and not on how many rows there are."""
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
    """Return the statement: its text depends on the columns and not on how many rows there are.

    References are checked when all of it is done.
    """
    inserts = []
    for number, (table, columns) in enumerate(tables):
        name = table.__tablename__
        names = ", ".join(f'"{column}"' for column in columns)
        source = f"json_populate_recordset(NULL\\:\\:{name}, :rows_{number})"
        inserts.append(f"INSERT INTO {name} ({names}) SELECT {names} FROM {source}")  # noqa: S608 - our own tables
    *before, last = inserts
    parts = ", ".join(f"part_{number} AS ({one})" for number, one in enumerate(before))
    return sa.text(f"WITH {parts} {last}" if before else last)
