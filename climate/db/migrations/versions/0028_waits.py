"""Add the tables ``waits`` and ``wait_turns``, the wait list."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from climate.db.engine.types import MARIADB, Id, UtcDateTime

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

_MARIADB: dict[str, Any] = {**MARIADB}


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    op.create_table(
        "waits",
        sa.Column("lease_id", Id, nullable=False),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("user_id", sa.String(255), nullable=False),
        sa.Column("pool", sa.String(255), nullable=False),
        sa.Column("shape", sa.String(64), nullable=False),
        sa.Column("rank_at", UtcDateTime(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("asked_at", UtcDateTime(), nullable=False),
        sa.Column("length_s", sa.BigInteger(), nullable=False),
        sa.Column("earliest", UtcDateTime(), nullable=False),
        sa.Column("end_by", UtcDateTime(), nullable=False),
        sa.Column("until", UtcDateTime(), nullable=False),
        sa.Column("is_exempt", sa.Boolean(), nullable=False),
        sa.Column("promised_start", UtcDateTime(), nullable=True),
        sa.Column("held_back", sa.String(16), nullable=True),
        sa.Column("tried_at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["lease_id"], ["leases.id"], name="waits_lease_id_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("lease_id", name="waits_pkey"),
        **_MARIADB,
    )
    op.create_index("waits_pool_rank_at_lease_id", "waits", ["pool", "rank_at", "lease_id"])
    op.create_index("waits_project_id", "waits", ["project_id"])
    op.create_index("waits_user_id", "waits", ["user_id"])
    op.create_table(
        "wait_turns",
        sa.Column("pool", sa.String(255), nullable=False),
        sa.Column("owner", sa.String(64), nullable=True),
        sa.Column("held_until", UtcDateTime(), nullable=True),
        sa.Column("is_wanted_again", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("pool", name="wait_turns_pkey"),
        **_MARIADB,
    )


def downgrade() -> None:
    """Migrate down; leases that wait are lost, as the previous release does not know them."""
    op.execute("DELETE FROM leases WHERE status = 'WAITING'")
    op.drop_table("wait_turns")
    op.drop_table("waits")
