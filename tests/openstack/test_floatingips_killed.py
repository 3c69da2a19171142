"""A manager may die at any change that it makes in Neutron: the next one completes the work."""

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.openstack.accounts import Account, Project
from tests.openstack.addresses import SPARE, Public, passing_network
from tests.openstack.conftest import Deploy, MakeProject
from tests.openstack.deployment import Deployment
from tests.openstack.nova_proxy import Answer, Change, Fate, NovaProxy, pass_on
from tests.support.process import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def lab(project: MakeProject) -> Project:
    """Return the project whose leases these are."""
    return project("killed")


@pytest.fixture
def public(administrator: Account, lab: Project) -> Iterator[Public]:
    """Return an external network of our own."""
    with passing_network(administrator.cloud, lab.id) as made:
        yield made


@pytest.fixture
def neutron(administrator: Account) -> Iterator[NovaProxy]:
    """Return a way to Neutron on which managers can die."""
    target = administrator.cloud.session.get_endpoint(service_type="network")
    with NovaProxy(target) as made:
        yield made


class Story:
    """Leases of two addresses, one after the other, under managers that die and are replaced."""

    def __init__(
        self, climate: Deployment, neutron: NovaProxy, public: Public, lab: Project
    ) -> None:
        self._climate, self._neutron, self._public, self._lab = climate, neutron, public, lab
        self._manager = climate.start_manager()
        self.kills = 0

    def live(self, make_fate: Callable[[], Fate]) -> list[Any]:
        """Have a lease live, and its start and its end meet a fate of their own each.

        Return all that can be seen after the start and after the end.
        """
        self.kills = 0
        self._neutron.begin(make_fate())
        asked = {"network_id": self._public.id, "amount": 2, "required_floatingips": SPARE[:2]}
        given = {"resource_type": "virtual:floatingip", **asked}
        lease = self._climate.reserve(self._lab.member, reservations=[given])
        self._see_to(lease["id"], "ACTIVE")
        seen = self._seen()
        there = self._public.floatingips()[SPARE[0]]
        self._lab.member.cloud.network.update_ip(there, port_id=self._public.port_id)
        self._neutron.begin(make_fate())
        self._climate.end_soon(self._lab.member, lease["id"])
        self._see_to(lease["id"], "TERMINATED")
        return [seen, self._seen()]

    def killing(self, number: int) -> Fate:
        """Return the fate that two managers die at one step, before and after it is made."""

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

        def has_status() -> bool:
            rows = self._climate.query("SELECT status FROM leases WHERE id = ?", lease_id)
            return rows == [(status,)]

        while not has_status():
            if not self._manager.is_running:
                self.kills += 1
                self._manager = self._climate.start_manager()
            eventually(lambda: has_status() or not self._manager.is_running, f"it is {status}")

    def _seen(self) -> list[Any]:
        there = sorted(self._public.floatingips().items())
        seen = [(at, one.project_id, len(one.tags), one.port_id) for at, one in there]
        return [seen, self._climate.manage("audit")]


def test_a_manager_killed_at_any_step_leaves_the_same_behind_as_none_killed(
    deploy: Deploy, neutron: NovaProxy, public: Public, lab: Project
) -> None:
    options = {
        "manager__plugins": "virtual.floatingip.plugin",
        "manager__claim_timeout": 1,
        "virtual:floatingip__cloud": "neutron",
        "neutron__endpoint_override": neutron.url,
    }
    climate = deploy("blazar", (), **options)
    for address in SPARE[:2]:
        climate.by(climate.administrator).floatingip.create(public.id, address)
    story = Story(climate, neutron, public, lab)
    undisturbed = story.live(lambda: pass_on)
    assert [len(seen) for seen, _ in undisturbed] == [2, 0]
    assert [found for _, found in undisturbed] == [[], []]
    for number in itertools.count(1):
        seen = story.live(lambda number=number: story.killing(number))
        assert seen == undisturbed, f"killed at step {number}"
        if story.kills == 0:
            break
    assert number > 3
