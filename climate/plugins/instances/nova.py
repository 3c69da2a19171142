"""Reserved instances on Nova: a private flavor, and slots for it in Placement.

A host with slots stays in the free pool, which keeps everybody off, and is in an aggregate of each
reservation besides. BlazarFilter lets flavors with ``aggregate_instance_extra_specs:reservation``
pass; AggregateMultiTenancyIsolation lets the project in that an aggregate names, with whatever
flavor, so AggregateTypeAffinityFilter must keep its other flavors off.

No server group is needed: together is all slots on one host, apart is one on each. And none could
be made: its owner is the project of the token that makes it.

The aggregate is made first and removed last, so that whatever is left can be found by it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from keystoneauth1.exceptions import NotFound
from novaclient import exceptions as refusals
from oslo_config.cfg import ConfigOpts

from climate.core.errors import InvalidInput
from climate.plugins.base import Asker, NotYet, Turn
from climate.plugins.hosts import nova
from climate.plugins.hosts.nova import Occupied
from climate.plugins.hosts.nova_nodes import MICROVERSION
from climate.plugins.instances.cloud import Boot, Flavor, Size, Slots
from climate.plugins.instances.nova_flavors import MARK, ReservedFlavors, flavor_name
from climate.plugins.instances.nova_servers import NovaServers
from climate.plugins.openstack import session
from climate.plugins.openstack.aggregates import AggregateChanges
from climate.plugins.openstack.placement_reservations import PlacementSlots
from climate.plugins.openstack.servers import Occupants, can_be_kept, keep_image
from climate.plugins.openstack.session import answers as _answers

_PAUSE = 0.2


class NovaInstances:
    """The InstanceCloud of ``[nova]``; hosts are named by their compute service."""

    acts_as_user = True

    def __init__(self, conf: ConfigOpts, turn: Turn) -> None:
        """Prepare the client; nothing is sent yet. Raises Misconfigured."""
        self._session = session.make_session(conf)
        self._nova = session.nova_client(conf, self._session)
        placement = session.adapter(conf, self._session, "placement", MICROVERSION)
        self._changes = AggregateChanges(self._nova, turn)
        self._flavors = ReservedFlavors(self._nova)
        self._slots = PlacementSlots(placement)
        self._occupants = Occupants(self._nova, placement)
        self._images = session.adapter(conf, self._session, "glance")
        self._servers = NovaServers(conf)
        self._patience: float = conf.nova.server_delete_wait

    def find_flavor(self, flavor_id: str, project_id: str) -> Flavor | None:
        """Return a flavor that is public, or open to the project."""
        with _answers():
            return self._flavors.find(flavor_id, project_id)

    def check_image(self, image_id: str, asker: Asker) -> None:
        """Look for the image as the asker, who sees other images than we do."""
        if asker.token is None:
            return
        token = {"X-Auth-Token": asker.token}
        with _answers("Glance"):
            try:
                self._images.get(
                    f"/v2/images/{quote(image_id, safe='')}", headers=token, authenticated=False
                )
            except NotFound:
                raise InvalidInput(f"Image {image_id} could not be found") from None

    def open_slots(self, reservation_id: str, project_id: str, size: Size) -> Mapping[str, Any]:
        """Make the aggregate, the resource class and the flavor, which only the project sees."""
        metadata = {
            MARK: reservation_id,
            "reservation": reservation_id,
            "filter_tenant_id": project_id,
            "instance_type": flavor_name(reservation_id),
        }
        present = self._aggregates().get(reservation_id)
        with _answers():
            aggregate = self._changes.ensure(present, reservation_id, None, metadata)
            self._slots.ensure_class(reservation_id)
            self._flavors.ensure(reservation_id, size)
            self._flavors.open(reservation_id, project_id)
        return {"aggregate_id": aggregate.id}

    def slot_hosts(self, reservation_id: str) -> Sequence[str]:
        """Return the hosts in the reservation's aggregate."""
        aggregate = self._aggregates().get(reservation_id)
        return sorted(aggregate.hosts) if aggregate else []

    def set_slots(self, reservation_id: str, host: str, count: int) -> None:
        """Put a host into the aggregate, and slots on it; raises Occupied if it cannot be shared.

        It cannot as long as somebody has it as a whole, whose end removes all servers on it.
        """
        aggregates = self._aggregates()
        if reservation_id not in aggregates:
            raise Occupied(f"aggregate {reservation_id} is gone, {host} cannot get into it")
        for name, one in aggregates.items():
            if nova.MARK in one.metadata and host in one.hosts:
                raise Occupied(f"{host} is still in aggregate {name}")
        with _answers():
            if host not in aggregates[reservation_id].hosts:
                self._changes.join(aggregates[reservation_id], host)
            self._slots.put(host, lambda: self._root(host), reservation_id, count)

    def boot(self, trust_id: str | None, boot: Boot) -> Sequence[str]:
        """Boot servers in the slots, as the user."""
        return self._servers.boot(trust_id, boot)

    def keep_images(self, reservation_id: str) -> None:
        """Keep an image, ``reserved_<name>``, of each server; raises NotYet while one is saved.

        A server of which Nova makes none (in ERROR, rescued, shelved) does not hold the room up.
        """
        servers = self.slot_servers(reservation_id)
        if saving := [one for one in servers if not self._is_kept(one, reservation_id)]:
            raise NotYet(f"images of servers {', '.join(saving)} are being saved")

    def _is_kept(self, server_id: str, occasion: str) -> bool:
        with _answers(), suppress(refusals.NotFound):
            server = self._nova.servers.get(server_id)
            return not can_be_kept(server) or keep_image(self._images, server, occasion)
        return True

    def clear_host(self, reservation_id: str, host: str) -> None:
        """Delete the servers in the slots, and the slots, and take the host from the aggregate."""
        self._evict(lambda: self._slots.servers(host, reservation_id))
        aggregate = self._aggregates().get(reservation_id)
        with _answers():
            self._slots.clear(host, reservation_id)
            if aggregate is not None and host in aggregate.hosts:
                self._changes.leave(aggregate, host)

    def close_slots(self, reservation_id: str) -> None:
        """Take the flavor from everybody."""
        with _answers():
            self._flavors.close(reservation_id)

    def delete_slots(self, reservation_id: str) -> None:
        """Delete what servers of the flavor are left, which are on no host, and all else."""
        self._evict(lambda: self._flavors.servers(reservation_id))
        aggregate = self._aggregates().get(reservation_id)
        with _answers():
            self._slots.delete_class(reservation_id)
            self._flavors.delete(reservation_id)
            for host in aggregate.hosts if aggregate else ():
                self._changes.leave(aggregate, host)
            with suppress(refusals.NotFound):
                if aggregate is not None:
                    aggregate.delete()

    def slots(self) -> Mapping[str, Slots]:
        """Return what there is, and what is left: aggregates, flavors, inventories, classes."""
        aggregates = self._aggregates()
        with _answers():
            counts, classes = self._slots.counts(), self._slots.reservations()
            flavors = self._flavors.named()
            # Pools may have single nodes, and flavors for those; Blazar has the same names.
            others = {name for name, one in aggregates.items() if nova.MARK in one.metadata}
            known = {name for name, one in aggregates.items() if MARK in one.metadata}
            known |= {id_ for mine in counts.values() for id_ in mine}
            known |= classes - flavors.keys()
            known |= {id_ for id_ in flavors.keys() - known if MARK in flavors[id_].get_keys()}
            return {
                id_: Slots(self._flavors.projects(id_), _hosts(aggregates.get(id_), id_, counts))
                for id_ in sorted(known - others)
            }

    def slot_servers(self, reservation_id: str, host: str | None = None) -> Sequence[str]:
        """Return the servers in the slots on a host, or on all of them and nowhere."""
        with _answers():
            if host is not None:
                return self._slots.servers(host, reservation_id)
            found = set(self._flavors.servers(reservation_id))
            for one in self.slot_hosts(reservation_id):
                found.update(self._slots.servers(one, reservation_id))
            return sorted(found)

    def _evict(self, find: Callable[[], list[str]]) -> None:
        """Delete the servers that are found until there are none; raises NotYet while some are."""
        until = time.monotonic() + self._patience
        while True:
            with _answers():
                left = find()
                self._occupants.delete(left)
            if not left:
                return
            if time.monotonic() > until:
                raise NotYet(f"servers {', '.join(left)} are still being deleted")
            time.sleep(_PAUSE)

    def _root(self, host: str) -> str:
        """Return the UUID of a host's provider; raises Occupied unless it has just one node."""
        nodes = [one.id for one in self._occupants.hypervisors() if one.service["host"] == host]
        if len(nodes) != 1:
            raise Occupied(f"{host} has {len(nodes)} nodes, and cannot be shared")
        return str(nodes[0])

    def _aggregates(self) -> dict[str, Any]:
        with _answers():
            return {found.name: found for found in self._nova.aggregates.list()}


def _hosts(
    aggregate: Any | None,  # noqa: ANN401 - novaclient's
    reservation_id: str,
    counts: Mapping[str, Mapping[str, int]],
) -> dict[str, int]:
    """Return how many slots can be used on each host that has, or had, any."""
    inside = aggregate.hosts if aggregate is not None else ()
    there = {host: mine[reservation_id] for host, mine in counts.items() if reservation_id in mine}
    return {host: there.get(host, 0) if host in inside else 0 for host in {*inside, *there}}
