"""Servers of this run, to be crashed; what cannot be run here is skipped with a line."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.cell import HOSTS
from tests.faults.ground import Ground, OnDisk, OnServer
from tests.faults.private import DATABASES, RabbitMQ
from tests.support import servers


class Grounds:
    """One for each kind of database, made when it is first asked for."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self._made: dict[str, Ground] = {}

    def on(self, backend: str) -> Ground:
        """Return the one on this kind of database; skips the test if there can be none."""
        servers.choose(backend)
        if backend not in self._made:
            home = self._folder / backend
            home.mkdir(exist_ok=True)  # it was tried before
            self._made[backend] = self._stack.enter_context(self._make(backend, home))
        return self._made[backend]

    def _make(self, backend: str, home: Path) -> Ground:
        if backend == "sqlite":
            return OnDisk(home, HOSTS)
        return OnServer(self._stack.enter_context(DATABASES[backend]()), home, HOSTS)


@pytest.fixture(scope="session")
def grounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grounds]:
    """Return databases with hosts, on servers and disks of our own."""
    with ExitStack() as stack:
        yield Grounds(tmp_path_factory.mktemp("grounds"), stack)


@pytest.fixture(scope="session")
def broker() -> Iterator[RabbitMQ]:
    """Return a broker of our own."""
    with RabbitMQ() as made:
        yield made
