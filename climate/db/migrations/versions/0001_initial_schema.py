"""Create the tables of the first release."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from climate.db.engine.types import UtcDateTime

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_MARIADB: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_nopad_bin",
}
_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

# The double-booking guard: no two allocations of one resource overlap, whoever writes them.
_GUARD = {
    "postgresql": [
        "CREATE EXTENSION IF NOT EXISTS btree_gist",
        """
        ALTER TABLE allocations ADD CONSTRAINT allocations_no_overlap
        EXCLUDE USING gist (resource_id WITH =, tstzrange(start_at, busy_until) WITH &&)
        """,
    ],
    "mariadb": [
        """
        ALTER TABLE allocations
        ADD PERIOD IF NOT EXISTS FOR busy(start_at, busy_until),
        ADD UNIQUE IF NOT EXISTS allocations_no_overlap (resource_id, busy WITHOUT OVERLAPS)
        """,
    ],
    "sqlite": [
        f"""
        CREATE TRIGGER allocations_no_overlap_{name} BEFORE {when} ON allocations
        WHEN EXISTS (
            SELECT 1 FROM allocations AS other
            WHERE other.resource_id = NEW.resource_id AND other.id IS NOT NEW.id
            AND other.start_at < NEW.busy_until AND NEW.start_at < other.busy_until
        )
        BEGIN SELECT RAISE(ABORT, 'allocations_no_overlap'); END
        """  # noqa: S608 - both names are constants below
        for name, when in (
            ("insert", "INSERT"),
            ("update", "UPDATE OF resource_id, start_at, busy_until"),
        )
    ],
}


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "leases",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("start_at", UtcDateTime(), nullable=False),
        sa.Column("end_at", UtcDateTime(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("degraded", sa.Boolean(), nullable=False),
        sa.Column("notices", sa.JSON(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="leases_pkey"),
        **_MARIADB,
    )
    op.create_index("leases_project_id_start_at", "leases", ["project_id", "start_at"])

    op.create_table(
        "outbox",
        sa.Column("id", _SERIAL, nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=True),
        sa.Column("message_id", sa.String(length=36), nullable=False),
        sa.Column("event_type", sa.String(length=128), nullable=False),
        sa.Column("lease_id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("published_at", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="outbox_pkey"),
        sa.UniqueConstraint("seq", name="outbox_seq_key"),
        **_MARIADB,
        sqlite_autoincrement=True,
    )
    op.create_index("outbox_published_at_seq", "outbox", ["published_at", "seq"])

    op.create_table(
        "properties",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("resource_type", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("private", sa.Boolean(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="properties_pkey"),
        sa.UniqueConstraint("resource_type", "name", name="properties_resource_type_name_key"),
        **_MARIADB,
    )
    op.create_table(
        "relay",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=True),
        sa.Column("claimed_until", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="relay_pkey"),
        **_MARIADB,
    )
    op.create_table(
        "resources",
        sa.Column("id", _SERIAL, nullable=False),
        sa.Column("type", sa.String(length=64), nullable=False),
        sa.Column("external_id", sa.String(length=255), nullable=False),
        sa.Column("reservable", sa.Boolean(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="resources_pkey"),
        sa.UniqueConstraint("type", "external_id", name="resources_type_external_id_key"),
        **_MARIADB,
        sqlite_autoincrement=True,
    )
    op.create_table(
        "events",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("lease_id", sa.String(length=36), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("due_at", UtcDateTime(), nullable=False),
        sa.Column("run_at", UtcDateTime(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=True),
        sa.Column("claimed_until", UtcDateTime(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["lease_id"], ["leases.id"], name="events_lease_id_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="events_pkey"),
        **_MARIADB,
    )
    op.create_index("events_lease_id_kind", "events", ["lease_id", "kind"])
    op.create_index("events_status_run_at_rank_id", "events", ["status", "run_at", "rank", "id"])

    op.create_table(
        "reservations",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("lease_id", sa.String(length=36), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("resource_type", sa.String(length=64), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("params", sa.JSON(), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.Column("missing_resources", sa.Boolean(), nullable=False),
        sa.Column("resources_changed", sa.Boolean(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["lease_id"], ["leases.id"], name="reservations_lease_id_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="reservations_pkey"),
        **_MARIADB,
    )
    op.create_index("reservations_lease_id", "reservations", ["lease_id"])

    op.create_table(
        "resource_properties",
        sa.Column("resource_id", _SERIAL, nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column(
            "value", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False
        ),
        sa.Column("number", sa.Double(), nullable=True),
        sa.Column("native", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["resource_id"],
            ["resources.id"],
            name="resource_properties_resource_id_fkey",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("resource_id", "name", name="resource_properties_pkey"),
        **_MARIADB,
    )
    op.create_index(
        "resource_properties_name_number_resource_id",
        "resource_properties",
        ["name", "number", "resource_id"],
    )

    op.create_table(
        "allocations",
        sa.Column("id", _SERIAL, nullable=False),
        sa.Column("resource_id", _SERIAL, nullable=False),
        sa.Column("reservation_id", sa.String(length=36), nullable=True),
        sa.Column("start_at", UtcDateTime(), nullable=False),
        sa.Column("busy_until", UtcDateTime(), nullable=False),
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
        **_MARIADB,
    )
    op.create_index("allocations_probe", "allocations", ["resource_id", "start_at", "busy_until"])
    op.create_index("allocations_reservation_id", "allocations", ["reservation_id"])

    op.execute(
        "INSERT INTO relay (id, last_seq) SELECT 1, 0 WHERE NOT EXISTS (SELECT 1 FROM relay)"
    )
    for statement in _GUARD[_dialect()]:
        op.execute(statement)


def _dialect() -> str:
    dialect = op.get_bind().dialect
    return "mariadb" if getattr(dialect, "is_mariadb", False) else dialect.name


def downgrade() -> None:
    """Drop the tables."""
    for table in (
        "allocations",
        "resource_properties",
        "reservations",
        "events",
        "resources",
        "relay",
        "properties",
        "outbox",
        "leases",
    ):
        op.drop_table(table)
