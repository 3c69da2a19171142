"""Leases start and end although Nova fails, is slow, or is changed outside of climate."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from blazarclient.exception import BlazarClientException

from tests.openstack import guests, settings, traces
from tests.openstack.accounts import Project
from tests.openstack.conftest import Deploy
from tests.openstack.deployment import Deployment
from tests.openstack.proxy import Answer, Change, Fault, FaultyProxy, error_answer

pytestmark = pytest.mark.nightly

HOSTS = settings.HOSTS[:2]
ADD = "POST os-aggregates action add_host"


def unanswered(_: Change, forward: Callable[[], Answer]) -> Answer | None:
    """Close the connection after Nova made the change."""
    forward()
    return None


def done_but_500(_: Change, forward: Callable[[], Answer]) -> Answer | None:
    """Answer 500 after Nova made the change."""
    forward()
    return error_answer(500)


def done_by_another(_: Change, forward: Callable[[], Answer]) -> Answer | None:
    """Make the same change a moment before."""
    forward()
    return forward()


def reject_with(status: int) -> Fault:
    return lambda _, forward: error_answer(status)


def once_for_each_kind(fault: Fault, positions: range = range(99)) -> Fault:
    """Return a fault of the first change of each kind; ``positions`` select kinds by order."""
    kinds: list[str] = []

    def first_of_kind(change: Change, forward: Callable[[], Answer]) -> Answer | None:
        if change.kind in kinds:
            return forward()
        kinds.append(change.kind)
        return fault(change, forward) if len(kinds) - 1 in positions else forward()

    return first_of_kind


def use(climate: Deployment, lab: Project, lease: dict[str, Any]) -> str:
    """Boot a server on each of a lease's hosts; return the reservation's id."""
    [reservation] = lease["reservations"]
    for host in climate.hosts_of(lease["id"]):
        hints = {"reservation": hint} if (hint := climate.hint(lease)) else {}
        server = guests.boot(lab.admin, "guest", host=host, scheduler_hints=hints)
        assert server.status == "ACTIVE", server.fault
    return str(reservation["id"])


def check_started(climate: Deployment, lease: dict[str, Any], hosts: list[str]) -> None:
    """Check that only the lease's aggregate has its hosts."""
    reservation = lease["reservations"][0]["id"]
    assert [traces.holders(climate.cloud, host) for host in hosts] == len(hosts) * [[reservation]]
    found = traces.aggregates(climate.cloud)[reservation]["metadata"]
    assert lease["project_id"] in found.values()


def check_over(climate: Deployment, reservation_id: str, hosts: list[str]) -> None:
    """Check that nothing of the reservation remains in the cloud."""
    assert traces.servers_on(climate.cloud, hosts) == []
    assert reservation_id not in traces.aggregate_names(climate.cloud)
    assert climate.are_free(hosts)


FAULTS = [
    pytest.param("blazar", reject_with(500), id="500"),
    pytest.param("tenancy", reject_with(409), id="409"),
    pytest.param("tenancy", done_but_500, id="500 though done"),
    pytest.param("blazar", unanswered, id="unanswered"),
]


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("isolation", "fault"), FAULTS)
def test_a_lease_starts_and_ends_although_each_step_fails_at_first(
    isolation: str, fault: Fault, deploy: Deploy, nova: FaultyProxy, lab: Project
) -> None:
    climate = deploy(isolation, nova__endpoint_override=nova.url)
    climate.start_manager()
    climate.register(*HOSTS)
    nova.begin(once_for_each_kind(fault))
    lease = climate.reserve(lab.member, len(HOSTS))
    climate.until(lab.member, lease["id"], "ACTIVE")
    check_started(climate, lease, HOSTS)
    reservation = use(climate, lab, lease)
    nova.begin(once_for_each_kind(fault))
    climate.end(lab.member, lease["id"])
    check_over(climate, reservation, HOSTS)


@pytest.mark.parametrize("isolation", ["blazar", "tenancy"])
def test_a_change_that_was_made_a_moment_before_is_no_failure(
    isolation: str, deploy: Deploy, nova: FaultyProxy, lab: Project
) -> None:
    climate = deploy(isolation, nova__endpoint_override=nova.url)
    nova.begin(done_by_another)
    climate.register(*HOSTS)
    assert climate.are_free(HOSTS)
    manager = climate.start_manager()
    lease = climate.reserve(lab.member, len(HOSTS))
    climate.until(lab.member, lease["id"], "ACTIVE")
    check_started(climate, lease, HOSTS)
    reservation = use(climate, lab, lease)
    climate.end(lab.member, lease["id"])
    check_over(climate, reservation, HOSTS)
    assert "failed" not in manager.errors


