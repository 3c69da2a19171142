"""The driver for networks on Neutron.

climate creates a network in the lease's project, on a given segment. Neutron's default policy
allows only administrators to choose project and segment.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from oslo_config.cfg import ConfigOpts

from climate.core.lease.model import Lease, Reservation, Resource
from climate.plugins.networking.addressing import Segment
from climate.plugins.networking.base import Occupant
from climate.plugins.openstack.neutron import Neutron, marks

_TYPE, _PHYSICAL, _NUMBER = (
    f"provider:{name}" for name in ("network_type", "physical_network", "segmentation_id")
)
# The owners of ports that connect a network to routers: ROUTER_INTERFACE_OWNERS of neutron-lib.
# Neutron refuses to delete such a port.
_ROUTERS = (
    "network:router_interface",
    "network:router_interface_distributed",
    "network:ha_router_replicated_interface",
)


class NeutronNetworks:
    """The NetworkCloud for Neutron, as the section ``[neutron]`` configures it."""

    def __init__(self, conf: ConfigOpts) -> None:
        self.neutron = Neutron(conf, "networks")

    def segments(self) -> Iterable[Segment]:
        """Return nothing, because Neutron lists only the segments that it assigns itself."""
        return ()

    def occupants(
        self, endpoints: Collection[str], reservation_id: str | None = None
    ) -> Sequence[Occupant]:
        numbers = sorted({endpoint.rpartition(":")[2] for endpoint in endpoints})
        networks = self.neutron.fetch_any("networks", _NUMBER, numbers)
        records = [network for network in networks if _segment(network) in endpoints]
        if reservation_id is not None:
            records += self.neutron.tagged(reservation_id)
        return [_occupant(each) for each in {each["id"]: each for each in records}.values()]

    def create(self, lease: Lease, reservation: Reservation, endpoint: Resource) -> str:
        properties, params = endpoint.properties, reservation.params
        values: dict[str, Any] = {
            "name": params["network_name"],
            "project_id": lease.project_id,
            _TYPE: properties["network_type"],
            _NUMBER: int(properties["segment_id"]),
        }
        if properties["physical_network"]:
            values[_PHYSICAL] = properties["physical_network"]
        return self.neutron.create(reservation.id, values, params["network_description"])

    def mark(self, occupant_id: str, reservation_id: str) -> None:
        self.neutron.mark(occupant_id, reservation_id)

    def unmark(self, occupant_id: str) -> None:
        self.neutron.unmark(occupant_id)

    def delete(self, occupant: Occupant) -> None:
        """Delete a network with its subnets and ports; before that, disconnect it from routers.

        Neutron itself deletes some other ports of a router with the last connection to it.
        """
        for port in self._ports(occupant.id):
            if port["device_owner"] in _ROUTERS:
                path = f"routers/{port['device_id']}/remove_router_interface"
                self.neutron.send("PUT", path, {"port_id": port["id"]}, missing=True)
        for port in self._ports(occupant.id):
            self.neutron.send("DELETE", f"ports/{port['id']}", missing=True)
        self.neutron.delete(occupant.id)

    def _ports(self, network_id: str) -> list[dict[str, Any]]:
        return self.neutron.fetch("ports", {"network_id": network_id})


def _segment(record: Mapping[str, Any]) -> str:
    return f"{record[_TYPE]}:{record[_PHYSICAL] or ''}:{record[_NUMBER]}"


def _occupant(record: Mapping[str, Any]) -> Occupant:
    return Occupant(
        what="network",
        id=record["id"],
        endpoint=_segment(record),
        project_id=record["project_id"],
        **marks(record),
    )
