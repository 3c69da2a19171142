"""A version for leases, by which who works on one sees that nobody has changed it meanwhile.

The index of what is not published goes: since 0018 that is a number. ``published_at`` stays for the
code of 0018, which looks at it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Migrate up."""
    version = sa.Column("version", sa.BigInteger, nullable=False, server_default="0")
    op.add_column("leases", version)
    op.drop_index("outbox_published_at_seq", "outbox")


def downgrade() -> None:
    """Migrate down."""
    op.create_index("outbox_published_at_seq", "outbox", ["published_at", "seq"])
    op.drop_column("leases", "version")
