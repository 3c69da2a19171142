"""Leases of instances on a real cloud, in both modes of isolation."""

from collections.abc import Iterator
from typing import Any

import pytest
from blazarclient.exception import BlazarClientException
from openstack.connection import Connection
from openstack.exceptions import BadRequestException

from tests.openstack import guests, settings, traces
from tests.openstack.accounts import Project
from tests.openstack.conftest import Boot, Deploy
from tests.openstack.deployment import Deployment
from tests.openstack.landing import Lander
from tests.support.process import eventually

HOSTS = settings.HOSTS[:2]
pytestmark = pytest.mark.timeout(240)

PLUGINS = "physical.host.plugin,virtual.instance.plugin,flavor.instance.plugin"


def instances(amount: int = 3, **fields: Any) -> dict[str, Any]:
    """Return a request for instances, several of which fit on a host of the testbed."""
    return {
        "resource_type": "virtual:instance",
        "amount": amount,
        "vcpus": 1,
        "memory_mb": 64,
        "disk_gb": 1,
        "affinity": "None",
        "resource_properties": "",
        **fields,
    }


@pytest.fixture
def climate(request: pytest.FixtureRequest, deploy: Deploy) -> Deployment:
    """Return climate with two hosts, in the requested mode of isolation."""
    made = deploy(request.param, manager__plugins=PLUGINS, manager__sync_interval=2)
    made.start_manager()
    made.register(*HOSTS)
    return made


# In either mode.
both = pytest.mark.parametrize("climate", ["blazar", "tenancy"], indirect=True)


def remains(cloud: Connection, reservation: str) -> list[str]:
    """Return what the cloud still has of a reservation."""
    name = traces.resource_class(reservation)
    there = {
        "flavor": any(flavor.id == reservation for flavor in cloud.compute.flavors(is_public=None)),
        "aggregate": reservation in traces.aggregate_names(cloud),
        "class": any(item.name == name for item in cloud.placement.resource_classes()),
    }
    return [what for what, is_there in there.items() if is_there]


@both
def test_only_the_project_boots_the_reserved_number_and_the_end_deletes_them(
    climate: Deployment, lab: Project, others: Project, boot: Boot
) -> None:
    lease = climate.start_lease(lab.member, instances(3))
    [reservation] = lease["reservations"]
    flavor = reservation["flavor_id"]
    assert reservation["server_group_id"] is None
    assert isinstance(reservation["aggregate_id"], int)
    assert climate.audit() == []
    booted = [boot(lab.member, f"guest-{n}", flavor_id=flavor) for n in range(4)]
    assert [server.status for server in booted] == ["ACTIVE"] * 3 + ["ERROR"]
    on = {guests.service_of(climate.administrator, server) for server in booted[:3]}
    assert on <= set(HOSTS)
    with pytest.raises(BadRequestException, match="could not be found"):
        boot(others.member, "intruder", flavor_id=flavor)
    climate.end(lab.member, lease["id"])
    assert all(guests.is_gone(climate.cloud, server.id) for server in booted)
    assert remains(climate.cloud, flavor) == []
    assert climate.audit() == []
    assert climate.are_free(HOSTS)
    with pytest.raises(BadRequestException, match="could not be found"):
        boot(lab.member, "late", flavor_id=flavor)


@both
def test_other_flavors_do_not_get_onto_hosts_with_reserved_instances(
    climate: Deployment, lab: Project, others: Project, lander: Lander
) -> None:
    """Not even the project's own: the rest of the host is reserved for others."""
    for project in (lab, others):
        climate.start_lease(project.member, instances(2, affinity=False))
    for project in (lab, others):
        assert not lander.can_get_onto_any(project, HOSTS)


@both
def test_two_reservations_share_a_host(
    climate: Deployment, lab: Project, others: Project, boot: Boot
) -> None:
    mine = climate.start_lease(lab.member, instances(1, affinity=True))["reservations"][0]["id"]
    theirs = climate.start_lease(others.member, instances(2, affinity=True))["reservations"][0][
        "id"
    ]
    assert [boot(lab.member, "mine", flavor_id=mine).status for _ in "ab"] == ["ACTIVE", "ERROR"]
    for _ in "ab":
        assert boot(others.member, "theirs", flavor_id=theirs).status == "ACTIVE"
    with pytest.raises(BadRequestException):
        boot(others.member, "intruder", flavor_id=mine)


@pytest.mark.parametrize("climate", ["blazar"], indirect=True)
@pytest.mark.parametrize(("together", "count"), [(True, 1), (False, 2)])
def test_affinity_places_instances_without_a_server_group(
    climate: Deployment, lab: Project, boot: Boot, together: bool, count: int
) -> None:
    flavor = climate.start_lease(lab.member, instances(2, affinity=together))["reservations"][0][
        "id"
    ]
    booted = [boot(lab.member, f"guest-{n}", flavor_id=flavor) for n in range(2)]
    assert {server.status for server in booted} == {"ACTIVE"}
    assert len({guests.host_of(climate.administrator, server) for server in booted}) == count


@pytest.mark.parametrize("climate", ["blazar"], indirect=True)
def test_a_running_reservation_grows(climate: Deployment, lab: Project, boot: Boot) -> None:
    lease = climate.start_lease(lab.member, instances(1))
    [reservation] = lease["reservations"]
    more = {"reservations": [{"id": reservation["id"], "amount": 3}]}
    climate.http(lab.member).ok("PUT", f"/v1/leases/{lease['id']}", more)
    for number in range(3):
        eventually(
            lambda: (
                boot(lab.member, f"guest-{number}", flavor_id=reservation["id"]).status  # noqa: B023
                == "ACTIVE"
            ),
            "there is room",
        )


