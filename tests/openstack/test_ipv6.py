"""IPv6 on a real Neutron: in reserved networks, and beside IPv4 in external networks."""

from collections.abc import Iterator
from typing import Any

import pytest
from openstack.connection import Connection
from openstack.exceptions import HttpException

from tests.openstack.accounts import Project
from tests.openstack.addresses import SPARE, Public
from tests.openstack.conftest import Deploy
from tests.openstack.deployment import Deployment

# A segment of this test only.
SEGMENT, NAME = "vxlan::3906", "climate-ipv6"
PLUGINS = "virtual.floatingip.plugin,virtual.network.plugin"


@pytest.fixture
def climate(deploy: Deploy) -> Deployment:
    neutron = {f"virtual:{name}__cloud": "neutron" for name in ("floatingip", "network")}
    made = deploy("blazar", (), manager__plugins=PLUGINS, **neutron)
    made.start_manager()
    return made


@pytest.fixture
def router(cloud: Connection, lab: Project) -> Iterator[str]:
    """Return the id of a highly available router, whose ports have an owner of their own kind."""
    made = cloud.network.create_router(name=NAME, project_id=lab.id, is_ha=True)
    yield made.id
    for port in cloud.network.ports(device_id=made.id):
        cloud.network.remove_interface_from_router(made.id, port_id=port.id)
    cloud.network.delete_router(made)
    for left in cloud.network.networks(name=NAME):  # if the test failed
        for port in cloud.network.ports(network_id=left.id):
            cloud.network.delete_port(port)
        cloud.network.delete_network(left)


def dual_stack(account: Any, network_id: str, router: str) -> list[str]:
    """Give a network three subnets, a router to all of them and a port; return its addresses."""
    network = account.cloud.network
    automatic = {"ipv6_address_mode": "slaac", "ipv6_ra_mode": "slaac"}
    for cidr, options in (
        ("10.97.0.0/24", {}),
        ("2001:DB8:97::/64", automatic),
        ("2001:db8:98:0::/64", automatic),
    ):
        subnet = network.create_subnet(
            network_id=network_id, cidr=cidr, ip_version=6 if options else 4, **options
        )
        network.add_interface_to_router(router, subnet.id)
    port = network.create_port(network_id=network_id)
    return [address["ip_address"] for address in port.fixed_ips]


def test_a_reserved_network_with_ipv6_subnets_is_deleted_at_the_end(
    climate: Deployment, lab: Project, router: str, cloud: Connection
) -> None:
    http = climate.http(climate.administrator)
    http.ok("POST", "/v2/resources", {"resource_type": "virtual:network", "name": SEGMENT})
    wanted = {"resource_type": "virtual:network", "network_name": NAME}
    lease = climate.start_lease(lab.member, wanted)
    [network_id] = lease["reservations"][0]["networks"].values()
    addresses = dual_stack(lab.member, network_id, router)
    assert sorted(address.split(":")[2] for address in addresses if ":" in address) == ["97", "98"]
    assert climate.manage("audit") == []
    climate.end(lab.member, lease["id"])
    assert cloud.network.find_network(network_id) is None
    assert list(cloud.network.ports(device_id=router)) == []


def test_an_external_network_with_both_versions_has_only_ipv4_floating_ips(
    climate: Deployment, lab: Project, public: Public, cloud: Connection
) -> None:
    cloud.network.create_subnet(network_id=public.id, ip_version=6, cidr="2001:db8:99::/64")
    http = climate.http(climate.administrator)
    register = {"resource_type": "virtual:floatingip", "name": f"{public.id}/2001:DB8:99:0::7"}
    refusal = http.call("POST", "/v2/resources", register)
    assert (refusal.status_code, refusal.json()["code"]) == (400, "ipv6_not_supported")
    with pytest.raises(HttpException, match="Unable to find any IP address"):
        public.take("2001:db8:99::7", lab.id)
    http.ok("POST", "/v2/resources", {**register, "name": f"{public.id}/{SPARE[0]}"})
    wanted = {"resource_type": "virtual:floatingip", "network_id": public.id}
    lease = climate.start_lease(lab.member, wanted)
    assert list(public.floatingips()) == [SPARE[0]]
    climate.end(lab.member, lease["id"])
