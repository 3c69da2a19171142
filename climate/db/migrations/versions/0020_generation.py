"""Add ``generation`` to tables, and a table of advisory locks, both for Galera clusters.

Locks act only within one node of such a cluster. A transaction that locks a row without changing it
increments ``generation`` of the row, so that other nodes detect the conflict.
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
    """Migrate up."""
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
    """Migrate down."""
    galera.restore(op.get_bind())
    op.drop_table("advisory_locks")
    for table in _TABLES:
        op.drop_column(table, "generation")
