"""The driver for instances on Nova: each reservation has a private flavor, and slots in Placement.

A slot is reserved capacity on a host for one instance. A host with slots stays in the free pool,
which is closed to all projects. In addition, each reservation has a host aggregate, which contains
the hosts with its slots. The filter that ``[nova] isolation`` selects decides which flavors may use
these hosts:

- BlazarFilter admits only flavors with the extra spec
  ``aggregate_instance_extra_specs:reservation``.
- AggregateMultiTenancyIsolation admits all flavors of the project. Therefore
  AggregateTypeAffinityFilter must reject the project's other flavors.

climate supports the parameter ``affinity`` without server groups of Nova: it puts the slots on one
host, or on different hosts. Only for clients of Blazar, it also creates server groups if the option
``[nova] server_groups`` is set.

climate creates a reservation's aggregate first and deletes it last. So an audit finds the objects
that an interrupted call has left in the cloud.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from keystoneauth1.exceptions import NotFound
from novaclient import exceptions as nova_errors
from oslo_config.cfg import ConfigOpts

from climate.core.errors import InvalidInput
from climate.plugins.base import NotYet, Requester, Turn
from climate.plugins.hosts.nova_hosts import MARK as HOST_MARK
from climate.plugins.hosts.nova_nodes import MICROVERSION
from climate.plugins.hosts.nova_pools import HostOccupied
from climate.plugins.instances.cloud import Boot, Flavor, Size, Slots
from climate.plugins.instances.nova_flavors import MARK, ReservedFlavors, flavor_name
from climate.plugins.instances.nova_groups import ServerGroups
from climate.plugins.instances.nova_servers import NovaServers
from climate.plugins.openstack import session
from climate.plugins.openstack.aggregates import AggregateChanges
from climate.plugins.openstack.placement_reservations import PlacementSlots
from climate.plugins.openstack.servers import HostServers, can_be_imaged, keep_image
from climate.plugins.openstack.session import answers as _answers


class NovaInstances:
    """The InstanceCloud for Nova, as the section ``[nova]`` configures it.

    The name of a host is that of its compute service.
    """

    acts_as_user = True

    def __init__(self, conf: ConfigOpts, turn: Turn) -> None:
        self._session = session.make_session(conf)
        self._nova = session.nova_client(conf, self._session)
        placement = session.adapter(conf, self._session, "placement", MICROVERSION)
        self._changes = AggregateChanges(self._nova, turn)
        self._flavors = ReservedFlavors(self._nova)
        self._slots = PlacementSlots(placement)
        self._host_servers = HostServers(self._nova, placement)
        self._images = session.adapter(conf, self._session, "glance")
        self._servers = NovaServers(conf)
        self._groups = ServerGroups(conf, self._session) if conf.nova.server_groups else None
        self._patience: float = conf.nova.server_delete_wait

    @property
    def makes_groups(self) -> bool:
        """Implement InstanceCloud.makes_groups."""
        return self._groups is not None

    def find_flavor(self, flavor_id: str, project_id: str) -> Flavor | None:
        with _answers():
            return self._flavors.find(flavor_id, project_id)

    def check_image(self, image_id: str, requester: Requester) -> None:
        """Raise InvalidInput if the requester cannot use the image.

        The request to Glance uses the requester's token, because climate's own user can use other
        images than the requester. If the requester has no token, the method accepts any image.
        """
        if requester.token is None:
            return
        token = {"X-Auth-Token": requester.token}
        with _answers("Glance"):
            try:
                self._images.get(
                    f"/v2/images/{quote(image_id, safe='')}", headers=token, authenticated=False
                )
            except NotFound:
                raise InvalidInput(f"Image {image_id} could not be found") from None

    def open_slots(self, reservation_id: str, project_id: str, size: Size) -> Mapping[str, Any]:
        """Create the host aggregate, resource class and flavor of a reservation.

        Returns ``{"aggregate_id": N}``, where N is Nova's id of the aggregate.
        """
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
        aggregate = self._aggregates().get(reservation_id)
        return sorted(aggregate.hosts) if aggregate else []

    def set_slots(self, reservation_id: str, host: str, count: int) -> None:
        """Set the number of slots (reserved capacity for one instance each) on a host.

        Raises HostOccupied while another reservation has the whole host, because climate deletes
        all servers on the host when that reservation ends.
        """
        aggregates = self._aggregates()
        if reservation_id not in aggregates:
            raise HostOccupied(f"aggregate {reservation_id} is gone: {host} cannot be added to it")
        for name, aggregate in aggregates.items():
            if HOST_MARK in aggregate.metadata and host in aggregate.hosts:
                raise HostOccupied(f"{host} is still in aggregate {name}")
        with _answers():
            if host not in aggregates[reservation_id].hosts:
                self._changes.join(aggregates[reservation_id], host)
            self._slots.put(host, lambda: self._root(host), reservation_id, count)

    def boot(self, trust_id: str | None, boot: Boot) -> Sequence[str]:
        return self._servers.boot(trust_id, boot)

    def make_group(self, requester: Requester, reservation_id: str, *, apart: bool) -> str:
        assert self._groups is not None  # noqa: S101 - makes_groups
        policy = "anti-affinity" if apart else "affinity"
        return self._groups.make(requester, reservation_id, policy)

    def delete_group(self, reservation_id: str) -> None:
        if self._groups is not None:
            self._groups.delete(reservation_id)

    def keep_images(self, reservation_id: str) -> None:
        """Create an image of each server whose state allows it (not ERROR, rescued, shelved)."""
        servers = self.slot_servers(reservation_id)
        if saving := [id_ for id_ in servers if not self._is_saved(id_, reservation_id)]:
            raise NotYet(f"images of servers {', '.join(saving)} are being saved")

    def _is_saved(self, server_id: str, occasion: str) -> bool:
        with _answers(), suppress(nova_errors.NotFound):
            server = self._nova.servers.get(server_id)
            return not can_be_imaged(server) or keep_image(self._images, server, occasion)
        return True

    def clear_host(self, reservation_id: str, host: str) -> None:
        self._host_servers.evict(lambda: self._slots.servers(host, reservation_id), self._patience)
        aggregate = self._aggregates().get(reservation_id)
        with _answers():
            self._slots.clear(host, reservation_id)
            if aggregate is not None and host in aggregate.hosts:
                self._changes.leave(aggregate, host)

    def close_slots(self, reservation_id: str) -> None:
        with _answers():
            self._flavors.close(reservation_id)

    def delete_slots(self, reservation_id: str) -> None:
        self._host_servers.evict(lambda: self._flavors.servers(reservation_id), self._patience)
        self.delete_group(reservation_id)
        aggregate = self._aggregates().get(reservation_id)
        with _answers():
            self._slots.delete_class(reservation_id)
            self._flavors.delete(reservation_id)
            for host in aggregate.hosts if aggregate else ():
                self._changes.leave(aggregate, host)
            if aggregate is not None:
                self._changes.delete(aggregate)

    def slots(self) -> Mapping[str, Slots]:
        """Return the slots of all reservations, even if some of their objects are missing."""
        aggregates = self._aggregates()
        with _answers():
            counts, classes = self._slots.counts(), self._slots.reservations()
            flavors = self._flavors.named()
            # Pools of hosts. Those with single nodes have flavors with the same names.
            others = {name for name, each in aggregates.items() if HOST_MARK in each.metadata}
            known = {name for name, each in aggregates.items() if MARK in each.metadata}
            known |= {id_ for by_reservation in counts.values() for id_ in by_reservation}
            known |= classes - flavors.keys()
            known |= {id_ for id_ in flavors.keys() - known if MARK in flavors[id_].get_keys()}
            return {
                id_: Slots(self._flavors.projects(id_), _hosts(aggregates.get(id_), id_, counts))
                for id_ in sorted(known - others)
            }

    def slot_servers(self, reservation_id: str, host: str | None = None) -> Sequence[str]:
        with _answers():
            if host is not None:
                return self._slots.servers(host, reservation_id)
            ids = set(self._flavors.servers(reservation_id))
            for slot_host in self.slot_hosts(reservation_id):
                ids.update(self._slots.servers(slot_host, reservation_id))
            return sorted(ids)

    def _root(self, host: str) -> str:
        """Return the UUID of a host's resource provider.

        Raises HostOccupied if the host has no node or several nodes.
        """
        hypervisors = self._host_servers.hypervisors()
        nodes = [node.id for node in hypervisors if node.service["host"] == host]
        if len(nodes) != 1:
            raise HostOccupied(f"{host} has {len(nodes)} nodes: instances need a single one")
        return str(nodes[0])

    def _aggregates(self) -> dict[str, Any]:
        with _answers():
            return {aggregate.name: aggregate for aggregate in self._nova.aggregates.list()}


def _hosts(
    aggregate: Any | None,  # noqa: ANN401 - novaclient's
    reservation_id: str,
    counts: Mapping[str, Mapping[str, int]],
) -> dict[str, int]:
    """Return the number of usable slots of a reservation by host.

    ``aggregate`` is the reservation's host aggregate. ``counts`` maps hosts to the numbers of slots
    in Placement, by reservation id. A host in only one of the two (the aggregate, or Placement) has
    0 usable slots.
    """
    members = aggregate.hosts if aggregate is not None else ()
    slots = {
        host: by_reservation[reservation_id]
        for host, by_reservation in counts.items()
        if reservation_id in by_reservation
    }
    return {host: slots.get(host, 0) if host in members else 0 for host in {*members, *slots}}
