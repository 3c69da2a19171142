"""Galera clusters of MariaDB: detect them, and remove the constraint against double bookings.

Other databases have the constraint GUARD against double bookings. To check GUARD, MariaDB locks the
neighbours of a new row in the index, including rows of other resources. A Galera node applies
several transactions in parallel. With GUARD, two of these transactions could wait for each other
forever, and the whole cluster would stop.

So on Galera, only row locks and ``bulk.certify`` prevent double bookings (``certify`` lets the
cluster detect conflicts between nodes). On other databases, row locks prevent double bookings, and
GUARD rejects any that the locks miss. On all databases, the self-audit looks for double bookings.
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles

#: The name of the constraint on every database.
GUARD = "allocations_no_overlap"
_INDEX = "allocations_whole"
_HAS = sa.text(
    "SELECT count(*) FROM information_schema.statistics WHERE table_schema = DATABASE()"
    " AND table_name = 'allocations' AND index_name = :name"
)

_IS_GALERA = "climate_is_galera"


def detect(connection: Any, record: Any) -> None:  # noqa: ANN401 - DBAPI and pool are untyped
    """Find out whether a new MariaDB connection leads to a Galera node.

    The answer is stored in ``record``, the pool's record of the connection, for ``is_galera``.
    """
    with connection.cursor() as cursor:
        cursor.execute("SHOW VARIABLES LIKE 'wsrep_on'")
        record.info[_IS_GALERA] = (cursor.fetchone() or (None, "OFF"))[1] == "ON"


def is_galera(connection: sa.Connection) -> bool:
    """Return whether a connection leads to a node of a Galera cluster of MariaDB servers."""
    return bool(connection.info.get(_IS_GALERA))


def is_fit(connection: sa.Connection) -> bool:
    """Return whether the database has the constraint GUARD exactly if it should have it.

    On a Galera cluster, GUARD must be absent. On any other database, GUARD must be present.
    """
    return connection.dialect.name != "mysql" or _has(connection, GUARD) != is_galera(connection)


def fit(connection: sa.Connection) -> None:
    """Add the constraint GUARD against double bookings; on a Galera cluster, remove GUARD instead.

    Do nothing if the database is already as it should be.
    """
    if is_fit(connection):
        return
    if is_galera(connection):
        _alter(connection, f"ADD INDEX {_INDEX} (whole_id, start_at)", f"DROP INDEX {GUARD}")
    else:
        restore(connection)


def restore(connection: sa.Connection) -> None:
    """Add the constraint GUARD against double bookings to a MariaDB database without it."""
    if connection.dialect.name == "mysql" and not _has(connection, GUARD):
        unique = f"ADD UNIQUE {GUARD} (whole_id, busy WITHOUT OVERLAPS)"
        _alter(connection, unique, f"DROP INDEX {_INDEX}")


def _alter(connection: sa.Connection, *changes: str) -> None:
    connection.exec_driver_sql(f"ALTER TABLE allocations {', '.join(changes)}")


def _has(connection: sa.Connection, index: str) -> bool:
    return bool(connection.scalar(_HAS, {"name": index}))


@compiles(sa.schema.CreateIndex, "mysql", "mariadb")
def _add_index(element: sa.schema.CreateIndex, compiler: Any, **kw: Any) -> str:  # noqa: ANN401
    """Add an index with ALTER TABLE, because CREATE INDEX can stop a Galera cluster.

    A node may apply other transactions in parallel with a schema change, unless both name the same
    table. Here both also lock the tables that foreign keys lead to, and then they can wait for
    each other forever. ALTER TABLE names these tables to the other nodes; CREATE INDEX and DROP
    INDEX do not (see the tests ``galera_ddl_fk_conflict`` of MariaDB).

    Do nothing if the index exists (see ``climate.db.migrations.repeatable``).
    """
    created = compiler.visit_create_index(element, **kw).split()
    name = created.index("ON")
    index, table, columns = created[1:name], created[name + 1], created[name + 2 :]
    kind, index_name = index[:-1], index[-1]
    return " ".join(["ALTER TABLE", table, "ADD", *kind, "IF NOT EXISTS", index_name, *columns])


@compiles(sa.schema.DropIndex, "mysql", "mariadb")
def _drop_index(element: sa.schema.DropIndex, compiler: Any, **kw: Any) -> str:  # noqa: ANN401
    """Drop an index, if it exists, with ALTER TABLE, for the reasons that ``_add_index`` gives."""
    index, table = compiler.visit_drop_index(element, **kw).split("DROP INDEX")[1].split(" ON ")
    return f"ALTER TABLE {table.strip()} DROP INDEX IF EXISTS {index.strip()}"
