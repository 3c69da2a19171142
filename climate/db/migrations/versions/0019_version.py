"""Add ``version`` to leases, by which a manager detects concurrent changes.

Drop the index on ``published_at``, because ``relay.published_seq`` (added in 0018) says what is
published. The column ``published_at`` stays for processes of the previous release, which read it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    version = sa.Column("version", sa.BigInteger, nullable=False, server_default="0")
    op.add_column("leases", version)
    op.drop_index("outbox_published_at_seq", "outbox")


def downgrade() -> None:
    """Migrate the schema from this revision back to the previous one."""
    op.create_index("outbox_published_at_seq", "outbox", ["published_at", "seq"])
    op.drop_column("leases", "version")
