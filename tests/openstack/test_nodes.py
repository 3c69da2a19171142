"""A compute service with several nodes is reserved as a whole, and isolated on all of them."""

from pathlib import Path

import pytest
from openstack.connection import Connection

from tests.openstack import settings, traces
from tests.openstack.accounts import Project
from tests.openstack.conftest import Deploy
from tests.openstack.landing import Lander
from tests.support import servers

SERVICE, NODES = settings.SERVICE, settings.NODES
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def _service(cloud: Connection) -> None:
    """Skip the test if the cloud has no such service."""
    found = {node.name: node.service_details["host"] for node in cloud.compute.hypervisors(True)}
    if any(found.get(node) != SERVICE for node in NODES):
        servers.absent(
            "openstack", f"there is no compute service {SERVICE} with nodes {', '.join(NODES)}"
        )


@pytest.mark.parametrize(
    "isolation",
    ["blazar", pytest.param("tenancy", marks=pytest.mark.nightly("takes 15 seconds more"))],
)
def test_a_service_with_several_nodes_is_reserved_and_isolated_as_a_whole(
    isolation: str, deploy: Deploy, lander: Lander, lab: Project, others: Project, tmp_path: Path
) -> None:
    climate = deploy(isolation, [SERVICE])
    climate.start_manager()
    [host] = climate.register(SERVICE)
    assert host["hypervisor_hostname"] == SERVICE
    assert host["nodes"].split(",") == NODES
    for node in NODES:
        assert not lander.can_get_onto(lab, SERVICE, node=node)
    lease = climate.reserve(lab.member)
    climate.until(lab.member, lease["id"], "ACTIVE")
    [reservation] = lease["reservations"]
    assert traces.holders(climate.cloud, SERVICE) == [reservation["id"]]
    for node in NODES:
        assert lander.can_get_onto(lab, SERVICE, climate.hint(lease), node)
        assert not lander.can_get_onto(others, SERVICE, climate.hint(lease), node)
    assert climate.end(lab.member, lease["id"])["reservations"][0]["status"] == "deleted"
    assert traces.servers_on(climate.cloud, [SERVICE]) == []
    assert climate.are_free([SERVICE])
    with climate.shell(lab.reader, tmp_path) as shell:
        assert shell.read("lease", "show", lease["id"])["status"] == "TERMINATED"
    with climate.shell(climate.administrator, tmp_path) as shell:
        assert shell.read("host", "show", SERVICE)["reservable"] is True
