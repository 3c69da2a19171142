"""From power off to a lease and back: a real BMC, a real Nova, and provisioners."""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openstack.connection import Connection

from climate.plugins.hosts.nova_services import REST
from tests.openstack import guests, traces
from tests.openstack.accounts import Project
from tests.openstack.conftest import Deploy
from tests.openstack.deployment import Deployment
from tests.openstack.landing import Lander
from tests.openstack.machines import Machine, machine
from tests.support.process import eventually
from tests.support.service import hosts


@pytest.fixture
def sleeper(cloud: Connection, tmp_path: Path) -> Iterator[Machine]:
    """Return a machine that was powered on once."""
    with machine(tmp_path, cloud) as made:
        made.commission()
        yield made


@pytest.fixture
def climate(sleeper: Machine, deploy: Deploy) -> Iterator[Deployment]:
    """Return climate with two provisioners that reach the registered machine."""
    made = deploy(
        "tenancy",
        [sleeper.host],
        manager__sync_interval=1.0,
        provisioning__enabled=True,
        provisioning__shortest=30,
        provisioning__longest=45,
        provisioning__interval=0.5,
        provisioning__power_off=True,
        provisioning__idle_time=5,
        provisioning__spare=0,
        provisioner__nodes_file=sleeper.nodes,
        provisioner__poll_interval=0.5,
        provisioner__claim_timeout=15,
    )
    for _ in range(2):
        made.start_provisioner()
    made.register(sleeper.host)
    yield made
    sleeper.clear()


def reserve(climate: Deployment, by: Project, seconds: float) -> dict[str, Any]:
    """Create a lease of one host that starts in ``seconds``."""
    start = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds)
    asked = {
        "name": "lease",
        "start": f"{start:%Y-%m-%dT%H:%M:%SZ}",
        "duration": 3600,
        "reservations": [hosts(1, 1)],
    }
    return dict(climate.http(by.member).ok("POST", "/v2/leases", asked))


def readiness(climate: Deployment, by: Project, lease: dict[str, Any]) -> dict[str, Any]:
    return dict(climate.http(by.reader).ok("GET", f"/v2/leases/{lease['id']}/readiness"))


def shutdowns(climate: Deployment, state: str) -> list[dict[str, Any]]:
    found = climate.http(climate.administrator).ok("GET", f"/v2/shutdowns?state={state}")
    return list(found["shutdowns"])


def until_off(climate: Deployment, sleeper: Machine) -> None:
    """Wait until climate has powered the machine off."""
    eventually(lambda: shutdowns(climate, "off"), f"{sleeper.host} is switched off")
    assert sleeper.started_at is None
    assert sleeper.service is not None
    assert (sleeper.service.status, sleeper.service.disabled_reason) == ("disabled", REST)


@pytest.mark.nightly("takes two minutes")
@pytest.mark.timeout(300)
def test_a_host_has_power_only_for_its_lease(
    sleeper: Machine, climate: Deployment, lander: Lander, lab: Project
) -> None:
    climate.start_manager()
    until_off(climate, sleeper)
    sleeper.until_nova_says("down")
    lease = reserve(climate, lab, 60)
    assert readiness(climate, lab, lease)["state"] is None
    eventually(lambda: readiness(climate, lab, lease)["state"] == "preparing", "it is asked for")
    eventually(lambda: readiness(climate, lab, lease)["state"] == "ready", "it is ready")
    assert readiness(climate, lab, lease)["early"] > 0
    assert sleeper.started_at is not None
    assert climate.are_free([sleeper.host])
    climate.until(lab.member, lease["id"], "ACTIVE")
    [reservation] = lease["reservations"]
    assert traces.holders(climate.cloud, sleeper.host) == [reservation["id"]]
    assert lander.can_get_onto(lab, sleeper.host)
    climate.end(lab.member, lease["id"])
    until_off(climate, sleeper)
    assert climate.are_free([sleeper.host])
    assert traces.servers_on(climate.cloud, [sleeper.host]) == []
    assert sleeper.bmc.switched == ["1", "0", "1", "0"]


@pytest.mark.nightly("takes 45 seconds")
@pytest.mark.timeout(300)
def test_a_host_is_not_ready_until_nova_gets_a_new_heartbeat(
    sleeper: Machine, climate: Deployment, lab: Project
) -> None:
    climate.start_manager()
    until_off(climate, sleeper)
    lease = reserve(climate, lab, 40)
    eventually(lambda: readiness(climate, lab, lease)["state"] == "ready", "it is ready")
    assert sleeper.started_at is not None
    assert sleeper.last_seen_at is not None
    assert sleeper.last_seen_at > sleeper.started_at
    assert sleeper.service is not None
    assert sleeper.service.status == "enabled"
    assert readiness(climate, lab, lease)["early"] > 0


@pytest.mark.timeout(300)
def test_a_host_with_a_server_keeps_its_power(
    sleeper: Machine, climate: Deployment, cloud: Connection
) -> None:
    # Only an administrator gets onto a free host, past all filters.
    server = guests.boot(
        climate.administrator, "in the way", availability_zone=f"nova:{sleeper.host}"
    )
    try:
        assert server.status == "ACTIVE", server.fault
        climate.start_manager()
        eventually(lambda: shutdowns(climate, "over"), "it was to be switched off, and was not")
        assert server.id in shutdowns(climate, "over")[0]["reason"]
        assert sleeper.started_at is not None
        assert sleeper.bmc.switched == ["1"]
    finally:
        guests.remove(cloud, server.id)
    until_off(climate, sleeper)
