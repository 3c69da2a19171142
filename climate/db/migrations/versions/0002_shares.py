"""Shares of resources: inventories, and allocations of a part of a resource."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from climate.db.engine.types import UtcDateTime
from climate.db.migrations.repeatable import has_column

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_MARIADB: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_nopad_bin",
}
_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_WHOLE = "CASE WHEN resource_class IS NULL THEN resource_id END"
_SHARE = "(resource_class IS NULL) = (amount IS NULL)"
_COLUMNS = "id, resource_id, reservation_id, start_at, busy_until"


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    op.create_table(
        "inventories",
        sa.Column("resource_id", _SERIAL, nullable=False),
        sa.Column("resource_class", sa.String(length=255), nullable=False),
        sa.Column("total", sa.BigInteger(), nullable=False),
        sa.Column("reserved", sa.BigInteger(), nullable=False),
        sa.Column("allocation_ratio", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["resource_id"],
            ["resources.id"],
            name="inventories_resource_id_fkey",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("resource_id", "resource_class", name="inventories_pkey"),
        **_MARIADB,
    )
    {"postgresql": _postgresql, "mariadb": _mariadb, "sqlite": _sqlite}[_dialect()](shares=True)


def downgrade() -> None:
    """Migrate down, unless that would lose data."""
    shares = "SELECT count(*) FROM allocations WHERE resource_class IS NOT NULL"
    has_shares = has_column("allocations", "resource_class")
    if has_shares and op.get_bind().exec_driver_sql(shares).scalar_one():
        raise RuntimeError("there are leases with shares of a resource, which 0001 cannot keep")
    {"postgresql": _postgresql, "mariadb": _mariadb, "sqlite": _sqlite}[_dialect()](shares=False)
    op.drop_table("inventories")


def _dialect() -> str:
    dialect = op.get_bind().dialect
    return "mariadb" if getattr(dialect, "is_mariadb", False) else dialect.name


def _run(*statements: str) -> None:
    for statement in statements:
        op.execute(statement)


def _indexes(*, shares: bool) -> None:
    key = "whole_id" if shares else "resource_id"
    op.create_index("allocations_probe", "allocations", [key, "start_at", "busy_until"])
    if shares:
        op.create_index("allocations_shares", "allocations", ["resource_id", "busy_until"])


def _postgresql(*, shares: bool) -> None:
    """Change the constraint against double bookings so that shares may overlap each other.

    The new constraint refuses two bookings of a resource if both their times and their lanes
    (ranges of numbers) overlap. Each share has a lane of its own. A booking of the whole resource
    has all lanes. If ``shares`` is false, restore the previous constraint.
    """
    drop = "ALTER TABLE allocations DROP CONSTRAINT allocations_no_overlap"
    overlap = "resource_id WITH =, tstzrange(start_at, busy_until) WITH &&"
    lane = (
        "(CASE WHEN resource_class IS NULL THEN int8range(NULL, NULL)"
        " ELSE int8range(id, id, '[]') END) WITH &&"
    )
    add = "ALTER TABLE allocations ADD CONSTRAINT allocations_no_overlap EXCLUDE USING gist"
    if shares:
        _run(
            drop,
            "DROP INDEX allocations_probe",
            f"""
            ALTER TABLE allocations
            ADD COLUMN resource_class VARCHAR(255),
            ADD COLUMN amount BIGINT,
            ADD COLUMN whole_id BIGINT GENERATED ALWAYS AS ({_WHOLE}) STORED,
            ADD CONSTRAINT allocations_share CHECK ({_SHARE})
            """,
            f"{add} ({overlap}, {lane})",
        )
    else:
        _run(
            drop,
            "ALTER TABLE allocations DROP CONSTRAINT allocations_share",
            "ALTER TABLE allocations DROP whole_id, DROP amount, DROP resource_class",
            "DROP INDEX IF EXISTS allocations_shares, allocations_probe",
            f"{add} ({overlap})",
        )
    _indexes(shares=shares)


def _mariadb(*, shares: bool) -> None:
    """Change the index against double bookings so that it leaves out bookings of shares.

    If ``shares`` is false, restore the previous index.
    """
    unique = "ALTER TABLE allocations ADD UNIQUE IF NOT EXISTS allocations_no_overlap"
    # The foreign key always needs an index; this one serves it during the change.
    _run(
        "CREATE INDEX IF NOT EXISTS allocations_meanwhile"
        " ON allocations (resource_id, reservation_id)",
        "ALTER TABLE allocations DROP INDEX IF EXISTS allocations_no_overlap",
        "DROP INDEX IF EXISTS allocations_probe ON allocations",
    )
    if shares:
        _run(
            f"""
            ALTER TABLE allocations
            ADD COLUMN IF NOT EXISTS resource_class VARCHAR(255) NULL,
            ADD COLUMN IF NOT EXISTS amount BIGINT NULL,
            ADD COLUMN IF NOT EXISTS whole_id BIGINT GENERATED ALWAYS AS ({_WHOLE}) STORED,
            ADD CONSTRAINT IF NOT EXISTS allocations_share CHECK ({_SHARE})
            """,
            f"{unique} (whole_id, busy WITHOUT OVERLAPS)",
        )
    else:
        _run(
            "DROP INDEX IF EXISTS allocations_shares ON allocations",
            """
            ALTER TABLE allocations DROP CONSTRAINT IF EXISTS allocations_share,
            DROP COLUMN IF EXISTS whole_id, DROP COLUMN IF EXISTS amount,
            DROP COLUMN IF EXISTS resource_class
            """,
            f"{unique} (resource_id, busy WITHOUT OVERLAPS)",
        )
    _indexes(shares=shares)
    _run("DROP INDEX IF EXISTS allocations_meanwhile ON allocations")


def _sqlite(*, shares: bool) -> None:
    """Rebuild the table with or without columns for shares, as SQLite cannot add stored columns."""
    _run(
        "DROP TRIGGER allocations_no_overlap_insert",
        "DROP TRIGGER allocations_no_overlap_update",
        "ALTER TABLE allocations RENAME TO allocations_before",
        "DROP INDEX allocations_probe",
        "DROP INDEX allocations_reservation_id",
    )
    _sqlite_table(shares=shares)
    _run(
        f"INSERT INTO allocations ({_COLUMNS}) SELECT {_COLUMNS} FROM allocations_before",  # noqa: S608
        "DROP TABLE allocations_before",
    )
    op.create_index("allocations_reservation_id", "allocations", ["reservation_id"])
    _indexes(shares=shares)
    whole = "AND (NEW.resource_class IS NULL OR other.resource_class IS NULL)" if shares else ""
    columns = "resource_id, start_at, busy_until" + (", resource_class" if shares else "")
    for name, when in (("insert", "INSERT"), ("update", f"UPDATE OF {columns}")):
        _run(
            f"""
            CREATE TRIGGER allocations_no_overlap_{name} BEFORE {when} ON allocations
            WHEN EXISTS (
                SELECT 1 FROM allocations AS other
                WHERE other.resource_id = NEW.resource_id AND other.id IS NOT NEW.id
                AND other.start_at < NEW.busy_until AND NEW.start_at < other.busy_until
                {whole}
            )
            BEGIN SELECT RAISE(ABORT, 'allocations_no_overlap'); END
            """  # noqa: S608 - only constants
        )


def _sqlite_table(*, shares: bool) -> None:
    more: list[Any] = [
        sa.Column("resource_class", sa.String(length=255), nullable=True),
        sa.Column("amount", sa.BigInteger(), nullable=True),
        sa.Column("whole_id", sa.BigInteger(), sa.Computed(_WHOLE, persisted=True), nullable=True),
        sa.CheckConstraint(_SHARE, name="allocations_share"),
    ]
    op.create_table(
        "allocations",
        sa.Column("id", _SERIAL, nullable=False),
        sa.Column("resource_id", _SERIAL, nullable=False),
        sa.Column("reservation_id", sa.String(length=36), nullable=True),
        sa.Column("start_at", UtcDateTime(), nullable=False),
        sa.Column("busy_until", UtcDateTime(), nullable=False),
        *(more if shares else []),
        sa.ForeignKeyConstraint(
            ["reservation_id"],
            ["reservations.id"],
            name="allocations_reservation_id_fkey",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["resource_id"],
            ["resources.id"],
            name="allocations_resource_id_fkey",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="allocations_pkey"),
        sa.CheckConstraint("start_at < busy_until", name="allocations_window"),
    )
