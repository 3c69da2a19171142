"""The version of the database schema: migrate to a version, and check the present one.

A revision is the name of a version of the schema, such as "0024". A migration changes the schema
from one revision to the next.
"""

from collections.abc import Callable
from functools import cache
from importlib.resources import files

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError

from climate.core.errors import OperatorError
from climate.db.engine import galera, triggers
from climate.db.engine.database import Database


class SchemaMismatch(OperatorError):
    """Raised if the database does not have the schema revision that this release requires."""


class UnknownSchema(SchemaMismatch):
    """Raised if this release does not know the schema revision of the database.

    Most likely, a later release created the schema.
    """


@cache
def head() -> str:
    """Return the schema revision that this release requires, such as "0024"."""
    revision = ScriptDirectory.from_config(_config()).get_current_head()
    assert revision is not None  # noqa: S101 - the package always ships migrations
    return revision


def revisions() -> list[str]:
    """Return all schema revisions that this release knows, oldest first."""
    scripts = ScriptDirectory.from_config(_config()).walk_revisions()
    return [script.revision for script in scripts][::-1]


def current(database: Database) -> str | None:
    """Return the schema revision of the database; None if the database has no schema."""
    with database.engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def check(database: Database) -> None:
    """Raise SchemaMismatch unless the database has the schema that this release requires.

    The error message contains the command that fixes the schema.
    """
    revision = current(database)
    if revision == head():
        _check_guard(database)
        return
    if revision is not None and revision not in revisions():
        raise UnknownSchema(
            f"the database schema is at {revision}, which this release does not know (it works with"
            f" {head()}): run the release that made it, or downgrade with that release's"
            " climate-db-manage"
        )
    state = "is empty" if revision is None else f"is at {revision}"
    raise SchemaMismatch(
        f"the database schema {state}, this release works with {head()}:"
        " run 'climate-db-manage upgrade'"
    )


def _check_guard(database: Database) -> None:
    with database.engine.connect() as connection:
        if not galera.is_fit(connection):
            raise SchemaMismatch(
                f"the constraint {galera.GUARD} must exist, except on a Galera cluster:"
                " run 'climate-db-manage upgrade'"
            )


def upgrade(database: Database, revision: str = "head") -> None:
    """Migrate the schema up to ``revision`` ("head": the newest one that this release knows).

    Raises SchemaMismatch if there is no such revision, and TableInUse if a migration did not get
    its table.
    """
    _migrate(database, command.upgrade, revision)


def downgrade(database: Database, revision: str) -> None:
    """Migrate the schema down to ``revision`` ("base" removes all tables).

    Raises SchemaMismatch if there is no such revision, and TableInUse if a migration did not get
    its table.
    """
    _migrate(database, command.downgrade, revision)


def _migrate(database: Database, step: Callable[[Config, str], None], revision: str) -> None:
    """Run the migrations to ``revision`` in one transaction.

    ``step`` is Alembic's function for upgrades or downgrades. On SQLite, the write lock lets one
    process migrate at a time. MariaDB commits each statement; after an interruption, another run
    completes the migration (see ``climate.db.migrations.repeatable``).
    """
    engine = database.engine.execution_options(climate_write=True)
    with engine.begin() as connection:
        try:
            step(_config(connection), revision)
        except CommandError as error:
            raise SchemaMismatch(str(error)) from error
    # On Galera, the migration aborted transactions, also those of the previous release.
    if current(database) == head():
        triggers.reopen(database.engine)


def _config(connection: sa.Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(files("climate.db") / "migrations"))
    config.attributes["connection"] = connection
    return config
