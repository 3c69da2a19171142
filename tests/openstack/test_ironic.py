"""Single nodes of Ironic are reserved by resource class and traits, on a real cloud."""

import json
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from blazarclient.exception import BlazarClientException
from openstack.connection import Connection
from openstack.exceptions import BadRequestException

from tests.openstack import guests
from tests.openstack.accounts import Account, Project
from tests.openstack.conftest import Boot, Deploy
from tests.openstack.deployment import Deployment
from tests.openstack.testbed import ironic, layout
from tests.openstack.testbed.ironic import SERVICE, Metal
from tests.openstack.testbed.layout import Unreachable
from tests.support import servers
from tests.support.process import date, eventually
from tests.support.service import host_reservation

SMALL, LARGE, SSD = "CUSTOM_BAREMETAL_SMALL", "CUSTOM_BAREMETAL_LARGE", "CUSTOM_SSD"
# Ironic shows nodes without an owner only to users with the role ``service``.
SEES_NODES = {"service_user__username": "nova", "service_user__project_name": "service"}
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def metal(administrator: Account) -> Iterator[Metal]:
    """Run Ironic beside the testbed; skip if it cannot be installed or started here."""
    if not (layout.CONF / "nova.conf").exists():
        servers.absent("ironic", f"{layout.HOME} has no testbed: set OPENSTACK_DIR")
    user = {"username": "nova", "project_name": "service"}
    account = Account({**administrator.environment, **_as_ids(user)}, "service")
    try:
        with ironic.running(administrator.cloud, account.cloud) as made:
            yield made
    except Unreachable as error:
        servers.absent("ironic", str(error))


def _as_ids(user: dict[str, str]) -> dict[str, str]:
    return {f"OS_{name.upper()}": value for name, value in user.items()}


@pytest.fixture(scope="module")
def created(metal: Metal) -> dict[str, str]:
    """Return the resource classes of a small node with SSD, a small one, and a large one with SSD.

    The keys are the UUIDs of the nodes.
    """
    return {
        metal.create("metal-1", "baremetal.small", SSD): SMALL,
        metal.create("metal-2", "baremetal.small"): SMALL,
        metal.create("metal-3", "BAREMETAL_LARGE", SSD): LARGE,
    }


@pytest.fixture
def nodes(created: dict[str, str], cloud: Connection) -> list[str]:
    """Return the UUIDs of the nodes when Nova has noticed that all of them are available.

    Nova reports a node to Placement before its scheduler has found it: until then, Nova does not
    list the node.
    """
    for node, resource_class in created.items():
        until_reserved(cloud, node, resource_class, 0)
    eventually(lambda: created.keys() <= listed(cloud), "Nova lists the nodes", 60)
    return list(created)


def listed(cloud: Connection) -> set[str]:
    """Return the names of the hypervisors that Nova lists."""
    return {hypervisor.name for hypervisor in cloud.compute.hypervisors()}


def until_reserved(cloud: Connection, node: str, resource_class: str, amount: int) -> None:
    """Wait until Nova reports to Placement that it reserves ``amount`` of a node's class."""
    path = f"/resource_providers/{node}/inventories/{resource_class}"

    def found() -> bool:
        return bool(cloud.placement.get(path).json().get("reserved") == amount)

    eventually(found, f"{amount} of {resource_class} of {node} is reserved", 60)


@pytest.fixture
def unreserved(cloud: Connection) -> Iterator[str]:
    """Return the public flavor with which everybody boots on small nodes that are not reserved."""
    flavor = cloud.compute.create_flavor(name="small-metal", vcpus=1, ram=1, disk=1)
    needs = {"VCPU": "0", "MEMORY_MB": "0", "DISK_GB": "0", SMALL: "1"}
    specs = {f"resources:{name}": amount for name, amount in needs.items()}
    cloud.compute.create_flavor_extra_specs(flavor, specs)
    yield flavor.id
    cloud.compute.delete_flavor(flavor)


def registered(deploy: Deploy, isolation: str, nodes: list[str], **options: Any) -> Deployment:
    climate = deploy(isolation, [SERVICE], **options)
    climate.start_manager()
    climate.register(*nodes)
    return climate


def release(climate: Deployment) -> None:
    """Remove all nodes from climate, so that everybody can use them."""
    for host in climate.by(climate.administrator).host.list():
        climate.by(climate.administrator).host.delete(host["id"])


def metal_with(specs: dict[str, str]) -> dict[str, Any]:
    """Return a reservation of one node that satisfies the extra specs."""
    wanted = json.dumps(specs)
    return host_reservation(1, 1, resource_properties=wanted, before_end="")


