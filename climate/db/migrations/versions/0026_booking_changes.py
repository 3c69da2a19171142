"""Add the table ``booking_changes``, and the triggers that write it.

Triggers, because they record the writes of all code: of an earlier release during an upgrade, and
of cascades on PostgreSQL and SQLite. InnoDB fires no triggers for cascades, so climate deletes
allocations itself before it deletes leases, reservations and resources.

PostgreSQL has one trigger for each statement. For 1-3 rows, it costs no more than one for each
row (0.07-0.19 ms), and for 1,000 rows half as much.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

from climate.core.errors import OperatorError
from climate.db.engine.types import MARIADB, UtcDateTime

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

_MARIADB: dict[str, Any] = {**MARIADB}
_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TABLES = ("allocations", "resources", "resource_properties")


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    op.create_table(
        "booking_changes",
        sa.Column("id", _SERIAL, nullable=False),
        sa.Column("resource_id", sa.BigInteger(), nullable=False),
        sa.Column("project_id", sa.String(255), nullable=True),
        sa.Column("start_at", UtcDateTime(), nullable=True),
        sa.Column("busy_until", UtcDateTime(), nullable=True),
        sa.Column("is_shared", sa.Boolean(), nullable=True),
        sa.Column("is_added", sa.Boolean(), nullable=True),
        sa.Column("made_at", UtcDateTime(), nullable=False),
        sa.Column("xid", sa.BigInteger(), nullable=True),
        sa.Column("seq", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="booking_changes_pkey"),
        sqlite_autoincrement=True,
        **_MARIADB,
    )
    for name in ("xid", "seq"):  # empty on databases that leave the column NULL
        is_used = sa.text(f"{name} IS NOT NULL")
        op.create_index(
            f"booking_changes_{name}",
            "booking_changes",
            [name],
            unique=name == "seq",
            postgresql_where=is_used,
            sqlite_where=is_used,
        )
    dialect = op.get_bind().dialect.name
    {"postgresql": _postgresql, "mysql": _mariadb, "sqlite": _sqlite}[dialect]()


def downgrade() -> None:
    """Migrate the schema from this revision back to the previous one."""
    dialect = op.get_bind().dialect.name
    for table in _TABLES:
        for event in ("insert", "update", "delete"):
            on = f" ON {table}" if dialect == "postgresql" else ""
            if_exists = "IF EXISTS " if dialect == "mysql" else ""
            op.execute(f"DROP TRIGGER {if_exists}{table}_change_{event}{on}")
        if dialect == "postgresql":
            op.execute(f"DROP FUNCTION {table}_change()")
    op.drop_table("booking_changes")


# What a trigger stores of an allocation, and the columns of ``booking_changes`` for it.
_BOOKING = "resource_id, start_at, busy_until, is_shared, is_added, project_id"
_IS_SHARED = "resource_class IS NOT NULL"


def _project(allocation: str) -> str:
    """Return the SQL of the project that an allocation belongs to.

    Not a join: PostgreSQL plans a trigger's statement once in each session, and after a first call
    with many rows, it would read all leases for each later allocation.
    """
    leases = "{schema}reservations JOIN {schema}leases ON leases.id = reservations.lease_id"
    condition = f"reservations.id = {allocation}.reservation_id"
    return f"(SELECT leases.project_id FROM {leases} WHERE {condition})"  # noqa: S608 - only constants


def _postgresql() -> None:
    """Create a function and three triggers for each table.

    Names in the functions are qualified, so that they do not depend on the client's search path.
    """
    schema = op.get_bind().exec_driver_sql("SELECT quote_ident(current_schema())").scalar_one()
    bodies = (_PG_ALLOCATIONS, _PG_RESOURCES, _PG_PROPERTIES)
    for table, body in zip(_TABLES, bodies, strict=True):
        text = body.replace("{schema}", f"{schema}.").replace(":", "\\:")
        op.execute(
            f"CREATE FUNCTION {table}_change() RETURNS trigger LANGUAGE plpgsql AS $${text}$$"
        )
        for event, rows in _PG_ROWS.items():
            op.execute(
                f"CREATE TRIGGER {table}_change_{event.lower()} AFTER {event} ON {table}"
                f" REFERENCING {rows} FOR EACH STATEMENT EXECUTE FUNCTION {table}_change()"
            )


_PG_ROWS = {
    "INSERT": "NEW TABLE AS new_rows",
    "UPDATE": "OLD TABLE AS old_rows NEW TABLE AS new_rows",
    "DELETE": "OLD TABLE AS old_rows",
}
_PG_XID = "pg_current_xact_id()::text::bigint"
_PG_INSERT = f"INSERT INTO {{schema}}booking_changes (made_at, xid, {_BOOKING})"
_PG_COLUMNS = f"resource_id, start_at, busy_until, {_IS_SHARED} AS is_shared, reservation_id"


def _pg_changes(source: str, is_added: str) -> str:
    return f"""
        SELECT clock_timestamp(), {_PG_XID}, resource_id, start_at, busy_until, is_shared,
            {is_added}, {_project("changed")}
        FROM ({source}) AS changed
    """  # noqa: S608 - only constants


_PG_ALLOCATIONS = f"""
BEGIN
    IF TG_OP = 'INSERT' THEN
        {_PG_INSERT} {
    _pg_changes(f"SELECT {_PG_COLUMNS} FROM new_rows WHERE busy_until > now()", "true")
};
    ELSIF TG_OP = 'DELETE' THEN
        {_PG_INSERT} {
    _pg_changes(f"SELECT {_PG_COLUMNS} FROM old_rows WHERE busy_until > now()", "false")
};
    ELSIF EXISTS (SELECT FROM new_rows WHERE busy_until > now())
        OR EXISTS (SELECT FROM old_rows WHERE busy_until > now())
    THEN
        {_PG_INSERT} {
    _pg_changes(
        f"SELECT {_PG_COLUMNS} FROM old_rows EXCEPT ALL SELECT {_PG_COLUMNS} FROM new_rows", "false"
    )
};
        {_PG_INSERT} {
    _pg_changes(
        f"SELECT {_PG_COLUMNS} FROM new_rows EXCEPT ALL SELECT {_PG_COLUMNS} FROM old_rows", "true"
    )
};
    END IF;
    RETURN NULL;
