"""Networks in the cloud of made-up hosts: for demos and tests, never for use."""

from collections.abc import Iterable
from typing import ClassVar

from climate.plugins.segments import Segment
from climate.plugins.simulated_places import SimulatedPlaces


class SimulatedNetworks(SimulatedPlaces):
    """VLANs 101 to 116 of one physical network, ``sim``."""

    what: ClassVar[str] = "network"
    effect: ClassVar[str] = "network"

    def segments(self) -> Iterable[Segment]:
        """Return all of them."""
        return (
            Segment(network_type="vlan", physical_network="sim", number=number)
            for number in range(101, 117)
        )
