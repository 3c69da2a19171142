"""The hosts of a Nova cloud: who may use one is decided by the host aggregate that it is in.

A registered host is always in an aggregate that closes it: the free pool, or that of the
reservation that has it. It is put into the next before it is taken out of the last, so there is no
moment at which everybody may land on it. Aggregates hold compute services, so a service with
several nodes is one host here; its single nodes are others (see nova_nodes).

Nova never evicts: whoever is on a host at the end is removed by us.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from novaclient import exceptions as refusals
from oslo_config.cfg import ConfigOpts

from climate.core.errors import Conflict
from climate.plugins.base import Found, NotYet, Turn
from climate.plugins.hosts.audit import Pool
from climate.plugins.hosts.isolation import NOBODY, isolation
from climate.plugins.hosts.nova_nodes import MICROVERSION, NovaNodes
from climate.plugins.hosts.nova_services import (
    CPU_INFO,
    NODES,
    Resting,
    find_hosts,
    is_node,
    known_services,
    parse_capabilities,
)
from climate.plugins.hosts.placement_inventory import Providers
from climate.plugins.openstack import session
from climate.plugins.openstack.aggregates import AggregateChanges
from climate.plugins.openstack.servers import Occupants, keep_image

# What an aggregate of ours is known by, in either mode, and one whose reservation has nodes.
MARK = "climate:reservation"
NODES_MARK = "climate:nodes"
_PAUSE = 0.2
_SETTLING = 2.0


class Occupied(RuntimeError):
    """A host cannot be handed over: somebody is on it, or has it."""


class NovaCloud:
    """The HostCloud of ``[nova]``; hosts are named by their compute service."""

    def __init__(self, conf: ConfigOpts, turn: Turn) -> None:
        """Prepare the client; nothing is sent yet. Raises Misconfigured."""
        self._session = session.make_session(conf)
        self._nova = session.nova_client(conf, self._session)
        self._changes = AggregateChanges(self._nova, turn)
        self._images = session.adapter(conf, self._session, "glance")
        placement = session.adapter(conf, self._session, "placement", MICROVERSION)
        self._nodes = NovaNodes(placement, self._nova)
        self._occupants = Occupants(self._nova, placement)
        self._resting = Resting(self._nova, self._occupants)
        self._providers = Providers(placement, conf.nova.traits, conf.nova.resource_classes)
        self._isolation = isolation(conf)
        self._free: str = conf.nova.aggregate_freepool_name
        self._patience: float = conf.nova.server_delete_wait
        self._capabilities = parse_capabilities(conf.nova.node_capabilities)
        self.properties = frozenset({NODES, *CPU_INFO}.union(*self._capabilities.values()))

    # What there is.

    def hosts(self) -> Iterable[Found]:
        """Return a host for each compute service, and the nodes of those that have several."""
        with session.answers():
            services = known_services(self._resting.services(), self._isolation.operators_zone)
            nodes = [node.to_dict() for node in self._occupants.hypervisors()]
        return find_hosts(nodes, services, self._capabilities, alone=self._isolation.nodes)

    def described(self, hosts: Sequence[Found]) -> list[Found]:
        """Add what Placement says: of the only host, or else of those that are ours."""
        names = {host.external_id for host in hosts}
        if len(names) > 1:
            found = self._aggregates().items()
            pools = [one for name, one in found if name == self._free or MARK in one.metadata]
            ours = {host for pool in pools for host in pool.hosts}
            names = {name for name in names if is_node(name) or name in ours}
        return self._providers.describe(hosts, names)

    def servers(self, host: str) -> Sequence[str]:
        """Return the ids of the servers of all projects on a host."""
        with session.answers():
            return [server.id for server in self._occupants.servers(host)]

    def pool_hosts(self, pool: str) -> Sequence[str]:
        """Return the hosts in the pool; none if there is no such pool."""
        aggregate = self._aggregates().get(pool)
        return self._hosts_in(aggregate) if aggregate else []

    def pools(self) -> Mapping[str, Pool]:
        """Return the reservations' aggregates, which carry our mark."""
        key = self._isolation.owner_key
        return {
            name: Pool(found.metadata.get(key), tuple(self._hosts_in(found)))
            for name, found in self._aggregates().items()
            if MARK in found.metadata
        }

    def free_hosts(self) -> Sequence[str]:
        """Return the hosts in the free pool, and the nodes that are closed."""
        free = self._aggregates().get(self._free)
        return sorted([*(free.hosts if free else ()), *self._closed_nodes()])

    # What is done about it.

    def enroll(self, host: str) -> None:
        """Close a host to everybody: put it into the free pool, unless a reservation has it."""
        if is_node(host):
            self._enroll_node(host)
        else:
            self._enroll_service(host)

    def _enroll_service(self, host: str) -> None:
        aggregates = self._aggregates()
        with session.answers():
            free = self._free_pool(aggregates)
        if not self._holders(aggregates, host):
            zones = {one.availability_zone for one in aggregates.values() if host in one.hosts}
            self._isolation.check_zones(host, zones)
            with session.answers():
                self._changes.join(free, host)
            if closed := [one for one in self._closed_nodes() if one.startswith(f"{host}/")]:
                self.withdraw(host)
                raise Conflict(f"{host} cannot be had as a whole: {', '.join(closed)} can alone")

    def withdraw(self, host: str) -> None:
        """Open a host to everybody again."""
        if is_node(host):
            with session.answers():
                self._nodes.withdraw(host)
            return
        self._leave(self._aggregates().get(self._free), host)
        self.rouse(host)

    def rest(self, host: str) -> None:
        """Disable a free host's service; raises Conflict, also if somebody is on the host then."""
        holders = self._holders(self._aggregates(), host)
        self._resting.rest(host, is_free=holders == [self._free])

    def rouse(self, host: str) -> None:
        """Enable the service of a host that rests."""
        self._resting.rouse(host)

    def ensure_pool(self, pool: str, project_id: str) -> None:
        """Make the reservation's aggregate, which only its project gets past."""
        aggregate = self._aggregates().get(pool)
        mine = {self._isolation.owner_key: project_id, MARK: pool}
        prefix = self._isolation.zone_prefix
        zone = None if prefix is None else f"{prefix}{pool}"
        with session.answers():
            self._changes.ensure(aggregate, pool, zone, mine)

    def close_pool(self, pool: str) -> None:
        """Let nobody land on the pool's hosts any more."""
        aggregate = self._aggregates().get(pool)
        if aggregate is None:
            return
        with session.answers():
            if NODES_MARK in aggregate.metadata:
                self._nodes.close(pool)
            self._changes.ensure(aggregate, pool, None, {self._isolation.owner_key: NOBODY})

    def add_host(self, pool: str, host: str) -> None:
        """Move a host from the free pool into the reservation's.

        Raises Occupied if another reservation has it, or servers are on it that no lease explains.
        """
        if is_node(host):
            self._add_node(pool, host)
            return
        aggregates = self._aggregates()
        holders = self._holders(aggregates, host)
        if others := [name for name in holders if name not in {pool, self._free}]:
            raise Occupied(f"{host} is still in aggregate {', '.join(others)}")
        if pool not in holders:
            with session.answers():
                others = self._occupants.after(_SETTLING, host)
            if others:
                raise Occupied(f"servers {', '.join(others)} are on {host}, which should be free")
            if pool not in aggregates:
                raise Occupied(f"aggregate {pool} is gone, {host} cannot get into it")
            with session.answers():
                self._changes.join(aggregates[pool], host)
        self._leave(aggregates.get(self._free), host)

    def _enroll_node(self, host: str) -> None:
        with session.answers():
            self._nodes.enroll(host)
            service = host.partition("/")[0]
            if self._holders(self._aggregates(), service):
                self._nodes.withdraw(host)
                raise Conflict(f"{host} cannot be had alone: {service} is registered as a whole")

    def _closed_nodes(self) -> list[str]:
        if not self._isolation.nodes:
            return []
        with session.answers():
            nodes = [found.external_id for found in self.hosts() if is_node(found.external_id)]
            return [node for node in nodes if self._nodes.is_closed(node)]

    def _add_node(self, pool: str, host: str) -> None:
        """Open a closed node to the reservation's project."""
        aggregate = self._aggregates()[pool]
        node = next((found for found in self.hosts() if found.external_id == host), None)
        if node is None:
            raise Occupied(f"Nova does not know {host} any more")
        told = {"vcpus": "vcpus", "ram": "memory_mb", "disk": "local_gb"}
        size = {name: int(node.properties[known]) for name, known in told.items()}
        with session.answers():
            self._changes.ensure(aggregate, pool, None, {NODES_MARK: "true"})
            self._nodes.add(pool, host, aggregate.metadata[self._isolation.owner_key], size)

    def remove_host(self, pool: str, host: str) -> None:
        """Move a host from the reservation's pool into the free one."""
        if is_node(host):
            with session.answers():
                self._nodes.remove(pool, host)
            return
        aggregates = self._aggregates()
        if self._free not in self._holders(aggregates, host):
            # A host that Nova does not know any more need not be closed.
            with session.answers(), suppress(refusals.NotFound):
                self._changes.join(self._free_pool(aggregates), host)
        self._leave(aggregates.get(pool), host)

    def delete_pool(self, pool: str) -> None:
        """Remove the reservation's aggregate; Nova refuses while hosts are in it."""
        aggregate = self._aggregates().get(pool)
        if aggregate is not None:
            with session.answers(), suppress(refusals.NotFound):
                if NODES_MARK in aggregate.metadata:
                    self._nodes.clear(pool)
                aggregate.delete()

    def delete_servers(self, pool: str, host: str) -> None:
        """Delete every server on a host of the pool; raises NotYet while something is there.

        Whether the pool still has the host is asked each time: a manager that was frozen must not
        delete the servers of whoever has it by now.
        """
        until = time.monotonic() + self._patience
        while host in self.pool_hosts(pool):
            with session.answers():
                left = self._occupants.on(host)
                self._occupants.delete(left)
            if not left:
                return
            if time.monotonic() > until:
                raise NotYet(f"servers {', '.join(left)} on {host} are still being deleted")
            time.sleep(_PAUSE)

    def snapshot_servers(self, host: str, occasion: str) -> None:
        """Keep an image, ``reserved_<name>``, of every server on the host, for its project."""
        with session.answers():
            for server in self._occupants.servers(host):
                keep_image(self._images, server, occasion)

    # How.

    def _aggregates(self) -> dict[str, Any]:
        with session.answers():
            return {found.name: found for found in self._nova.aggregates.list()}

    def _free_pool(self, aggregates: Mapping[str, Any]) -> Any:  # noqa: ANN401 - novaclient's
        """Return the aggregate of the free hosts, made and tagged if need be."""
        found = aggregates.get(self._free)
        return self._changes.ensure(found, self._free, None, self._isolation.free)

    def _leave(self, aggregate: Any | None, host: str) -> None:  # noqa: ANN401 - novaclient's
        if aggregate is not None and host in aggregate.hosts:
            with session.answers():
                self._changes.leave(aggregate, host)

    def _hosts_in(self, aggregate: Any) -> list[str]:  # noqa: ANN401 - novaclient's
        """Return a reservation's hosts: services in its aggregate, and single nodes."""
        nodes: list[str] = []
        if NODES_MARK in aggregate.metadata:
            with session.answers():
                found = self._occupants.hypervisors()
                services = {node.hypervisor_hostname: node.service["host"] for node in found}
                nodes = self._nodes.of_pool(aggregate.name, services)
        return sorted([*aggregate.hosts, *nodes])

    def _holders(self, aggregates: Mapping[str, Any], host: str) -> list[str]:
        """Return the aggregates of ours that a host is in; operators may have others."""
        return [
            name
            for name, found in aggregates.items()
            if host in found.hosts and (name == self._free or MARK in found.metadata)
        ]
