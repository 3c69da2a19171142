"""Traces of climate in a cloud: aggregates, servers, and slots of reserved instances."""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from http import HTTPStatus
from typing import Any

from openstack.connection import Connection
from openstack.exceptions import HttpException

from tests.openstack import guests, settings
from tests.support.process import eventually

MARK = "climate:reservation"
OURS = tuple(settings.HOSTS)


def aggregates(cloud: Connection, hosts: Collection[str] = OURS) -> dict[str, dict[str, Any]]:
    """Return the aggregates that contain any of ``hosts``, by name, reduced to these."""
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
    return {found.name for found in cloud.compute.aggregates()}


def holders(cloud: Connection, host: str) -> list[str]:
    """Return the names of the aggregates that contain a host."""
    return sorted(aggregates(cloud, [host]))


def servers_on(cloud: Connection, hosts: Iterable[str] = OURS) -> list[str]:
    """Return the ids of all projects' servers on ``hosts``."""
    compute = cloud.compute
    return [
        server.id
        for host in sorted(hosts)
        for server in compute.servers(details=False, all_projects=True, compute_host=host)
    ]


def until_empty(cloud: Connection, hosts: Iterable[str]) -> None:
    """Wait until the hosts have no servers; other tests may have used them."""
    eventually(lambda: not servers_on(cloud, hosts), f"{hosts} are empty")


def resource_class(reservation: str) -> str:
    return f"CUSTOM_RESERVATION_{reservation.upper().replace('-', '_')}"


def slots(cloud: Connection, reservation: str) -> dict[str, Any]:
    """Return the cloud's objects of reserved instances, without their aggregate."""
    name, placement = resource_class(reservation), cloud.placement
    flavors = cloud.compute.flavors(is_public=None, get_extra_specs=True)
    mine = [item for item in flavors if item.id == reservation]
    return {
        "class": any(item.name == name for item in placement.resource_classes()),
        "on": {
            item.name: found.total
            for item in placement.resource_providers()
            if item.name.startswith("climate_")
            for found in placement.resource_provider_inventories(item)
            if found.resource_class == name
        },
        "flavor": [item.extra_specs for item in mine],
        "for": [item["tenant_id"] for flavor in mine for item in _access(cloud, flavor.id)],
    }


def _access(cloud: Connection, flavor: str) -> list[dict[str, str]]:
    return list(cloud.compute.get_flavor_access(flavor))


def remove_slots(cloud: Connection, reservation: str) -> None:
    """Delete the flavor of reserved instances, and their objects in Placement."""
    placement, path = cloud.placement, f"/resource_classes/{resource_class(reservation)}"
    cloud.compute.delete_flavor(reservation)
    if placement.delete(path, microversion="1.38").status_code != HTTPStatus.CONFLICT:
        return
    for item in placement.resource_providers():
        if item.name.startswith("climate_"):
            inventory = f"/resource_providers/{item.id}/inventories/{resource_class(reservation)}"
            placement.delete(inventory, microversion="1.38")
    placement.delete(path, microversion="1.38")


def holds(cloud: Connection, hosts: Iterable[str]) -> list[str]:
    """Return the consumers that are no servers, but have allocations of the hosts."""
    found = []
    for host in hosts:
        for item in cloud.placement.resource_providers(name=host):
            path = f"/resource_providers/{item.id}/allocations"
            for consumer in cloud.placement.get(path).json()["allocations"]:
                owner = cloud.placement.get(f"/allocations/{consumer}", microversion="1.38").json()
                if owner.get("consumer_type") == "RESERVATION":
                    found.append(consumer)
    return found


def held(cloud: Connection, hosts: Iterable[str]) -> dict[str, dict[str, int]]:
    """Return what climate holds of each host, by resource class, if it holds anything."""
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for consumer in holds(cloud, hosts):
        found = cloud.placement.get(f"/allocations/{consumer}").json()["allocations"]
        for provider, amounts in found.items():
            sums[cloud.placement.get_resource_provider(provider).name].update(amounts["resources"])
    return {host: dict(amounts) for host, amounts in sums.items()}


def sweep(
    cloud: Connection,
    hosts: Iterable[str],
    reservations: Collection[str] = (),
    were_there: Collection[str] = tuple(settings.FREE_POOLS.values()),
) -> None:
    """Delete what a test left: servers on the hosts, reservations' aggregates, free pools.

    Free pools in ``were_there`` stay: they existed before the test.
    """
    guests.remove(cloud, *servers_on(cloud, hosts))
    for id_ in reservations:
        remove_slots(cloud, id_)
    for consumer in holds(cloud, hosts):
        cloud.placement.delete(f"/allocations/{consumer}", microversion="1.38")
    for found in cloud.compute.aggregates():
        inside = set(found.hosts or ())
        is_over = found.name in reservations or (inside & set(hosts) and MARK in found.metadata)
        if not is_over and found.name not in settings.FREE_POOLS.values():
            continue
        for host in inside & set(hosts):
            cloud.compute.remove_host_from_aggregate(found, host)
        if is_over or (found.name not in were_there and inside <= set(hosts)):
            with contextlib.suppress(HttpException):  # another service uses the pool again
                cloud.compute.delete_aggregate(found)
