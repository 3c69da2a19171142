"""Floating IPs in the cloud of made-up hosts: for demos and tests, never for use."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from oslo_config.cfg import ConfigOpts

from climate.core.lease import Lease, Reservation, Resource
from climate.plugins.addresses import Subnet
from climate.plugins.simulated import SimulatedCloud, SimulatedFailure
from climate.plugins.taker import Taker

NETWORK = "sim-public"
WHAT = "floating IP"
# Addresses .2 to .100 can be reserved.
SUBNET = Subnet(
    id="sim-public-subnet",
    network_id=NETWORK,
    cidr=IPv4Network("198.51.100.0/24"),
    gateway=IPv4Address("198.51.100.1"),
    pools=[(IPv4Address("198.51.100.101"), IPv4Address("198.51.100.254"))],
)


class SimulatedFloatingips:
    """One external network, ``sim-public`` (see FloatingipCloud for the methods)."""

    def __init__(self, conf: ConfigOpts) -> None:
        """Share the settings, and so the journal, with the hosts' cloud."""
        self.cloud = SimulatedCloud(conf)

    def subnets(self) -> Sequence[Subnet]:
        """Return the only one."""
        return [SUBNET]

    def takers(self, places: Collection[str], reservation_id: str | None = None) -> Sequence[Taker]:
        """Return those at the addresses, and those of the reservation."""
        return [
            one
            for one in self._there().values()
            if one.place in places
            or (reservation_id is not None and one.reservation_id == reservation_id)
        ]

    def create(self, lease: Lease, mine: Reservation, place: Resource) -> str:
        """Make one; fails if the address is taken, as Neutron would."""
        network_id = place.properties["network_id"]
        return self.take(place.external_id, lease.project_id, network_id, mine.id)

    def take(self, address: str, project_id: str, network_id: str, reservation_id: str = "") -> str:
        """Make a floating IP of a reservation's, or of nobody's: what an operator may do, too."""
        if self.takers([address]):
            raise SimulatedFailure(f"{address} of {network_id} is taken")
        number = len(self.cloud.effects())
        self.cloud.act(
            "create_floatingip",
            id=f"fip-{number}-{address}",
            address=address,
            project=project_id,
            reservation=reservation_id,
        )
        return f"fip-{number}-{address}"

    def mark(self, taker_id: str, reservation_id: str) -> None:
        """Write down whose it is."""
        there = self._there().get(taker_id)
        if there is not None and not (there.is_marked and there.reservation_id == reservation_id):
            self.cloud.act("mark_floatingip", id=taker_id, reservation=reservation_id)

    def unmark(self, taker_id: str) -> None:
        """Write down that it is no reservation's any more."""
        there = self._there().get(taker_id)
        if there is not None and there.reservation_id is not None:
            self.cloud.act("unmark_floatingip", id=taker_id)

    def associate(self, taker_id: str, port_id: str) -> None:
        """Put it at a port: what a user of the cloud would do."""
        self.cloud.act("associate_floatingip", id=taker_id, port=port_id)

    def delete(self, taker: Taker) -> None:
        """Delete it, if it is there."""
        if taker.id in self._there():
            self.cloud.act("delete_floatingip", id=taker.id)

    def _there(self) -> dict[str, Taker]:
        """Return what the effects so far add up to, by id."""
        found: dict[str, Taker] = {}
        for one in self.cloud.effects():
            if one["effect"] == "create_floatingip":
                found[one["id"]] = Taker(
                    id=one["id"],
                    what=WHAT,
                    place=one["address"],
                    project_id=one["project"],
                    reservation_id=one["reservation"] or None,
                    is_marked=False,
                )
            elif one["effect"] == "delete_floatingip":
                found.pop(one["id"], None)
            elif one.get("id") in found:
                found[one["id"]] = _changed(found[one["id"]], one)
        return found


def _changed(taker: Taker, effect: Mapping[str, Any]) -> Taker:
    match effect["effect"]:
        case "mark_floatingip":
            return replace(taker, reservation_id=effect["reservation"], is_marked=True)
        case "unmark_floatingip":
            return replace(taker, reservation_id=None, is_marked=False)
        case "associate_floatingip":
            return replace(taker, port_id=effect["port"])
    return taker
