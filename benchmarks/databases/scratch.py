"""A temporary database for a benchmark, on a server or in a file."""

import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from climate.api.auth import is_loopback
from climate.db.engine import schema
from climate.db.engine.database import Database


@contextmanager
def scratch(url: str | None, *, anywhere: bool = False) -> Iterator[Database]:
    """Create a database with climate's schema beside the database ``url``; drop it at the end.

    None is a temporary SQLite file. The database ``url`` itself does not change. Raises SystemExit
    for a server that is not on the loopback, unless ``anywhere``.
    """
    given = sa.make_url(url or "sqlite://")
    if given.get_backend_name() == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield from _migrated(given.set(database=str(Path(folder) / "scratch.sqlite")))
        return
    host = given.host or "localhost"
    if not (anywhere or is_loopback(host)):
        raise SystemExit(f"{host} is not this machine: --anywhere if it may be loaded heavily")
    name = f"climate_benchmark_{uuid.uuid4().hex[:12]}"
    server = sa.create_engine(given, isolation_level="AUTOCOMMIT")
    force = " WITH (FORCE)" if given.get_backend_name() == "postgresql" else ""
    with server.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    try:
        yield from _migrated(given.set(database=name))
    finally:
        with server.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name}{force}")
        server.dispose()


def _migrated(url: sa.URL) -> Iterator[Database]:
    database = Database(url.render_as_string(hide_password=False))
    try:
        schema.upgrade(database)
        yield database
    finally:
        database.dispose()
