"""Reservations with match open on a real cloud: servers use them although no one names them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from openstack.compute.v2.server import Server
from openstack.connection import Connection
from openstack.exceptions import BadRequestException

from tests.openstack import guests, settings, traces
from tests.openstack.accounts import Account, Project
from tests.openstack.conftest import Boot, Deploy
from tests.openstack.deployment import Deployment
from tests.openstack.landing import Lander
from tests.support.process import eventually
from tests.support.service import host_reservation

Reserve = Callable[[Connection, int], dict[str, Any]]
BootMany = Callable[[Account, str, int], list[Server]]

HOSTS = settings.HOSTS[:3]
PLUGINS = "physical.host.plugin,virtual.instance.plugin,flavor.instance.plugin"
# What Nova keeps of each host for itself (MiB).
RESERVED_MEMORY = 512
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def climate(deploy: Deploy, cloud: Connection, lab: Project) -> Deployment:
    cloud.compute.update_quota_set(lab.id, instances=-1, cores=-1, ram=-1)
    made = deploy("tenancy", manager__plugins=PLUGINS, manager__sync_interval=2)
    made.start_manager()
    made.register(*HOSTS)
    return made


def of_flavor(cloud: Connection, amount: int) -> dict[str, Any]:
    flavor_id, _ = guests.smallest(cloud)
    kind = {"resource_type": "flavor:instance", "flavor_id": flavor_id}
    return {**kind, "amount": amount, "match": "open"}


def of_size(cloud: Connection, amount: int, **fields: Any) -> dict[str, Any]:
    flavor = cloud.compute.get_flavor(guests.smallest(cloud)[0])
    size = {"vcpus": flavor.vcpus, "memory_mb": flavor.ram, "disk_gb": flavor.disk}
    kind = {"resource_type": "virtual:instance", "affinity": "None", "resource_properties": ""}
    return {**kind, **size, "amount": amount, "match": "open", **fields}


def boot_at_once(account: Account, flavor: str, count: int) -> list[Server]:
    """Boot servers with one request, as ``openstack server create --min`` does; return them."""
    _, image = guests.smallest(account.cloud)
    size = {"flavor_id": flavor, "image_id": image, "networks": "none"}
    account.cloud.compute.create_server(name="guest", min_count=count, max_count=count, **size)
    servers = list(account.cloud.compute.servers(name="guest"))
    assert len(servers) == count
    return [guests.settled(account.cloud, server.id) for server in servers]


def landed(climate: Deployment, servers: Iterable[Server]) -> Counter[str]:
    """Return the number of servers by host."""
    found = [guests.host_of(climate.administrator, server) for server in servers]
    return Counter(host[0] if host else "none" for host in found)


@pytest.fixture
def guest(climate: Deployment) -> Iterator[Callable[[Account, str, int], list[Server]]]:
    """Return ``boot_at_once``; the test deletes the servers at its end."""
    booted: list[str] = []

    def boot(account: Account, flavor: str, count: int) -> list[Server]:
        servers = boot_at_once(account, flavor, count)
        booted.extend(server.id for server in servers)
        return servers

    yield boot
    guests.remove(climate.cloud, *booted)


@pytest.mark.parametrize(
    "reservation",
    [of_flavor, pytest.param(of_size, marks=pytest.mark.nightly("takes 20 seconds more"))],
)
def test_ten_of_twelve_servers_use_the_reservation_and_others_get_none(
    climate: Deployment,
    lab: Project,
    others: Project,
    guest: BootMany,
    lander: Lander,
    reservation: Reserve,
) -> None:
    cloud = climate.cloud
    flavor, _ = guests.smallest(cloud)
    lease = climate.start_lease(lab.member, reservation(cloud, 10))
    reserved = set(climate.hosts_of(lease["id"]))
    assert climate.audit() == []
    assert not lander.can_get_onto_any(others, HOSTS)
    servers = guest(lab.member, flavor, 12)
    assert [server.fault for server in servers if server.status != "ACTIVE"] == []
    there = landed(climate, servers)
    assert sum(there[host] for host in reserved) == 10
    assert sum(there[host] for host in set(HOSTS) - reserved) == 0
    assert climate.audit() == []
    inside = [s for s in servers if set(landed(climate, [s])) <= reserved]
    climate.end(lab.member, lease["id"])
    gone = {server.id for server in servers if guests.is_gone(cloud, server.id)}
    assert gone == {server.id for server in inside}
    assert climate.audit() == []
    assert climate.are_free(HOSTS)
    assert traces.holds(cloud, HOSTS) == []


def test_a_deleted_server_makes_room_for_the_next_one(
    climate: Deployment, lab: Project, boot: Boot
) -> None:
    cloud = climate.cloud
    flavor, _ = guests.smallest(cloud)
    lease = climate.start_lease(lab.member, of_flavor(cloud, 1))
    reserved = set(climate.hosts_of(lease["id"]))
    first, second = (boot(lab.member, name, flavor_id=flavor) for name in ("first", "second"))
    assert set(landed(climate, [first])) == reserved
    assert not set(landed(climate, [second])) & set(HOSTS)
    guests.remove(cloud, first.id)
    own = lease["reservations"][0]["flavor_id"]
    third = boot(lab.member, "third", flavor_id=own)
    assert set(landed(climate, [third])) == reserved
    assert not set(landed(climate, [boot(lab.member, "fourth", flavor_id=flavor)])) & set(HOSTS)
    assert boot(lab.member, "fifth", flavor_id=own).status == "ERROR"


def test_live_migration_moves_running_servers_into_the_reservation_up_to_its_amount(
    climate: Deployment, lab: Project, boot: Boot
) -> None:
    """It leaves a server that does not fit where it is, and the end deletes those that moved."""
    cloud = climate.cloud
    first, second = (boot(lab.member, name) for name in ("first", "second"))
    lease = climate.start_lease(lab.member, of_flavor(cloud, 1))
    [host] = climate.hosts_of(lease["id"])
    assert host not in landed(climate, [first, second])
    cloud.compute.live_migrate_server(first.id, host=host, block_migration="auto")
    eventually(lambda: cloud.compute.get_server(first.id).task_state is None, "Nova has finished")
    with pytest.raises(BadRequestException, match="No valid host"):
        cloud.compute.live_migrate_server(second.id, host=host, block_migration="auto")
    eventually(lambda: cloud.compute.get_server(second.id).task_state is None, "Nova is idle")
    assert [landed(climate, [server])[host] for server in (first, second)] == [1, 0]
    assert {cloud.compute.get_server(server.id).status for server in (first, second)} == {"ACTIVE"}
    assert climate.audit() == []
    climate.end(lab.member, lease["id"])
    assert [guests.is_gone(cloud, server.id) for server in (first, second)] == [True, False]


def test_other_flavors_of_the_project_do_not_use_a_reserved_flavor(
    climate: Deployment, lab: Project, boot: Boot
) -> None:
    """Although the reservation has room for one of them."""
    flavors = climate.cloud.compute.flavors(is_public=True)
    smallest, other, *_ = sorted(flavors, key=lambda each: (each.ram, each.vcpus))
    count = -(-other.ram // smallest.ram) * other.vcpus * max(1, other.disk)
    climate.start_lease(lab.member, of_flavor(climate.cloud, count))
    server = boot(lab.member, "other", flavor_id=other.id)
    assert server.status == "ACTIVE"
    assert not set(landed(climate, [server])) & set(HOSTS)


def test_a_running_reservation_grows(climate: Deployment, lab: Project, guest: BootMany) -> None:
    flavor, _ = guests.smallest(climate.cloud)
    lease = climate.start_lease(lab.member, of_size(climate.cloud, 1))
    [reservation] = lease["reservations"]
    more = {"reservations": [{"id": reservation["id"], "amount": 3}]}
    climate.http(lab.member).ok("PUT", f"/v1/leases/{lease['id']}", more)
    eventually(lambda: climate.audit() == [], "the reservation has grown")
    [host] = climate.hosts_of(lease["id"])
    assert landed(climate, guest(lab.member, flavor, 4))[host] == 3


def test_servers_use_whole_hosts_first(
    climate: Deployment, lab: Project, guest: BootMany, lander: Lander, others: Project
) -> None:
    reservation = host_reservation(2, 2, before_end="", match="open")
    lease = climate.start_lease(lab.member, reservation)
    reserved = set(climate.hosts_of(lease["id"]))
    large = max(climate.cloud.compute.flavors(is_public=True), key=lambda each: each.ram)
    memory = climate.by(climate.administrator).host.list()[0]["memory_mb"]
    fitting = 2 * ((memory - RESERVED_MEMORY) // large.ram)
    there = landed(climate, guest(lab.member, large.id, fitting + 2))
    assert sum(there[host] for host in reserved) == fitting
    assert sum(there.values()) == fitting + 2
    assert "none" not in there
    assert not lander.can_get_onto_any(others, HOSTS)
