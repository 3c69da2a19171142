"""Add subscriptions and dead letters; allow the removal of notifications.

Also allow notifications that are not about a lease.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

from climate.db.engine.types import UtcDateTime

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_MARIADB: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_nopad_bin",
}
_OUTBOX = "id, seq, message_id, event_type, lease_id, project_id, payload, created_at, published_at"


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    if op.get_bind().dialect.name == "sqlite":
        _remake_outbox(sa.Column("resource_types", sa.Text(), nullable=True), about_leases=False)
    else:
        op.alter_column("outbox", "lease_id", existing_type=sa.String(36), nullable=True)
        op.add_column("outbox", sa.Column("resource_types", sa.Text(), nullable=True))
    op.create_index("outbox_project_id_seq", "outbox", ["project_id", "seq"])
    op.add_column(
        "relay", sa.Column("removed_seq", sa.BigInteger(), server_default="0", nullable=False)
    )
    _make_subscriptions()
    _make_dead_letters()


def downgrade() -> None:
    """Migrate down; notifications without a lease are lost."""
    op.drop_table("dead_letters")
    op.drop_table("subscriptions")
    op.drop_column("relay", "removed_seq")
    op.drop_index("outbox_project_id_seq", "outbox")
    op.execute("DELETE FROM outbox WHERE lease_id IS NULL")
    if op.get_bind().dialect.name == "sqlite":
        _remake_outbox(about_leases=True)
    else:
        op.drop_column("outbox", "resource_types")
        op.alter_column("outbox", "lease_id", existing_type=sa.String(36), nullable=False)


def _make_subscriptions() -> None:
    op.create_table(
        "subscriptions",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("secret", sa.String(length=255), nullable=False),
        sa.Column("filters", sa.JSON(), nullable=False),
        sa.Column("all_projects", sa.Boolean(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("done_seq", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("given_up", sa.Integer(), nullable=False),
        sa.Column("slow", sa.Boolean(), nullable=False),
        sa.Column("due_at", UtcDateTime(), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=True),
        sa.Column("claimed_until", UtcDateTime(), nullable=True),
        sa.Column("delivered_at", UtcDateTime(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="subscriptions_pkey"),
        sa.UniqueConstraint("project_id", "place", name="subscriptions_project_id_place_key"),
        **_MARIADB,
    )
    op.create_index("subscriptions_status_due_at", "subscriptions", ["status", "due_at"])


def _make_dead_letters() -> None:
    op.create_table(
        "dead_letters",
        sa.Column("subscription_id", sa.String(length=36), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("wanted", sa.Boolean(), nullable=False),
        sa.Column("failed_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["subscription_id"],
            ["subscriptions.id"],
            name="dead_letters_subscription_id_fkey",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("subscription_id", "seq", name="dead_letters_pkey"),
        **_MARIADB,
    )
    op.create_index("dead_letters_seq", "dead_letters", ["seq"])


def _remake_outbox(*more: "sa.Column[str]", about_leases: bool) -> None:
    """Rebuild the outbox with the additional columns ``more``, and copy its rows.

    If ``about_leases`` is true, the new column ``lease_id`` is NOT NULL; otherwise, it may be NULL.
    """
    op.drop_index("outbox_published_at_seq", "outbox")
    op.execute("ALTER TABLE outbox RENAME TO outbox_before")
    op.create_table(
        "outbox",
        sa.Column("id", _SERIAL, nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=True),
        sa.Column("message_id", sa.String(length=36), nullable=False),
        sa.Column("event_type", sa.String(length=128), nullable=False),
        sa.Column("lease_id", sa.String(length=36), nullable=not about_leases),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("published_at", UtcDateTime(), nullable=True),
        *more,
        sa.PrimaryKeyConstraint("id", name="outbox_pkey"),
        sa.UniqueConstraint("seq", name="outbox_seq_key"),
        sqlite_autoincrement=True,
    )
    op.execute(f"INSERT INTO outbox ({_OUTBOX}) SELECT {_OUTBOX} FROM outbox_before")  # noqa: S608
    op.drop_table("outbox_before")
    op.create_index("outbox_published_at_seq", "outbox", ["published_at", "seq"])
