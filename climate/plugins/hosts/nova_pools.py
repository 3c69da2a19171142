"""Moves hosts between pools on Nova. A pool is a host aggregate; it opens its hosts to one project.

A registered host is always in at least one aggregate of climate: the free pool, which is closed to
all projects, or the pool of its reservation. climate adds a host to its new pool before it removes
the host from the previous pool. So the host is never open to all projects in between.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from novaclient import exceptions as nova_errors

from climate.core.errors import Conflict
from climate.plugins.hosts.isolation import NOBODY
from climate.plugins.hosts.nova_hosts import MARK, NODES_MARK, NovaHosts
from climate.plugins.hosts.nova_services import is_node
from climate.plugins.openstack import session
from climate.plugins.openstack.aggregates import FIRST

# Seconds to wait for servers that Nova is deleting, before a host counts as occupied.
SETTLING = 2.0
# The properties with the sizes of a node, by attribute of a flavor. Nova reports no sizes of a node
# of Ironic. The default memory then fits any quota. The default disk fits usual images: Nova
# rejects images that are larger, and it lets members boot with a disk of 0 only from volumes.
_SIZES = {"vcpus": "vcpus", "ram": "memory_mb", "disk": "local_gb"}
_DEFAULT_SIZES = {"vcpus": 1, "ram": 1024, "disk": 100}


class HostOccupied(RuntimeError):
    """Raised if a host cannot be handed over: it has servers, or another reservation has it."""


class NovaPools(NovaHosts):
    """The methods of NovaCloud (the driver for hosts) that move hosts between pools."""

    def enroll(self, host: str) -> None:
        """Close a host: put a service into the free pool, or allocate all memory of a single node.

        Raises Conflict if this is impossible. For instance, a service cannot be closed as a whole
        if one of its nodes is registered.
        """
        if is_node(host):
            self._enroll_node(host)
        else:
            self._enroll_service(host)

    def _enroll_service(self, host: str) -> None:
        aggregates = self._aggregates()
        with session.answers():
            free = self._free_pool(aggregates)
        if not self._holders(aggregates, host):
            zones = {
                aggregate.availability_zone
                for aggregate in aggregates.values()
                if host in aggregate.hosts
            }
            self._isolation.check_zones(host, zones)
            with session.answers():
                self._changes.join(free, host)
            if closed := [node for node in self._closed_nodes() if node.startswith(f"{host}/")]:
                self.withdraw(host)
                raise Conflict(
                    f"{host} cannot be registered as a whole: its nodes {', '.join(closed)} are"
                    " registered"
                )

    def _enroll_node(self, host: str) -> None:
        with session.answers():
            self._nodes.enroll(host)
            service = host.partition("/")[0]
            if self._holders(self._aggregates(), service):
                self._nodes.withdraw(host)
                raise Conflict(
                    f"{host} cannot be registered alone: {service} is registered as a whole"
                )

    def withdraw(self, host: str) -> None:
        if is_node(host):
            with session.answers():
                self._nodes.withdraw(host)
            return
        self._leave(self._aggregates().get(self._free), host)
        self._services.enable(host)

    @property
    def matches_openly(self) -> bool:
        """Implement HostCloud.matches_openly."""
        return self._isolation.admits_ordinary_flavors

    def ensure_pool(self, pool: str, project_id: str, *, is_first: bool = False) -> None:
        aggregate = self._aggregates().get(pool)
        first = FIRST if is_first else {}
        metadata = {self._isolation.owner_key: project_id, MARK: pool, **first}
        prefix = self._isolation.zone_prefix
        zone = None if prefix is None else f"{prefix}{pool}"
        with session.answers():
            self._changes.ensure(aggregate, pool, zone, metadata)

    def close_pool(self, pool: str) -> None:
        aggregate = self._aggregates().get(pool)
        if aggregate is None:
            return
        with session.answers():
            if NODES_MARK in aggregate.metadata:
                self._nodes.close(pool)
            self._changes.ensure(aggregate, pool, None, {self._isolation.owner_key: NOBODY})

    def add_host(self, pool: str, host: str) -> None:
        """Move a free host into the pool of a reservation.

        If the host has servers, or if another reservation has it, raises HostOccupied for a compute
        service, and Conflict for a single node.
        """
        if is_node(host):
            self._add_node(pool, host)
            return
        aggregates = self._aggregates()
        holders = self._holders(aggregates, host)
        if others := [name for name in holders if name not in {pool, self._free}]:
            raise HostOccupied(f"{host} is still in aggregate {', '.join(others)}")
        if pool not in holders:
            with session.answers():
                others = self._host_servers.remaining_after(SETTLING, host)
            if others:
                raise HostOccupied(
                    f"servers {', '.join(others)} are on {host}, which should be free"
                )
            if pool not in aggregates:
                raise HostOccupied(f"aggregate {pool} is gone: {host} cannot be added to it")
            with session.answers():
                self._changes.join(aggregates[pool], host)
        self._leave(aggregates.get(self._free), host)

    def _add_node(self, pool: str, host: str) -> None:
        aggregate = self._aggregates().get(pool)
        if aggregate is None:
            raise HostOccupied(f"aggregate {pool} is gone: {host} cannot be added to it")
        node = next((node for node in self.hosts() if node.external_id == host), None)
        if node is None:
            raise HostOccupied(f"Nova no longer has {host}")
        size = {
            column: int(node.properties[name] or 0) or _DEFAULT_SIZES[column]
            for column, name in _SIZES.items()
        }
        with session.answers():
            self._changes.ensure(aggregate, pool, None, {NODES_MARK: "true"})
            self._nodes.add(pool, host, aggregate.metadata[self._isolation.owner_key], size)

    def remove_host(self, pool: str, host: str) -> None:
        if is_node(host):
            with session.answers():
                self._nodes.remove(pool, host)
            return
        aggregates = self._aggregates()
        if self._free not in self._holders(aggregates, host):
            # Nova no longer knows a host that was removed. It needs no closing.
            with session.answers(), suppress(nova_errors.NotFound):
                self._changes.join(self._free_pool(aggregates), host)
        self._leave(aggregates.get(pool), host)

    def delete_pool(self, pool: str) -> None:
        """Delete a reservation's host aggregate. Nova refuses while the aggregate has hosts."""
        aggregate = self._aggregates().get(pool)
        if aggregate is not None:
            with session.answers(), suppress(nova_errors.NotFound):
                if NODES_MARK in aggregate.metadata:
                    self._nodes.clear(pool)
                self._changes.delete(aggregate)

    def _free_pool(self, aggregates: Mapping[str, Any]) -> Any:  # noqa: ANN401 - novaclient's
        present = aggregates.get(self._free)
        return self._changes.ensure(present, self._free, None, self._isolation.free)

    def _leave(self, aggregate: Any | None, host: str) -> None:  # noqa: ANN401 - novaclient's
        if aggregate is not None and host in aggregate.hosts:
            with session.answers():
                self._changes.leave(aggregate, host)
