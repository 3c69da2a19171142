"""Addresses of external networks, and segments of networks (VLAN, VXLAN and others). Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

Pool = tuple[IPv4Address, IPv4Address]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subnet:
    """An IPv4 subnet of an external network.

    ``pools`` are the subnet's allocation pools, as pairs of first and last address. Neutron itself
    assigns the addresses in these pools, so climate cannot reserve them.
    """

    id: str
    network_id: str
    cidr: IPv4Network
    gateway: IPv4Address | None
    pools: Sequence[Pool]

    def spare(self) -> Iterator[IPv4Address]:
        """Yield the addresses that climate can reserve: Neutron never assigns them itself."""
        return (address for address in self.cidr.hosts() if self.refusal(address) is None)

    def refusal(self, address: IPv4Address) -> str | None:
        """Return why ``address`` cannot be reserved, as a text; None if it can."""
        edges = {self.cidr.network_address, self.cidr.broadcast_address}
        if self.cidr.num_addresses > len(edges) and address in edges:
            return f"{address} is the first or the last of subnet {self.id}"
        if address == self.gateway:
            return f"{address} is the gateway of subnet {self.id}"
        if any(first <= address <= last for first, last in self.pools):
            return f"{address} is in an allocation pool of subnet {self.id}: Neutron may assign it"
        return None


# The highest number of a segment, by type: types with and without a physical network.
_IN_PHYSICAL = {"vlan": 4094}
_OVERLAY = {"vxlan": 2**24 - 1, "geneve": 2**24 - 1, "gre": 2**32 - 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A segment of a network, such as a VLAN: its type, physical network and number.

    ``number`` is the VLAN id, or the id of the virtual network for overlay types (VXLAN, Geneve,
    GRE). ``physical_network`` is empty for overlay types.
    """

    network_type: str
    physical_network: str
    number: int

    @classmethod
    def parse(cls, text: str) -> "Segment | None":
        """Parse text such as ``vlan:physnet1:101`` or ``vxlan::5001``; return None if invalid."""
        kind, _, rest = text.partition(":")
        physical, _, number = rest.rpartition(":")
        highest = {**_IN_PHYSICAL, **_OVERLAY}.get(kind)
        if highest is None or bool(physical) != (kind in _IN_PHYSICAL):
            return None
        if not (number.isascii() and number.isdecimal() and 1 <= int(number[:11]) <= highest):
            return None
        return cls(network_type=kind, physical_network=physical, number=int(number))

    def __str__(self) -> str:
        return f"{self.network_type}:{self.physical_network}:{self.number}"
