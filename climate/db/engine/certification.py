"""Certification: make conflicts between the nodes of a Galera cluster visible.

Row locks, SKIP LOCKED and the double-booking guard act within one node. Nodes compare only the keys
of the rows that transactions changed; of two conflicting transactions the later one fails at COMMIT
with a deadlock, and ``Database.write`` runs it again. So a transaction must change what it locks:
after each lock, ``certify`` counts up the column ``generation`` of the locked rows. On any other
database it does nothing, as a lock is enough.

Source: Galera Cluster documentation, "Certification-Based Replication".
"""

from collections.abc import Collection
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Session

_IS_GALERA = "climate_is_galera"


def detect(connection: Any, record: Any) -> None:  # noqa: ANN401 - DBAPI and pool are untyped
    """Store with a new MariaDB connection whether the server is a node of a Galera cluster."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW VARIABLES LIKE 'wsrep_on'")
        record.info[_IS_GALERA] = (cursor.fetchone() or (None, "OFF"))[1] == "ON"


def is_galera(connection: sa.Connection) -> bool:
    """Return whether a connection leads to a node of a Galera cluster."""
    return bool(connection.info.get(_IS_GALERA))


def certify(session: Session, row: type[DeclarativeBase], keys: Collection[Any]) -> None:
    """Change the rows with these primary keys, which the transaction has locked, on Galera."""
    if keys and is_galera(session.connection()):
        (key,) = cast("sa.Table", row.__table__).primary_key.columns
        certify_where(session, row, key.in_(sorted(keys)))


def certify_where(
    session: Session, row: type[DeclarativeBase], *which: sa.ColumnElement[bool]
) -> None:
    """Change the rows that meet the conditions, which the transaction has locked, on Galera."""
    if is_galera(session.connection()):
        table = cast("sa.Table", row.__table__)
        change = sa.update(table).where(*which)
        session.connection().execute(change.values(generation=table.c.generation + 1))
