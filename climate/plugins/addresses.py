"""Addresses of external networks: which a cloud hands out, and which it leaves to us."""

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
