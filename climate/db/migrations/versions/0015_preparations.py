"""Add preparations (tasks to get hosts ready before a lease) and the times that they take."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from climate.db.engine.types import UtcDateTime

revision = "0015"
down_revision = "0013"
branch_labels = None
depends_on = None

_MARIADB: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_nopad_bin",
}
_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_ID = sa.String(length=36)
_INDEXES = {
    "preparations_lease_id": ["lease_id"],
    "preparations_resource_id": ["resource_id"],
    "preparations_needed_at_id": ["needed_at", "id"],
    "preparations_over_at_progress": ["over_at", "progress"],
}


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    op.create_table(
        "preparations",
        sa.Column("id", _ID, nullable=False),
        sa.Column("resource_id", _SERIAL, nullable=False),
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("hardware", sa.String(length=255), nullable=False),
        sa.Column("lease_id", _ID, nullable=False),
        sa.Column("reservation_id", _ID, nullable=False),
        sa.Column("progress", sa.String(length=16), nullable=False),
        sa.Column("wanted_at", UtcDateTime(), nullable=False),
        sa.Column("needed_at", UtcDateTime(), nullable=False),
        sa.Column("lead", sa.Double(), nullable=False),
        sa.Column("replace_at", UtcDateTime(), nullable=True),
        sa.Column("owner", sa.String(length=255), nullable=True),
        sa.Column("claimed_until", UtcDateTime(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("accepted_at", UtcDateTime(), nullable=True),
        sa.Column("ready_at", UtcDateTime(), nullable=True),
        sa.Column("over_at", UtcDateTime(), nullable=True),
        sa.Column("seconds", sa.JSON(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["resource_id"],
            ["resources.id"],
            name="preparations_resource_id_fkey",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="preparations_pkey"),
        sa.UniqueConstraint(
            "reservation_id",
            "resource_id",
            "needed_at",
            name="preparations_reservation_id_resource_id_needed_at_key",
        ),
        **_MARIADB,
    )
    for name, columns in _INDEXES.items():
        op.create_index(name, "preparations", columns)
    op.create_table(
        "readiness",
        sa.Column("resource_id", _SERIAL, autoincrement=False, nullable=False),
        sa.Column("hardware", sa.String(length=255), nullable=False),
        sa.Column("times", sa.JSON(), nullable=False),
        sa.Column("set_aside", sa.Text(), nullable=True),
        sa.Column("set_aside_at", UtcDateTime(), nullable=True),
        sa.Column("up", sa.Boolean(), nullable=True),
        sa.Column("seen_at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["resource_id"], ["resources.id"], name="readiness_resource_id_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("resource_id", name="readiness_pkey"),
        **_MARIADB,
    )


def downgrade() -> None:
    """Migrate down; known preparation times are lost."""
    op.drop_table("readiness")
    op.drop_table("preparations")
