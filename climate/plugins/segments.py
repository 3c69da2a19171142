"""Segments on which a cloud can have networks: VLANs of a physical network, or VXLANs and such."""

from dataclasses import dataclass

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
