"""Floating IPs of Neutron, made for a project at an address that was chosen.

Both may administrators only, by Neutron's default policy.
"""

from collections.abc import Collection, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from oslo_config.cfg import ConfigOpts

from climate.core.lease.model import Lease, Reservation, Resource
from climate.plugins.networking.addressing import Subnet
from climate.plugins.networking.base import Taker
from climate.plugins.openstack.neutron import Neutron, marks

_IPV4 = 4


class NeutronFloatingips:
    """The FloatingipCloud of ``[neutron]``."""

    def __init__(self, conf: ConfigOpts) -> None:
        """Prepare the client; nothing is sent yet. Raises Misconfigured."""
        self.neutron = Neutron(conf, "floatingips")

    def subnets(self) -> Sequence[Subnet]:
        """Return the IPv4 subnets of all external networks."""
        external = self.neutron.fetch("networks", {"router:external": "True"})
        ids = [one["id"] for one in external]
        found = self.neutron.chunks("subnets", "network_id", ids)
        return [_subnet(one) for one in found if one["ip_version"] == _IPV4]

    def takers(self, places: Collection[str], reservation_id: str | None = None) -> Sequence[Taker]:
        """Return those at the addresses, and those with the tag of the reservation."""
        name = "floating_ip_address"
        found = list(self.neutron.chunks("floatingips", name, sorted(places)))
        if reservation_id is not None:
            found += self.neutron.tagged(reservation_id)
        return [_taker(one) for one in {one["id"]: one for one in found}.values()]

    def create(self, lease: Lease, mine: Reservation, place: Resource) -> str:
        """Make a floating IP of the project."""
        wanted = {
            "floating_network_id": place.properties["network_id"],
            "floating_ip_address": place.external_id,
            "project_id": lease.project_id,
        }
        return self.neutron.make(mine.id, wanted)

    def mark(self, taker_id: str, reservation_id: str) -> None:
        """Put the tags on it."""
        self.neutron.mark(taker_id, reservation_id)

    def unmark(self, taker_id: str) -> None:
        """Remove the tags, and then the description."""
        self.neutron.unmark(taker_id)

    def delete(self, taker: Taker) -> None:
        """Take it from its port, and delete it."""
        if taker.port_id is not None:
            self.neutron.change(taker.id, port_id=None)
        self.neutron.delete(taker.id)


def _subnet(found: Mapping[str, Any]) -> Subnet:
    gateway = found["gateway_ip"]
    return Subnet(
        id=found["id"],
        network_id=found["network_id"],
        cidr=IPv4Network(found["cidr"]),
        gateway=IPv4Address(gateway) if gateway else None,
        pools=[
            (IPv4Address(pool["start"]), IPv4Address(pool["end"]))
            for pool in found["allocation_pools"]
        ],
    )


def _taker(found: Mapping[str, Any]) -> Taker:
    return Taker(
        what="floating IP",
        id=found["id"],
        place=found["floating_ip_address"],
        project_id=found["project_id"],
        network_id=found["floating_network_id"],
        port_id=found["port_id"],
        **marks(found),
    )
