"""Networks of Neutron, made for a project on a segment that was chosen.

Both may administrators only, by Neutron's default policy.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from oslo_config.cfg import ConfigOpts

from climate.core.lease.model import Lease, Reservation, Resource
from climate.plugins.networking.addressing import Segment
from climate.plugins.networking.base import Taker
from climate.plugins.openstack.neutron import Neutron, marks

_TYPE, _PHYSICAL, _NUMBER = (
    f"provider:{name}" for name in ("network_type", "physical_network", "segmentation_id")
)
_ROUTER = "network:router_interface"


class NeutronNetworks:
    """The NetworkCloud of ``[neutron]``."""

    def __init__(self, conf: ConfigOpts) -> None:
        """Prepare the client; nothing is sent yet. Raises Misconfigured."""
        self.neutron = Neutron(conf, "networks")

    def segments(self) -> Iterable[Segment]:
        """Return none: Neutron tells what it has for others only."""
        return ()

    def takers(self, places: Collection[str], reservation_id: str | None = None) -> Sequence[Taker]:
        """Return the networks on segments, and those with the tag of the reservation."""
        numbers = sorted({place.rpartition(":")[2] for place in places})
        there = self.neutron.chunks("networks", _NUMBER, numbers)
        found = [one for one in there if _segment(one) in places]
        if reservation_id is not None:
            found += self.neutron.tagged(reservation_id)
        return [_taker(one) for one in {one["id"]: one for one in found}.values()]

    def create(self, lease: Lease, mine: Reservation, place: Resource) -> str:
        """Make a network of the project."""
        properties = place.properties
        wanted: dict[str, Any] = {
            "name": mine.params["network_name"],
            "project_id": lease.project_id,
            _TYPE: properties["network_type"],
            _NUMBER: int(properties["segment_id"]),
        }
        if properties["physical_network"]:
            wanted[_PHYSICAL] = properties["physical_network"]
        return self.neutron.make(mine.id, wanted, mine.params["network_description"])

    def mark(self, taker_id: str, reservation_id: str) -> None:
        """Put the tags on it."""
        self.neutron.mark(taker_id, reservation_id)

    def unmark(self, taker_id: str) -> None:
        """Remove the tags, and then the description."""
        self.neutron.unmark(taker_id)

    def delete(self, taker: Taker) -> None:
        """Take it from routers, delete its ports, and then it with its subnets."""
        for port in self.neutron.fetch("ports", {"network_id": taker.id}):
            if port["device_owner"].startswith(_ROUTER):
                path = f"routers/{port['device_id']}/remove_router_interface"
                self.neutron.send("PUT", path, {"port_id": port["id"]}, missing=True)
            else:
                self.neutron.send("DELETE", f"ports/{port['id']}", missing=True)
        self.neutron.delete(taker.id)


def _segment(found: Mapping[str, Any]) -> str:
    return f"{found[_TYPE]}:{found[_PHYSICAL] or ''}:{found[_NUMBER]}"


def _taker(found: Mapping[str, Any]) -> Taker:
    return Taker(
        what="network",
        id=found["id"],
        place=_segment(found),
        project_id=found["project_id"],
        **marks(found),
    )
