"""Servers of this run that tests crash; a missing program skips its tests."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.cell import HOSTS
from tests.faults.ground import DiskDatabase, FaultDatabase, ServerDatabase
from tests.faults.private import DATABASES, RabbitMQ
from tests.support import servers


class Databases:
    """The databases of each kind, created on first use."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self._made: dict[str, FaultDatabase] = {}

    def on(self, backend: str) -> FaultDatabase:
        """Return the one on this kind of database; skips the test if there can be none."""
        servers.choose(backend)
        if backend not in self._made:
            home = self._folder / backend
            home.mkdir(exist_ok=True)  # it was tried before
            self._made[backend] = self._stack.enter_context(self._make(backend, home))
        return self._made[backend]

    def _make(self, backend: str, home: Path) -> FaultDatabase:
        if backend == "sqlite":
            return DiskDatabase(home, HOSTS)
        return ServerDatabase(self._stack.enter_context(DATABASES[backend]()), home, HOSTS)


@pytest.fixture(scope="session")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    """Return databases with hosts, on the tests' own servers and disks."""
    with ExitStack() as stack:
        yield Databases(tmp_path_factory.mktemp("grounds"), stack)


@pytest.fixture(scope="session")
def broker() -> Iterator[RabbitMQ]:
    with RabbitMQ() as made:
        yield made
