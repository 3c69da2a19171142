"""Add reminders of subscribers: their leads, how far they are sent, and who receives one."""

import sqlalchemy as sa
from alembic import op

from climate.db.engine.types import Id, UtcDateTime

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    op.add_column("subscriptions", sa.Column("before_start_leads", sa.String(64), nullable=True))
    op.add_column("subscriptions", sa.Column("reminded_through", UtcDateTime(), nullable=True))
    op.add_column("outbox", sa.Column("subscription_id", Id, nullable=True))


def downgrade() -> None:
    """Migrate the schema from this revision back to the previous one."""
    op.drop_column("outbox", "subscription_id")
    op.drop_column("subscriptions", "reminded_through")
    op.drop_column("subscriptions", "before_start_leads")
