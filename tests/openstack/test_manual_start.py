"""Users start and stop servers and volumes of their leases, on a real cloud."""

from typing import Any

import pytest

from tests.openstack import guests, settings
from tests.openstack.accounts import Account, Project
from tests.openstack.conftest import Deploy
from tests.openstack.deployment import Deployment
from tests.openstack.storage import Base
from tests.openstack.test_instances import instances, remains
from tests.support.process import eventually

pytestmark = pytest.mark.timeout(300)

HOST = settings.HOSTS[0]
PLUGINS = ("physical.host.plugin", "virtual.instance.plugin", "virtual.volume.plugin")


def states(climate: Deployment, account: Account, lease_id: str) -> dict[str, str]:
    """Return the run state of each reservation of a lease, by resource type."""
    lease = climate.http(account).ok("GET", f"/v2/leases/{lease_id}")
    return {each["resource_type"]: each["run_state"] for each in lease["reservations"]}


def request(climate: Deployment, account: Account, lease_id: str, verb: str) -> None:
    """Start or stop all reservations of a lease, and wait until that is done."""
    http = climate.http(account)
    for reservation in http.ok("GET", f"/v2/leases/{lease_id}")["reservations"]:
        path = f"/v2/leases/{lease_id}/reservations/{reservation['id']}/{verb}"
        assert http.call("POST", path).status_code == 202
    done = {"start": "started", "stop": "stopped"}[verb]
    eventually(lambda: set(states(climate, account, lease_id).values()) == {done}, done, 60)


def counts(base: Base, lab: Project, volumes: str) -> tuple[int, int]:
    """Return the number of servers of the project, and of volumes of the reservation."""
    return len(list(lab.member.cloud.compute.servers())), len(base.volumes(volumes))


def test_servers_and_volumes_are_there_while_their_reservation_is_started(
    deploy: Deploy, base: Base, lab: Project
) -> None:
    options: dict[str, Any] = {"virtual:volume__cloud": "cinder", "manager__sync_interval": 1}
    climate = deploy("blazar", manager__plugins=",".join(PLUGINS), **options)
    base.register(climate.http(climate.administrator))
    manager = climate.start_manager()
    climate.register(HOST)
    _, image = guests.smallest(lab.member.cloud)
    server = {"imageRef": image, "networks": "none", "name": "web"}
    lease = climate.start_lease(
        lab.member,
        instances(2, on_start="manual", server=server),
        {
            "resource_type": "virtual:volume",
            "volume_type": base.name,
            "amount": 1,
            "size": 1,
            "on_start": "manual",
        },
    )
    guest, volumes = lease["reservations"]
    assert counts(base, lab, volumes["reserved_type"]) == (0, 0)
    request(climate, lab.member, lease["id"], "start")
    assert counts(base, lab, volumes["reserved_type"]) == (2, 1)
    request(climate, lab.member, lease["id"], "stop")
    assert counts(base, lab, volumes["reserved_type"]) == (0, 0)
    manager.kill()
    for reservation in (guest, volumes):
        path = f"/v2/leases/{lease['id']}/reservations/{reservation['id']}/start"
        climate.http(lab.member).call("POST", path)
    climate.start_manager()
    request(climate, lab.member, lease["id"], "start")
    assert counts(base, lab, volumes["reserved_type"]) == (2, 1)
    climate.end(lab.member, lease["id"])
    assert counts(base, lab, volumes["reserved_type"]) == (0, 0)
    assert remains(climate.cloud, guest["id"]) == []
