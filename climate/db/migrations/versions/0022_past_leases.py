"""Add the table ``past_leases``: the history of removed leases."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from climate.db.engine.types import MARIADB, UtcDateTime

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

_MARIADB: dict[str, Any] = {**MARIADB}
_INDEXES = {
    "past_leases_project_id_ended_at_id": ["project_id", "ended_at", "id"],
    "past_leases_ended_at_id": ["ended_at", "id"],
}


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    op.create_table(
        "past_leases",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("name", sa.String(80), nullable=False),
        sa.Column("user_id", sa.String(255), nullable=False),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("degraded", sa.Boolean(), nullable=False),
        sa.Column("start_at", UtcDateTime(), nullable=False),
        sa.Column("end_at", UtcDateTime(), nullable=False),
        sa.Column("started_at", UtcDateTime()),
        sa.Column("ended_at", UtcDateTime(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("reservations", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="past_leases_pkey"),
        **_MARIADB,
    )
    for name, columns in _INDEXES.items():
        op.create_index(name, "past_leases", columns)


def downgrade() -> None:
    """Migrate down; the history is lost."""
    op.drop_table("past_leases")
