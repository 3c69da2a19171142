"""Add the tables ``feeds`` (calendar feeds) and ``feed_removals``.

The second table has the removed leases that feeds still show.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

from climate.db.engine.types import MARIADB, UtcDateTime

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

_MARIADB: dict[str, Any] = {**MARIADB}


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    op.create_table(
        "feeds",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.String(255), nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("target_id", sa.String(255), nullable=False),
        sa.Column("name", sa.String(80), nullable=False),
        sa.Column("sees_all", sa.Boolean(), nullable=False),
        sa.Column("secret_hash", sa.String(64), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("last_read_at", UtcDateTime()),
        sa.PrimaryKeyConstraint("id", name="feeds_pkey"),
        sa.UniqueConstraint("project_id", "place", name="feeds_project_id_place_key"),
        sa.UniqueConstraint("secret_hash", name="feeds_secret_hash_key"),
        **_MARIADB,
    )
    op.create_index("feeds_scope_target_id", "feeds", ["scope", "target_id"])
    op.create_table(
        "feed_removals",
        sa.Column("feed_id", sa.String(36), nullable=False),
        sa.Column("lease_id", sa.String(36), nullable=False),
        sa.Column("name", sa.String(80), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("start_at", UtcDateTime(), nullable=False),
        sa.Column("end_at", UtcDateTime(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("removed_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("feed_id", "lease_id", name="feed_removals_pkey"),
        **_MARIADB,
    )
    op.create_index("feed_removals_removed_at", "feed_removals", ["removed_at"])


def downgrade() -> None:
    """Migrate down; all feeds are lost."""
    op.drop_table("feed_removals")
    op.drop_table("feeds")
