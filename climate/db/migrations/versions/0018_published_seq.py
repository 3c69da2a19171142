"""Store the number of the last published notification; leave free space in pages of leases.

The relay is the part of a manager that publishes notifications. This release no longer writes the
column ``published_at``. The column and its index stay for processes of the previous release, which
may run beside this one. A relay of this release skips what such a process has published.
"""

import sqlalchemy as sa
from alembic import op

from climate.db.migrations.repeatable import has_column

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    published = sa.Column("published_seq", sa.BigInteger, nullable=False, server_default="0")
    op.add_column("relay", published)
    op.execute(
        "UPDATE relay SET published_seq = coalesce("
        "(SELECT min(seq) - 1 FROM outbox WHERE published_at IS NULL), last_seq)"
    )
    _leave_room(70)


def downgrade() -> None:
    """Migrate the schema from this revision back to the previous one."""
    if op.get_bind().dialect.name == "postgresql":  # numbering locks this table first, too
        op.execute("LOCK TABLE relay IN ACCESS EXCLUSIVE MODE")
        op.execute("SET LOCAL statement_timeout = 0")
    if has_column("relay", "published_seq"):
        op.execute(
            "UPDATE outbox SET published_at = created_at WHERE published_at IS NULL"
            " AND seq <= (SELECT published_seq FROM relay)"
        )
    op.drop_column("relay", "published_seq")
    _leave_room(100)


def _leave_room(percent: int) -> None:
    """Let PostgreSQL fill only ``percent`` of each page when it inserts rows.

    Then later updates find space in the same page, and need not change indexes.
    """
    if op.get_bind().dialect.name == "postgresql":
        for table in ("leases", "reservations"):
            op.execute(f"ALTER TABLE {table} SET (fillfactor = {percent})")
