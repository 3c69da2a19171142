"""Add the table of idempotency keys, and indexes for the sort orders of lists of leases."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from climate.db.engine.types import UtcDateTime

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_MARIADB: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_nopad_bin",
}


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    op.create_table(
        "idempotency_keys",
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("answer", sa.JSON(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "user_id", "key", name="idempotency_keys_pkey"),
        **_MARIADB,
    )
    op.create_index("idempotency_keys_created_at", "idempotency_keys", ["created_at"])
    op.create_index("leases_project_id_start_at_id", "leases", ["project_id", "start_at", "id"])
    op.create_index("leases_start_at_id", "leases", ["start_at", "id"])
    op.drop_index("leases_project_id_start_at", "leases")


def downgrade() -> None:
    """Migrate the schema from this revision back to the previous one."""
    op.create_index("leases_project_id_start_at", "leases", ["project_id", "start_at"])
    op.drop_index("leases_start_at_id", "leases")
    op.drop_index("leases_project_id_start_at_id", "leases")
    op.drop_table("idempotency_keys")
