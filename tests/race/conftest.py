"""A crowd of processes, and databases without the guard."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from climate.db.engine.database import Database
from tests.race.crowd import Crowd
from tests.support import allocation_guard as guard
from tests.support import servers


@pytest.fixture(scope="package")
def crowd() -> Iterator[Crowd]:
    """Return the processes, which all tests of this folder share."""
    made = Crowd()
    yield made
    made.stop()


@pytest.fixture
def unguarded_url(backend: str, tmp_path: Path) -> str:
    """Return the URL of an empty database of each kind, without the guard of double booking."""
    url = servers.create(backend) if backend != "sqlite" else f"sqlite:///{tmp_path}/open.sqlite"
    servers.migrate(url)
    database = Database(url)
    guard.drop(database)
    database.dispose()
    return url
