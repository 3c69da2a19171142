"""Reservations of floating IPs on a real Neutron, by Blazar's own client; and what goes wrong."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from blazarclient.exception import BlazarClientException

from tests.openstack.accounts import Account, Project
from tests.openstack.addresses import SPARE, Public, passing_network
from tests.openstack.conftest import Deploy, MakeProject
from tests.openstack.deployment import Deployment
from tests.openstack.nova_proxy import Answer, Change, Fate, NovaProxy, refusal
from tests.support.process import eventually

pytestmark = pytest.mark.timeout(240)

FIRST, SECOND, THIRD = SPARE[:3]
MakeClimate = Callable[..., Deployment]


@pytest.fixture(scope="module")
def lab(project: MakeProject) -> Project:
    """Return the project whose leases these are."""
    return project("addresses")


@pytest.fixture(scope="module")
def network(administrator: Account, lab: Project) -> Iterator[Public]:
    """Return an external network of our own, which the project can reach."""
    with passing_network(administrator.cloud, lab.id) as made:
        yield made


@pytest.fixture
def public(network: Public) -> Iterator[Public]:
    """Return the network; its floating IPs go with the test."""
    yield network
    network.clear()


@pytest.fixture
def neutron(administrator: Account) -> Iterator[NovaProxy]:
    """Return a way to Neutron on which things can go wrong."""
    target = administrator.cloud.session.get_endpoint(service_type="network")
    with NovaProxy(target) as made:
        yield made


@pytest.fixture
def make_climate(public: Public, deploy: Deploy) -> MakeClimate:
    """Return a maker of a deployment with three addresses; it is stopped before these go."""

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


def asked(public: Public, amount: int = 1, *required: str, **params: str) -> dict[str, Any]:
    return {
        "resource_type": "virtual:floatingip",
        "network_id": public.id,
        "amount": amount,
        "required_floatingips": list(required),
        **params,
    }


def reserve(climate: Deployment, lab: Project, *reservations: dict[str, Any]) -> dict[str, Any]:
    return climate.reserve(lab.member, reservations=list(reservations))


def started(climate: Deployment, lab: Project, *reservations: dict[str, Any]) -> dict[str, Any]:
    """Make a lease that starts now, and return it when it has."""
    made = reserve(climate, lab, *reservations)
    return climate.until(lab.member, made["id"], "ACTIVE")


def audit(climate: Deployment, *arguments: str) -> list[str]:
    """Return what the audit has to say."""
    return climate.manage("audit", *arguments)


# The whole life.


def test_a_lease_has_its_addresses_from_its_start_to_its_end(
    make_climate: MakeClimate, public: Public, lab: Project
) -> None:
    climate = make_climate()
    climate.start_manager()
    lease = started(climate, lab, asked(public, 2, SECOND))
    [mine] = lease["reservations"]
    there = public.floatingips()
    assert mine["floatingips"] == {address: one.id for address, one in there.items()}
    assert len(there) == 2
    assert SECOND in there
    for one in there.values():
        assert one.project_id == lab.id
        assert sorted(one.tags) == ["blazar", "climate", f"reservation:{mine['id']}"]
    theirs = lab.member.cloud.network
    tagged = theirs.ips(tags=f"reservation:{mine['id']}")
    assert {one.id for one in tagged} == set(mine["floatingips"].values())
    theirs.update_ip(there[SECOND].id, port_id=public.port_id, description="mine")
    theirs.set_tags(there[SECOND], [])
    assert audit(climate) == []
    climate.by(lab.member).lease.update(lease["id"], reservations=[{"id": mine["id"], "amount": 3}])
    eventually(lambda: len(public.floatingips()) == 3, "the third address is there")
    eventually(lambda: audit(climate) == [], "the manager is done")
    climate.end(lab.member, lease["id"])
    assert public.floatingips() == {}
    assert audit(climate) == []


def test_addresses_that_are_promised_are_left_to_the_project(
    make_climate: MakeClimate, public: Public, lab: Project
) -> None:
    climate = make_climate()
    climate.start_manager()
    lease = started(climate, lab, asked(public, 1, FIRST, on_start="nothing"))
    assert public.floatingips() == {}
    public.take(FIRST, lab.id)
    assert audit(climate) == []
    climate.end(lab.member, lease["id"])
    assert public.floatingips() == {}


def test_addresses_can_stay_with_the_project(
    make_climate: MakeClimate, public: Public, lab: Project
) -> None:
    climate = make_climate()
    climate.start_manager()
    lease = started(climate, lab, asked(public, 1, FIRST, on_end="keep"))
    climate.end(lab.member, lease["id"])
    kept = public.floatingips()[FIRST]
    assert (kept.project_id, kept.tags, kept.description) == (lab.id, [], "")
    [line] = audit(climate, "--repair")
    assert f"{FIRST} can be reserved, and floating IP {kept.id}" in line
    eventually(lambda: not reservable(climate, FIRST), "it is booked no more")
    with pytest.raises(BlazarClientException, match="Not enough of the required floating IPs"):
        reserve(climate, lab, asked(public, 1, FIRST))
    lab.member.cloud.network.delete_ip(kept.id)
    eventually(lambda: reservable(climate, FIRST), "it can be booked again")


def reservable(climate: Deployment, address: str) -> bool:
    found = climate.by(climate.administrator).floatingip.list()
    return bool(next(one["reservable"] for one in found if one["floating_ip_address"] == address))


def test_the_openstack_command_does_it_all(
    make_climate: MakeClimate, public: Public, lab: Project, tmp_path: Path
) -> None:
    climate = make_climate()
    climate.start_manager()
    with climate.shell(climate.administrator, tmp_path) as admin:
        made = admin.read("floatingip", "create", public.id, SPARE[4])
        assert admin.read("floatingip", "show", made["id"]) == made
        assert made["id"] in [one["id"] for one in admin.read("floatingip", "list")]
        assert "allocation pool" in admin.refused("floatingip", "create", public.id, "203.0.113.9")
    with climate.shell(lab.member, tmp_path) as member:
        wish = f'network_id={public.id},amount=1,required_floatingips=["{SPARE[4]}"]'
        reservation = f"resource_type=virtual:floatingip,{wish}"
        lease = member.read("lease", "create", "mine", "--reservation", reservation)
        climate.until(lab.member, lease["id"], "ACTIVE")
        assert list(public.floatingips()) == [SPARE[4]]
        member.do("lease", "delete", "mine")
        climate.until_gone(lab.member, lease["id"])
        assert public.floatingips() == {}
    with climate.shell(climate.administrator, tmp_path) as admin:
        assert "Deleted" in admin.do("floatingip", "delete", made["id"])


# What goes wrong.


def test_a_neutron_that_is_away_for_a_while_is_waited_for(
    make_climate: MakeClimate, public: Public, lab: Project, neutron: NovaProxy
) -> None:
    climate = make_climate(neutron__endpoint_override=neutron.url)
    climate.start_manager()
    neutron.away = True
    lease = reserve(climate, lab, asked(public, 2))
    climate.until(lab.member, lease["id"], "STARTING")
    time.sleep(3)
    assert climate.by(lab.member).lease.get(lease["id"])["status"] == "STARTING"
    neutron.away = False
    climate.until(lab.member, lease["id"], "ACTIVE")
    assert len(public.floatingips()) == 2
    neutron.away = True
    climate.end_soon(lab.member, lease["id"])
    climate.until(lab.member, lease["id"], "TERMINATING")
    time.sleep(3)
    assert climate.by(lab.member).lease.get(lease["id"])["status"] == "TERMINATING"
    assert len(public.floatingips()) == 2
    neutron.away = False
    climate.until(lab.member, lease["id"], "TERMINATED")
    assert public.floatingips() == {}


def test_an_address_that_somebody_else_took_is_an_error_with_a_reason(
    make_climate: MakeClimate, public: Public, lab: Project
) -> None:
    """Had anybody looked before the start, the lease would have been refused."""
    climate = make_climate(manager__sync_interval=3600, manager__event_max_retries=0)
    climate.start_manager()
    other = started(climate, lab, asked(public, 1, SECOND))
    taken = public.take(FIRST, climate.administrator.project_id)
    lease = reserve(climate, lab, asked(public, 1, FIRST))
    climate.until(lab.member, lease["id"], "ERROR")
    assert f"{FIRST} is taken by floating IP {taken.id}" in climate.reason(lease["id"])
    climate.by(lab.member).lease.delete(lease["id"])
    climate.until_gone(lab.member, lease["id"])
    assert public.floatingips().keys() == {FIRST, SECOND}, "it is not ours to delete"
    public.cloud.network.delete_ip(taken)
    climate.end(lab.member, other["id"])


def test_a_start_beyond_the_quota_is_an_error_until_there_is_room(
    make_climate: MakeClimate, public: Public, lab: Project, cloud: Any
) -> None:
    climate = make_climate(manager__event_max_retries=0)
    climate.start_manager()
    cloud.network.update_quota(lab.id, floating_ips=1)
    lease = reserve(climate, lab, asked(public, 2))
    climate.until(lab.member, lease["id"], "ERROR")
    assert "Quota exceeded for resources: ['floatingip']" in climate.reason(lease["id"])
    cloud.network.delete_quota(lab.id)
    audit(climate, "--repair")  # an operator does not want to wait
    climate.until(lab.member, lease["id"], "ACTIVE")
    assert len(public.floatingips()) == 2
    climate.end(lab.member, lease["id"])
    assert public.floatingips() == {}


def test_an_audit_mends_what_is_ours_and_touches_nothing_else(
    make_climate: MakeClimate, public: Public, lab: Project
) -> None:
    climate = make_climate(manager__sync_interval=3600)
    climate.start_manager()
    lease = started(climate, lab, asked(public, 1, FIRST))
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


def unanswered(_: Change, forward: Callable[[], Answer]) -> Answer | None:
    """Have the connection break after Neutron did it."""
    forward()
    return None


@pytest.mark.nightly
@pytest.mark.parametrize("trouble", [lambda *_: refusal(500), unanswered], ids=["500", "silence"])
def test_a_lease_starts_and_ends_although_every_change_fails_once(
    trouble: Fate, make_climate: MakeClimate, public: Public, lab: Project, neutron: NovaProxy
) -> None:
    met: set[str] = set()

    def fate(change: Change, forward: Callable[[], Answer]) -> Answer | None:
        key = f"{change.method} {change.path}"
        if key in met:
            return forward()
        met.add(key)
        return trouble(change, forward)

    climate = make_climate(neutron__endpoint_override=neutron.url, manager__event_max_retries=9)
    climate.start_manager()
    neutron.begin(fate)
    lease = started(climate, lab, asked(public, 1, FIRST))
    one = public.floatingips()[FIRST]
    assert len(one.tags) == 3
    lab.member.cloud.network.update_ip(one, port_id=public.port_id)
    climate.end(lab.member, lease["id"])
    assert public.floatingips() == {}
    assert {change.method for change in neutron.changes} == {"POST", "PUT", "DELETE"}
