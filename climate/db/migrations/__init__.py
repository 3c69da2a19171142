"""The migrations of the database schema, with Alembic."""
