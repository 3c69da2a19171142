"""SQLite: creation of its files, and settings of its connections."""

import os
import threading
from contextlib import suppress
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

#: The settings of each connection. With "synchronous=FULL", commits survive a loss of power.
SETTINGS: tuple[str, ...] = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON")

_creation = threading.Lock()


def watch(engine: sa.Engine) -> None:
    """Create the database file before ``engine`` connects, and configure each new connection."""
    event.listen(engine, "do_connect", _create)
    event.listen(engine, "connect", _connect)


def create_private(path: str) -> None:
    """Create an empty file that only its owner can read; do nothing if the file exists.

    SQLite later creates further files beside a database file. They get the same permissions.
    """
    # Open no existing file: closing it would release the locks that SQLite holds in this process.
    with _creation, suppress(OSError):  # SQLite raises an error if it cannot open the file
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _create(
    _dialect: object, _record: object, positional: list[Any], named: dict[str, Any]
) -> None:
    if positional[0] != ":memory:" and not named.get("uri"):
        create_private(positional[0])


def _connect(connection: Any, _record: object) -> None:  # noqa: ANN401 - DBAPI is untyped
    """Configure a new connection, and disable implicit transactions."""
    connection.isolation_level = None
    for pragma in SETTINGS:
        connection.execute(f"PRAGMA {pragma}")
