"""Addresses of external networks as clouds have them, and the floating IPs that take some."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Floatingip:
    """A floating IP; with a ``reservation_id`` it was made for that reservation.

    ``is_marked`` says whether its owner can see that, too.
    """

    id: str
    address: str
    project_id: str
    port_id: str | None = None
    reservation_id: str | None = None
    is_marked: bool = True

    def __str__(self) -> str:
        """Say which it is and whose."""
        return f"floating IP {self.id} of project {self.project_id}"
