"""On PostgreSQL, leave bookings of whole resources out of the index of shares."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_COLUMNS = ["resource_id", "busy_until"]


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    _replace(sa.text("resource_class IS NOT NULL"))


def downgrade() -> None:
    """Migrate the schema from this revision back to the previous one."""
    _replace(None)


def _replace(where: sa.TextClause | None) -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.drop_index("allocations_shares", "allocations")
        op.create_index("allocations_shares", "allocations", _COLUMNS, postgresql_where=where)
