"""Add to leases the start condition, and the times of readiness, announced delay and start."""

import sqlalchemy as sa
from alembic import op

from climate.db.engine.types import UtcDateTime

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_MOMENTS = ("ready_at", "start_delayed_at", "started_at")


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    start_when = sa.Column("start_when", sa.String(16), nullable=False, server_default="scheduled")
    op.add_column("leases", start_when)
    for name in _MOMENTS:
        op.add_column("leases", sa.Column(name, UtcDateTime(), nullable=True))


def downgrade() -> None:
    """Migrate the schema from this revision back to the previous one."""
    for name in ("start_when", *_MOMENTS):
        op.drop_column("leases", name)
