"""Add subscriptions by e-mail, and formats of chat services; add the table ``confirmations``.

All columns have defaults, so that the previous release can insert rows. It does not know e-mail: it
takes a subscription by e-mail for a webhook whose URL is invalid, and sends nothing.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

from climate.db.engine.types import MARIADB, UtcDateTime
from climate.db.migrations.repeatable import has_column

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

_MARIADB: dict[str, Any] = {**MARIADB}
_TEXTS = {
    "kind": (16, "webhook"),
    "format": (16, "cloudevents"),
    "frequency": (16, "immediate"),
    "time_zone": (64, "UTC"),
}
_MOMENTS = ("confirmed_at", "confirm_requested_at", "confirm_sent_at")


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    for name, (length, default) in _TEXTS.items():
        column = sa.Column(name, sa.String(length), nullable=False, server_default=default)
        op.add_column("subscriptions", column)
    for name in _MOMENTS:
        op.add_column("subscriptions", sa.Column(name, UtcDateTime(), nullable=True))
    op.add_column("subscriptions", sa.Column("digest_through", sa.BigInteger(), nullable=True))
    op.create_table(
        "confirmations",
        sa.Column("bucket", sa.String(64), nullable=False),
        sa.Column("place", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("requested_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("bucket", "place", name="confirmations_pkey"),
        **_MARIADB,
    )
    op.create_index("confirmations_requested_at", "confirmations", ["requested_at"])


def downgrade() -> None:
    """Migrate down; all subscriptions by e-mail and to chat services are lost."""
    op.drop_table("confirmations")
    if has_column("subscriptions", "kind"):  # dropped before "format"
        op.execute("DELETE FROM subscriptions WHERE kind <> 'webhook' OR format <> 'cloudevents'")
    for name in ("digest_through", *_MOMENTS, *_TEXTS):
        op.drop_column("subscriptions", name)
