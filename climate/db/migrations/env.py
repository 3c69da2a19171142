"""Alembic's entry point: run the migrations on the connection of ``climate.db.engine.schema``."""

from alembic import context

from climate.db.tables.leases import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    # SQLite supports few ALTER statements: rebuild the table instead.
    render_as_batch=context.config.attributes["connection"].dialect.name == "sqlite",
)
with context.begin_transaction():
    context.run_migrations()
