"""What a database says about its own schema."""

import re

import sqlalchemy as sa

from climate.db.engine.database import Database


def tables(database: Database) -> list[str]:
    return sorted(sa.inspect(database.engine).get_table_names())


def described(database: Database) -> list[str]:
    """Return the database's own description of columns, keys, checks, indexes and triggers."""
    with database.engine.connect() as connection:
        if database.dialect == "mysql":
            names = [name for name in tables(database) if name != "alembic_version"]
            shown = [connection.exec_driver_sql(f"SHOW CREATE TABLE {name}") for name in names]
            rows = [result.one()[1] for result in shown]
        else:
            rows = list(connection.exec_driver_sql(_CATALOG[database.dialect]).scalars())
    if database.dialect == "postgresql":
        return sorted(rows)
    lines = [f"{row.split('(')[0]}: {line}" for row in rows for line in re.split(_NEXT_LINE, row)]
    return sorted(re.sub(r"\s+", " ", line).rstrip(", ") for line in lines)


# SQLite appends a column that was added later to the line of the one before it.
_NEXT_LINE = r"\n|, (?=\w+ [A-Z])"
_CATALOG = {
    "sqlite": "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'alembic%%'",
    "postgresql": """
        SELECT * FROM (
            SELECT concat_ws(' ', table_name, column_name, data_type, is_nullable,
                character_maximum_length, collation_name, column_default) AS line
            FROM information_schema.columns WHERE table_schema = 'public'
            UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'
            UNION ALL SELECT concat_ws(' ', conrelid::regclass, conname, pg_get_constraintdef(oid))
            FROM pg_constraint WHERE connamespace = 'public'::regnamespace
        ) AS everything WHERE line NOT LIKE '%%alembic%%'
    """,
}
