"""Three Galera nodes, each with an API and a manager, all written at the same time."""

import json
import os
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.clusters.nodes import Node, lateness, rows
from tests.clusters.testbed import GaleraNode, eventually
from tests.support.process import date
from tests.support.service import host_reservation

# Servers start and stop: a busy machine needs more than the usual limit.
pytestmark = pytest.mark.timeout(300)

ROUNDS = int(os.environ.get("CLIMATE_TEST_CLUSTER_ROUNDS") or 8)
PARALLEL = 24
TABLES = ("leases", "reservations", "allocations", "events", "outbox", "limits")


class Promises:
    """What the services have acknowledged: the leases that must exist, and their end dates."""

    def __init__(self) -> None:
        self.leases: dict[str, str] = {}
        self.answers: Counter[tuple[str, int]] = Counter()
        # By name or id of a lease: why it is unknown whether a request about it was successful.
        self.unsure: dict[str, str] = {}

    def send(self, node: Node, method: str, path: str, about: str, body: Any = None) -> Any:
        """Send a request about a lease; return its JSON ({} if there is none) if it succeeded.

        The result is None if it was rejected, or if a busy machine made the database answer too
        late. Then nothing is promised about the lease.
        """
        answer = node.service.call(method, path, body)
        self.answers[method, answer.status_code] += 1
        errors = node.program.errors if node.program else ""
        if answer.status_code == 503:
            reasons = [line for line in errors.splitlines() if "does not answer" in line]
            self.unsure[about] = f"{answer.text} {reasons[-3:]}"
            return None
        assert answer.status_code < 500, (answer.text, errors[-3000:])
        if answer.status_code >= 400:
            return None
        return answer.json() if answer.content else {}

    def made(self, lease: dict[str, Any]) -> bool:
        """Return whether something is promised about a lease that a service lists."""
        return not {lease["id"], lease["name"]} & self.unsure.keys()


def _create(promises: Promises, node: Node, name: str, pick: random.Random) -> None:
    start = 60 * pick.randint(1, 30) + pick.randint(0, 59)
    named = pick.random() < 0.5
    reservation = host_reservation(1, pick.randint(1, 2))
    if named:
        names = [f"sim-{number}" for number in range(1, 1 + pick.randint(1, 3))]
        reservation["resource_properties"] = json.dumps(["in", "$hypervisor_hostname", names])
    body = {
        "name": name,
        "start_date": date(start),
        "end_date": date(start + pick.randint(60, 600)),
        "reservations": [reservation],
    }
    answer = promises.send(node, "POST", "/v1/leases", name, body)
    if answer:
        promises.leases[answer["lease"]["id"]] = answer["lease"]["end_date"]


def _change_or_delete(promises: Promises, node: Node, id_: str, pick: random.Random) -> None:
    if pick.random() < 0.4:
        answer = promises.send(node, "DELETE", f"/v1/leases/{id_}", id_)
        assert answer is not None or id_ in promises.unsure
        del promises.leases[id_]
    else:
        body = {"prolong_for": f"{pick.randint(30, 300)}m"}
        answer = promises.send(node, "PUT", f"/v1/leases/{id_}", id_, body)
        if answer:
            promises.leases[id_] = answer["lease"]["end_date"]


@pytest.mark.timeout(120 + 30 * ROUNDS)
def test_every_acknowledged_change_is_on_all_nodes_and_no_host_is_booked_twice(
    nodes: list[Node], galera: list[GaleraNode], record_property: Callable[[str, object], None]
) -> None:
    promises, pick = Promises(), random.Random(1)
    with ThreadPoolExecutor(PARALLEL) as pool:
        for number in range(ROUNDS):
            known = pick.sample(sorted(promises.leases), min(8, len(promises.leases)))
            tasks = [
                pool.submit(
                    _change_or_delete, promises, nodes[at % 3], id_, random.Random(pick.random())
                )
                for at, id_ in enumerate(known)
            ]
            tasks += [
                pool.submit(
                    _create, promises, nodes[at % 3], f"{number}-{at}", random.Random(pick.random())
                )
                for at in range(PARALLEL - len(known))
            ]
            for task in tasks:
                task.result()
    record_property("answers", dict(promises.answers))
    assert len(promises.unsure) <= 2, promises.unsure
    promised = {id_: end for id_, end in promises.leases.items() if id_ not in promises.unsure}
    for node in nodes:
        listed = {
            lease["id"]: lease["end_date"]
            for lease in node.service.ok("GET", "/v1/leases")["leases"]
            if lease["status"] != "DELETING" and promises.made(lease)
        }
        assert listed == promised
    assert _overlaps(galera[0]) == []
    eventually(lambda: _all_equal(galera), "all nodes have the same rows", within=30)


def _all_equal(galera: list[GaleraNode]) -> bool:
    """Return whether the nodes have the same rows. CHECKSUM TABLE also depends on their history."""
    first, *others = [[rows(node, table) for table in TABLES] for node in galera]
    return all(other == first for other in others)


def test_managers_on_three_nodes_start_each_lease_once_and_number_each_notification_once(
    nodes: list[Node], galera: list[GaleraNode]
) -> None:
    created = [
        nodes[at % 3].service.ok("POST", "/v1/leases", _lease(at, start="now"))["lease"]["id"]
        for at in range(12)
    ]
    for at, id_ in enumerate(created):
        nodes[(at + 1) % 3].service.until_lease_is(id_, "ACTIVE")
    lateness(nodes[0], created)
    numbers = "SELECT seq FROM climate.outbox WHERE seq IS NOT NULL ORDER BY seq"
    eventually(lambda: len(galera[0].execute(numbers)) >= 24, "notifications have numbers")
    numbered = [seq for (seq,) in galera[0].execute(numbers)]
    assert numbered == list(range(1, len(numbered) + 1))


def _lease(at: int, start: str | None = None) -> dict[str, Any]:
    return {
        "name": f"lease {at}",
        "start_date": start or date(100 + 10 * at),
        "end_date": date(100 + 10 * at + 5),
        "reservations": [host_reservation(1, 1)],
    }


def _overlaps(node: GaleraNode) -> list[Any]:
    return node.execute(
        "SELECT a.id, b.id FROM climate.allocations a JOIN climate.allocations b"
        " ON a.resource_id = b.resource_id AND a.id < b.id"
        " AND a.start_at < b.busy_until AND b.start_at < a.busy_until"
        " WHERE a.resource_class IS NULL"
    )
