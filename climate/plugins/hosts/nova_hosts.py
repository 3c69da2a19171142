"""Reads the hosts and the pools (host aggregates) of a Nova cloud.

A pool is a host aggregate of Nova that contains the hosts of one reservation. Aggregates contain
whole compute services. Therefore each compute service is one host, even if the service has several
nodes. In addition, each node of such a service is a host of its own; the module ``nova_nodes``
reserves these hosts.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from oslo_config.cfg import ConfigOpts

from climate.config.clouds import counted_devices
from climate.core.matching.property_type import ALLOWED_PROJECTS
from climate.plugins.base import DiscoveredResource, Turn
from climate.plugins.hosts.aggregate_metadata import AggregateMetadata
from climate.plugins.hosts.audit import Pool
from climate.plugins.hosts.ironic_nodes import MICROVERSION as IRONIC
from climate.plugins.hosts.ironic_nodes import IronicNodes
from climate.plugins.hosts.isolation import isolation
from climate.plugins.hosts.nova_nodes import MICROVERSION, NovaNodes
from climate.plugins.hosts.nova_services import (
    CPU_INFO,
    NODES,
    ComputeServices,
    find_hosts,
    is_node,
    known_services,
    parse_capabilities,
)
from climate.plugins.hosts.placement_inventory import ProviderInventory
from climate.plugins.openstack import session
from climate.plugins.openstack.aggregates import AggregateChanges
from climate.plugins.openstack.servers import HostServers

# The metadata key of every reservation's aggregate, and the additional key of an aggregate whose
# reservation has single nodes.
MARK = "climate:reservation"
NODES_MARK = "climate:nodes"


class NovaHosts:
    """The methods of NovaCloud (the driver for hosts on Nova) that read hosts and pools."""

    def __init__(self, conf: ConfigOpts, turn: Turn) -> None:
        self._session = session.make_session(conf)
        self._nova = session.nova_client(conf, self._session)
        self._changes = AggregateChanges(self._nova, turn)
        self._images = session.adapter(conf, self._session, "glance")
        placement = session.adapter(conf, self._session, "placement", MICROVERSION)
        self._nodes = NovaNodes(placement, self._nova)
        self._host_servers = HostServers(self._nova, placement)
        self._services = ComputeServices(self._nova, self._host_servers)
        self._ironic = IronicNodes(session.adapter(conf, self._session, "ironic", IRONIC))
        self._providers = ProviderInventory(
            placement,
            conf.nova.traits,
            conf.nova.resource_classes,
            counted_devices(conf).classes,
        )
        self._isolation = isolation(conf)
        self._free: str = conf.nova.aggregate_freepool_name
        self._patience: float = conf.nova.server_delete_wait
        self._capabilities = parse_capabilities(conf.nova.node_capabilities)
        self._metadata = AggregateMetadata(
            frozenset(conf.nova.aggregate_properties) - {ALLOWED_PROJECTS},
            conf.resources.project_restrictions,
        )
        own = {NODES, *CPU_INFO, *self._metadata.properties}
        self.properties = frozenset(own.union(*self._capabilities.values()))

    def hosts(self) -> Iterable[DiscoveredResource]:
        """Return a host for each compute service, and one for each node of a multi-node service."""
        with session.answers():
            services = known_services(self._services.find_all(), self._isolation.operators_zone)
            nodes = [node.to_dict() for node in self._host_servers.hypervisors()]
        return find_hosts(self._ironic.complete(nodes), services, self._capabilities)

    def load_properties(self, hosts: Sequence[DiscoveredResource]) -> list[DiscoveredResource]:
        """Return the hosts with their traits and inventories from Placement.

        The hosts also get properties from the metadata of host aggregates, if the operator lists
        any, and ``allowed_projects`` if the operator restricts resources to projects.

        If ``hosts`` has several items, the method reads these data only for single nodes
        (``service/node``) and for hosts in climate's pools. The other hosts get ``complete=False``.
        """
        names = {host.external_id for host in hosts}
        aggregates = self._aggregates() if len(names) > 1 or self._metadata.applies else {}
        if len(names) > 1:
            pools = [
                aggregate
                for name, aggregate in aggregates.items()
                if name == self._free or MARK in aggregate.metadata
            ]
            pooled = {host for pool in pools for host in pool.hosts}
            names = {name for name in names if is_node(name) or name in pooled}
        described = self._providers.describe(hosts, names)
        others = [a for name, a in aggregates.items() if name != self._free]
        return self._metadata.complete(described, others)

    def servers(self, host: str) -> Sequence[str]:
        with session.answers():
            return [server.id for server in self._host_servers.servers(host)]

    def pool_hosts(self, pool: str) -> Sequence[str]:
        aggregate = self._aggregates().get(pool)
        return self._hosts_in(aggregate) if aggregate else []

    def pools(self) -> Mapping[str, Pool]:
        key = self._isolation.owner_key
        return {
            name: Pool(aggregate.metadata.get(key), tuple(self._hosts_in(aggregate)))
            for name, aggregate in self._aggregates().items()
            if MARK in aggregate.metadata
        }

    def free_hosts(self) -> Sequence[str]:
        free = self._aggregates().get(self._free)
        return sorted([*(free.hosts if free else ()), *self._closed_nodes()])

    def _closed_nodes(self) -> list[str]:
        with session.answers():
            nodes = [host.external_id for host in self.hosts() if is_node(host.external_id)]
            return [node for node in nodes if self._nodes.is_closed(node)]

    def _aggregates(self) -> dict[str, Any]:
        with session.answers():
            return {aggregate.name: aggregate for aggregate in self._nova.aggregates.list()}

    def _hosts_in(self, aggregate: Any) -> list[str]:  # noqa: ANN401 - novaclient's
        nodes: list[str] = []
        if NODES_MARK in aggregate.metadata:
            with session.answers():
                hypervisors = self._host_servers.hypervisors()
                services = {
                    hypervisor.hypervisor_hostname: hypervisor.service["host"]
                    for hypervisor in hypervisors
                }
                nodes = self._nodes.of_pool(aggregate.name, services)
        return sorted([*aggregate.hosts, *nodes])

    def _holders(self, aggregates: Mapping[str, Any], host: str) -> list[str]:
        """Return the names of climate's host aggregates that contain ``host``.

        ``aggregates`` contains all host aggregates of the cloud by name.
        """
        return [
            name
            for name, aggregate in aggregates.items()
            if host in aggregate.hosts and (name == self._free or MARK in aggregate.metadata)
        ]
