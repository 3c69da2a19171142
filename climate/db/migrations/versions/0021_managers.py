"""Add the table ``managers``, with the last heartbeat of each manager process."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from climate.db.engine.types import MARIADB, UtcDateTime

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

_MARIADB: dict[str, Any] = {**MARIADB}


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    op.create_table(
        "managers",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=False),
        sa.Column("beat_at", UtcDateTime(), nullable=False),
        sa.Column("loops", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="managers_pkey"),
        **_MARIADB,
    )


def downgrade() -> None:
    """Migrate the schema from this revision back to the previous one."""
    op.drop_table("managers")
