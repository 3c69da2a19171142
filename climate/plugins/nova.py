"""The hosts of a Nova cloud: who may use one is decided by the host aggregate that it is in.

A registered host is always in an aggregate that closes it: the free pool, or that of the
reservation that has it. It is put into the next before it is taken out of the last, so there is no
moment at which everybody may land on it. Aggregates hold compute services, so a service with
several nodes is handed over as a whole, and is one host here.

Nova never evicts: whoever is on a host at the end is removed by us.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from keystoneauth1.exceptions import ClientException
from novaclient import client
from novaclient import exceptions as refusals
from oslo_config.cfg import ConfigOpts

from climate.core.errors import BackendUnavailable
from climate.plugins import openstack
from climate.plugins.base import Found, NotYet
from climate.plugins.compute_host import NODES, find_hosts, parse_capabilities
from climate.plugins.host_audit import Pool

# The oldest with hypervisors and services in one answer; its properties are gone from 2.88 on.
_VERSION = "2.53"
# A project that nobody can be in: Keystone's ids are 32 hexadecimal digits.
NOBODY = "nobody"
# What an aggregate of ours is known by, in either mode.
MARK = "climate:reservation"
_COMPUTE = "nova-compute"
_TASK = "OS-EXT-STS:task_state"
_PAUSE = 0.2


class Occupied(RuntimeError):
    """A host cannot be handed over: somebody is on it, or has it."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """How Nova's scheduler is told to keep everybody but the owner off."""

    owner_key: str
    zone_prefix: str | None
    free: Mapping[str, str]


def isolation(conf: ConfigOpts) -> Isolation:
    """Return what ``[nova] isolation`` means: whose filter reads the aggregates, and what in them.

    ``blazar`` is for the filter of the package blazar-nova, which needs the zone and takes the
    free pool by its name; ``tenancy`` for Nova's own AggregateMultiTenancyIsolation.
    """
    if conf.nova.isolation == "blazar":
        return Isolation("blazar:owner", conf.nova.blazar_az_prefix, {})
    return Isolation("filter_tenant_id", None, {"filter_tenant_id": NOBODY})


