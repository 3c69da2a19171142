"""Leases whose managers are killed at each change of the cloud in turn."""

import itertools
import os
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.openstack.accounts import Project
from tests.openstack.deployment import Deployment
from tests.openstack.proxy import Answer, Change, Fault, FaultyProxy, no_fault
from tests.support.process import eventually

_TIMEOUT = 180.0


class LeaseCycle(ABC):
    """Runs one lease after the other, and replaces each killed manager."""

    def __init__(self, climate: Deployment, lab: Project, *proxies: FaultyProxy) -> None:
        self._climate, self._lab, self._proxies = climate, lab, proxies
        self._manager = climate.start_manager()
        self.kills = 0
        self.steps: list[list[str]] = []

    @abstractmethod
    def reservations(self) -> list[dict[str, Any]]:
        """Return the reservations of each lease."""

    @abstractmethod
    def state(self, lease_id: str) -> Any:
        """Return what must not depend on kills."""

    @abstractmethod
    def use(self, lease_id: str) -> None:
        """Use the resources of the active lease."""

    def create(self, make_fault: Callable[[], Fault]) -> str:
        """Create a lease, set the fault of its start, and return the lease's id."""
        self.set_fault(make_fault())
        lease = self._climate.reserve(self._lab.member, reservations=self.reservations())
        return str(lease["id"])

    def clean_up(self, lease_id: str) -> None:
        self._climate.http(self._lab.member).call("DELETE", f"/v2/leases/{lease_id}")

    def run(self, make_fault: Callable[[], Fault]) -> list[Any]:
        """Run a lease with one fault at its start and one at its end.

        Return the state after the start and the state after the end.
        """
        self.kills, self.steps = 0, []
        lease_id = self.create(make_fault)
        self._wait(lease_id, "ACTIVE")
        states = [self.state(lease_id)]
        self.use(lease_id)
        self.set_fault(make_fault())
        http = self._climate.http(self._lab.member)
        http.ok("PATCH", f"/v2/leases/{lease_id}", {"end": "now"})
        self._wait(lease_id, "TERMINATED")
        states.append(self.state(lease_id))
        self.clean_up(lease_id)
        return states

    def run_undisturbed(self) -> list[Any]:
        """Run a lease without a fault."""
        return self.run(lambda: no_fault)

    def check_each_kill(self, undisturbed: list[Any]) -> int:
        """Kill managers at each step in turn; return the number of the first step without a kill.

        The states must be those of an undisturbed lease.
        """
        for number in itertools.count(1):
            states = self.run(partial(self._kill_at, number))
            assert states == undisturbed, f"killed at step {number}"
            if self.kills == 0:
                break
        return number

    def set_fault(self, fault: Fault) -> None:
        for proxy in self._proxies:
            proxy.begin(fault)

    def _kill_at(self, number: int) -> Fault:
        """Return a fault that kills a manager before a step and its successor after that step.

        The successor repeats the step first, as the killed manager did not complete it.
        """
        numbers, lock = itertools.count(1), threading.Lock()

        def fault(_: Change, forward: Callable[[], Answer]) -> Answer | None:
            with lock:
                current = next(numbers)
            if current not in {number, number + 1}:
                return forward()
            if current > number:
                forward()
            os.kill(self._manager.pid, signal.SIGKILL)
            return None

        return fault

    def _wait(self, lease_id: str, status: str) -> None:
        """Wait until the lease has ``status``; replace each killed manager."""

        def has_status() -> bool:
            rows = self._climate.query("SELECT status FROM leases WHERE id = ?", lease_id)
            return rows == [(status,)]

        self.wait_until(has_status, f"the lease is {status}")

    def wait_until(self, is_reached: Callable[[], bool], what: str) -> None:
        """Wait until ``is_reached``; replace each killed manager."""

        def can_continue() -> bool:
            return is_reached() or not self._manager.is_running

        while not is_reached():
            if not self._manager.is_running:
                self.kills += 1
                self._manager = self._climate.start_manager()
            eventually(can_continue, what, _TIMEOUT)
        self.steps.append([kind for proxy in self._proxies for kind in proxy.kinds])