def test_start_and_end_wait_for_an_absent_nova(
    deploy: Deploy, nova: FaultyProxy, lab: Project
) -> None:
    climate = deploy("blazar", nova__endpoint_override=nova.url)
    climate.start_manager()
    climate.register(*HOSTS)
    nova.away = True
    lease = climate.reserve(lab.member, len(HOSTS))
    climate.check_status_stays(lab.member, lease["id"], "STARTING")
    nova.away = False
    climate.until(lab.member, lease["id"], "ACTIVE")
    check_started(climate, lease, HOSTS)
    reservation = use(climate, lab, lease)
    nova.away = True
    climate.end_soon(lab.member, lease["id"])
    climate.check_status_stays(lab.member, lease["id"], "TERMINATING")
    nova.away = False
    climate.until(lab.member, lease["id"], "TERMINATED")
    check_over(climate, reservation, HOSTS)


def test_a_slow_nova_gets_no_change_twice(deploy: Deploy, nova: FaultyProxy, lab: Project) -> None:
    def slowly(_: Change, forward: Callable[[], Answer]) -> Answer | None:
        time.sleep(2)
        return forward()

    climate = deploy("blazar", nova__endpoint_override=nova.url)
    climate.start_manager()
    climate.register(HOSTS[0])
    nova.begin(slowly)
    lease = climate.reserve(lab.member)
    climate.until(lab.member, lease["id"], "ACTIVE")
    assert len(nova.kinds) == len(set(nova.kinds)), "nothing was done twice"
    reservation = use(climate, lab, lease)
    nova.begin(slowly)
    climate.end(lab.member, lease["id"])
    assert len(nova.kinds) == len(set(nova.kinds)), "nothing was done twice"
    check_over(climate, reservation, [HOSTS[0]])


def test_the_end_succeeds_if_the_owner_deletes_the_servers_meanwhile(
    deploy: Deploy, nova: FaultyProxy, lab: Project
) -> None:
    climate = deploy("tenancy", nova__endpoint_override=nova.url)
    climate.start_manager()
    climate.register(*HOSTS)
    lease = climate.reserve(lab.member, len(HOSTS))
    climate.until(lab.member, lease["id"], "ACTIVE")
    reservation = use(climate, lab, lease)

    def too_late(change: Change, forward: Callable[[], Answer]) -> Answer | None:
        if change.kind == "POST servers action forceDelete":
            guests.remove(lab.member.cloud, *traces.servers_on(climate.cloud, HOSTS))
        return forward()

    nova.begin(too_late)
    climate.end(lab.member, lease["id"])
    assert nova.kinds.count("POST servers action forceDelete") == 1
    check_over(climate, reservation, HOSTS)


@pytest.mark.parametrize("isolation", ["blazar", "tenancy"])
def test_the_end_succeeds_if_an_operator_deleted_the_aggregate(
    isolation: str, deploy: Deploy, lab: Project
) -> None:
    climate = deploy(isolation)
    climate.start_manager()
    climate.register(*HOSTS)
    lease = climate.reserve(lab.member, len(HOSTS))
    climate.until(lab.member, lease["id"], "ACTIVE")
    reservation = lease["reservations"][0]["id"]
    compute = climate.cloud.compute
    [aggregate] = [item for item in compute.aggregates() if item.name == reservation]
    for host in HOSTS:
        compute.remove_host_from_aggregate(aggregate, host)
    compute.delete_aggregate(aggregate)
    climate.end(lab.member, lease["id"])
    check_over(climate, reservation, HOSTS)


def test_a_start_that_keeps_failing_shows_the_reason_and_leaves_nothing(
    deploy: Deploy, nova: FaultyProxy, lab: Project
) -> None:
    def refuse_the_second(change: Change, forward: Callable[[], Answer]) -> Answer | None:
        stubborn = change.kind == ADD and HOSTS[1].encode() in change.body
        return error_answer(500) if stubborn else forward()

    climate = deploy("blazar", nova__endpoint_override=nova.url, manager__event_max_retries=1)
    manager = climate.start_manager()
    climate.register(*HOSTS)
    nova.begin(refuse_the_second)
    lease = climate.reserve(lab.member, len(HOSTS))
    failed = climate.until(lab.member, lease["id"], "ERROR")
    assert failed["reservations"][0]["status"] == "error"
    assert "a fault of the test" in manager.errors
    assert "a fault of the test" in climate.reason(lease["id"])
    nova.begin()
    climate.by(lab.member).lease.delete(lease["id"])
    climate.until_gone(lab.member, lease["id"])
    check_over(climate, lease["reservations"][0]["id"], HOSTS)


@pytest.mark.parametrize("fault", [reject_with(500), done_but_500], ids=["500", "500 though done"])
def test_a_host_that_cannot_be_closed_is_not_registered(
    fault: Fault, deploy: Deploy, nova: FaultyProxy
) -> None:
    climate = deploy("blazar", nova__endpoint_override=nova.url)
    nova.begin(once_for_each_kind(fault))
    with pytest.raises(BlazarClientException, match="a fault of the test") as refused:
        climate.register(HOSTS[0])
    assert refused.value.kwargs["code"] == 503
    assert ADD in nova.kinds
    assert climate.by(climate.administrator).host.list() == []
    assert traces.holders(climate.cloud, HOSTS[0]) == []
    climate.register(HOSTS[0])
    assert climate.are_free([HOSTS[0]])