@pytest.mark.parametrize("climate", ["blazar"], indirect=True)
def test_placement_decides_how_many_instances_fit_on_a_host(
    climate: Deployment, lab: Project
) -> None:
    sizes = {host["vcpus"] for host in climate.by(climate.administrator).host.list()}
    [vcpus] = sizes
    asked = climate.http(lab.member)
    body = {"name": "too large", "start_date": "now", "end_date": "2031-01-01 00:00"}
    for size, status in ((vcpus + 1, 409), (vcpus, 201)):
        given = {**body, "reservations": [instances(1, vcpus=size)]}
        assert asked.call("POST", "/v1/leases", given).status_code == status


@pytest.mark.parametrize("climate", ["blazar"], indirect=True)
def test_the_audit_repairs_a_reservation_that_an_operator_changed(
    climate: Deployment, lab: Project, boot: Boot
) -> None:
    flavor = climate.start_lease(lab.member, instances(2))["reservations"][0]["id"]
    climate.cloud.compute.delete_flavor(flavor)
    [found] = climate.audit()
    assert f"{flavor}" in found
    assert "is open to no project" in found
    climate.audit("--repair")
    eventually(lambda: climate.audit() == [], "all is well")
    assert boot(lab.member, "guest", flavor_id=flavor).status == "ACTIVE"


@pytest.mark.parametrize("climate", ["blazar"], indirect=True)
def test_slots_of_a_failed_host_move_to_another_host(
    climate: Deployment, lab: Project, boot: Boot
) -> None:
    lease = climate.start_lease(lab.member, instances(2, affinity=True))
    flavor = lease["reservations"][0]["id"]
    lost = boot(lab.member, "on the lost", flavor_id=flavor)
    [host] = traces.slots(climate.cloud, flavor)["on"]
    host = host.removeprefix("climate_")
    [service] = climate.cloud.compute.services(host=host, binary="nova-compute")
    try:
        climate.cloud.compute.update_service_forced_down(service, host, "nova-compute")
        [other] = set(HOSTS) - {host}
        there = {f"climate_{other}": 2}
        eventually(lambda: traces.slots(climate.cloud, flavor)["on"] == there, "they have moved")
        assert guests.is_gone(climate.cloud, lost.id)
        again = [boot(lab.member, "there", flavor_id=flavor) for _ in "ab"]
        assert {guests.service_of(climate.administrator, item) for item in again} == {other}
    finally:
        climate.cloud.compute.update_service_forced_down(service, host, "nova-compute", False)


@pytest.mark.parametrize("climate", ["blazar"], indirect=True)
def test_the_end_keeps_a_server_with_an_unconfirmed_resize(
    climate: Deployment, lab: Project, boot: Boot
) -> None:
    """The owner has not confirmed the resize, so the server still occupies a reserved slot."""
    lease = climate.start_lease(lab.member, instances(1))
    server = boot(lab.member, "mover", flavor_id=lease["reservations"][0]["id"])
    compute = climate.cloud.compute
    lab.member.cloud.compute.resize_server(server, guests.smallest(climate.cloud)[0])
    eventually(lambda: compute.get_server(server.id).status == "VERIFY_RESIZE", "it has moved")
    climate.end(lab.member, lease["id"])
    moved = compute.get_server(server.id)
    assert moved.status == "ACTIVE"
    assert moved.compute_host not in HOSTS
    assert remains(climate.cloud, lease["reservations"][0]["id"]) == []


@pytest.fixture
def large(cloud: Connection, lab: Project) -> Iterator[str]:
    """Return the id of a flavor that only the project sees."""
    made = cloud.compute.create_flavor(
        name=f"climate-{lab.name}", vcpus=2, ram=128, disk=1, ephemeral=1, is_public=False
    )
    cloud.compute.create_flavor_extra_specs(made, {"resources:DISK_GB": "3"})
    cloud.compute.flavor_add_tenant_access(made.id, lab.id)
    yield made.id
    cloud.compute.delete_flavor(made)


@pytest.mark.parametrize("climate", ["blazar"], indirect=True)
def test_a_flavor_reservation_admits_servers_of_that_flavor(
    climate: Deployment, lab: Project, others: Project, boot: Boot, large: str
) -> None:
    asked = {"resource_type": "flavor:instance", "flavor_id": large, "amount": 2}
    with pytest.raises(BlazarClientException, match="could not be found"):
        climate.reserve(others.member, reservations=[asked])
    lease = climate.start_lease(lab.member, asked)
    [reservation] = lease["reservations"]
    flavor = climate.cloud.compute.get_flavor(reservation["flavor_id"])
    assert (flavor.vcpus, flavor.ram, flavor.disk, flavor.ephemeral) == (2, 128, 1, 1)
    assert flavor.extra_specs["resources:DISK_GB"] == "3"
    booted = [boot(lab.member, f"guest-{n}", flavor_id=flavor.id).status for n in range(3)]
    assert booted == ["ACTIVE", "ACTIVE", "ERROR"]
    assert climate.audit() == []
    climate.end(lab.member, lease["id"])
    assert remains(climate.cloud, flavor.id) == []
