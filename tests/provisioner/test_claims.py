"""Limits of a provisioner: groups, and claims that it renews only while they are its own."""

import threading
from collections.abc import Container, Mapping
from contextlib import ExitStack
from typing import Any

import pytest

from climate.provisioner.claim import Claim, Stopped, run_claimed
from climate.provisioner.client import ApiUnavailable, ClaimLost, ClimateClient, NodeTask
from climate.provisioner.groups import Groups
from climate.provisioner.nodes import Node
from climate.provisioner.power.driver import Power
from climate.provisioner.power.simulated import Simulated
from climate.provisioner.prepare import Tools
from climate.provisioner.shut_down import shut_down

WANTED = NodeTask(id="1", node="node-1", resource_id="7")


class GroupFull(Exception):
    """The group admits no further node."""


def refuse(_seconds: float) -> None:
    raise GroupFull


def test_a_group_admits_a_limited_number() -> None:
    groups = Groups(2, 0.0)
    with ExitStack() as stack:
        stack.enter_context(groups.slot(["rack"], refuse))
        with groups.slot(["rack", "pdu"], refuse), pytest.raises(GroupFull):
            stack.enter_context(groups.slot(["rack"], refuse))
        stack.enter_context(groups.slot(["rack"], refuse))
        stack.enter_context(groups.slot([], refuse))


def test_all_groups_are_entered_or_none() -> None:
    groups = Groups(1, 0.0)
    with groups.slot(["rack"], refuse):
        with pytest.raises(GroupFull), groups.slot(["pdu", "rack"], refuse):
            pass
        with groups.slot(["pdu"], refuse):
            pass


def test_waits_between_two_nodes_of_a_group() -> None:
    now = [0.0]
    groups = Groups(9, 10.0, lambda: now[0])
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        now[0] += 4

    with groups.slot(["rack"], refuse), groups.slot(["rack"], wait):
        assert len(waited) == 3
    with pytest.raises(GroupFull), groups.slot(["rack"], refuse):
        pass


class RecordingClimate(ClimateClient):
    """Records all reports, and answers those with the numbers in ``answered``."""

    def __init__(self, answered: Container[int] = range(99)) -> None:
        self.said: list[dict[str, Any]] = []
        self._answered = answered

    def report(self, task: NodeTask, **values: Any) -> Mapping[str, Any]:
        self.said.append({"id": task.id, **values})
        if len(self.said) - 1 not in self._answered:
            raise ApiUnavailable("away")
        return {"attempt": 1}


def test_a_claim_is_renewed_during_a_wait() -> None:
    told = RecordingClimate()
    claim = Claim(told, WANTED, "p1", 1, threading.Event())
    claim.acquire()
    claim.pause(1.2)
    assert len(told.said) > 2
    assert {item["state"] for item in told.said} == {"accepted"}


def test_a_claim_that_cannot_be_renewed_is_lost() -> None:
    told = RecordingClimate(answered=[0])
    claim = Claim(told, WANTED, "p1", 1, threading.Event())
    claim.acquire()
    with pytest.raises(ClaimLost):
        claim.pause(60)


def test_a_wait_ends_when_the_process_stops() -> None:
    stopping = threading.Event()
    told = RecordingClimate()
    claim = Claim(told, WANTED, "p1", 60, stopping)
    claim.acquire()
    threading.Timer(0.1, stopping.set).start()
    with pytest.raises(Stopped):
        claim.pause(60)
    claim.release()
    assert told.said[-1] == {"id": "1", "owner": "p1", "state": "wanted"}


def test_a_result_is_reported_until_it_is_accepted() -> None:
    told = RecordingClimate(answered=[1])
    Claim(told, WANTED, "p1", 60, threading.Event()).finish("ready", cold=True)
    assert [item["state"] for item in told.said] == ["ready", "ready"]


def test_a_result_is_not_reported_for_ever_when_the_process_stops() -> None:
    stopping = threading.Event()
    stopping.set()
    told = RecordingClimate(answered=[])
    Claim(told, WANTED, "p1", 60, stopping).finish("ready", cold=True)
    assert [item["state"] for item in told.said] == ["ready"]


class SlowNodes(Simulated):
    """Nodes with power, whose power takes longer to read than a claim lasts."""

    def __init__(self, told: "ReclaimingClimate") -> None:
        super().__init__()
        self._told = told

    def power(self, node: Node) -> Power:
        self._told.is_anothers = True
        return Power.ON


class ReclaimingClimate(RecordingClimate):
    """A climate that may have given the claim to another provisioner."""

    is_anothers = False

    def report(self, task: NodeTask, **values: Any) -> Mapping[str, Any]:
        if self.is_anothers:
            raise ClaimLost("it is p2's")
        return super().report(task, **values)


@pytest.mark.parametrize("shutdown_timeout", [0.0, 5.0])
def test_a_provisioner_that_lost_its_claim_switches_nothing_off(shutdown_timeout: float) -> None:
    told = ReclaimingClimate()
    driver, node = SlowNodes(told), Node(name="node", driver="slow")
    tools = Tools(
        climate=told,
        drivers={"slow": driver},
        groups=Groups(1, 0),
        power_timeout=5.0,
        ready_timeout=5.0,
        shutdown_timeout=shutdown_timeout,
    )
    claim = Claim(told, WANTED, "p1", 60, threading.Event())
    run_claimed(claim, lambda: shut_down(tools, node, claim))
    assert driver.requests == []
    assert [item["state"] for item in told.said] == ["accepted"]
