"""Add the column ``leases.offered_until``, with an index: when an offer expires.

It is NULL for leases of the previous release, which has no offers.
"""

import sqlalchemy as sa
from alembic import op

from climate.db.engine.types import UtcDateTime

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

_IS_OFFER = sa.text("offered_until IS NOT NULL")


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    op.add_column("leases", sa.Column("offered_until", UtcDateTime(), nullable=True))
    op.create_index(
        "leases_offered_until",
        "leases",
        ["offered_until"],
        postgresql_where=_IS_OFFER,
        sqlite_where=_IS_OFFER,
    )


def downgrade() -> None:
    """Migrate down; open offers stay held until their RELEASE events are due."""
    op.drop_index("leases_offered_until", "leases")
    op.drop_column("leases", "offered_until")
