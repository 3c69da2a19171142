"""Clients of Blazar boot reserved instances with the hint of a server group, on a real cloud."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from blazarclient.exception import BlazarClientException
from openstack.exceptions import BadRequestException

from tests.openstack import guests, settings
from tests.openstack.accounts import Project
from tests.openstack.conftest import Boot, Deploy
from tests.openstack.deployment import Deployment
from tests.openstack.proxy import Answer, Change, FaultyProxy
from tests.openstack.test_instances import PLUGINS, instances, remains
from tests.support.process import date, eventually

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
    made = climate.reserve(lab.member, reservations=[instances(2, affinity=False)])
    lease = climate.until(lab.member, made["id"], "ACTIVE")
    [reservation] = lease["reservations"]
    assert made["reservations"][0]["server_group_id"] == reservation["server_group_id"]
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


def test_the_group_of_a_lease_that_never_starts_is_deleted(
    climate: Deployment, lab: Project
) -> None:
    lease = climate.reserve(lab.member, start=date(60), reservations=[instances(1, affinity=True)])
    [reservation] = lease["reservations"]
    assert [group.id for group in groups(climate, reservation["id"])] == [
        reservation["server_group_id"]
    ]
    climate.by(lab.member).lease.delete(lease["id"])
    climate.until_gone(lab.member, lease["id"])
    assert groups(climate, reservation["id"]) == []


def test_without_affinity_there_is_neither_group_nor_trust(
    climate: Deployment, lab: Project
) -> None:
    lease = climate.start_lease(lab.member, instances(1))
    assert lease["reservations"][0]["server_group_id"] is None
    assert climate.trusts() == []


def test_no_group_remains_if_the_answer_of_nova_is_lost(
    deploy: Deploy, lab: Project, nova: FaultyProxy
) -> None:
    climate = deploy("blazar", nova__endpoint_override=nova.url, **OPTIONS)
    climate.start_manager()
    climate.register(HOSTS[0])
    made: list[Any] = []

    def lose(change: Change, forward: Callable[[], Answer]) -> Answer | None:
        answer = forward()
        if change.kind.startswith("POST os-server-groups"):
            made.append(json.loads(answer.body)["server_group"]["id"])
            return None
        return answer

    nova.fault = lose
    with pytest.raises(BlazarClientException, match="Nova failed"):
        climate.reserve(lab.member, reservations=[instances(1, affinity=True)])

    def ids() -> set[str]:
        return {group.id for group in climate.cloud.compute.server_groups(all_projects=True)}

    assert made
    eventually(lambda: not ids() & {*made}, "a manager deletes the group")
    eventually(lambda: not climate.query("SELECT id FROM leases"), "and then the lease")
