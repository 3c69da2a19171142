"""A Galera node is killed or cut off while requests are answered and leases start."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from climate.db.engine import triggers
from climate.db.engine.database import Database
from tests.clusters.load import Load, lease
from tests.clusters.nodes import Node, lateness
from tests.clusters.testbed import GaleraNode
from tests.support.process import eventually

# Servers start and stop: a busy machine needs more than the usual limit.
pytestmark = pytest.mark.timeout(300)

# Seconds of load before the fault.
CALM = 3.0
REPAIRS = 150
Record = Callable[[str, object], None]


def test_a_killed_node_loses_no_lease_and_the_others_go_on(
    nodes: list[Node], galera: list[GaleraNode], record_property: Record
) -> None:
    others = [node.service for node in nodes[:2]]
    with Load(*(node.service for node in nodes)) as load:
        time.sleep(CALM)
        galera[2].crash()
        load.await_more(*others)
        galera[2].start()
        load.await_more(nodes[2].service)
    assert set(load.failures) <= {503}
    record_property("report", load.report(_assert_kept(nodes, load), *others))


def test_a_service_whose_node_is_killed_uses_another(
    galera: list[GaleraNode], tmp_path: Path, record_property: Record
) -> None:
    hosts = "&".join(f"host=127.0.0.1:{node.port}" for node in galera)
    url = f"mysql+pymysql://root@/climate?{hosts}"
    with Node(galera[0], tmp_path, database__connection=url) as node:
        node.register_hosts()
        with Load(node.service) as load:
            time.sleep(CALM)
            galera[0].crash()
            load.await_more(node.service)
        assert set(load.failures) <= {503}
        record_property("report", load.report(_assert_kept([node], load)))


def test_a_node_that_is_cut_off_refuses_requests_and_loses_nothing(
    nodes: list[Node], galera: list[GaleraNode], record_property: Record
) -> None:
    alone, others = nodes[2].service, [node.service for node in nodes[:2]]
    with Load(*(node.service for node in nodes)) as load:
        time.sleep(CALM)
        galera[2].cut_off()
        eventually(lambda: alone.call("GET", "/v1/leases").status_code == 503, "reads are refused")
        assert alone.call("POST", "/v1/leases", lease(9, 9)).status_code == 503
        load.await_more(*others)
        galera[2].reconnect()
        load.await_more(alone)
    assert set(load.failures) <= {503}
    record_property("report", load.report(_assert_kept(nodes, load), *others))


def test_repairs_of_triggers_stop_no_node(
    galera: list[GaleraNode], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = Database(galera[1].url("climate"))
    with Node(galera[0], tmp_path) as node:
        node.register_hosts()
        with Load(node.service) as load:
            for _ in range(REPAIRS):
                triggers.reopen(other.engine)
                assert caplog.messages == []
            load.await_more(node.service)
    other.dispose()
    assert set(load.failures) <= {503}


def _assert_kept(nodes: list[Node], load: Load) -> list[float]:
    """Assert that each acknowledged lease is on all nodes; return how late leases started."""
    for id_ in load.started:
        nodes[0].service.until_lease_is(id_, "ACTIVE")
    for node in nodes:
        listed = {item["id"] for item in node.service.ok("GET", "/v1/leases")["leases"]}
        assert set(load.acknowledged) <= listed
    return lateness(nodes[0], load.started)
