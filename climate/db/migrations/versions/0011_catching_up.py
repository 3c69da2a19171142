"""The time at which a manager found events of a lease late."""

import sqlalchemy as sa
from alembic import op

from climate.db.engine.types import UtcDateTime

revision = "0011"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Migrate up."""
    op.add_column("leases", sa.Column("caught_up_at", UtcDateTime(), nullable=True))


def downgrade() -> None:
    """Migrate down."""
    op.drop_column("leases", "caught_up_at")
