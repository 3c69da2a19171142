"""Store how far the relay has published as one number; leave free space in some tables.

The relay publishes notifications. The number is the ``seq`` of the last published one. The free
space is in the pages of tables that change often.

The column ``published_at`` and its index stay, because processes of the previous release may run
beside this release. This release does not write the column. When a relay of this release claims the
outbox, it skips the notifications that those processes have published.
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
    if op.get_bind().dialect.name == "postgresql":  # numbering locks this table first, too
        op.execute("LOCK TABLE relay IN ACCESS EXCLUSIVE MODE")
        op.execute("SET LOCAL statement_timeout = 0")
    op.execute(
        "UPDATE outbox SET published_at = created_at WHERE published_at IS NULL"
        " AND seq <= (SELECT published_seq FROM relay)"
    )
    op.drop_column("relay", "published_seq")
    _leave_room(100)


def _leave_room(percent: int) -> None:
    """Leave ``100 - percent`` percent free in PostgreSQL's pages of leases and reservations.

    An update that finds space in the page of its row does not change the indexes.
    """
    if op.get_bind().dialect.name == "postgresql":
        for table in ("leases", "reservations"):
            op.execute(f"ALTER TABLE {table} SET (fillfactor = {percent})")