class NovaCloud:
    """The HostCloud of ``[nova]``; hosts are named by their compute service."""

    def __init__(self, conf: ConfigOpts) -> None:
        """Prepare the client; nothing is sent yet. Raises Misconfigured."""
        self._session = openstack.make_session(conf)
        way = openstack.adapter(conf, self._session, "nova")
        self._nova = client.Client(
            _VERSION,
            session=self._session,
            service_type=way.service_type,
            region_name=way.region_name,
            endpoint_type=way.interface,
            endpoint_override=way.endpoint_override,
        )
        self._images = openstack.adapter(conf, self._session, "glance")
        self._isolation = isolation(conf)
        self._free: str = conf.nova.aggregate_freepool_name
        self._patience: float = conf.nova.server_delete_wait
        self._capabilities = parse_capabilities(conf.nova.node_capabilities)
        self.properties = frozenset({NODES}.union(*self._capabilities.values()))

    # What there is.

    def hosts(self) -> Iterable[Found]:
        """Return one host for each compute service, and the nodes that cannot be had alone."""
        with _answers():
            services = self._nova.services.list(binary=_COMPUTE)
            nodes = [node.to_dict() for node in self._nova.hypervisors.list(detailed=True)]
        zones = {service.host: self._own_zone(service.zone) for service in services}
        return find_hosts(nodes, zones, self._capabilities)

    def servers(self, host: str) -> Sequence[str]:
        """Return the ids of the servers of all projects on a host."""
        with _answers():
            return [server.id for server in self._servers(host)]

    def pool_hosts(self, pool: str) -> Sequence[str]:
        """Return the hosts in the pool; none if there is no such pool."""
        aggregate = self._aggregates().get(pool)
        return sorted(aggregate.hosts) if aggregate else []

    def pools(self) -> Mapping[str, Pool]:
        """Return the reservations' aggregates, which carry our mark."""
        key = self._isolation.owner_key
        return {
            name: Pool(found.metadata.get(key), tuple(sorted(found.hosts)))
            for name, found in self._aggregates().items()
            if MARK in found.metadata
        }

    def free_hosts(self) -> Sequence[str]:
        """Return the hosts in the free pool."""
        free = self._aggregates().get(self._free)
        return sorted(free.hosts) if free else []

    # What is done about it.

    def enroll(self, host: str) -> None:
        """Close a host to everybody: put it into the free pool, unless a reservation has it."""
        aggregates = self._aggregates()
        if not self._holders(aggregates, host):
            with _answers():
                self._free_pool(aggregates).add_host(host)

    def withdraw(self, host: str) -> None:
        """Open a host to everybody again."""
        self._leave(self._aggregates().get(self._free), host)

    def ensure_pool(self, pool: str, project_id: str) -> None:
        """Make the reservation's aggregate, which only its project gets past."""
        aggregate = self._aggregates().get(pool)
        mine = {self._isolation.owner_key: project_id, MARK: pool}
        with _answers():
            if aggregate is None:
                prefix = self._isolation.zone_prefix
                zone = None if prefix is None else f"{prefix}{pool}"
                aggregate = self._nova.aggregates.create(pool, zone)
            if not mine.items() <= aggregate.metadata.items():
                aggregate.set_metadata(mine)

    def close_pool(self, pool: str) -> None:
        """Let nobody land on the pool's hosts any more."""
        aggregate = self._aggregates().get(pool)
        key = self._isolation.owner_key
        if aggregate is not None and aggregate.metadata.get(key) != NOBODY:
            with _answers():
                aggregate.set_metadata({key: NOBODY})

    def add_host(self, pool: str, host: str) -> None:
        """Move a host from the free pool into the reservation's.

        Raises Occupied if another reservation has it, or servers are on it that no lease explains.
        """
        aggregates = self._aggregates()
        holders = self._holders(aggregates, host)
        if others := [name for name in holders if name not in {pool, self._free}]:
            raise Occupied(f"{host} is still in aggregate {', '.join(others)}")
        if pool not in holders:
            if servers := self.servers(host):
                raise Occupied(f"servers {', '.join(servers)} are on {host}, which should be free")
            if pool not in aggregates:
                raise Occupied(f"aggregate {pool} is gone, {host} cannot get into it")
            with _answers():
                aggregates[pool].add_host(host)
        self._leave(aggregates.get(self._free), host)

    def remove_host(self, pool: str, host: str) -> None:
        """Move a host from the reservation's pool into the free one."""
        aggregates = self._aggregates()
        if self._free not in self._holders(aggregates, host):
            # A host that Nova does not know any more need not be closed.
            with _answers(), suppress(refusals.NotFound):
                self._free_pool(aggregates).add_host(host)
        self._leave(aggregates.get(pool), host)

    def delete_pool(self, pool: str) -> None:
        """Remove the reservation's aggregate; Nova refuses while hosts are in it."""
        aggregate = self._aggregates().get(pool)
        if aggregate is not None:
            with _answers(), suppress(refusals.NotFound):
                aggregate.delete()

    def delete_servers(self, host: str) -> None:
        """Delete every server on the host; raises NotYet while some are still there."""
        with _answers():
            for server in self._servers(host):
                if getattr(server, _TASK) != "deleting":
                    with suppress(refusals.NotFound):
                        server.delete()
        until = time.monotonic() + self._patience
        while left := self.servers(host):
            if time.monotonic() > until:
                raise NotYet(f"servers {', '.join(left)} on {host} are still being deleted")
            time.sleep(_PAUSE)

    def snapshot_servers(self, host: str) -> None:
        """Keep an image, ``reserved_<name>``, of every server on the host, for its project."""
        with _answers():
            for server in self._servers(host):
                mark = {"climate_server": server.id}
                kept = self._images.get("/v2/images", params=mark).json()["images"]
                if not kept:
                    kept = [{"id": server.create_image(f"reserved_{server.name}", mark)}]
                for image in kept:
                    self._give_image(image, server.tenant_id)

    # How.

    def _aggregates(self) -> dict[str, Any]:
        with _answers():
            return {found.name: found for found in self._nova.aggregates.list()}

    def _free_pool(self, aggregates: Mapping[str, Any]) -> Any:  # noqa: ANN401 - novaclient's
        """Return the aggregate of the free hosts, made and tagged if need be."""
        free = aggregates.get(self._free) or self._nova.aggregates.create(self._free, None)
        if not self._isolation.free.items() <= free.metadata.items():
            free.set_metadata(dict(self._isolation.free))
        return free

    def _leave(self, aggregate: Any | None, host: str) -> None:  # noqa: ANN401 - novaclient's
        if aggregate is not None and host in aggregate.hosts:
            with _answers(), suppress(refusals.NotFound):
                aggregate.remove_host(host)

    def _servers(self, host: str) -> Iterable[Any]:
        options = {"host": host, "all_tenants": True}
        return list(self._nova.servers.list(search_opts=options, limit=-1))

    def _give_image(self, image: Mapping[str, str], project_id: str) -> None:
        """Make an image the project's; Nova made it for whoever asked, and that was us."""
        if image.get("owner") != project_id:
            change = [{"op": "replace", "path": "/owner", "value": project_id}]
            headers = {"Content-Type": "application/openstack-images-v2.1-json-patch"}
            self._images.patch(f"/v2/images/{image['id']}", json=change, headers=headers)

    def _own_zone(self, zone: str) -> str:
        """Return a service's availability zone, unless it is one that a reservation brought."""
        prefix = self._isolation.zone_prefix
        return "" if prefix and zone.startswith(prefix) else zone

    def _holders(self, aggregates: Mapping[str, Any], host: str) -> list[str]:
        """Return the aggregates of ours that a host is in; operators may have others."""
        return [
            name
            for name, found in aggregates.items()
            if host in found.hosts and (name == self._free or MARK in found.metadata)
        ]


@contextmanager
def _answers() -> Iterator[None]:
    """Turn what a client raises into an error that says who did not do what."""
    try:
        yield
    except (ClientException, refusals.ClientException) as error:
        raise BackendUnavailable(f"Nova does not do it: {error}") from error
