"""A Galera node is killed or cut off while requests are answered and leases start."""

import time
from collections.abc import Callable
from pathlib import Path

from tests.clusters.load import Load, lease
from tests.clusters.nodes import Node, assert_no_effect_twice
from tests.clusters.testbed import GaleraNode
from tests.support.process import eventually

# Seconds of load before the fault.
CALM = 3.0
Record = Callable[[str, object], None]


def test_a_killed_node_loses_no_lease_and_the_others_go_on(
    nodes: list[Node], galera: list[GaleraNode], record_property: Record
) -> None:
    others = [node.service for node in nodes[:2]]
    with Load(*(node.service for node in nodes)) as load:
        time.sleep(CALM)
        galera[2].crash()
        _await_more(load, nodes[:2])
        galera[2].start()
        _await_more(load, nodes[2:])
    record_property("pauses of the others", load.pauses(*others)[-3:])
    assert set(load.failures) <= {503}
    _assert_kept(nodes, load)


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
            _await_more(load, [node])
        record_property("pauses", load.pauses()[-3:])
        assert set(load.failures) <= {503}
        _assert_kept([node], load)


def test_a_node_that_is_cut_off_refuses_requests_and_loses_nothing(
    nodes: list[Node], galera: list[GaleraNode]
) -> None:
    alone = nodes[2].service
    with Load(*(node.service for node in nodes)) as load:
        time.sleep(CALM)
        galera[2].cut_off()
        eventually(lambda: alone.call("GET", "/v1/leases").status_code == 503, "reads are refused")
        assert alone.call("POST", "/v1/leases", lease(9, 9)).status_code == 503
        _await_more(load, nodes[:2])
        galera[2].reconnect()
        _await_more(load, nodes[2:])
    assert set(load.failures) <= {503}
    _assert_kept(nodes, load)


def _await_more(load: Load, nodes: list[Node]) -> None:
    """Wait until each service has acknowledged more leases."""
    for node in nodes:
        count = load.count(node.service)
        eventually(lambda: load.count(node.service) > count + 5, "leases are acknowledged")  # noqa: B023


def _assert_kept(nodes: list[Node], load: Load) -> None:
    """Assert that each acknowledged lease exists on all nodes, and that starts happened once."""
    for id_ in load.started:
        nodes[0].service.until_lease_is(id_, "ACTIVE")
    for node in nodes:
        listed = {item["id"] for item in node.service.ok("GET", "/v1/leases")["leases"]}
        assert set(load.acknowledged) <= listed
    assert_no_effect_twice(nodes[0].journal)
