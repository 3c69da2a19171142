"""Floating IPs in the cloud of made-up hosts: for demos and tests, never for use."""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network
from typing import ClassVar

from climate.plugins.addresses import Subnet
from climate.plugins.simulated_places import SimulatedPlaces

NETWORK = "sim-public"
# Addresses .2 to .100 can be reserved.
SUBNET = Subnet(
    id="sim-public-subnet",
    network_id=NETWORK,
    cidr=IPv4Network("198.51.100.0/24"),
    gateway=IPv4Address("198.51.100.1"),
    pools=[(IPv4Address("198.51.100.101"), IPv4Address("198.51.100.254"))],
)


class SimulatedFloatingips(SimulatedPlaces):
    """One external network, ``sim-public``."""

    what: ClassVar[str] = "floating IP"
    effect: ClassVar[str] = "floatingip"

    def subnets(self) -> Sequence[Subnet]:
        """Return the only one."""
        return [SUBNET]
