"""On PostgreSQL, index the notifications that have no number yet.

Each manager searches for them after each event. Without the index, PostgreSQL may read the
notifications from the oldest one on. Other databases use the index of the numbers for the search,
which there also contains the ids.
"""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    if op.get_bind().dialect.name == "postgresql":
        op.create_index("outbox_new", "outbox", ["id"], postgresql_where=sa.text("seq IS NULL"))


def downgrade() -> None:
    """Migrate the schema from this revision back to the previous one."""
    if op.get_bind().dialect.name == "postgresql":
        op.drop_index("outbox_new", "outbox")
