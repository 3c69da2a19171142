"""Add two columns to leases: the trust to act as the user, and why the trust does not work."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    op.add_column("leases", sa.Column("trust_id", sa.String(64), nullable=True))
    op.add_column("leases", sa.Column("trust_lost", sa.Text(), nullable=True))
    op.create_index("leases_trust_id", "leases", ["trust_id"])


def downgrade() -> None:
    """Migrate the schema from this revision back to the previous one."""
    op.drop_index("leases_trust_id", "leases")
    op.drop_column("leases", "trust_lost")
    op.drop_column("leases", "trust_id")
