"""Galera: whether a database is a cluster, and the constraint that a cluster cannot have.

GUARD is a constraint against double bookings. MariaDB checks it (``WITHOUT OVERLAPS``) by locking
the neighbours of a new row in the index, including rows of other resources. Galera applies
independent transactions in parallel (``wsrep_slave_threads``). Two of them can wait for each
other's neighbours. Nothing resolves that, and the whole cluster stops.

So on Galera, only locks and ``certify`` prevent double bookings. On other databases these come
first, too, and the constraint is the last resort. The self-audit looks for double bookings.
"""

from typing import Any

import sqlalchemy as sa

#: The name of the constraint on every database.
GUARD = "allocations_no_overlap"
_INDEX = "allocations_whole"
_HAS = sa.text(
    "SELECT count(*) FROM information_schema.statistics WHERE table_schema = DATABASE()"
    " AND table_name = 'allocations' AND index_name = :name"
)

_IS_GALERA = "climate_is_galera"


def detect(connection: Any, record: Any) -> None:  # noqa: ANN401 - DBAPI and pool are untyped
    """Store with a new MariaDB connection whether the server is a node of a Galera cluster."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW VARIABLES LIKE 'wsrep_on'")
        record.info[_IS_GALERA] = (cursor.fetchone() or (None, "OFF"))[1] == "ON"


def is_galera(connection: sa.Connection) -> bool:
    """Return whether a connection leads to a node of a Galera cluster."""
    return bool(connection.info.get(_IS_GALERA))


def is_fit(connection: sa.Connection) -> bool:
    """Return whether the constraint GUARD is as it should be.

    It must exist, except on a Galera cluster, where it must not.
    """
    return connection.dialect.name != "mysql" or _has(connection, GUARD) != is_galera(connection)


def fit(connection: sa.Connection) -> None:
    """Add the constraint GUARD if it is missing; on a Galera cluster, remove it if it exists."""
    if is_fit(connection):
        return
    if is_galera(connection):
        _alter(connection, f"ADD INDEX {_INDEX} (whole_id, start_at)", f"DROP INDEX {GUARD}")
    else:
        restore(connection)


def restore(connection: sa.Connection) -> None:
    """Add the constraint GUARD to a MariaDB database that does not have it."""
    if connection.dialect.name == "mysql" and not _has(connection, GUARD):
        unique = f"ADD UNIQUE {GUARD} (whole_id, busy WITHOUT OVERLAPS)"
        _alter(connection, unique, f"DROP INDEX {_INDEX}")


def _alter(connection: sa.Connection, *changes: str) -> None:
    connection.exec_driver_sql(f"ALTER TABLE allocations {', '.join(changes)}")


def _has(connection: sa.Connection, index: str) -> bool:
    return bool(connection.scalar(_HAS, {"name": index}))
