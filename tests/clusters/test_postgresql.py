"""A synchronous standby is promoted while requests are answered and leases start."""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.clusters.load import Load, lease
from tests.clusters.nodes import HOSTS, Node, lateness
from tests.clusters.testbed import PostgreSQLServer
from tests.support.process import eventually

# Servers start and stop: a busy machine needs more than the usual limit.
pytestmark = pytest.mark.timeout(300)

PROMOTIONS = int(os.environ.get("CLIMATE_TEST_PROMOTIONS") or 2)
_END_CONNECTIONS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'climate'"
)
_END_WAITS = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
# Seconds of load before each promotion.
CALM = 3.0


@pytest.fixture
def node(postgresql: list[PostgreSQLServer], tmp_path: Path) -> Iterator[Node]:
    """Return a service whose URL names both servers."""
    first, second = (f"127.0.0.1:{server.port}" for server in postgresql)
    url = f"postgresql+psycopg://postgres@/climate?host={first}&host={second}"
    with Node(postgresql[0], tmp_path, database__connection=url) as made:
        made.register_hosts(HOSTS)
        yield made


@pytest.mark.timeout(120 + 30 * PROMOTIONS)
def test_a_promotion_loses_no_acknowledged_lease_and_starts_none_twice(
    node: Node, postgresql: list[PostgreSQLServer], record_property: Callable[[str, object], None]
) -> None:
    old, new = postgresql
    with Load(node.service) as load:
        for _ in range(PROMOTIONS):
            time.sleep(CALM)
            old.crash()
            _promote(new, load, node)
            old.install_standby(new)
            old.start()
            new.wait_for_standby()
            old, new = new, old
    assert set(load.failures) <= {503}
    record_property("report", load.report(_assert_kept(node, load)))


def test_an_old_primary_that_returns_is_not_used(
    node: Node, postgresql: list[PostgreSQLServer], tmp_path: Path
) -> None:
    old, new = postgresql
    with Load(node.service) as load:
        time.sleep(CALM)
        old.crash()
        _promote(new, load, node)
        old.start()  # as a primary: nobody told it
        assert old.is_primary
        new.execute(_END_CONNECTIONS)
        load.await_more(node.service)
    with Node(old, tmp_path, database__connection=node.url) as fresh:  # it remembers no primary
        _assert_kept(fresh, load)


def test_a_commit_without_the_standby_is_not_acknowledged(
    node: Node, postgresql: list[PostgreSQLServer]
) -> None:
    primary, standby = postgresql
    standby.freeze()
    try:
        with ThreadPoolExecutor() as pool:
            asked = pool.submit(node.service.call, "POST", "/v1/leases", lease(1, 1))
            # As the statement timeout does after 30 s: the commit ends its wait for the standby.
            eventually(lambda: primary.execute(_END_WAITS) and asked.done(), "the answer")
    finally:
        standby.thaw()
    assert asked.result().status_code == 503


def _promote(standby: PostgreSQLServer, load: Load, node: Node) -> None:
    """Make the standby the primary, and wait until leases are acknowledged."""
    standby.promote()
    eventually(lambda: standby.is_primary, "the standby is the primary")
    load.await_more(node.service)


def _assert_kept(node: Node, load: Load) -> list[float]:
    """Assert that every acknowledged lease exists and started once; return how late they did."""
    for id_ in load.started:
        node.service.until_lease_is(id_, "ACTIVE")
    listed = {lease["id"] for lease in node.service.ok("GET", "/v1/leases")["leases"]}
    assert set(load.acknowledged) <= listed
    return lateness(node, load.started)
