"""Alembic's entry: runs the migrations on the connection that climate.db.schema hands over."""

from alembic import context

from climate.db import (  # noqa: F401 - their tables belong to the metadata
    outbox_tables,
    preparation_tables,
    self_audit,
)
from climate.db.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    # SQLite can alter little in place: rebuild the table instead.
    render_as_batch=context.config.attributes["connection"].dialect.name == "sqlite",
)
with context.begin_transaction():
    context.run_migrations()
