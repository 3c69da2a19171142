"""Nova or Placement fails, or is away: reserved instances start and end all the same."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from openstack.connection import Connection

from tests.openstack import guests, settings, traces
from tests.openstack.accounts import Project
from tests.openstack.conftest import Deploy, MakeProject
from tests.openstack.deployment import Deployment
from tests.openstack.nova_proxy import Answer, Change, Fate, NovaProxy
from tests.openstack.test_faults import (
    done_but_500,
    done_by_another,
    unanswered,
)

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(240)]

HOSTS = settings.HOSTS[:2]
PLUGINS = "physical.host.plugin,virtual.instance.plugin"
ASKED = {
    "resource_type": "virtual:instance",
    "amount": 2,
    "vcpus": 1,
    "memory_mb": 64,
    "disk_gb": 1,
    "affinity": False,
    "resource_properties": "",
}


@pytest.fixture(scope="module")
def lab(project: MakeProject) -> Project:
    """Return the project whose leases these are."""
    return project("faults")


@pytest.fixture
def ways(cloud: Connection) -> Iterator[list[NovaProxy]]:
    """Return ways to Nova and to Placement on which things can go wrong."""
    with ExitStack() as made:
        services = (cloud.compute, cloud.placement)
        yield [made.enter_context(NovaProxy(one.get_endpoint())) for one in services]


@pytest.fixture
def climate(deploy: Deploy, ways: list[NovaProxy]) -> Deployment:
    """Return climate with two hosts, before anything goes wrong."""
    nova, placement = ways
    made = deploy(
        "blazar",
        manager__plugins=PLUGINS,
        nova__endpoint_override=nova.url,
        placement__endpoint_override=placement.url,
    )
    made.register(*HOSTS)
    return made


def once_for_kinds(trouble: Fate, those: range) -> Fate:
    """Have trouble with the first change of ``those`` kinds, counted from 0 as they come."""
    met: list[str] = []

    def fate(change: Change, forward: Callable[[], Answer]) -> Answer | None:
        if change.kind in met:
            return forward()
        met.append(change.kind)
        return trouble(change, forward) if len(met) - 1 in those else forward()

    return fate


def live(climate: Deployment, lab: Project, way: NovaProxy, make_fate: Callable[[], Fate]) -> None:
    """Have a lease live in spite of what its steps meet; nothing of it is left."""
    way.begin(make_fate())
    lease = climate.reserve(lab.member, reservations=[ASKED])
    climate.until(lab.member, lease["id"], "ACTIVE")
    check_used(climate, lab, lease["reservations"][0]["id"])
    way.begin(make_fate())
    climate.end(lab.member, lease["id"])
    check_over(climate, lease["reservations"][0]["id"])


def check_used(climate: Deployment, lab: Project, reservation: str) -> None:
    """See that two can be booted, one on each host."""
    booted = [guests.boot(lab.member, "guest", flavor_id=reservation) for _ in HOSTS]
    assert {guests.host_of(climate.administrator, one)[0] for one in booted} == set(HOSTS)


def check_over(climate: Deployment, reservation: str) -> None:
    """See that nothing is left of a reservation."""
    assert traces.servers_on(climate.cloud, HOSTS) == []
    assert reservation not in traces.aggregate_names(climate.cloud)
    nothing = {"class": False, "on": {}, "flavor": [], "for": []}
    assert traces.slots(climate.cloud, reservation) == nothing
    assert climate.are_free(HOSTS)


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(done_but_500, id="500 though done"),
        pytest.param(unanswered, id="unanswered"),
    ],
)
# Not too many at once: after five failures the next attempt is far away.
@pytest.mark.parametrize(
    ("number", "those"),
    [
        pytest.param(0, range(3), id="nova, first kinds of steps"),
        pytest.param(0, range(3, 9), id="nova, others"),
        pytest.param(1, range(9), id="placement"),
    ],
)
def test_instances_start_and_end_although_steps_fail_at_first(
    climate: Deployment,
    lab: Project,
    ways: list[NovaProxy],
    trouble: Fate,
    number: int,
    those: range,
) -> None:
    climate.start_manager()
    live(climate, lab, ways[number], lambda: once_for_kinds(trouble, those))


def test_what_somebody_else_did_a_moment_before_is_no_failure(
    climate: Deployment, lab: Project, ways: list[NovaProxy]
) -> None:
    manager = climate.start_manager()
    for way in ways:
        live(climate, lab, way, lambda: done_by_another)
    assert "failed" not in manager.errors


@pytest.mark.parametrize("number", [0, 1], ids=["nova", "placement"])
def test_a_service_that_is_away_for_a_while_is_waited_for(
    climate: Deployment, lab: Project, ways: list[NovaProxy], number: int
) -> None:
    climate.start_manager()
    ways[number].away = True
    lease = climate.reserve(lab.member, reservations=[ASKED])
    climate.until(lab.member, lease["id"], "STARTING")
    time.sleep(3)
    assert climate.by(lab.member).lease.get(lease["id"])["status"] == "STARTING"
    ways[number].away = False
    climate.until(lab.member, lease["id"], "ACTIVE")
    check_used(climate, lab, lease["reservations"][0]["id"])
    ways[number].away = True
    climate.end_soon(lab.member, lease["id"])
    time.sleep(3)
    ways[number].away = False
    climate.until(lab.member, lease["id"], "TERMINATED")
    check_over(climate, lease["reservations"][0]["id"])