@pytest.mark.parametrize("isolation", ["tenancy", "blazar"])
def test_a_node_is_reserved_by_class_and_trait(
    isolation: str,
    metal: Metal,
    nodes: list[str],
    unreserved: str,
    deploy: Deploy,
    boot: Boot,
    lab: Project,
    others: Project,
) -> None:
    climate = registered(deploy, isolation, nodes)
    found = {host["hypervisor_hostname"]: host for host in climate.by(lab.admin).host.list()}
    assert [found[node].get(f"resources:{SMALL}") for node in nodes] == ["1", "1", None]
    assert [found[node].get(f"trait:{SSD}") for node in nodes] == ["True", None, "True"]
    wanted = metal_with({f"resources:{SMALL}": "1", f"trait:{SSD}": "required"})
    lease = climate.start_lease(lab.member, wanted)
    flavor = lease["reservations"][0]["id"]
    server = boot(lab.member, "inside", flavor_id=flavor)
    assert server.status == "ACTIVE", server.fault
    assert guests.host_of(climate.administrator, server) == (SERVICE, nodes[0])
    assert metal.state(nodes[0]) == "active"
    # The lease has no second node, and neither free nor reserved nodes are open to others.
    assert boot(lab.member, "too many", flavor_id=flavor).status == "ERROR"
    assert boot(others.member, "outside", flavor_id=unreserved).status == "ERROR"
    with pytest.raises(BadRequestException, match="could not be found"):
        boot(others.member, "intruder", flavor_id=flavor)
    cleanings = metal.cleanings(nodes[0])
    climate.end(lab.member, lease["id"])
    assert guests.is_gone(climate.cloud, server.id)
    eventually(lambda: metal.state(nodes[0]) == "available", "the node is available again", 60)
    assert metal.cleanings(nodes[0]) == cleanings + 1
    assert boot(others.member, "still outside", flavor_id=unreserved).status == "ERROR"
    release(climate)
    until_reserved(climate.cloud, nodes[0], SMALL, 0)
    assert boot(others.member, "open", flavor_id=unreserved).status == "ACTIVE"


def test_a_lease_starts_when_its_node_is_available(
    metal: Metal, nodes: list[str], deploy: Deploy, boot: Boot, lab: Project
) -> None:
    # Managers do not read from Ironic that the node is in maintenance.
    climate = registered(deploy, "tenancy", nodes, manager__sync_interval=3600)
    metal.set_maintenance(nodes[2], on=True)
    until_reserved(climate.cloud, nodes[2], LARGE, 1)
    lease = climate.reserve(lab.member, reservations=[metal_with({f"resources:{LARGE}": "1"})])
    climate.check_status_stays(lab.member, lease["id"], "STARTING")
    metal.set_maintenance(nodes[2], on=False)
    climate.until(lab.member, lease["id"], "ACTIVE")
    server = boot(lab.member, "inside", flavor_id=lease["reservations"][0]["id"])
    assert guests.host_of(climate.administrator, server) == (SERVICE, nodes[2])
    climate.end(lab.member, lease["id"])
    release(climate)


def test_a_node_in_maintenance_is_not_booked_and_has_sizes(
    metal: Metal, nodes: list[str], deploy: Deploy, lab: Project
) -> None:
    climate = registered(deploy, "tenancy", nodes, manager__sync_interval=1, **SEES_NODES)
    hosts = climate.by(lab.admin).host

    def shown(node: str) -> dict[str, Any]:
        return next(host for host in hosts.list() if host["hypervisor_hostname"] == node)

    sizes = ("vcpus", "memory_mb", "local_gb")
    assert [shown(nodes[2])[name] for name in sizes] == [8, 4096, 20]
    wanted = metal_with({f"resources:{LARGE}": "1"})
    metal.set_maintenance(nodes[2], on=True)
    eventually(lambda: not shown(nodes[2])["reservable"], "the node is not reservable", 30)
    with pytest.raises(BlazarClientException, match="Not enough hosts"):
        climate.reserve(lab.member, reservations=[wanted])
    metal.set_maintenance(nodes[2], on=False)
    eventually(lambda: shown(nodes[2])["reservable"], "the node is reservable", 30)
    climate.end(lab.member, climate.start_lease(lab.member, wanted)["id"])
    release(climate)


@pytest.mark.nightly("takes a minute")
def test_the_cleaning_time_of_a_class_is_learned(
    metal: Metal, nodes: list[str], deploy: Deploy, boot: Boot, lab: Project
) -> None:
    # Managers synchronise only when they start. The one that ends the lease is killed before that.
    learning = {"cleaning__learned": "true", "DEFAULT__cleaning_time": 7}
    climate = deploy("tenancy", [SERVICE], manager__sync_interval=3600, **learning, **SEES_NODES)
    manager = climate.start_manager()
    climate.register(*nodes)
    wanted = metal_with({f"resources:{LARGE}": "1"})
    lease = climate.start_lease(lab.member, wanted)
    assert climate.booked_after(lease["id"]) == 7 * 60
    server = boot(lab.member, "inside", flavor_id=lease["reservations"][0]["id"])
    assert server.status == "ACTIVE", server.fault
    climate.end(lab.member, lease["id"])
    [(began,)] = climate.query("SELECT began_at FROM cleanings")
    manager.signal(signal.SIGKILL)
    eventually(lambda: metal.state(nodes[2]) == "available", "the node is available again", 60)
    climate.start_manager()

    def measured() -> list[Any]:
        return climate.query("SELECT resource_class, times FROM cleaning_times")

    eventually(lambda: bool(measured()), "the cleaning is measured", 60)
    [(resource_class, times)] = measured()
    assert resource_class == "BAREMETAL_LARGE"
    taken = metal.state_since(nodes[2]) - datetime.fromisoformat(began).replace(tzinfo=UTC)
    assert json.loads(times) == [pytest.approx(taken.total_seconds())]
    assert climate.query("SELECT * FROM cleanings") == []

    def is_learned() -> bool:
        later: dict[str, Any] = {"start": date(1000), "end": date(1060), "reservations": [wanted]}
        new = climate.reserve(lab.member, **later)
        booked = climate.booked_after(new["id"])
        climate.by(lab.member).lease.delete(new["id"])
        return taken.total_seconds() < booked < 3 * taken.total_seconds() + 1

    eventually(is_learned, "a new lease books its node for the learned time", 90)
    assert climate.booked_after(lease["id"]) == 7 * 60
    release(climate)
