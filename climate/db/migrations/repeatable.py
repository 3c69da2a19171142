"""Make the statements of migrations repeatable on MariaDB.

MariaDB commits each schema change by itself. So an upgrade that stops between two statements of a
migration leaves the schema between two revisions, and the next upgrade runs the migration from its
beginning. With the hooks below, a statement whose change was already made does nothing.

``climate.db.engine.galera`` does the same for indexes. A migration that contains its own SQL uses
IF EXISTS and IF NOT EXISTS itself. ``tests/db/migrations/test_interrupted.py`` interrupts each
migration after each statement.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op
from alembic.ddl import base
from sqlalchemy.ext.compiler import compiles

_COLUMNS = sa.text(
    "SELECT count(*) FROM information_schema.columns WHERE table_schema = DATABASE()"
    " AND table_name = :table_name AND column_name = :column_name"
)


def has_column(table: str, column: str) -> bool:
    """Return whether a table still has a column that the present downgrade drops.

    Only on MariaDB, an interrupted downgrade may have dropped the column before.
    """
    connection = op.get_bind()
    if connection.dialect.name != "mysql":
        return True
    return bool(connection.scalar(_COLUMNS, {"table_name": table, "column_name": column}))


@compiles(sa.schema.CreateTable, "mysql", "mariadb")
def _create_table(element: sa.schema.CreateTable, compiler: Any, **kw: Any) -> str:  # noqa: ANN401
    return _with("CREATE TABLE", "IF NOT EXISTS", compiler.visit_create_table(element, **kw))


@compiles(sa.schema.DropTable, "mysql", "mariadb")
def _drop_table(element: sa.schema.DropTable, compiler: Any, **kw: Any) -> str:  # noqa: ANN401
    return _with("DROP TABLE", "IF EXISTS", compiler.visit_drop_table(element, **kw))


@compiles(base.AddColumn, "mysql", "mariadb")
def _add_column(element: base.AddColumn, compiler: Any, **kw: Any) -> str:  # noqa: ANN401
    return _with("ADD COLUMN", "IF NOT EXISTS", base.visit_add_column(element, compiler, **kw))


@compiles(base.DropColumn, "mysql", "mariadb")
def _drop_column(element: base.DropColumn, compiler: Any, **kw: Any) -> str:  # noqa: ANN401
    return _with("DROP COLUMN", "IF EXISTS", base.visit_drop_column(element, compiler, **kw))


def _with(verb: str, condition: str, statement: str) -> str:
    """Insert ``condition`` after the first ``verb`` of a statement, unless it is there already."""
    before, _, after = statement.partition(f"{verb} ")
    return statement if after.startswith("IF ") else f"{before}{verb} {condition} {after}"
