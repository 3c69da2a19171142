"""Adds the table managers."""

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Migrate up."""


def downgrade() -> None:
    """Migrate down."""
