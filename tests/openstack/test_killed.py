"""A manager may die at any step that it takes in the cloud: the next one completes the work."""

import itertools
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.openstack import guests, settings, traces
from tests.openstack.accounts import Project
from tests.openstack.conftest import Deploy, MakeProject
from tests.openstack.deployment import Deployment
from tests.openstack.nova_proxy import Answer, Change, Fate, NovaProxy, pass_on
from tests.process import eventually

pytestmark = pytest.mark.slow

HOSTS = settings.HOSTS[:3]


@pytest.fixture(scope="module")
def lab(project: MakeProject) -> Project:
    """Return the project whose leases these are."""
    return project("killed")


class Story:
    """Leases of three hosts, one after the other, under managers that die and are replaced."""

    def __init__(self, climate: Deployment, nova: NovaProxy, lab: Project) -> None:
        self._climate, self._nova, self._lab = climate, nova, lab
        self._manager = climate.start_manager()
        self.kills = 0
        self.steps: list[list[str]] = []

    def live(self, make_fate: Callable[[], Fate]) -> list[str]:
        """Have a lease live, and its start and its end meet a fate of their own each.

        Return all that can be seen after the start and after the end.
        """
        self.kills, self.steps = 0, []
        self._nova.begin(make_fate())
        lease = self._climate.reserve(self._lab.member, len(HOSTS))
        [reservation] = lease["reservations"]
        self._see_to(lease["id"], "ACTIVE")
        seen = [self._state(lease["id"])]
        self._use(reservation["id"])
        self._nova.begin(make_fate())
        self._climate.end_soon(self._lab.member, lease["id"])
        self._see_to(lease["id"], "TERMINATED")
        seen.append(self._state(lease["id"]))
        self._climate.by(self._lab.member).lease.delete(lease["id"])
        return [state.replace(reservation["id"], "the reservation") for state in seen]

    def killing(self, number: int) -> Fate:
        """Return the fate that two managers die at one step, before and after it is made.

        The second finds it as the first left it, so it begins with it.
        """

        def fate(change: Change, forward: Callable[[], Answer]) -> Answer | None:
            if change.number not in {number, number + 1}:
                return forward()
            if change.number > number:
                forward()
            os.kill(self._manager.pid, signal.SIGKILL)
            return None

        return fate

    def _see_to(self, lease_id: str, status: str) -> None:
        """Wait until the lease has ``status``; managers that were killed get successors."""
        while self._is_killed_before(lease_id, status):
            self.kills += 1
            self._manager = self._climate.start_manager()
        self.steps.append(self._nova.kinds)

    def _is_killed_before(self, lease_id: str, status: str) -> bool:
        def has_status() -> bool:
            return self._climate.query("SELECT status FROM leases WHERE id = ?", lease_id) == [
                (status,)
            ]

        eventually(lambda: has_status() or not self._manager.is_running, f"the lease is {status}")
        return not has_status()

    def _use(self, reservation_id: str) -> None:
        """Boot a server on the first host."""
        hints = {"reservation": reservation_id} if self._climate.isolation == "blazar" else {}
        server = guests.boot(self._lab.admin, "guest", host=HOSTS[0], scheduler_hints=hints)
        assert server.status == "ACTIVE", server.fault

    def _state(self, lease_id: str) -> str:
        lease = self._climate.by(self._lab.member).lease.get(lease_id)
        [reservation] = lease["reservations"]
        found: dict[str, Any] = {
            "aggregates": traces.aggregates(self._climate.cloud),
            "servers": len(traces.servers_on(self._climate.cloud)),
            "audit": self._climate.audit(),
            "held": self._climate.hosts_of(lease_id),
            "lease": (lease["status"], lease["degraded"]),
            "reservation": reservation["status"],
            "flags": (reservation["missing_resources"], reservation["resources_changed"]),
            "events": sorted((one["event_type"], one["status"]) for one in lease["events"]),
            "told": self._climate.query(
                "SELECT event_type FROM outbox WHERE lease_id = ? ORDER BY id", lease_id
            ),
        }
        return repr(found)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("isolation", ["blazar", "tenancy"])
def test_a_manager_killed_at_any_step_leaves_the_same_behind_as_none_killed(
    isolation: str, deploy: Deploy, nova: NovaProxy, lab: Project
) -> None:
    climate = deploy(
        isolation,
        nova__endpoint_override=nova.url,
        manager__claim_timeout=1,
        manager__minutes_before_end_lease=0,
    )
    climate.register(*HOSTS)
    story = Story(climate, nova, lab)
    undisturbed = story.live(lambda: pass_on)
    assert all("'audit': []" in state for state in undisturbed), undisturbed
    longest = max(len(steps) for steps in story.steps)
    for starting_or_ending in story.steps:
        assert starting_or_ending.count("POST os-aggregates action add_host") == len(HOSTS)
    for number in itertools.count(1):
        seen = story.live(lambda number=number: story.killing(number))
        assert seen == undisturbed, f"killed at step {number}"
        if story.kills == 0:
            break
    assert number > longest
