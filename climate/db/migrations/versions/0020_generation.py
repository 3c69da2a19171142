"""Add what a Galera cluster needs, because its row locks act only within one node.

Add the column ``generation`` to the tables in which transactions lock rows without changing them.
Such a transaction increments the number in this column, so that other nodes detect the conflict.
Add a table for advisory locks.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

from climate.db.engine import galera
from climate.db.engine.types import MARIADB, UtcDateTime

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_MARIADB: dict[str, Any] = {**MARIADB}
_TABLES = (
    "leases",
    "resources",
    "events",
    "limits",
    "subscriptions",
    "preparations",
    "shutdowns",
)


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    for table in _TABLES:
        generation = sa.Column("generation", sa.BigInteger, nullable=False, server_default="0")
        op.add_column(table, generation)
    op.create_table(
        "advisory_locks",
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("owner", sa.String(64)),
        sa.Column("held_until", UtcDateTime()),
        sa.PrimaryKeyConstraint("name", name="advisory_locks_pkey"),
        **_MARIADB,
    )


def downgrade() -> None:
    """Migrate the schema from this revision back to the previous one."""
    galera.restore(op.get_bind())
    op.drop_table("advisory_locks")
    for table in _TABLES:
        op.drop_column(table, "generation")
