"""Simulated floating IPs and networks, for demos and tests."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from typing import Any, ClassVar

from oslo_config.cfg import ConfigOpts

from climate.core.lease.model import Lease, Reservation, Resource
from climate.plugins.networking.addressing import Segment, Subnet
from climate.plugins.networking.base import Taker
from climate.plugins.simulated_journal import Journal, SimulatedFailure


class SimulatedPlaces:
    """What the clouds of all such types have in common (see PlaceCloud for the methods)."""

    #: What is made, in sentences and in the names of effects.
    what: ClassVar[str]
    effect: ClassVar[str]

    def __init__(self, conf: ConfigOpts) -> None:
        """Share the settings, and so the journal, with the hosts' cloud."""
        self.cloud = Journal(conf)

    def takers(self, places: Collection[str], reservation_id: str | None = None) -> Sequence[Taker]:
        """Return what is at the places, and what is of the reservation."""
        return [
            one
            for one in self.there().values()
            if one.place in places
            or (reservation_id is not None and one.reservation_id == reservation_id)
        ]

    def create(self, lease: Lease, mine: Reservation, place: Resource) -> str:
        """Make one; fails if the place is taken, as Neutron would."""
        return self.take(place.external_id, lease.project_id, mine.id)

    def take(self, place: str, project_id: str, reservation_id: str = "") -> str:
        """Make one of a reservation's, or of nobody's: what an operator may do, too."""
        if self.takers([place]):
            raise SimulatedFailure(f"{place} is taken")
        id_ = f"{self.effect}-{len(self.cloud.effects())}"
        details = {"place": place, "project": project_id, "reservation": reservation_id}
        self._act("create", id_, **details)
        return id_

    def mark(self, taker_id: str, reservation_id: str) -> None:
        """Write down whose it is."""
        there = self.there().get(taker_id)
        if there is not None and not (there.is_marked and there.reservation_id == reservation_id):
            self._act("mark", taker_id, reservation=reservation_id)

    def unmark(self, taker_id: str) -> None:
        """Write down that it is no reservation's any more."""
        there = self.there().get(taker_id)
        if there is not None and there.reservation_id is not None:
            self._act("unmark", taker_id)

    def use(self, taker_id: str, port_id: str) -> None:
        """Put a port to it, or it to a port: what a user of the cloud would do."""
        self._act("use", taker_id, port=port_id)

    def delete(self, taker: Taker) -> None:
        """Delete it, if it is there."""
        if taker.id in self.there():
            self._act("delete", taker.id)

    def there(self) -> dict[str, Taker]:
        """Return what the effects so far add up to, by id."""
        found: dict[str, Taker] = {}
        for one in self.cloud.effects():
            name, _, effect = one["effect"].partition("_")
            if effect != self.effect:
                continue
            if name == "create":
                found[one["id"]] = Taker(
                    what=self.what,
                    id=one["id"],
                    place=one["place"],
                    project_id=one["project"],
                    reservation_id=one["reservation"] or None,
                    is_marked=False,
                )
            elif name == "delete":
                found.pop(one["id"], None)
            elif one["id"] in found:
                found[one["id"]] = _changed(found[one["id"]], name, one)
        return found

    def _act(self, name: str, id_: str, **details: str) -> None:
        self.cloud.act(f"{name}_{self.effect}", id=id_, **details)


def _changed(taker: Taker, name: str, effect: Mapping[str, Any]) -> Taker:
    match name:
        case "mark":
            return replace(taker, reservation_id=effect["reservation"], is_marked=True)
        case "unmark":
            return replace(taker, reservation_id=None, is_marked=False)
        case _:
            return replace(taker, port_id=effect["port"])


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
