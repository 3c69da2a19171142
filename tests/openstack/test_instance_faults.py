"""Reserved instances start and end although Nova or Placement fails or is absent."""

import time
from collections.abc import Callable

import pytest
from openstack.connection import Connection

from tests.openstack import guests, settings, traces
from tests.openstack.accounts import Project
from tests.openstack.conftest import Deploy, MakeProxy
from tests.openstack.deployment import Deployment
from tests.openstack.proxy import Fault, FaultyProxy
from tests.openstack.test_faults import (
    done_but_500,
    done_by_another,
    once_for_each_kind,
    unanswered,
)

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(240)]

HOSTS = settings.HOSTS[:2]
PLUGINS = "physical.host.plugin,virtual.instance.plugin"
INSTANCE_RESERVATION = {
    "resource_type": "virtual:instance",
    "amount": 2,
    "vcpus": 1,
    "memory_mb": 64,
    "disk_gb": 1,
    "affinity": False,
    "resource_properties": "",
}


@pytest.fixture
def proxies(cloud: Connection, make_proxy: MakeProxy) -> list[FaultyProxy]:
    """Return a proxy to Nova and one to Placement."""
    return [make_proxy(service.get_endpoint()) for service in (cloud.compute, cloud.placement)]


@pytest.fixture
def climate(deploy: Deploy, proxies: list[FaultyProxy]) -> Deployment:
    nova, placement = proxies
    made = deploy(
        "blazar",
        manager__plugins=PLUGINS,
        nova__endpoint_override=nova.url,
        placement__endpoint_override=placement.url,
    )
    made.register(*HOSTS)
    return made


def live(
    climate: Deployment, lab: Project, proxy: FaultyProxy, make_fault: Callable[[], Fault]
) -> None:
    """Run a lease whose start and end each meet a fault; check that nothing remains."""
    proxy.begin(make_fault())
    lease = climate.reserve(lab.member, reservations=[INSTANCE_RESERVATION])
    climate.until(lab.member, lease["id"], "ACTIVE")
    check_used(climate, lab, lease["reservations"][0]["id"])
    proxy.begin(make_fault())
    climate.end(lab.member, lease["id"])
    check_over(climate, lease["reservations"][0]["id"])


def check_used(climate: Deployment, lab: Project, reservation: str) -> None:
    """Check that a server can boot on each host."""
    booted = [guests.boot(lab.member, "guest", flavor_id=reservation) for _ in HOSTS]
    assert {guests.service_of(climate.administrator, server) for server in booted} == set(HOSTS)


def check_over(climate: Deployment, reservation: str) -> None:
    """Check that nothing of the reservation remains in the cloud."""
    assert traces.servers_on(climate.cloud, HOSTS) == []
    assert reservation not in traces.aggregate_names(climate.cloud)
    nothing = {"class": False, "on": {}, "flavor": [], "for": []}
    assert traces.slots(climate.cloud, reservation) == nothing
    assert climate.are_free(HOSTS)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(done_but_500, id="500 though done"),
        pytest.param(unanswered, id="unanswered"),
    ],
)
# Not too many at once: after five failures the next attempt is far away.
@pytest.mark.parametrize(
    ("number", "positions"),
    [
        pytest.param(0, range(3), id="nova, first kinds of steps"),
        pytest.param(0, range(3, 9), id="nova, others"),
        pytest.param(1, range(9), id="placement"),
    ],
)
def test_instances_start_and_end_although_steps_fail_at_first(
    climate: Deployment,
    lab: Project,
    proxies: list[FaultyProxy],
    fault: Fault,
    number: int,
    positions: range,
) -> None:
    climate.start_manager()
    live(climate, lab, proxies[number], lambda: once_for_each_kind(fault, positions))


def test_a_change_that_was_made_a_moment_before_is_no_failure(
    climate: Deployment, lab: Project, proxies: list[FaultyProxy]
) -> None:
    manager = climate.start_manager()
    for proxy in proxies:
        live(climate, lab, proxy, lambda: done_by_another)
    assert "failed" not in manager.errors


@pytest.mark.parametrize("number", [0, 1], ids=["nova", "placement"])
def test_start_and_end_wait_for_an_absent_service(
    climate: Deployment, lab: Project, proxies: list[FaultyProxy], number: int
) -> None:
    climate.start_manager()
    proxies[number].away = True
    lease = climate.reserve(lab.member, reservations=[INSTANCE_RESERVATION])
    climate.check_status_stays(lab.member, lease["id"], "STARTING")
    proxies[number].away = False
    climate.until(lab.member, lease["id"], "ACTIVE")
    check_used(climate, lab, lease["reservations"][0]["id"])
    proxies[number].away = True
    climate.end_soon(lab.member, lease["id"])
    time.sleep(3)
    proxies[number].away = False
    climate.until(lab.member, lease["id"], "TERMINATED")
    check_over(climate, lease["reservations"][0]["id"])
