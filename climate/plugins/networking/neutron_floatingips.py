"""The driver for floating IPs on Neutron.

climate creates a floating IP in the lease's project, with a given address. Neutron's default policy
allows only administrators to choose project and address.
"""

from collections.abc import Collection, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from oslo_config.cfg import ConfigOpts

from climate.core.lease.model import Lease, Reservation, Resource
from climate.plugins.networking.addressing import Subnet
from climate.plugins.networking.base import Occupant
from climate.plugins.openstack.neutron import Neutron, marks

_IPV4 = 4


class NeutronFloatingips:
    """The FloatingipCloud for Neutron, as the section ``[neutron]`` configures it."""

    def __init__(self, conf: ConfigOpts) -> None:
        self.neutron = Neutron(conf, "floatingips")

    def subnets(self) -> Sequence[Subnet]:
        external = self.neutron.fetch("networks", {"router:external": "True"})
        ids = [network["id"] for network in external]
        subnets = self.neutron.fetch_any("subnets", "network_id", ids)
        return [_subnet(subnet) for subnet in subnets if subnet["ip_version"] == _IPV4]

    def occupants(
        self, endpoints: Collection[str], reservation_id: str | None = None
    ) -> Sequence[Occupant]:
        name = "floating_ip_address"
        records = list(self.neutron.fetch_any("floatingips", name, sorted(endpoints)))
        if reservation_id is not None:
            records += self.neutron.tagged(reservation_id)
        return [_occupant(each) for each in {each["id"]: each for each in records}.values()]

    def create(self, lease: Lease, reservation: Reservation, endpoint: Resource) -> str:
        values = {
            "floating_network_id": endpoint.properties["network_id"],
            "floating_ip_address": endpoint.external_id,
            "project_id": lease.project_id,
        }
        return self.neutron.create(reservation.id, values)

    def mark(self, occupant_id: str, reservation_id: str) -> None:
        self.neutron.mark(occupant_id, reservation_id)

    def unmark(self, occupant_id: str) -> None:
        self.neutron.unmark(occupant_id)

    def delete(self, occupant: Occupant) -> None:
        if occupant.port_id is not None:
            self.neutron.change(occupant.id, port_id=None)
        self.neutron.delete(occupant.id)


def _subnet(record: Mapping[str, Any]) -> Subnet:
    gateway = record["gateway_ip"]
    return Subnet(
        id=record["id"],
        network_id=record["network_id"],
        cidr=IPv4Network(record["cidr"]),
        gateway=IPv4Address(gateway) if gateway else None,
        pools=[
            (IPv4Address(pool["start"]), IPv4Address(pool["end"]))
            for pool in record["allocation_pools"]
        ],
    )


def _occupant(record: Mapping[str, Any]) -> Occupant:
    return Occupant(
        what="floating IP",
        id=record["id"],
        endpoint=record["floating_ip_address"],
        project_id=record["project_id"],
        network_id=record["floating_network_id"],
        port_id=record["port_id"],
        **marks(record),
    )
