"""An external network with a port to which floating IPs can be attached."""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from openstack.connection import Connection

# Six addresses can be reserved, .2 to .7; of the pool Neutron takes one for the router.
_CIDR, _POOL = "203.0.113.0/28", {"start": "203.0.113.8", "end": "203.0.113.14"}
SPARE = [f"203.0.113.{number}" for number in range(2, 8)]


@dataclass(frozen=True)
class Public:
    """An external network, and a port of the project that owns the router to it."""

    cloud: Connection
    id: str
    port_id: str

    def floatingips(self) -> dict[str, Any]:
        """Return all floating IPs of the network by address."""
        found = self.cloud.network.ips(floating_network_id=self.id)
        return {item.floating_ip_address: item for item in found}

    def take(self, address: str, project_id: str) -> Any:
        """Create a floating IP outside of climate."""
        return self.cloud.network.create_ip(
            floating_network_id=self.id, floating_ip_address=address, project_id=project_id
        )

    def clear(self) -> None:
        for ip in self.floatingips().values():
            self.cloud.network.delete_ip(ip)


@contextmanager
def temporary_network(cloud: Connection, project_id: str) -> Iterator[Public]:
    """Create the network, and a router and a port for a project; delete all of it at the end."""
    network, name = cloud.network, f"climate-{uuid.uuid4().hex[:6]}"
    mine = {"name": name, "project_id": project_id}
    with ExitStack() as undone:
        public = network.create_network(name=f"{name}-public", is_router_external=True)
        undone.callback(network.delete_network, public)
        network.create_subnet(
            network_id=public.id, ip_version=4, cidr=_CIDR, allocation_pools=[_POOL]
        )
        private = network.create_network(**mine)
        undone.callback(network.delete_network, private)
        subnet = network.create_subnet(
            network_id=private.id, ip_version=4, cidr="10.99.0.0/24", **mine
        )
        router = network.create_router(external_gateway_info={"network_id": public.id}, **mine)
        undone.callback(network.delete_router, router)
        network.add_interface_to_router(router, subnet.id)
        undone.callback(network.remove_interface_from_router, router, subnet.id)
        port = network.create_port(network_id=private.id, **mine)
        undone.callback(network.delete_port, port)
        made = Public(cloud, public.id, port.id)
        undone.callback(made.clear)
        yield made
