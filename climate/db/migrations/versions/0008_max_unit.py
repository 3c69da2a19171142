"""Add ``max_unit`` to inventories: the most of a resource class that one instance can have."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_COLUMNS = "resource_id, resource_class, total, reserved, allocation_ratio"


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    if op.get_bind().dialect.name == "sqlite":
        _remake(sa.Column("max_unit", sa.BigInteger(), nullable=True))
    else:
        op.add_column("inventories", sa.Column("max_unit", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    """Migrate the schema from this revision back to the previous one."""
    if op.get_bind().dialect.name == "sqlite":
        _remake()
    else:
        op.drop_column("inventories", "max_unit")


def _remake(*more: "sa.Column[int]") -> None:
    """Rebuild the table with the additional columns ``more``, and copy its rows.

    SQLite's ADD COLUMN would put the new column after the constraints.
    """
    op.execute("ALTER TABLE inventories RENAME TO inventories_before")
    op.create_table(
        "inventories",
        sa.Column("resource_id", _SERIAL, nullable=False),
        sa.Column("resource_class", sa.String(length=255), nullable=False),
        sa.Column("total", sa.BigInteger(), nullable=False),
        sa.Column("reserved", sa.BigInteger(), nullable=False),
        sa.Column("allocation_ratio", sa.Double(), nullable=False),
        *more,
        sa.ForeignKeyConstraint(
            ["resource_id"],
            ["resources.id"],
            name="inventories_resource_id_fkey",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("resource_id", "resource_class", name="inventories_pkey"),
    )
    op.execute(f"INSERT INTO inventories ({_COLUMNS}) SELECT {_COLUMNS} FROM inventories_before")  # noqa: S608
    op.drop_table("inventories_before")