END
"""  # noqa: S608 - only constants
_PG_NOTE = f"""
    INSERT INTO {{schema}}booking_changes (made_at, xid, resource_id)
    SELECT clock_timestamp(), {_PG_XID}, id FROM"""
_PG_RESOURCES = f"""
BEGIN
    IF TG_OP = 'INSERT' THEN
        {_PG_NOTE} new_rows;
    ELSIF TG_OP = 'DELETE' THEN
        {_PG_NOTE} old_rows;
    ELSE
        {_PG_NOTE} (
            SELECT id, type, reservable FROM new_rows
            EXCEPT ALL SELECT id, type, reservable FROM old_rows
        ) AS changed;
    END IF;
    RETURN NULL;
END
"""  # noqa: S608 - only constants
_PG_PROPERTIES = f"""
BEGIN
    IF TG_OP = 'INSERT' THEN
        {_PG_NOTE} (SELECT DISTINCT resource_id AS id FROM new_rows) AS changed;
    ELSIF TG_OP = 'DELETE' THEN
        {_PG_NOTE} (SELECT DISTINCT resource_id AS id FROM old_rows) AS changed;
    ELSE
        {_PG_NOTE} (
            SELECT resource_id AS id FROM new_rows UNION SELECT resource_id FROM old_rows
        ) AS changed;
    END IF;
    RETURN NULL;
