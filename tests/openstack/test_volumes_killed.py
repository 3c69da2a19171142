"""A manager may die at any change that it makes in Cinder: the next one completes the work."""

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.openstack.accounts import Account, Project
from tests.openstack.conftest import Deploy, MakeProject
from tests.openstack.deployment import Deployment
from tests.openstack.nova_proxy import Answer, Change, Fate, NovaProxy, pass_on
from tests.openstack.storage import Base, passing_type
from tests.support.process import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def lab(project: MakeProject) -> Project:
    """Return the project whose leases these are."""
    return project("killed")


@pytest.fixture
def base(administrator: Account) -> Iterator[Base]:
    """Return a volume type of our own."""
    with passing_type(administrator.cloud) as made:
        yield made


@pytest.fixture
def cinder(administrator: Account) -> Iterator[NovaProxy]:
    """Return a way to Cinder on which managers can die."""
    target = administrator.cloud.session.get_endpoint(service_type="block-storage")
    with NovaProxy(target) as made:
        yield made


class Story:
    """Leases of two volumes, one after the other, under managers that die and are replaced."""

    def __init__(
        self, climate: Deployment, cinder: NovaProxy, base: Base, lab: Project, on_end: str
    ) -> None:
        self._climate, self._cinder, self._base, self._lab = climate, cinder, base, lab
        self._on_end = on_end
        self._manager = climate.start_manager()
        self.kills = 0

    def live(self, make_fate: Callable[[], Fate]) -> list[Any]:
        """Have a lease live, and its start and its end meet a fate of their own each.

        Return all that can be seen after the start and after the end.
        """
        self.kills = 0
        self._cinder.begin(make_fate())
        asked = {"volume_type": self._base.name, "amount": 2, "size": 1, "on_end": self._on_end}
        given = {"resource_type": "virtual:volume", **asked}
        lease = self._climate.reserve(self._lab.member, reservations=[given])
        self._see_to(lease["id"], "ACTIVE")
        seen = self._seen()
        self._cinder.begin(make_fate())
        self._climate.end_soon(self._lab.member, lease["id"])
        self._see_to(lease["id"], "TERMINATED")
        after = self._seen()
        self._base.clear()
        return [seen, after]

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
        types = [
            (one["is_public"], one["extra_specs"], self._base.access(one["id"]))
            for one in self._base.types().values()
        ]
        names = [*self._base.types(), self._base.name]
        volumes = [
            (one["size"], one["status"], sorted(one["metadata"]), name == self._base.name)
            for name in names
            for one in self._base.volumes(name)
        ]
        quota = self._base.quota(self._lab.id)
        what = ("volumes", "gigabytes")
        limits = [quota[f"{one}_{name}"] for name in self._base.types() for one in what]
        return [types, volumes, limits]


@pytest.mark.parametrize("on_end", ["delete", "keep"])
def test_a_manager_killed_at_any_step_leaves_the_same_behind_as_none_killed(
    deploy: Deploy, cinder: NovaProxy, base: Base, lab: Project, on_end: str
) -> None:
    options = {
        "manager__plugins": "virtual.volume.plugin",
        "manager__claim_timeout": 1,
        "virtual:volume__cloud": "cinder",
        "cinder__endpoint_override": f"http://{urlsplit(cinder.url).netloc}/v3/%(project_id)s",
    }
    climate = deploy("blazar", (), **options)
    wanted = {"resource_type": "virtual:volume", "name": base.name, "properties": {"gigabytes": 10}}
    climate.http(climate.administrator).ok("POST", "/v2/resources", wanted)
    story = Story(climate, cinder, base, lab, on_end)
    undisturbed = story.live(lambda: pass_on)
    assert [len(volumes) for _, volumes, _ in undisturbed] == [2, 2 if on_end == "keep" else 0]
    assert [len(types) for types, _, _ in undisturbed] == [1, 0]
    for number in itertools.count(1):
        seen = story.live(lambda number=number: story.killing(number))
        assert seen == undisturbed, f"killed at step {number}"
        if story.kills == 0:
            break
    assert number > 3
