"""Alembic's entry point: run the migrations on the connection of ``climate.db.engine.schema``."""

from alembic import context

from climate.db.engine import galera, schema
from climate.db.migrations import repeatable, table_locks  # noqa: F401 - hooks of repeatable
from climate.db.tables.leases import Base

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=Base.metadata,
    # SQLite supports few ALTER statements: rebuild the table instead.
    render_as_batch=connection.dialect.name == "sqlite",
)
with table_locks.limited(connection), context.begin_transaction():
    context.run_migrations()
    if context.get_context().get_current_revision() == schema.head():
        galera.fit(connection)
