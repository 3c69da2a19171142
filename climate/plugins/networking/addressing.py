"""Addresses of external networks, and the segments (VLAN, VXLAN, ...) that a cloud can use."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

Pool = tuple[IPv4Address, IPv4Address]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subnet:
    """An IPv4 subnet of an external network; the cloud itself takes addresses from its pools."""

    id: str
    network_id: str
    cidr: IPv4Network
    gateway: IPv4Address | None
    pools: Sequence[Pool]

    def spare(self) -> Iterator[IPv4Address]:
        """Yield the addresses that the cloud leaves to us."""
        return (one for one in self.cidr.hosts() if self.refusal(one) is None)

    def refusal(self, address: IPv4Address) -> str | None:
        """Return why an address of the subnet cannot be reserved, None if it can be."""
        edges = {self.cidr.network_address, self.cidr.broadcast_address}
        if self.cidr.num_addresses > len(edges) and address in edges:
            return f"{address} is the first or the last of subnet {self.id}"
        if address == self.gateway:
            return f"{address} is the gateway of subnet {self.id}"
        if any(first <= address <= last for first, last in self.pools):
            return f"{address} is in an allocation pool of subnet {self.id}: others may get it"
        return None


# Types whose segments are numbered in a physical network, and those that need none; the highest
# number of each.
_IN_PHYSICAL = {"vlan": 4094}
_OVERLAY = {"vxlan": 2**24 - 1, "geneve": 2**24 - 1, "gre": 2**32 - 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One segment; ``physical_network`` is empty for those that need none."""

    network_type: str
    physical_network: str
    number: int

    @classmethod
    def parse(cls, text: str) -> "Segment | None":
        """Return the segment that is written ``vlan:physnet1:101`` or ``vxlan::5001``, or None."""
        kind, _, rest = text.partition(":")
        physical, _, number = rest.rpartition(":")
        highest = {**_IN_PHYSICAL, **_OVERLAY}.get(kind)
        if highest is None or bool(physical) != (kind in _IN_PHYSICAL):
            return None
        if not (number.isascii() and number.isdecimal() and 1 <= int(number[:11]) <= highest):
            return None
        return cls(network_type=kind, physical_network=physical, number=int(number))

    def __str__(self) -> str:
        """Write it so that it can be read again."""
        return f"{self.network_type}:{self.physical_network}:{self.number}"
