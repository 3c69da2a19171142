"""How far the relay has published is a number, no more a mark; what often changes has room to.

``published_at`` and its index stay for code of before, beside which this has to work; nothing new
is written to it. What that code publishes meanwhile is passed over when a relay takes its turn.
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Migrate up."""
    published = sa.Column("published_seq", sa.BigInteger, nullable=False, server_default="0")
    op.add_column("relay", published)
    op.execute(
        "UPDATE relay SET published_seq = coalesce("
        "(SELECT min(seq) - 1 FROM outbox WHERE published_at IS NULL), last_seq)"
    )
    _leave_room(70)


def downgrade() -> None:
    """Migrate down."""
    if op.get_bind().dialect.name == "postgresql":  # who numbers locks it first, too
        op.execute("LOCK TABLE relay IN ACCESS EXCLUSIVE MODE")
        op.execute("SET LOCAL statement_timeout = 0")
    op.execute(
        "UPDATE outbox SET published_at = created_at WHERE published_at IS NULL"
        " AND seq <= (SELECT published_seq FROM relay)"
    )
    op.drop_column("relay", "published_seq")
    _leave_room(100)


def _leave_room(percent: int) -> None:
    """Have PostgreSQL fill pages only so far: what changes there needs no change of indexes."""
    if op.get_bind().dialect.name == "postgresql":
        for table in ("leases", "reservations"):
            op.execute(f"ALTER TABLE {table} SET (fillfactor = {percent})")
