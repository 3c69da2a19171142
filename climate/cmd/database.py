"""Opens the configured database, and runs the program climate-db-manage."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

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


def explains_errors(
    program: Callable[Concatenate[ConfigOpts, P], T],
) -> Callable[Concatenate[ConfigOpts, P], T]:
    """Decorate a program: errors of the database become OperatorError, without a stack trace."""

    @wraps(program)
    def run(conf: ConfigOpts, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return program(conf, *args, **kwargs)
        except _ERRORS as error:
            message = f"cannot use the database: {error.orig}{_file_problem(conf)}"
            raise OperatorError(message) from error

    return run


def _file_problem(conf: ConfigOpts) -> str:
    """Return why this user cannot open the SQLite file, else its path; "" for a server.

    SQLite's own message contains neither.
    """
    url = database_url(conf)
    if url.get_backend_name() != "sqlite":
        return ""
    path = _file(url)
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return f": the folder {path.parent} does not exist, or this user may not write in it"
    if path.is_dir():
        return f": {path} is a folder"
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        return f": this user may not read and write {path}"
    return f" ({path})"


def _file(url: sa.URL) -> Path:
    """Return the path of the file of an SQLite database."""
    return Path(url.database or "").absolute()


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
    if url.get_backend_name() == "sqlite" and not _file(url).exists():
        raise Misconfigured(
            f"there is no database {_file(url)}: run 'climate-db-manage"
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
    """Upgrade, downgrade, show or check the schema, as the command line requests.

    Print its revision, and on standard error the database: it may not be the expected one.
    """
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
        revision = schema.current(database)
    state = f"at {revision}" if revision else "empty"
    sys.stderr.write(f"climate-db-manage: the schema of {_shown(conf)} is {state}\n")
    sys.stdout.write(f"{revision or 'empty'}\n")


def _shown(conf: ConfigOpts) -> str:
    """Return the URL of the database without secrets, and with the full path of an SQLite file."""
    url = database_url(conf).set(query={})  # drivers accept a password in the query, too
    if url.get_backend_name() == "sqlite":
        url = url.set(database=str(_file(url)))
    return url.render_as_string()
