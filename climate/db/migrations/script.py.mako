"""${message}."""

import sqlalchemy as sa
from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    """Migrate the schema from this revision back to the previous one."""
    ${downgrades if downgrades else "pass"}
