"""Add shutdowns: tasks to switch off hosts that no lease needs."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from climate.db.engine.types import UtcDateTime

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_MARIADB: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_nopad_bin",
}
_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_INDEXES = {
    "shutdowns_wanted_at_id": ["wanted_at", "id"],
    "shutdowns_over_at_progress": ["over_at", "progress"],
    "shutdowns_resource_id_over_at": ["resource_id", "over_at"],
}


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    op.create_table(
        "shutdowns",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("resource_id", _SERIAL, nullable=False),
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("hardware", sa.String(length=255), nullable=False),
        sa.Column("progress", sa.String(length=16), nullable=False),
        sa.Column("wanted_at", UtcDateTime(), nullable=False),
        sa.Column("ahead", sa.Double(), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=True),
        sa.Column("claimed_until", UtcDateTime(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("accepted_at", UtcDateTime(), nullable=True),
        sa.Column("off_at", UtcDateTime(), nullable=True),
        sa.Column("over_at", UtcDateTime(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["resource_id"], ["resources.id"], name="shutdowns_resource_id_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="shutdowns_pkey"),
        **_MARIADB,
    )
    for name, columns in _INDEXES.items():
        op.create_index(name, "shutdowns", columns)
    with op.batch_alter_table("readiness") as batch:
        batch.add_column(sa.Column("idle_since", UtcDateTime(), nullable=True))


def downgrade() -> None:
    """Migrate down; past shutdowns are lost, and hosts that are off stay off."""
    with op.batch_alter_table("readiness") as batch:
        batch.drop_column("idle_since")
    op.drop_table("shutdowns")
