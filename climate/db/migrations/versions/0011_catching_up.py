"""Add the column ``caught_up_at`` to leases: when a notification last listed their late events."""

import sqlalchemy as sa
from alembic import op

from climate.db.engine.types import UtcDateTime

revision = "0011"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    op.add_column("leases", sa.Column("caught_up_at", UtcDateTime(), nullable=True))


def downgrade() -> None:
    """Migrate the schema from this revision back to the previous one."""
    op.drop_column("leases", "caught_up_at")
