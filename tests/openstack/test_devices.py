"""Leases of a flavor with devices book devices in Placement, and those that are declared.

No test starts a server with a device: that needs a device, and Cyborg for a device profile.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from blazarclient.exception import BlazarClientException
from openstack.connection import Connection

from tests.openstack import settings
from tests.openstack.accounts import Project
from tests.openstack.conftest import Deploy
from tests.openstack.test_traits import put

HERE, OTHER = settings.HOSTS[:2]
CLASS = f"CUSTOM_PCI_{uuid.uuid4().hex.upper()[:16]}"
ALIAS, PROFILE = "pci_passthrough:alias", "accel:device_profile"


@pytest.fixture
def _pci_devices(cloud: Connection) -> Iterator[None]:
    """Give HERE two providers with a device each, as nova-compute reports PCI devices."""
    put(cloud.placement, f"/resource_classes/{CLASS}")
    with _device(cloud, CLASS), _device(cloud, CLASS):
        yield
    cloud.placement.delete(f"/resource_classes/{CLASS}", microversion="1.38").raise_for_status()


@pytest.fixture
def _fpgas(cloud: Connection) -> Iterator[None]:
    """Give HERE two providers with an FPGA each, as Cyborg reports them."""
    with _device(cloud, "FPGA"), _device(cloud, "FPGA"):
        yield


@contextmanager
def _device(cloud: Connection, name: str) -> Iterator[None]:
    """Give HERE a child provider with a device of the resource class ``name``."""
    placement, nodes = cloud.placement, cloud.compute.hypervisors(True)
    [root] = [node.id for node in nodes if node.service_details["host"] == HERE]
    child = str(uuid.uuid4())
    made = {"name": f"climate-test-{child}", "uuid": child, "parent_provider_uuid": root}
    placement.post("/resource_providers", json=made, microversion="1.38").raise_for_status()
    inventories = {name: {"total": 1, "max_unit": 1}}
    body = {"resource_provider_generation": 0, "inventories": inventories}
    put(placement, f"/resource_providers/{child}/inventories", body)
    yield
    placement.delete(f"/resource_providers/{child}", microversion="1.38").raise_for_status()


@pytest.fixture
def pci_flavor(cloud: Connection, lab: Project) -> Iterator[str]:
    """Return the id of a flavor with two devices that only the project sees."""
    with _flavor(cloud, lab, {ALIAS: "gpu:2"}) as id_:
        yield id_


@pytest.fixture
def fpga_flavor(cloud: Connection, lab: Project) -> Iterator[str]:
    """Return the id of a flavor with a profile of two groups that only the project sees."""
    with _flavor(cloud, lab, {PROFILE: "two-fpgas"}) as id_:
        yield id_


@contextmanager
def _flavor(cloud: Connection, lab: Project, specs: dict[str, str]) -> Iterator[str]:
    made = cloud.compute.create_flavor(
        name=f"climate-devices-{lab.name}", vcpus=1, ram=64, disk=1, is_public=False
    )
    cloud.compute.create_flavor_extra_specs(made, specs)
    cloud.compute.flavor_add_tenant_access(made.id, lab.id)
    yield made.id
    cloud.compute.delete_flavor(made)


@pytest.mark.usefixtures("_pci_devices")
def test_a_lease_has_the_devices_of_its_flavor(
    deploy: Deploy, lab: Project, pci_flavor: str
) -> None:
    climate = deploy(
        "blazar",
        [HERE, OTHER],
        manager__plugins="physical.host.plugin,flavor.instance.plugin",
        nova__pci_aliases=f"gpu:{CLASS}",
    )
    climate.start_manager()
    climate.register(HERE)
    climate.register(OTHER, **{f"resources:{CLASS}": "2"})
    asked = {"resource_type": "flavor:instance", "flavor_id": pci_flavor}
    with pytest.raises(BlazarClientException, match="Not enough"):
        climate.reserve(lab.member, reservations=[{**asked, "amount": 3}])
    lease = climate.start_lease(lab.member, {**asked, "amount": 2})
    assert climate.hosts_of(lease["id"]) == [HERE, OTHER]
    reserved = climate.cloud.compute.get_flavor(lease["reservations"][0]["flavor_id"])
    assert reserved.extra_specs[ALIAS] == "gpu:2"
    assert f"resources:{CLASS}" not in reserved.extra_specs
    assert climate.audit() == []
    with pytest.raises(BlazarClientException, match="Not enough"):
        climate.reserve(lab.member, reservations=[{**asked, "amount": 1}])
    climate.end(lab.member, lease["id"])


@pytest.mark.usefixtures("_fpgas")
def test_a_lease_has_the_devices_of_its_device_profile(
    deploy: Deploy, lab: Project, fpga_flavor: str
) -> None:
    climate = deploy(
        "blazar",
        [HERE, OTHER],
        manager__plugins="physical.host.plugin,flavor.instance.plugin",
        nova__device_profiles="two-fpgas:FPGA=2",
    )
    climate.start_manager()
    [host, _] = climate.register(HERE, OTHER)
    assert host["resources:FPGA"] == "2"
    asked = {"resource_type": "flavor:instance", "flavor_id": fpga_flavor, "amount": 1}
    lease = climate.start_lease(lab.member, asked)
    assert climate.hosts_of(lease["id"]) == [HERE]
    reserved = climate.cloud.compute.get_flavor(lease["reservations"][0]["flavor_id"])
    assert reserved.extra_specs[PROFILE] == "two-fpgas"
    assert climate.audit() == []
    with pytest.raises(BlazarClientException, match=f"Not enough.*Taken by .*{lease['id']}"):
        climate.reserve(lab.member, reservations=[asked])
    climate.end(lab.member, lease["id"])
    assert climate.reserve(lab.member, reservations=[asked])["id"]
