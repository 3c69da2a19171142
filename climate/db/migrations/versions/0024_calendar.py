"""Add the window of the lease to each notification; extend the index of shares.

With more columns, the index alone can answer the query for the shares in a window. Notifications of
the previous release have no window. A viewer that receives such a notification reads the whole
calendar again.
"""

import sqlalchemy as sa
from alembic import op

from climate.db.engine.types import UtcDateTime

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

_SHARES = sa.text("resource_class IS NOT NULL")


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    for name in ("changed_from", "changed_until"):
        op.add_column("outbox", sa.Column(name, UtcDateTime(), nullable=True))
    _index("resource_id", "busy_until", "start_at", "resource_class", "amount")


def downgrade() -> None:
    """Migrate the schema from this revision back to the previous one."""
    _index("resource_id", "busy_until")
    for name in ("changed_until", "changed_from"):
        op.drop_column("outbox", name)


def _index(*columns: str) -> None:
    if op.get_bind().dialect.name == "mysql":  # a foreign key needs the index at every moment
        op.execute(
            "ALTER TABLE allocations DROP INDEX allocations_shares,"
            f" ADD INDEX allocations_shares ({', '.join(columns)})"
        )
        return
    op.drop_index("allocations_shares", "allocations")
    op.create_index("allocations_shares", "allocations", [*columns], postgresql_where=_SHARES)
