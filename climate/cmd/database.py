"""Opens the configured database, and runs the program climate-db-manage."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

import sqlalchemy as sa
from oslo_config.cfg import ConfigOpts

from climate.config.registry import Misconfigured
from climate.core.errors import OperatorError
from climate.db.engine import schema
from climate.db.engine.database import MIGRATION_WAIT, Database

_BACKENDS = ("sqlite", "postgresql", "mysql", "mariadb")
_ERRORS = (sa.exc.InterfaceError, sa.exc.OperationalError, sa.exc.ProgrammingError)

P = ParamSpec("P")
T = TypeVar("T")


def explains_errors(program: Callable[P, T]) -> Callable[P, T]:
    """Decorate a program: errors of the database become OperatorError, without a stack trace."""

    @wraps(program)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return program(*args, **kwargs)
        except _ERRORS as error:
            raise OperatorError(f"cannot use the database: {error.orig}") from error

    return run


def database_url(conf: ConfigOpts) -> sa.URL:
    """Return the URL of the database; raise Misconfigured if climate does not support it."""
    try:
        url = sa.make_url(conf.database.connection)
    except sa.exc.ArgumentError as error:
        raise Misconfigured(f"[database] connection: {error}") from error
    backend = url.get_backend_name()
    if backend not in _BACKENDS:
        raise Misconfigured(
            f"[database] connection names {backend}, which is none of {', '.join(_BACKENDS)}"
        )
    if backend == "sqlite" and url.database in {None, "", ":memory:"}:
        raise Misconfigured(
            "[database] connection names an SQLite database in memory, which several threads"
            " cannot share: name a file, as in sqlite:///climate.sqlite"
        )
    return url


def make_database(conf: ConfigOpts, **options: int) -> Database:
    """Return the configured database. The first query connects to it. Raises Misconfigured.

    ``options`` are further ones of ``Database``.
    """
    url = database_url(conf)
    try:
        text = url.render_as_string(hide_password=False)
        return Database(text, conf.database.pool_size, **options)
    except (sa.exc.ArgumentError, ImportError) as error:
        raise Misconfigured(f"[database] connection names {url.drivername}: {error}") from error


def check_exists(conf: ConfigOpts) -> None:
    """Raise Misconfigured if the database is an SQLite file that does not exist.

    SQLite would create an empty file for any program that only reads.
    """
    url = database_url(conf)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        raise Misconfigured(
            f"there is no database {Path(url.database or '').absolute()}: run 'climate-db-manage"
            " upgrade' to create it, or name another one by [database] connection in the file of"
            " --config-file"
        )


@contextmanager
def open_database(conf: ConfigOpts, *, creates: bool = False, **options: int) -> Iterator[Database]:
    """Yield the configured database; close its connections after the block.

    ``options`` are further ones of ``Database``. Raises Misconfigured, also if the database is an
    SQLite file that does not exist, unless ``creates`` is set.
    """
    database = make_database(conf, **options)
    if not creates:
        check_exists(conf)
    try:
        yield database
    finally:
        database.dispose()


@contextmanager
def open_checked_database(conf: ConfigOpts) -> Iterator[Database]:
    """Yield the configured database if it has the schema of this release.

    Raises Misconfigured, SchemaMismatch.
    """
    with open_database(conf) as database:
        schema.check(database)
        yield database


@explains_errors
def manage(conf: ConfigOpts, arguments: argparse.Namespace) -> None:
    """Upgrade, downgrade, show or check the schema, as the command line requests."""
    if arguments.command == "downgrade" and arguments.revision is None:
        raise Misconfigured("downgrade needs a revision: 'base' removes everything")
    creates = arguments.command == "upgrade"
    with open_database(conf, creates=creates, statement_wait=MIGRATION_WAIT) as database:
        if arguments.command == "upgrade":
            schema.upgrade(database, arguments.revision or "head")
        elif arguments.command == "downgrade":
            schema.downgrade(database, arguments.revision)
        elif arguments.command == "check":
            schema.check(database)
        sys.stdout.write(f"{schema.current(database) or 'empty'}\n")
