"""Add limits of projects and users, past use of deleted leases, and events without a lease."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from climate.db.engine.types import UtcDateTime

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_MARIADB: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_nopad_bin",
}
_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_ID = sa.String(length=36)


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    op.create_table(
        "limits",
        sa.Column("scope", sa.String(length=16), nullable=False),
        sa.Column("owner_id", sa.String(length=255), nullable=False),
        sa.Column("overrides", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "owner_id", name="limits_pkey"),
        **_MARIADB,
    )
    op.create_table(
        "past_use",
        sa.Column("id", _SERIAL, nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("start_at", UtcDateTime(), nullable=False),
        sa.Column("end_at", UtcDateTime(), nullable=False),
        sa.Column("hosts", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="past_use_pkey"),
        **_MARIADB,
    )
    op.create_index("past_use_end_at", "past_use", ["end_at"])
    for table in ("past_use", "leases"):
        for owner in ("project_id", "user_id"):
            op.create_index(f"{table}_{owner}_end_at", table, [owner, "end_at"])
    if op.get_bind().dialect.name == "sqlite":
        _remake_events(lease_id_nullable=True, with_payload=True)
    else:
        op.alter_column("events", "lease_id", existing_type=_ID, nullable=True)
        op.add_column("events", sa.Column("payload", sa.JSON(), nullable=True))


def _remake_events(*, lease_id_nullable: bool, with_payload: bool) -> None:
    """Rebuild the table of events, with or without the column ``payload``, and copy its rows."""
    kept = (
        "id, lease_id, kind, rank, due_at, run_at, status, owner, claimed_until, attempt,"
        " last_error, created_at, updated_at"
    )
    indexes = {
        "events_lease_id_kind": ["lease_id", "kind"],
        "events_status_run_at_rank_id": ["status", "run_at", "rank", "id"],
    }
    for name in indexes:
        op.drop_index(name, "events")
    op.execute("ALTER TABLE events RENAME TO events_before")
    op.create_table(
        "events",
        sa.Column("id", _ID, nullable=False),
        sa.Column("lease_id", _ID, nullable=lease_id_nullable),
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
        *([sa.Column("payload", sa.JSON(), nullable=True)] if with_payload else []),
        sa.ForeignKeyConstraint(
            ["lease_id"], ["leases.id"], name="events_lease_id_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="events_pkey"),
    )
    op.execute(f"INSERT INTO events ({kept}) SELECT {kept} FROM events_before")  # noqa: S608
    op.drop_table("events_before")
    for name, columns in indexes.items():
        op.create_index(name, "events", columns)


def downgrade() -> None:
    """Migrate down; events without a lease (pending tasks of deleted leases) are lost."""
    op.execute("DELETE FROM events WHERE lease_id IS NULL")
    if op.get_bind().dialect.name == "sqlite":
        _remake_events(lease_id_nullable=False, with_payload=False)
    else:
        op.drop_column("events", "payload")
        op.alter_column("events", "lease_id", existing_type=_ID, nullable=False)
    for owner in ("project_id", "user_id"):
        op.drop_index(f"leases_{owner}_end_at", "leases")
    op.drop_table("past_use")
    op.drop_table("limits")
