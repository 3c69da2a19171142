"""On PostgreSQL, leave rows without a value out of three indexes, so that new rows are cheaper.

New notifications have no number, and most leases have no trust. All queries that use these indexes
ask for a value.
"""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

_NUMBERED = sa.text("seq IS NOT NULL")
_TRUSTED = sa.text("trust_id IS NOT NULL")


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    if op.get_bind().dialect.name != "postgresql":
        return
    _lock()
    op.drop_constraint("outbox_seq_key", "outbox")
    op.drop_index("outbox_project_id_seq", "outbox")
    op.drop_index("leases_trust_id", "leases")
    op.create_index("outbox_numbered", "outbox", ["seq"], unique=True, postgresql_where=_NUMBERED)
    op.create_index(
        "outbox_project_id_seq", "outbox", ["project_id", "seq"], postgresql_where=_NUMBERED
    )
    op.create_index("leases_trust_id", "leases", ["trust_id"], postgresql_where=_TRUSTED)


def downgrade() -> None:
    """Migrate the schema from this revision back to the previous one."""
    if op.get_bind().dialect.name != "postgresql":
        return
    _lock()
    op.drop_index("outbox_numbered", "outbox")
    op.create_unique_constraint("outbox_seq_key", "outbox", ["seq"])
    for name, table, columns in (
        ("outbox_project_id_seq", "outbox", ["project_id", "seq"]),
        ("leases_trust_id", "leases", ["trust_id"]),
    ):
        op.drop_index(name, table)
        op.create_index(name, table, columns)


def _lock() -> None:
    """Lock the tables in the order in which requests use them, so that nobody has a deadlock."""
    for table in ("leases", "outbox"):
        op.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
