"""Add ``held_id`` to idempotency keys: the held lease of a request that is not decided yet."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    op.add_column("idempotency_keys", sa.Column("held_id", sa.String(36), nullable=True))


def downgrade() -> None:
    """Migrate the schema from this revision back to the previous one."""
    op.drop_column("idempotency_keys", "held_id")
