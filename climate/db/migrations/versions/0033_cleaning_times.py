"""Add what climate needs to learn how long the cleaning of bare-metal nodes takes.

Leases get the learned time for which their resources stay booked after them. The new table
``cleanings`` contains the cleanings that climate measures, ``cleaning_times`` the durations.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

from climate.db.engine.types import MARIADB, Serial, UtcDateTime

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

_MARIADB: dict[str, Any] = {**MARIADB}


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    op.add_column("leases", sa.Column("cleaning_s", sa.Integer(), nullable=True))
    op.create_table(
        "cleanings",
        sa.Column("resource_id", Serial, nullable=False, autoincrement=False),
        sa.Column("lease_id", sa.String(36), nullable=False),
        sa.Column("resource_class", sa.String(255), nullable=False),
        sa.Column("began_at", UtcDateTime(), nullable=False),
        sa.Column("seen_at", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("resource_id", name="cleanings_pkey"),
        **_MARIADB,
    )
    op.create_table(
        "cleaning_times",
        sa.Column("resource_class", sa.String(255), nullable=False),
        sa.Column("times", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("resource_class", name="cleaning_times_pkey"),
        **_MARIADB,
    )


def downgrade() -> None:
    """Migrate the schema from this revision back to the previous one."""
    op.drop_table("cleaning_times")
    op.drop_table("cleanings")
    op.drop_column("leases", "cleaning_s")
