"""Bulk INSERT and UPDATE, certification of locked rows, and conversion of rows to dataclasses.

PostgreSQL reads all rows from JSON in one statement. Other databases run one statement per table,
with the rows as parameter sets.

Certification is for Galera clusters. There, row locks and SKIP LOCKED act only within one node.
Between nodes, Galera compares the keys of the rows that transactions changed. Of two conflicting
transactions, the later one fails at COMMIT with a deadlock, and ``Database.write`` runs it again.
So a transaction must change the rows that it locks: after each lock, ``certify`` increments the
column ``generation`` of these rows. On any other database, ``certify`` does nothing, as a lock
suffices. Source: Galera Cluster documentation, "Certification-Based Replication".
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.db.engine.galera import is_galera
from climate.db.engine.types import encode_json
from climate.db.tables.leases import Base

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

R = TypeVar("R", bound="DataclassInstance")

#: A table and rows to insert into it; all rows have the same columns.
Rows = tuple[type[Base], Sequence[Mapping[str, Any]]]


def record(kind: type[R], row: Any, /, **replaced: object) -> R:  # noqa: ANN401 - mapped or plain row
    """Convert a row to an object of the dataclass ``kind``.

    Each field is read from the row's attribute of the same name. Fields in ``replaced`` get the
    values given there instead.
    """
    names = (name for name in _names(kind) if name not in replaced)
    return kind(**{name: getattr(row, name) for name in names}, **replaced)


@lru_cache
def _names(kind: type[R]) -> list[str]:
    return [field.name for field in fields(kind)]


def values(item: object, names: str) -> dict[str, Any]:
    """Return attributes of an object as a dict; ``names`` are their names, separated by spaces."""
    keys, get = _attributes(names)
    return dict(zip(keys, get(item), strict=True))


@lru_cache
def _attributes(names: str) -> tuple[list[str], Callable[[object], tuple[Any, ...]]]:
    keys = names.split()
    return keys, attrgetter(*keys)


def insert(session: Session, *tables: Rows) -> None:
    """Insert rows into several tables; each argument is a pair of a table and its rows.

    A table must come after the tables to which its foreign keys refer.
    """
    nonempty = [(table, rows) for table, rows in tables if rows]
    connection = session.connection()
    if connection.dialect.name == "postgresql" and nonempty:
        statement = _all_at_once(tuple((table, tuple(rows[0])) for table, rows in nonempty))
        texts = {f"rows_{n}": encode_json(rows) for n, (_, rows) in enumerate(nonempty)}
        connection.execute(statement, texts)
        return
    for table, rows in nonempty:
        connection.execute(_insert(table), list(rows))


def update(
    session: Session,
    table: type[Base],
    rows: Sequence[Mapping[str, Any]],
    key: tuple[str, ...] = ("id",),
) -> None:
    """Update rows of a table; each mapping has the primary ``key`` and the columns to set.

    All mappings must have the same columns.
    """
    if not rows:
        return
    connection = session.connection()
    if connection.dialect.name == "postgresql":
        text = encode_json(rows)
        if "\\u0000" not in text:  # plug-ins may return NUL, which PostgreSQL cannot read from JSON
            connection.execute(_change_all(table, tuple(rows[0]), key), {"rows": text})
            return
    parameters = [{f"new_{name}": value for name, value in row.items()} for row in rows]
    connection.execute(_change_one(table, tuple(rows[0]), key), parameters)


def certify(session: Session, row: type[Base], keys: Collection[Any]) -> None:
    """On a Galera cluster, increment ``generation`` of the locked rows with these primary keys.

    The caller has locked these rows of the table ``row``. As the lock does not act on other nodes,
    the cluster needs the change to detect conflicts. On other databases, do nothing.
    """
    if keys:
        (key,) = cast("sa.Table", row.__table__).primary_key.columns
        certify_where(session, row, lambda: key.in_(sorted(keys)))


def certify_where(
    session: Session, row: type[Base], which: Callable[[], sa.ColumnElement[bool]]
) -> None:
    """Do the same as ``certify`` for the locked rows of the table ``row`` that meet a condition.

    ``which`` returns the SQL condition. ``which`` is called only on a Galera cluster.
    """
    connection = session.connection()
    if connection.dialect.name == "mysql" and is_galera(connection):
        table = cast("sa.Table", row.__table__)
        change = sa.update(table).where(which())
        connection.execute(change.values(generation=table.c.generation + 1))


@lru_cache
def _change_one(row: type[Base], columns: tuple[str, ...], key: tuple[str, ...]) -> sa.Update:
    """Build an UPDATE of a row by its key; the SQL parameter for a column ``x`` is ``new_x``."""
    table = row.metadata.tables[row.__tablename__]
    parameters: dict[str, Any] = {name: sa.bindparam(f"new_{name}") for name in columns}
    is_row = [table.c[name] == parameters.pop(name) for name in key]
    return sa.update(table).where(*is_row).values(parameters)


@lru_cache
def _change_all(table: type[Base], columns: tuple[str, ...], key: tuple[str, ...]) -> sa.TextClause:
    """Build an UPDATE of many rows by their keys, which reads the new values from a JSON array.

    Its text does not depend on the number of rows.
    """
    name = table.__tablename__
    values = ", ".join(f'"{column}" = given."{column}"' for column in columns if column not in key)
    is_row = " AND ".join(f'{name}."{column}" = given."{column}"' for column in key)
    source = f"json_populate_recordset(NULL\\:\\:{name}, :rows)"
    return sa.text(
        f"UPDATE {name} SET {values} FROM {source} AS given WHERE {is_row}"  # noqa: S608 - names of tables and columns
    )


@lru_cache
def _insert(table: type[Base]) -> sa.Insert:
    return sa.insert(table)


@lru_cache
def _all_at_once(tables: tuple[tuple[type[Base], tuple[str, ...]], ...]) -> sa.TextClause:
    """Build one statement that inserts rows into several tables, one CTE per table.

    ``tables`` contains the class and the column names of each table. The statement reads the rows
    from JSON arrays, so its text does not depend on the number of rows.
    """
    inserts = []
    for number, (table, columns) in enumerate(tables):
        name = table.__tablename__
        names = ", ".join(f'"{column}"' for column in columns)
        source = f"json_populate_recordset(NULL\\:\\:{name}, :rows_{number})"
        inserts.append(f"INSERT INTO {name} ({names}) SELECT {names} FROM {source}")  # noqa: S608 - names of tables and columns
    *before, last = inserts
    parts = ", ".join(f"part_{number} AS ({statement})" for number, statement in enumerate(before))
    return sa.text(f"WITH {parts} {last}" if before else last)
