"""Store the progress of the self-audit; add an index of the notifications of a lease."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from climate.db.engine.types import UtcDateTime

revision = "0013"
down_revision = "0012"
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
        "self_audit",
        sa.Column("name", sa.String(32), nullable=False),
        sa.Column("next_at", UtcDateTime(), nullable=False),
        sa.Column("position", sa.String(36), nullable=False),
        sa.Column("found", sa.JSON(), nullable=False),
        sa.Column("broken_since", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("name", name="self_audit_pkey"),
        **_MARIADB,
    )
    op.create_index("outbox_lease_id_id", "outbox", ["lease_id", "id"])


def downgrade() -> None:
    """Migrate the schema from this revision back to the previous one."""
    op.drop_index("outbox_lease_id_id", "outbox")
    op.drop_table("self_audit")