END
"""  # noqa: S608 - only constants


def _row_triggers(now: str, same: str, trigger: str) -> None:
    """Create the triggers that SQLite and MariaDB run for each row.

    ``now`` is the SQL of the present time. ``same`` is the operator of equality that accepts NULL.
    ``trigger`` is the form of a trigger's text.
    """

    def booking(row: str, *, is_added: bool) -> str:
        flag = "1" if is_added else "0"
        return (
            f"INSERT INTO booking_changes (made_at, {_BOOKING})"  # noqa: S608 - only constants
            f" VALUES ({now}, {row}.resource_id, {row}.start_at, {row}.busy_until,"
            f" {row}.{_IS_SHARED}, {flag}, {_project(row).replace('{schema}', '')});"
        )

    def note(id_: str) -> str:
        return f"INSERT INTO booking_changes (made_at, resource_id) VALUES ({now}, {id_});"  # noqa: S608 - only constants

    def differ(*columns: str) -> str:
        return " OR ".join(f"NOT (OLD.{name} {same} NEW.{name})" for name in columns)

    def create(table: str, event: str, condition: str, *statements: str) -> None:
        op.execute(
            trigger.format(
                name=f"{table}_change_{event.lower()}",
                event=event,
                table=table,
                condition=condition,
                statements=" ".join(statements),
            )
        )

    shares = f"(OLD.{_IS_SHARED}) <> (NEW.{_IS_SHARED})"
    window = differ("resource_id", "start_at", "busy_until", "reservation_id")
    is_future = f"(OLD.busy_until > {now} OR NEW.busy_until > {now})"
    removed, added = booking("OLD", is_added=False), booking("NEW", is_added=True)
    create("allocations", "INSERT", f"NEW.busy_until > {now}", added)
    create("allocations", "DELETE", f"OLD.busy_until > {now}", removed)
    create("allocations", "UPDATE", f"{is_future} AND ({window} OR {shares})", removed, added)
    create("resources", "INSERT", "1 = 1", note("NEW.id"))
    create("resources", "DELETE", "1 = 1", note("OLD.id"))
    create("resources", "UPDATE", differ("type", "reservable"), note("NEW.id"))
    create("resource_properties", "INSERT", "1 = 1", note("NEW.resource_id"))
    create("resource_properties", "DELETE", "1 = 1", note("OLD.resource_id"))
    create(
        "resource_properties",
        "UPDATE",
        differ("resource_id", "name", "value"),
        note("OLD.resource_id"),
        note("NEW.resource_id"),
    )


def _mariadb() -> None:
    """Create row triggers; MariaDB has no triggers for statements.

    If the server allows no triggers, the table ``booking_changes`` stays: a trigger that an
    interrupted upgrade created may already write to it.
    """
    try:
        _row_triggers(
            "UTC_TIMESTAMP(6)",
            "<=>",
            "CREATE OR REPLACE TRIGGER {name} AFTER {event} ON {table} FOR EACH ROW"
            " BEGIN IF {condition} THEN {statements} END IF; END",
        )
    except sa.exc.OperationalError as error:
        code = error.orig.args[0] if error.orig is not None else None
        if code not in _NO_TRIGGERS:
            raise
        raise OperatorError(_NO_TRIGGERS[code]) from error


_NO_TRIGGERS = {
    1419: (
        "MariaDB lets only administrators create triggers while its binary log is on: run 'SET"
        " GLOBAL log_bin_trust_function_creators = 1' as an administrator, and then"
        " 'climate-db-manage upgrade' again"
    ),
    1142: (
        "the database user must have the privilege TRIGGER on all tables of climate: grant it, and"
        " run 'climate-db-manage upgrade' again"
    ),
}


def _sqlite() -> None:
    """Create row triggers; SQLite has no triggers for statements."""
    now = "strftime('%Y-%m-%d %H\\:%M\\:%f000', 'now')"  # as SQLAlchemy writes times
    _row_triggers(
        now,
        "IS",
        "CREATE TRIGGER {name} AFTER {event} ON {table} WHEN {condition} BEGIN {statements} END",
    )
