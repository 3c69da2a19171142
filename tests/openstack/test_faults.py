"""Nova fails, is slow, or is changed behind our back: leases start and end all the same."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from blazarclient.exception import BlazarClientException

from tests.openstack import guests, settings, traces
from tests.openstack.accounts import Project
from tests.openstack.conftest import Deploy, MakeProject
from tests.openstack.deployment import Deployment
from tests.openstack.nova_proxy import Answer, Change, Fate, NovaProxy, refusal

pytestmark = pytest.mark.nightly

HOSTS = settings.HOSTS[:2]
ADD = "POST os-aggregates action add_host"


@pytest.fixture(scope="module")
def lab(project: MakeProject) -> Project:
    """Return the project whose leases these are."""
    return project("faults")


def unanswered(_: Change, forward: Callable[[], Answer]) -> Answer | None:
    """Have the connection break after Nova did it."""
    forward()
    return None


def done_but_500(_: Change, forward: Callable[[], Answer]) -> Answer | None:
    """Have Nova do it, and say that it did not."""
    forward()
    return refusal(500)


def done_by_another(_: Change, forward: Callable[[], Answer]) -> Answer | None:
    """Have somebody do the same a moment before."""
    forward()
    return forward()


def answering(status: int) -> Fate:
    """Have Nova refuse."""
    return lambda _, forward: refusal(status)


def once_for_each_kind(trouble: Fate) -> Fate:
    """Have trouble with the first change of each kind."""
    met: set[str] = set()

    def fate(change: Change, forward: Callable[[], Answer]) -> Answer | None:
        if change.kind in met:
            return forward()
        met.add(change.kind)
        return trouble(change, forward)

    return fate


def use(climate: Deployment, lab: Project, lease: dict[str, Any]) -> str:
    """Boot a server on each of a lease's hosts; return the reservation's id."""
    [reservation] = lease["reservations"]
    for host in climate.hosts_of(lease["id"]):
        hints = {"reservation": hint} if (hint := climate.hint(lease)) else {}
        server = guests.boot(lab.admin, "guest", host=host, scheduler_hints=hints)
        assert server.status == "ACTIVE", server.fault
    return str(reservation["id"])


def check_started(climate: Deployment, lease: dict[str, Any], hosts: list[str]) -> None:
    """See that a lease has its hosts, and nobody else."""
    reservation = lease["reservations"][0]["id"]
    assert [traces.holders(climate.cloud, host) for host in hosts] == len(hosts) * [[reservation]]
    found = traces.aggregates(climate.cloud)[reservation]["metadata"]
    assert lease["project_id"] in found.values()


def check_over(climate: Deployment, reservation_id: str, hosts: list[str]) -> None:
    """See that nothing is left of a reservation."""
    assert traces.servers_on(climate.cloud, hosts) == []
    assert reservation_id not in traces.aggregate_names(climate.cloud)
    assert climate.are_free(hosts)


TROUBLES = [
    pytest.param("blazar", answering(500), id="500"),
    pytest.param("tenancy", answering(409), id="409"),
    pytest.param("tenancy", done_but_500, id="500 though done"),
    pytest.param("blazar", unanswered, id="unanswered"),
]


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("isolation", "trouble"), TROUBLES)
def test_a_lease_starts_and_ends_although_each_step_fails_at_first(
    isolation: str, trouble: Fate, deploy: Deploy, nova: NovaProxy, lab: Project
) -> None:
    climate = deploy(isolation, nova__endpoint_override=nova.url)
    climate.start_manager()
    climate.register(*HOSTS)
    nova.begin(once_for_each_kind(trouble))
    lease = climate.reserve(lab.member, len(HOSTS))
    climate.until(lab.member, lease["id"], "ACTIVE")
    check_started(climate, lease, HOSTS)
    reservation = use(climate, lab, lease)
    nova.begin(once_for_each_kind(trouble))
    climate.end(lab.member, lease["id"])
    check_over(climate, reservation, HOSTS)


@pytest.mark.parametrize("isolation", ["blazar", "tenancy"])
def test_what_somebody_else_did_a_moment_before_is_no_failure(
    isolation: str, deploy: Deploy, nova: NovaProxy, lab: Project
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


def test_a_nova_that_is_away_for_a_while_is_waited_for(
    deploy: Deploy, nova: NovaProxy, lab: Project
) -> None:
    climate = deploy("blazar", nova__endpoint_override=nova.url)
    climate.start_manager()
    climate.register(*HOSTS)
    nova.away = True
    lease = climate.reserve(lab.member, len(HOSTS))
    climate.until(lab.member, lease["id"], "STARTING")
    time.sleep(3)
    assert climate.by(lab.member).lease.get(lease["id"])["status"] == "STARTING"
    nova.away = False
    climate.until(lab.member, lease["id"], "ACTIVE")
    check_started(climate, lease, HOSTS)
    reservation = use(climate, lab, lease)
    nova.away = True
    climate.end_soon(lab.member, lease["id"])
    climate.until(lab.member, lease["id"], "TERMINATING")
    time.sleep(3)
    assert climate.by(lab.member).lease.get(lease["id"])["status"] == "TERMINATING"
    nova.away = False
    climate.until(lab.member, lease["id"], "TERMINATED")
    check_over(climate, reservation, HOSTS)


def test_a_slow_nova_is_waited_for(deploy: Deploy, nova: NovaProxy, lab: Project) -> None:
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


def test_servers_that_their_owner_deleted_are_not_missed(
    deploy: Deploy, nova: NovaProxy, lab: Project
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
def test_hosts_and_aggregates_that_an_operator_took_away_do_not_stop_the_end(
    isolation: str, deploy: Deploy, lab: Project
) -> None:
    climate = deploy(isolation)
    climate.start_manager()
    climate.register(*HOSTS)
    lease = climate.reserve(lab.member, len(HOSTS))
    climate.until(lab.member, lease["id"], "ACTIVE")
    reservation = lease["reservations"][0]["id"]
    compute = climate.cloud.compute
    [aggregate] = [one for one in compute.aggregates() if one.name == reservation]
    for host in HOSTS:
        compute.remove_host_from_aggregate(aggregate, host)
    compute.delete_aggregate(aggregate)
    climate.end(lab.member, lease["id"])
    check_over(climate, reservation, HOSTS)


def test_a_start_that_keeps_failing_is_an_error_with_a_reason_and_leaves_nothing(
    deploy: Deploy, nova: NovaProxy, lab: Project
) -> None:
    def refuse_the_second(change: Change, forward: Callable[[], Answer]) -> Answer | None:
        stubborn = change.kind == ADD and HOSTS[1].encode() in change.body
        return refusal(500) if stubborn else forward()

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


@pytest.mark.parametrize("trouble", [answering(500), done_but_500], ids=["500", "500 though done"])
def test_a_host_that_cannot_be_closed_is_not_registered(
    trouble: Fate, deploy: Deploy, nova: NovaProxy
) -> None:
    climate = deploy("blazar", nova__endpoint_override=nova.url)
    nova.begin(once_for_each_kind(trouble))
    with pytest.raises(BlazarClientException, match="a fault of the test") as refused:
        climate.register(HOSTS[0])
    assert refused.value.kwargs["code"] == 503
    assert ADD in nova.kinds
    assert climate.by(climate.administrator).host.list() == []
    assert traces.holders(climate.cloud, HOSTS[0]) == []
    climate.register(HOSTS[0])
    assert climate.are_free([HOSTS[0]])
