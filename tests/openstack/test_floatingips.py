"""Reservations of floating IPs on a real Neutron, by python-blazarclient."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from blazarclient.exception import BlazarClientException

from tests.openstack.accounts import Account, Project
from tests.openstack.addresses import SPARE, Public, temporary_network
from tests.openstack.conftest import Deploy
from tests.openstack.deployment import Deployment
from tests.openstack.proxy import Answer, Change, Fault, FaultyProxy, error_answer
from tests.openstack.test_faults import unanswered
from tests.support.process import eventually

pytestmark = pytest.mark.timeout(240)

FIRST, SECOND, THIRD = SPARE[:3]
MakeClimate = Callable[..., Deployment]


@pytest.fixture(scope="module")
def network(administrator: Account, lab: Project) -> Iterator[Public]:
    """Return an external network that the project can reach."""
    with temporary_network(administrator.cloud, lab.id) as made:
        yield made


@pytest.fixture
def public(network: Public) -> Iterator[Public]:
    """Return the network; the test deletes its floating IPs at its end."""
    yield network
    network.clear()


@pytest.fixture
def make_climate(public: Public, deploy: Deploy) -> MakeClimate:
    """Return a function that deploys climate with three addresses."""

    def make(**options: object) -> Deployment:
        given = {"manager__claim_timeout": 1, "manager__sync_interval": 1, **options}
        plugins = {
            "manager__plugins": "virtual.floatingip.plugin",
            "virtual:floatingip__cloud": "neutron",
        }
        made = deploy("blazar", (), **plugins, **given)
        for address in (FIRST, SECOND, THIRD):
            made.by(made.administrator).floatingip.create(public.id, address)
        return made

    return make


def reservation_of(
    public: Public, amount: int = 1, *required: str, **params: str
) -> dict[str, Any]:
    return {
        "resource_type": "virtual:floatingip",
        "network_id": public.id,
        "amount": amount,
        "required_floatingips": list(required),
        **params,
    }


def audit(climate: Deployment, *arguments: str) -> list[str]:
    return climate.manage("audit", *arguments)


# The whole life.


def test_a_lease_owns_its_addresses_from_start_to_end(
    make_climate: MakeClimate, public: Public, lab: Project
) -> None:
    climate = make_climate()
    climate.start_manager()
    lease = climate.start_lease(lab.member, reservation_of(public, 2, SECOND))
    [mine] = lease["reservations"]
    there = public.floatingips()
    assert mine["floatingips"] == {address: one.id for address, one in there.items()}
    assert len(there) == 2
    assert SECOND in there
    for item in there.values():
        assert item.project_id == lab.id
        assert sorted(item.tags) == ["blazar", "climate", f"reservation:{mine['id']}"]
    theirs = lab.member.cloud.network
    tagged = theirs.ips(tags=f"reservation:{mine['id']}")
    assert {item.id for item in tagged} == set(mine["floatingips"].values())
    theirs.update_ip(there[SECOND].id, port_id=public.port_id, description="mine")
    theirs.set_tags(there[SECOND], [])
    assert audit(climate) == []
    climate.by(lab.member).lease.update(lease["id"], reservations=[{"id": mine["id"], "amount": 3}])
    eventually(lambda: len(public.floatingips()) == 3, "the third address is there")
    eventually(lambda: audit(climate) == [], "the manager is done")
    climate.end(lab.member, lease["id"])
    assert public.floatingips() == {}
    assert audit(climate) == []


def test_the_project_creates_addresses_of_a_lease_with_on_start_nothing(
    make_climate: MakeClimate, public: Public, lab: Project
) -> None:
    climate = make_climate()
    climate.start_manager()
    lease = climate.start_lease(lab.member, reservation_of(public, 1, FIRST, on_start="nothing"))
    assert public.floatingips() == {}
    public.take(FIRST, lab.id)
    assert audit(climate) == []
    climate.end(lab.member, lease["id"])
    assert public.floatingips() == {}


def test_the_project_keeps_addresses_of_a_lease_with_on_end_keep(
    make_climate: MakeClimate, public: Public, lab: Project
) -> None:
    climate = make_climate()
    climate.start_manager()
    lease = climate.start_lease(lab.member, reservation_of(public, 1, FIRST, on_end="keep"))
    climate.end(lab.member, lease["id"])
    kept = public.floatingips()[FIRST]
    assert (kept.project_id, kept.tags, kept.description) == (lab.id, [], "")
    [line] = audit(climate, "--repair")
    assert f"{FIRST} can be reserved, and floating IP {kept.id}" in line
    eventually(lambda: not reservable(climate, FIRST), "it is booked no more")
    with pytest.raises(BlazarClientException, match="Not enough of the required floating IPs"):
        climate.reserve(lab.member, reservations=[reservation_of(public, 1, FIRST)])
    lab.member.cloud.network.delete_ip(kept.id)
    eventually(lambda: reservable(climate, FIRST), "it can be booked again")


def reservable(climate: Deployment, address: str) -> bool:
    found = climate.by(climate.administrator).floatingip.list()
    return bool(
        next(item["reservable"] for item in found if item["floating_ip_address"] == address)
    )


# What goes wrong.


@pytest.mark.nightly("takes 15 seconds; Nova and Heat stay away in others")
def test_start_and_end_wait_for_an_absent_neutron(
    make_climate: MakeClimate, public: Public, lab: Project, neutron: FaultyProxy
) -> None:
    climate = make_climate(neutron__endpoint_override=neutron.url)
    climate.start_manager()
    neutron.away = True
    lease = climate.reserve(lab.member, reservations=[reservation_of(public, 2)])
    climate.check_status_stays(lab.member, lease["id"], "STARTING")
    neutron.away = False
    climate.until(lab.member, lease["id"], "ACTIVE")
    assert len(public.floatingips()) == 2
    neutron.away = True
    climate.end_soon(lab.member, lease["id"])
    climate.check_status_stays(lab.member, lease["id"], "TERMINATING")
    assert len(public.floatingips()) == 2
    neutron.away = False
    climate.until(lab.member, lease["id"], "TERMINATED")
    assert public.floatingips() == {}


def test_a_start_shows_which_floating_ip_has_its_address(
    make_climate: MakeClimate, public: Public, lab: Project
) -> None:
    """Without a synchronisation before the start."""
    climate = make_climate(manager__sync_interval=3600, manager__event_max_retries=0)
    climate.start_manager()
    other = climate.start_lease(lab.member, reservation_of(public, 1, SECOND))
    taken = public.take(FIRST, climate.administrator.project_id)
    lease = climate.reserve(lab.member, reservations=[reservation_of(public, 1, FIRST)])
    climate.until(lab.member, lease["id"], "ERROR")
    assert f"{FIRST} is taken by floating IP {taken.id}" in climate.reason(lease["id"])
    climate.by(lab.member).lease.delete(lease["id"])
    climate.until_gone(lab.member, lease["id"])
    assert public.floatingips().keys() == {FIRST, SECOND}, "it is not ours to delete"
    public.cloud.network.delete_ip(taken)
    climate.end(lab.member, other["id"])


def test_a_start_beyond_the_quota_succeeds_after_the_quota_grows(
    make_climate: MakeClimate, public: Public, lab: Project, cloud: Any
) -> None:
    climate = make_climate(manager__event_max_retries=0)
    climate.start_manager()
    cloud.network.update_quota(lab.id, floating_ips=1)
    lease = climate.reserve(lab.member, reservations=[reservation_of(public, 2)])
    climate.until(lab.member, lease["id"], "ERROR")
    assert "Quota exceeded for resources: ['floatingip']" in climate.reason(lease["id"])
    cloud.network.delete_quota(lab.id)
    audit(climate, "--repair")  # an operator does not want to wait
    climate.until(lab.member, lease["id"], "ACTIVE")
    assert len(public.floatingips()) == 2
    climate.end(lab.member, lease["id"])
    assert public.floatingips() == {}


def test_an_audit_repairs_only_addresses_of_reservations(
    make_climate: MakeClimate, public: Public, lab: Project
) -> None:
    climate = make_climate(manager__sync_interval=3600)
    climate.start_manager()
    lease = climate.start_lease(lab.member, reservation_of(public, 1, FIRST))
    lab.member.cloud.network.delete_ip(public.floatingips()[FIRST])
    left = public.take(SECOND, lab.id)
    public.cloud.network.set_tags(left, ["climate", "reservation:one-that-is-gone"])
    others = public.take(THIRD, lab.id)
    unknown = public.take(SPARE[3], lab.id)
    public.cloud.network.set_tags(unknown, ["climate", "reservation:of-another-service"])
    found = audit(climate, "--repair")
    assert len(found) == 3, found
    eventually(lambda: FIRST in public.floatingips(), "it is made again")
    there = public.floatingips()
    assert there.keys() == {FIRST, THIRD, SPARE[3]}
    assert (there[THIRD].id, there[SPARE[3]].id) == (others.id, unknown.id)
    climate.end(lab.member, lease["id"])


# Each change fails.


@pytest.mark.nightly
@pytest.mark.parametrize(
    "fault", [lambda *_: error_answer(500), unanswered], ids=["500", "silence"]
)
def test_a_lease_starts_and_ends_although_every_change_fails_once(
    fault: Fault, make_climate: MakeClimate, public: Public, lab: Project, neutron: FaultyProxy
) -> None:
    failed: set[str] = set()

    def fail_once(change: Change, forward: Callable[[], Answer]) -> Answer | None:
        key = f"{change.method} {change.path}"
        if key in failed:
            return forward()
        failed.add(key)
        return fault(change, forward)

    climate = make_climate(neutron__endpoint_override=neutron.url, manager__event_max_retries=9)
    climate.start_manager()
    neutron.begin(fail_once)
    lease = climate.start_lease(lab.member, reservation_of(public, 1, FIRST))
    one = public.floatingips()[FIRST]
    assert len(one.tags) == 3
    lab.member.cloud.network.update_ip(one, port_id=public.port_id)
    climate.end(lab.member, lease["id"])
    assert public.floatingips() == {}
    assert {change.method for change in neutron.changes} == {"POST", "PUT", "DELETE"}
