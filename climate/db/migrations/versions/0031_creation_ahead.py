"""Add what climate needs to create servers, volumes, networks and stacks before a lease starts.

Leases get how early the creation begins, and when it began. The new table ``creation_times``
contains how long earlier creations took.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

from climate.db.engine.types import MARIADB, UtcDateTime

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

_MARIADB: dict[str, Any] = {**MARIADB}


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    lead = sa.Column("start_lead_s", sa.Integer(), nullable=False, server_default="0")
    op.add_column("leases", lead)
    op.add_column("leases", sa.Column("start_began_at", UtcDateTime(), nullable=True))
    op.create_table(
        "creation_times",
        sa.Column("resource_type", sa.String(64), nullable=False),
        sa.Column("source", sa.String(64), nullable=False),
        sa.Column("times", sa.JSON(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("resource_type", "source", name="creation_times_pkey"),
        **_MARIADB,
    )


def downgrade() -> None:
    """Migrate the schema from this revision back to the previous one."""
    op.drop_table("creation_times")
    op.drop_column("leases", "start_began_at")
    op.drop_column("leases", "start_lead_s")
