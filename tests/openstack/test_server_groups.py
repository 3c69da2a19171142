"""Clients of Blazar boot reserved instances with the hint of a server group, on a real cloud."""

from typing import Any

import pytest
from openstack.exceptions import BadRequestException

from tests.openstack import guests, settings
from tests.openstack.accounts import Project
from tests.openstack.conftest import Boot, Deploy
from tests.openstack.deployment import Deployment
from tests.openstack.killing import LeaseCycle
from tests.openstack.proxy import FaultyProxy
from tests.openstack.test_instances import PLUGINS, instances, remains

HOSTS = settings.HOSTS[:2]
OPTIONS = {"manager__plugins": PLUGINS, "nova__server_groups": "true"}
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def climate(deploy: Deploy) -> Deployment:
    """Return climate with two hosts."""
    made = deploy("blazar", **OPTIONS)
    made.start_manager()
    made.register(*HOSTS)
    return made


def groups(climate: Deployment, reservation_id: str) -> list[Any]:
    """Return the server groups of a reservation in all projects."""
    found = climate.cloud.compute.server_groups(all_projects=True)
    return [group for group in found if group.name == f"reservation:{reservation_id}"]


def test_members_boot_with_the_group_of_their_reservation(
    climate: Deployment, lab: Project, others: Project, boot: Boot
) -> None:
    lease = climate.start_lease(lab.member, instances(2, affinity=False))
    [reservation] = lease["reservations"]
    group, flavor = reservation["server_group_id"], reservation["flavor_id"]
    [stored] = groups(climate, reservation["id"])
    assert (stored.id, stored.policy, stored.project_id) == (group, "anti-affinity", lab.id)
    hints = {"group": group}
    booted = [boot(lab.member, f"{n}", flavor_id=flavor, scheduler_hints=hints) for n in range(2)]
    assert [server.status for server in booted] == ["ACTIVE", "ACTIVE"]
    assert len({guests.host_of(climate.administrator, server) for server in booted}) == 2
    with pytest.raises(BadRequestException):
        boot(others.member, "intruder", scheduler_hints=hints)
    climate.end(lab.member, lease["id"])
    assert groups(climate, reservation["id"]) == []
    assert remains(climate.cloud, reservation["id"]) == []


def test_without_affinity_there_is_neither_group_nor_trust(
    climate: Deployment, lab: Project
) -> None:
    lease = climate.start_lease(lab.member, instances(1))
    assert lease["reservations"][0]["server_group_id"] is None
    assert climate.trusts() == []


class Grouped(LeaseCycle):
    """Leases of an instance with a server group."""

    def reservations(self) -> list[dict[str, Any]]:
        return [instances(1, affinity=True)]

    def state(self, lease_id: str) -> Any:
        [reservation] = self._climate.http(self._lab.member).lease(lease_id)["reservations"]
        found = groups(self._climate, reservation["id"])
        return [group.policy for group in found]

    def use(self, lease_id: str) -> None:
        """Boot nothing: groups do not depend on servers."""


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_there_is_one_group_whenever_the_manager_is_killed(
    deploy: Deploy, lab: Project, nova: FaultyProxy
) -> None:
    climate = deploy(
        "blazar", manager__claim_timeout=1, nova__endpoint_override=nova.url, **OPTIONS
    )
    climate.register(*HOSTS)
    cycle = Grouped(climate, lab, nova)
    undisturbed = cycle.run_undisturbed()
    assert undisturbed == [["affinity"], []]
    assert cycle.check_each_kill(undisturbed) > 5
