"""Add ``version_key`` to properties, ``version`` to resources, and the table ``resource_stats``.

Managers fill ``version_key`` of existing rows when a property is declared as a version.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

from climate.db.engine.types import MARIADB, Code, Serial, UtcDateTime

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

_MARIADB: dict[str, Any] = {**MARIADB}


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    op.add_column("resource_properties", sa.Column("version_key", Code, nullable=True))
    version = sa.Column("version", sa.BigInteger(), server_default="0", nullable=False)
    op.add_column("resources", version)
    op.create_table(
        "resource_stats",
        sa.Column("resource_id", Serial, autoincrement=False, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["resource_id"],
            ["resources.id"],
            name="resource_stats_resource_id_fkey",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("resource_id", name="resource_stats_pkey"),
        **_MARIADB,
    )


def downgrade() -> None:
    """Migrate the schema from this revision back to the previous one."""
    op.drop_table("resource_stats")
    op.drop_column("resources", "version")
    op.drop_column("resource_properties", "version_key")
