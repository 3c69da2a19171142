"""Adds the table past_leases."""

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Migrate up."""


def downgrade() -> None:
    """Migrate down."""
