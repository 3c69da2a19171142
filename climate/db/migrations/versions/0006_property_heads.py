"""Store the first 64 characters of each property value, with an index to find equal values."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_TABLE = "resource_properties"
_BY_NUMBER = f"{_TABLE}_name_number_resource_id"
_BY_HEAD = f"{_TABLE}_name_head_resource_id"
_HEAD = sa.String(64).with_variant(sa.String(64, collation="C"), "postgresql")
_COLUMNS = "resource_id, name, value, number, native"


def upgrade() -> None:
    """Migrate the schema from the previous revision to this one."""
    if op.get_bind().dialect.name == "sqlite":
        _remake(_head())
    else:
        op.add_column(_TABLE, _head())
    op.create_index(_BY_HEAD, _TABLE, ["name", "head", "resource_id"])


def downgrade() -> None:
    """Migrate the schema from this revision back to the previous one."""
    op.drop_index(_BY_HEAD, _TABLE)
    if op.get_bind().dialect.name == "sqlite":
        _remake()
    else:
        op.drop_column(_TABLE, "head")


def _head() -> sa.Column[str]:
    return sa.Column("head", _HEAD, sa.Computed("substr(value, 1, 64)", persisted=True))


def _remake(*head: sa.Column[str]) -> None:
    """Rebuild the table with the column ``head``, or without it if ``head`` is omitted.

    Copies the rows. SQLite needs this, because it cannot add a stored column.
    """
    op.drop_index(_BY_NUMBER, _TABLE)
    op.rename_table(_TABLE, f"{_TABLE}_before")
    op.create_table(
        _TABLE,
        sa.Column("resource_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        *head,
        sa.Column("number", sa.Double(), nullable=True),
        sa.Column("native", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["resource_id"],
            ["resources.id"],
            name="resource_properties_resource_id_fkey",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("resource_id", "name", name="resource_properties_pkey"),
    )
    op.execute(f"INSERT INTO {_TABLE} ({_COLUMNS}) SELECT {_COLUMNS} FROM {_TABLE}_before")  # noqa: S608
    op.drop_table(f"{_TABLE}_before")
    op.create_index(_BY_NUMBER, _TABLE, ["name", "number", "resource_id"])
