"""Simulated floating IPs and networks, for demonstrations and tests."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from typing import ClassVar

from oslo_config.cfg import ConfigOpts

from climate.core.lease.model import Lease, Reservation, Resource
from climate.plugins.networking.addressing import Segment, Subnet
from climate.plugins.networking.base import Occupant
from climate.plugins.simulated_journal import Journal, SimulatedFailure


class SimulatedEndpoints:
    """Simulated floating IPs or networks, whose state is computed from the changes in a journal."""

    #: The kind of the occupants in messages.
    what: ClassVar[str]
    #: The kind of the occupants in the names of effects.
    effect: ClassVar[str]

    def __init__(self, conf: ConfigOpts) -> None:
        self.journal = Journal(conf)

    def occupants(
        self, endpoints: Collection[str], reservation_id: str | None = None
    ) -> Sequence[Occupant]:
        return [
            occupant
            for occupant in self.occupants_by_id().values()
            if occupant.endpoint in endpoints
            or (reservation_id is not None and occupant.reservation_id == reservation_id)
        ]

    def create(self, lease: Lease, reservation: Reservation, endpoint: Resource) -> str:
        return self.occupy(endpoint.external_id, lease.project_id, reservation.id)

    def occupy(self, endpoint: str, project_id: str, reservation_id: str = "") -> str:
        """Create a floating IP or network, as an operator would do; return its id.

        ``endpoint`` is the address or segment. If ``reservation_id`` is set, the new object
        contains this id. Raises SimulatedFailure if another object uses the endpoint.
        """
        if self.occupants([endpoint]):
            raise SimulatedFailure(f"{endpoint} is taken")
        id_ = f"{self.effect}-{len(self.journal.effects())}"
        details = {"place": endpoint, "project": project_id, "reservation": reservation_id}
        self._act("create", id_, **details)
        return id_

    def mark(self, occupant_id: str, reservation_id: str) -> None:
        occupant = self.occupants_by_id().get(occupant_id)
        if occupant and not (occupant.is_marked and occupant.reservation_id == reservation_id):
            self._act("mark", occupant_id, reservation=reservation_id)

    def unmark(self, occupant_id: str) -> None:
        occupant = self.occupants_by_id().get(occupant_id)
        if occupant is not None and occupant.reservation_id is not None:
            self._act("unmark", occupant_id)

    def use(self, occupant_id: str, port_id: str) -> None:
        """Connect a floating IP or network to a port, as a user would do."""
        self._act("use", occupant_id, port=port_id)

    def delete(self, occupant: Occupant) -> None:
        if occupant.id in self.occupants_by_id():
            self._act("delete", occupant.id)

    def occupants_by_id(self) -> dict[str, Occupant]:
        """Return the present floating IPs or networks by id, computed from the journal."""
        occupants: dict[str, Occupant] = {}
        for record in self.journal.effects():
            name, _, effect = record["effect"].partition("_")
            if effect != self.effect:
                continue
            id_ = record["id"]
            if name == "create":
                occupants[id_] = Occupant(
                    what=self.what,
                    id=id_,
                    endpoint=record["place"],
                    project_id=record["project"],
                    reservation_id=record["reservation"] or None,
                    is_marked=False,
                )
            elif name == "delete":
                occupants.pop(id_, None)
            elif id_ in occupants and name == "use":
                occupants[id_] = replace(occupants[id_], port_id=record["port"])
            elif id_ in occupants:
                marks = {"reservation_id": record.get("reservation"), "is_marked": name == "mark"}
                occupants[id_] = replace(occupants[id_], **marks)
        return occupants

    def _act(self, name: str, id_: str, **details: str) -> None:
        self.journal.act(f"{name}_{self.effect}", id=id_, **details)


NETWORK = "sim-public"
# The addresses .2 to .100 can be reserved.
SUBNET = Subnet(
    id="sim-public-subnet",
    network_id=NETWORK,
    cidr=IPv4Network("198.51.100.0/24"),
    gateway=IPv4Address("198.51.100.1"),
    pools=[(IPv4Address("198.51.100.101"), IPv4Address("198.51.100.254"))],
)


class SimulatedFloatingips(SimulatedEndpoints):
    """Simulated floating IPs of a single external network, ``sim-public``."""

    what: ClassVar[str] = "floating IP"
    effect: ClassVar[str] = "floatingip"

    def subnets(self) -> Sequence[Subnet]:
        return [SUBNET]


class SimulatedNetworks(SimulatedEndpoints):
    """Simulated networks on the VLANs 101 to 116 of a single physical network, ``sim``."""

    what: ClassVar[str] = "network"
    effect: ClassVar[str] = "network"

    def segments(self) -> Iterable[Segment]:
        return (
            Segment(network_type="vlan", physical_network="sim", number=number)
            for number in range(101, 117)
        )
