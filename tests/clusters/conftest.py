"""The clusters of the testbed, with an empty database, and one service per Galera node."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.clusters import testbed
from tests.clusters.nodes import Node
from tests.support import servers


@pytest.fixture(scope="session", autouse=True)
def programs_are_installed() -> None:
    """Skip the tests where the testbed cannot run; fail if CLIMATE_TEST_REQUIRE names clusters."""
    try:
        testbed.check_programs()
    except testbed.Unavailable as reason:
        servers.absent("clusters", str(reason))


@pytest.fixture
def unmigrated() -> Iterator[list[testbed.GaleraNode]]:
    """Return three synced nodes with a database ``climate`` without a schema."""
    testbed.start_galera()
    testbed.GALERA[0].execute("DROP DATABASE IF EXISTS climate")
    testbed.GALERA[0].execute("CREATE DATABASE climate")
    yield testbed.GALERA
    testbed.start_galera()  # the test may have stopped nodes


@pytest.fixture
def galera(unmigrated: list[testbed.GaleraNode]) -> list[testbed.GaleraNode]:
    """Return three synced nodes with an empty, migrated database ``climate``."""
    servers.migrate(unmigrated[0].url("climate"))
    return unmigrated


@pytest.fixture
def postgresql() -> Iterator[list[testbed.PostgreSQLServer]]:
    """Return the primary and its synchronous standby, with an empty, migrated database."""
    testbed.start_postgresql()
    primary = testbed.primary()
    primary.execute("DROP DATABASE IF EXISTS climate WITH (FORCE)")
    primary.execute("CREATE DATABASE climate")
    servers.migrate(primary.url("climate"))
    yield sorted(testbed.POSTGRESQL, key=lambda server: not server.is_primary)
    testbed.start_postgresql()


@pytest.fixture
def nodes(galera: list[testbed.GaleraNode], tmp_path: Path) -> Iterator[list[Node]]:
    """Return one service per node: an API and a manager; all share the simulated cloud."""
    with ExitStack() as stack:
        made = [stack.enter_context(Node(server, tmp_path)) for server in galera]
        made[0].register_hosts()
        yield made
