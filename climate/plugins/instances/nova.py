"""The driver for instances on Nova: each reservation has a private flavor, and slots in Placement.

A slot is reserved capacity on a host for one instance. A host with slots stays in the free pool,
which is closed to all projects. In addition, each reservation has a host aggregate, which contains
the hosts with its slots. The filter that ``[nova] isolation`` selects decides which flavors may use
these hosts:

- BlazarFilter admits only flavors with the extra spec
  ``aggregate_instance_extra_specs:reservation``.
- AggregateMultiTenancyIsolation admits all flavors of the project. Therefore
  AggregateTypeAffinityFilter must reject the project's other flavors.

If a reservation is open, servers with ordinary flavors use its slots, too. No other reservation is
on its hosts. So AggregateMultiTenancyIsolation admits only the project; if the user reserved a
flavor, AggregateTypeAffinityFilter admits only this flavor. An allocation of climate (a hold) has
the rest of each host, so Placement counts the servers. Weights in the aggregate's metadata let
nova-scheduler use these hosts before others. climate holds the rest of a host before it opens the
host, and releases it after the host is closed.

climate supports the parameter ``affinity`` without server groups of Nova: it puts the slots on one
host, or on different hosts. Only for clients of Blazar, it also creates server groups if the option
``[nova] server_groups`` is set.

climate creates a reservation's aggregate first and deletes it last. So an audit finds the objects
that an interrupted call has left in the cloud.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, TypeGuard
from urllib.parse import quote

from keystoneauth1.exceptions import Conflict, NotFound
from novaclient import exceptions as nova_errors
from oslo_config.cfg import ConfigOpts

from climate.core.errors import InvalidInput
from climate.plugins.base import NotYet, Requester, Turn
from climate.plugins.hosts.isolation import NOBODY, isolation
from climate.plugins.hosts.nova_hosts import MARK as HOST_MARK
from climate.plugins.hosts.nova_nodes import MICROVERSION
from climate.plugins.hosts.nova_pools import SETTLING, HostOccupied
from climate.plugins.instances.cloud import TARGETED, Boot, Flavor, Match, Size, Slots
from climate.plugins.instances.nova_flavors import MARK, ReservedFlavors, flavor_name
from climate.plugins.instances.nova_groups import ServerGroups
from climate.plugins.instances.nova_servers import NovaServers
from climate.plugins.openstack import session
from climate.plugins.openstack.aggregates import FIRST, AggregateChanges
from climate.plugins.openstack.placement_holds import PlacementHolds
from climate.plugins.openstack.placement_reservations import PlacementSlots
from climate.plugins.openstack.servers import HostServers, can_be_imaged, keep_image
from climate.plugins.openstack.session import answers as _answers

# The metadata key of the aggregates of open reservations.
OPEN_MARK = "climate:open"
_Aggregate: TypeAlias = Any  # novaclient's


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
        self._holds = PlacementHolds(placement)
        self._isolation = isolation(conf)
        self._host_servers = HostServers(self._nova, placement)
        self._images = session.adapter(conf, self._session, "glance")
        self._servers = NovaServers(conf)
        self._groups = ServerGroups(conf, self._session) if conf.nova.server_groups else None
        self._patience: float = conf.nova.server_delete_wait

    @property
    def makes_groups(self) -> bool:
        """Implement InstanceCloud.makes_groups."""
        return self._groups is not None

    @property
    def matches_openly(self) -> bool:
        """Implement InstanceCloud.matches_openly."""
        return self._isolation.admits_ordinary_flavors

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

    def open_slots(
        self, reservation_id: str, project_id: str, size: Size, match: Match = TARGETED
    ) -> Mapping[str, Any]:
        """Create the host aggregate, resource class and flavor of a reservation.

        Returns ``{"aggregate_id": N}``, where N is Nova's id of the aggregate.
        """
        metadata = aggregate_metadata(reservation_id, project_id, match)
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

    def set_slots(
        self,
        reservation_id: str,
        host: str,
        count: int,
        room: Mapping[str, int] | None = None,
    ) -> None:
        """Set the number of slots (reserved capacity for one instance each) on a host.

        Raises HostOccupied while another reservation has the whole host, or is open and so has the
        host alone, because climate deletes all servers on the host when that reservation ends. If
        this reservation is open (``room``), raises HostOccupied while anything is on the host.
        """
        aggregates = self._aggregates()
        if reservation_id not in aggregates:
            raise HostOccupied(f"aggregate {reservation_id} is gone: {host} cannot be added to it")
        others = [aggregate for name, aggregate in aggregates.items() if name != reservation_id]
        for other in others:
            if host in other.hosts and _excludes(other.metadata, is_open=room is not None):
                raise HostOccupied(f"{host} is still in aggregate {other.name}")
        with _answers():
            if room is not None:
                self._hold(reservation_id, host, room)
            self._slots.put(host, lambda: self._root(host), reservation_id, count)
            if host not in aggregates[reservation_id].hosts:
                self._changes.join(aggregates[reservation_id], host)

    def _hold(self, reservation_id: str, host: str, room: Mapping[str, int]) -> None:
        """Hold all of a host except ``room``. Raises HostOccupied if servers use more than that.

        Without a hold the host is not open yet: raises HostOccupied if any server is on it.
        """
        root = self._root(host)
        is_held = bool(self._holds.consumers(reservation_id, host, root))
        if servers := [] if is_held else self._host_servers.remaining_after(SETTLING, host):
            raise HostOccupied(f"servers {', '.join(servers)} are on {host}, which should be free")
        try:
            self._holds.put(reservation_id, host, root, room)
        except Conflict as error:
            raise HostOccupied(f"{host} is in use beyond what is reserved: {error}") from error

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
        self._host_servers.evict(lambda: self._servers_on(reservation_id, host), self._patience)
        aggregate = self._aggregates().get(reservation_id)
        with _answers():
            self._slots.clear(host, reservation_id)
            if aggregate is not None and host in aggregate.hosts:
                self._changes.leave(aggregate, host)
            # Without its aggregate, the kind of the reservation is unknown.
            if aggregate is None or _is_open(aggregate):
                roots = self._roots()
                if host in roots:
                    self._holds.remove(reservation_id, host, roots[host])

    def _servers_on(self, reservation_id: str, host: str) -> list[str]:
        """Return the ids of the servers on a host that use the slots of a reservation.

        These are all servers on a host of an open reservation. The host must still be in its
        aggregate: a manager that was paused must not delete the servers of the next reservation.
        """
        aggregate = self._aggregates().get(reservation_id)
        if _is_open(aggregate) and host in aggregate.hosts:
            return self._host_servers.on(host)
        return self._slots.servers(host, reservation_id)

    def close_slots(self, reservation_id: str) -> None:
        aggregate = self._aggregates().get(reservation_id)
        with _answers():
            self._flavors.close(reservation_id)
            if _is_open(aggregate):
                closed = {"filter_tenant_id": NOBODY}
                self._changes.ensure(aggregate, reservation_id, None, closed)

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
                id_: Slots(
                    self._open_to(id_, aggregates.get(id_)),
                    self._held(id_, aggregates.get(id_), _hosts(aggregates.get(id_), id_, counts)),
                )
                for id_ in sorted(known - others)
            }

    def _open_to(self, reservation_id: str, aggregate: _Aggregate | None) -> set[str]:
        """Return the projects that can boot servers in the slots of a reservation."""
        projects = self._flavors.projects(reservation_id)
        owner = {aggregate.metadata["filter_tenant_id"]} if _is_open(aggregate) else set()
        return projects | (owner - {NOBODY})

    def _held(
        self, reservation_id: str, aggregate: _Aggregate | None, hosts: dict[str, int]
    ) -> dict[str, int]:
        """Return the slots by host; 0 if the hold of an open reservation is missing on the host."""
        if not _is_open(aggregate):
            return hosts
        roots, held = self._roots(), self._holds.consumers
        return {
            host: count if host in roots and held(reservation_id, host, roots[host]) else 0
            for host, count in hosts.items()
        }

    def slot_servers(self, reservation_id: str, host: str | None = None) -> Sequence[str]:
        with _answers():
            if host is not None:
                return self._servers_on(reservation_id, host)
            ids = set(self._flavors.servers(reservation_id))
            for slot_host in self.slot_hosts(reservation_id):
                ids.update(self._servers_on(reservation_id, slot_host))
            return sorted(ids)

    def _root(self, host: str) -> str:
        """Return the UUID of a host's resource provider.

        Raises HostOccupied if the host has no node or several nodes.
        """
        if host not in (roots := self._roots()):
            raise HostOccupied(f"{host} has not exactly one node: instances need a single one")
        return roots[host]

    def _roots(self) -> dict[str, str]:
        """Return the UUIDs of the resource providers of all hosts with a single node."""
        nodes = [(node.service["host"], str(node.id)) for node in self._host_servers.hypervisors()]
        counts = Counter(host for host, _ in nodes)
        return {host: id_ for host, id_ in nodes if counts[host] == 1}

    def _aggregates(self) -> dict[str, Any]:
        with _answers():
            return {aggregate.name: aggregate for aggregate in self._nova.aggregates.list()}


def aggregate_metadata(reservation_id: str, project_id: str, match: Match) -> dict[str, str]:
    """Return the metadata of a reservation's aggregate. Pure.

    If the reservation is open, the aggregate admits ordinary flavors, and its hosts come first.
    """
    own = flavor_name(reservation_id)
    metadata = {
        MARK: reservation_id,
        "reservation": reservation_id,
        "filter_tenant_id": project_id,
        "instance_type": own,
    }
    if not match.is_open:
        return metadata
    if match.flavor:
        metadata["instance_type"] = f"{own},{match.flavor}"
    else:
        del metadata["instance_type"]
    return {**metadata, OPEN_MARK: "true", **FIRST}


def _is_open(aggregate: _Aggregate | None) -> TypeGuard[_Aggregate]:
    """Return whether an aggregate exists and is that of an open reservation."""
    return aggregate is not None and OPEN_MARK in aggregate.metadata


def _excludes(metadata: Mapping[str, str], *, is_open: bool) -> bool:
    """Return whether the hosts of an aggregate cannot have slots of another reservation. Pure.

    ``metadata`` is that of the aggregate. ``is_open`` states whether the other reservation is open.
    """
    return HOST_MARK in metadata or OPEN_MARK in metadata or (is_open and MARK in metadata)


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
