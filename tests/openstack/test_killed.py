"""A manager may die at any step that it takes in the cloud: the next one completes the work."""

import itertools
import json
import os
import signal
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from openstack.connection import Connection

from tests.openstack import guests, settings, traces
from tests.openstack.accounts import Project
from tests.openstack.conftest import Deploy, MakeProject
from tests.openstack.deployment import Deployment
from tests.openstack.nova_proxy import Answer, Change, Fate, NovaProxy, pass_on
from tests.support.process import eventually
from tests.support.service import host_reservation

pytestmark = pytest.mark.nightly

HOSTS = settings.HOSTS[:3]


@pytest.fixture(scope="module")
def lab(project: MakeProject) -> Project:
    """Return the project whose leases these are."""
    return project("killed")


class Story:
    """Leases of the same, one after the other, under managers that die and are replaced."""

    asked: ClassVar = host_reservation(len(HOSTS), len(HOSTS), before_end="")

    def __init__(self, climate: Deployment, cloud: NovaProxy, lab: Project) -> None:
        self._climate, self._cloud, self._lab = climate, cloud, lab
        self._manager = climate.start_manager()
        self.kills = 0
        self.steps: list[list[str]] = []

    def live(self, make_fate: Callable[[], Fate]) -> list[str]:
        """Have a lease live, and its start and its end meet a fate of their own each.

        Return all that can be seen after the start and after the end.
        """
        self.kills, self.steps = 0, []
        self._cloud.begin(make_fate())
        lease = self._climate.reserve(self._lab.member, reservations=[self.asked])
        [reservation] = lease["reservations"]
        self._see_to(lease["id"], "ACTIVE")
        seen = [self._state(lease["id"])]
        self._use(reservation["id"])
        self._cloud.begin(make_fate())
        self._climate.end_soon(self._lab.member, lease["id"])
        self._see_to(lease["id"], "TERMINATED")
        seen.append(self._state(lease["id"]))
        self._climate.by(self._lab.member).lease.delete(lease["id"])
        return [_named(state, reservation["id"]) for state in seen]

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
        self.steps.append(self._cloud.kinds)

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
            "slots": traces.slots(self._climate.cloud, reservation["id"]),
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
        return json.dumps(found)


def _named(state: str, reservation_id: str) -> str:
    """Return a state with names that do not change, in an order that does not."""
    its_class = traces.resource_class(reservation_id)
    named = state.replace(reservation_id, "the reservation").replace(its_class, "its class")
    return json.dumps(json.loads(named), sort_keys=True)


class InstanceStory(Story):
    """Reserved instances, one on each of two hosts."""

    asked: ClassVar = {
        "resource_type": "virtual:instance",
        "amount": 2,
        "vcpus": 1,
        "memory_mb": 64,
        "disk_gb": 1,
        "resource_properties": "",
        "affinity": False,
    }

    def _use(self, reservation_id: str) -> None:
        """Boot one of two."""
        server = guests.boot(self._lab.member, "guest", flavor_id=reservation_id)
        assert server.status == "ACTIVE", server.fault


@pytest.mark.timeout(900)
@pytest.mark.parametrize("service", ["nova", "placement"])
def test_so_it_is_with_instances_whichever_service_the_step_is_in(
    service: str, deploy: Deploy, lab: Project, cloud: Connection
) -> None:
    with NovaProxy(getattr(cloud, {"nova": "compute"}.get(service, service)).get_endpoint()) as way:
        climate = deploy(
            "blazar",
            **{f"{service}__endpoint_override": way.url},
            manager__plugins="physical.host.plugin,virtual.instance.plugin",
            manager__claim_timeout=1,
            manager__minutes_before_end_lease=0,
        )
        climate.register(*HOSTS[:2])
        tell_all(InstanceStory(climate, way, lab))


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
    for starting_or_ending in tell_all(story):
        assert starting_or_ending.count("POST os-aggregates action add_host") == len(HOSTS)


def tell_all(story: Story) -> list[list[str]]:
    """Tell a story undisturbed, and with deaths at each of its steps; return the steps."""
    undisturbed = story.live(lambda: pass_on)
    assert all('"audit": []' in state for state in undisturbed), undisturbed
    told = story.steps
    longest = max(len(steps) for steps in told)
    for number in itertools.count(1):
        seen = story.live(lambda number=number: story.killing(number))
        assert seen == undisturbed, f"killed at step {number}"
        if story.kills == 0:
            break
    assert number > longest
    return told
