"""What climate leaves in a cloud: aggregates, and what they and the servers say about hosts."""

import contextlib
from collections.abc import Collection, Iterable
from typing import Any

from openstack.connection import Connection
from openstack.exceptions import HttpException

from tests.openstack import guests, settings
from tests.process import eventually

MARK = "climate:reservation"
MINE = frozenset({*settings.HOSTS, settings.SERVICE})


def aggregates(cloud: Connection, hosts: Collection[str] = MINE) -> dict[str, dict[str, Any]]:
    """Return the aggregates that have one of ``hosts``, by name, as far as these are concerned."""
    return {
        found.name: {
            "hosts": sorted(set(found.hosts) & set(hosts)),
            "zone": found.availability_zone,
            "metadata": {k: v for k, v in found.metadata.items() if k != "availability_zone"},
        }
        for found in cloud.compute.aggregates()
        if set(found.hosts or ()) & set(hosts)
    }


def aggregate_names(cloud: Connection) -> set[str]:
    """Return the names of all aggregates."""
    return {found.name for found in cloud.compute.aggregates()}


def holders(cloud: Connection, host: str) -> list[str]:
    """Return the names of the aggregates that a host is in."""
    return sorted(aggregates(cloud, [host]))


def servers_on(cloud: Connection, hosts: Iterable[str] = MINE) -> list[str]:
    """Return the ids of the servers of all projects on ``hosts``."""
    compute = cloud.compute
    return [
        server.id
        for host in sorted(hosts)
        for server in compute.servers(details=False, all_projects=True, compute_host=host)
    ]


def until_empty(cloud: Connection) -> None:
    """Wait until nobody is on our hosts: others may have been there while they were open."""
    eventually(lambda: not servers_on(cloud), "our hosts are empty")


def sweep(cloud: Connection, reservations: Collection[str], were_there: Collection[str]) -> None:
    """Remove what a test left: servers on our hosts, reservations' aggregates, free pools."""
    guests.remove(cloud, *servers_on(cloud))
    free = set(settings.FREE_POOLS.values())
    for found in cloud.compute.aggregates():
        mine = set(found.hosts or ()) & MINE
        is_ours = found.name in reservations or (mine and MARK in found.metadata)
        if not is_ours and found.name not in free:
            continue
        for host in mine:
            cloud.compute.remove_host_from_aggregate(found, host)
        if is_ours or (found.name not in were_there and not set(found.hosts or ()) - MINE):
            with contextlib.suppress(HttpException):  # somebody else has begun to use the pool
                cloud.compute.delete_aggregate(found)
