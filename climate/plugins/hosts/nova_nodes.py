"""Reserves single nodes of a compute service with several nodes, with the help of Placement.

Nova's host aggregates contain whole services, so they cannot separate the nodes of one service.
Therefore climate uses Placement:

- To close a node to all projects, climate allocates all memory of the node.
- climate adds a child provider to the resource provider of each node. Each reservation has its own
  resource class. Only the child providers of the reservation's nodes offer this class.
- The reservation's private flavor requests this class, and no memory. The flavor also requests one
  VCPU of the node: if a flavor requests only a class of a child provider, Nova finds no host for it
  (Nova 34, Placement 16).
- A Placement aggregate with the reservation's UUID contains the child providers of the
  reservation's nodes.

A single node has the host name ``service/node``.
"""

import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from keystoneauth1 import exceptions as http_errors
from keystoneauth1.adapter import Adapter
from novaclient import exceptions as nova_errors

from climate.core.errors import Conflict
from climate.plugins.openstack.placement_reservations import reservation_class
from climate.plugins.openstack.servers import HOLD

# Since 1.38 allocations have a consumer type.
MICROVERSION = "1.38"
_SPACE = uuid.UUID("6d1c1a52-94a5-5f39-8f0a-0c0d6a5c9a11")
# Attempts to write to a provider that others change at the same time.
_RACES = 5
_PREFIX = "climate_"


class NovaNodes:
    """The operations of NovaCloud on hosts that are single nodes of a compute service.

    climate never deletes the child providers that it adds to nodes. After the deletion of a
    provider that nova-compute knows, nova-compute cannot build servers for minutes.
    """

    def __init__(self, placement: Adapter, nova: Any) -> None:  # noqa: ANN401 - novaclient's
        self._placement = placement
        self._nova = nova

    def enroll(self, host: str) -> None:
        """Close a node to all projects by allocating all its memory. Idempotent.

        Raises Conflict if Placement has no inventory for the node's memory, or if a part of the
        memory is in use.
        """
        root = self._root(host)
        provider = {"name": _child_name(host), "uuid": _child(host), "parent_provider_uuid": root}
        with suppress(http_errors.Conflict):  # it exists
            self._placement.post("/resource_providers", json=provider)
        if self.is_closed(host):
            return
        inventories = self._get(f"/resource_providers/{root}/inventories")["inventories"]
        if "MEMORY_MB" not in inventories:
            raise Conflict(f"{host} cannot be closed: it has no MEMORY_MB in Placement")
        memory = inventories["MEMORY_MB"]["total"] - inventories["MEMORY_MB"]["reserved"]
        allocation = {
            "allocations": {root: {"resources": {"MEMORY_MB": memory}}},
            "project_id": _holder(host),
            "user_id": _holder(host),
            "consumer_generation": None,
            "consumer_type": HOLD,
        }
        try:
            self._placement.put(f"/allocations/{_holder(host)}", json=allocation)
        except http_errors.Conflict as error:
            if not self.is_closed(host):
                raise Conflict(f"{host} cannot be closed, because it is in use: {error}") from error

    def withdraw(self, host: str) -> None:
        """Delete climate's allocation of a node's memory, so that all projects can use the node."""
        with suppress(http_errors.NotFound):
            self._placement.delete(f"/allocations/{_holder(host)}")

    def is_closed(self, host: str) -> bool:
        """Return whether climate has allocated a node's memory, which closes the node."""
        return bool(self._get(f"/allocations/{_holder(host)}")["allocations"])

    def of_pool(self, pool: str, services: Mapping[str, str]) -> list[str]:
        """Return the host names ``service/node`` of the nodes of a reservation.

        ``services`` maps the name of each node of the cloud to the name of its compute service.
        """
        providers = self._get("/resource_providers", member_of=pool)["resource_providers"]
        names = (provider["name"].removeprefix(_PREFIX) for provider in providers)
        return sorted(f"{services[name]}/{name}" for name in names if name in services)

    def add(self, pool: str, host: str, project_id: str, size: Mapping[str, int]) -> None:
        """Add a closed node to a reservation, and let the project boot servers on the node.

        To do so, create the reservation's private flavor, and give the project access to it.
        ``size`` contains the sizes of the flavor: ``vcpus``, ``ram`` (MiB) and ``disk`` (GiB).
        Raises Conflict if another reservation still has the node.
        """
        self.enroll(host)
        present = set(self._get(f"{_path(host)}/aggregates")["aggregates"])
        if others := present - {pool}:
            raise Conflict(f"{host} still belongs to reservation {', '.join(sorted(others))}")
        self._write(f"{_path(host)}/aggregates", aggregates=[pool])
        self._placement.put(f"/resource_classes/{reservation_class(pool)}")
        self._ensure_flavor(pool, size)
        self._write(
            f"{_path(host)}/inventories", inventories={reservation_class(pool): {"total": 1}}
        )
        if project_id not in {access.tenant_id for access in self._access(pool)}:
            self._nova.flavor_access.add_tenant_access(pool, project_id)

    def close(self, pool: str) -> None:
        """Revoke the access of all projects to a reservation's flavor."""
        for access in self._access(pool):
            self._nova.flavor_access.remove_tenant_access(pool, access.tenant_id)

    def remove(self, pool: str, host: str) -> None:
        """Remove a node from a reservation; the node is then closed to all projects.

        Placement rejects this request while servers of the reservation are on the node.
        """
        if pool in self._get(f"{_path(host)}/aggregates")["aggregates"]:
            self._write(f"{_path(host)}/inventories", inventories={})
            self._write(f"{_path(host)}/aggregates", aggregates=[])

    def clear(self, pool: str) -> None:
        """Delete the flavor and the resource class of a reservation, if they exist."""
        with suppress(nova_errors.NotFound):
            self._nova.flavors.delete(pool)
        with suppress(http_errors.NotFound):
            self._placement.delete(f"/resource_classes/{reservation_class(pool)}")

    def _ensure_flavor(self, pool: str, size: Mapping[str, int]) -> None:
        try:
            flavor = self._nova.flavors.get(pool)
        except nova_errors.NotFound:
            name = f"reservation:{pool}"
            flavor = self._nova.flavors.create(name, **size, flavorid=pool, is_public=False)
        needs = {"VCPU": 1, "MEMORY_MB": 0, "DISK_GB": 0, reservation_class(pool): 1}
        flavor.set_keys({f"resources:{name}": str(count) for name, count in needs.items()})

    def _access(self, pool: str) -> list[Any]:
        try:
            return list(self._nova.flavor_access.list(flavor=pool))
        except nova_errors.NotFound:
            return []

    def _root(self, host: str) -> str:
        """Return the UUID of a node's resource provider; raise Conflict if Placement has none."""
        providers = self._get("/resource_providers", name=_node(host))["resource_providers"]
        if not providers:
            raise Conflict(f"Placement has no resource provider {_node(host)}")
        return str(providers[0]["uuid"])

    def _write(self, path: str, **values: Any) -> None:
        """Write ``values`` to the Placement object at ``path``, if it does not have them yet.

        Read the object first, and retry if another process changes the object in between.
        """
        for retries in reversed(range(_RACES)):
            present = self._get(path)
            if _has_names(present, values):
                return
            try:
                self._placement.put(path, json={**present, **values})
            except http_errors.Conflict:
                if not retries:
                    raise
            else:
                return

    def _get(self, path: str, **query: str) -> dict[str, Any]:
        return dict(self._placement.get(path, params=query).json())


def _node(host: str) -> str:
    return host.partition("/")[2]


def _child_name(host: str) -> str:
    return f"{_PREFIX}{_node(host)}"


def _child(host: str) -> str:
    """Return the UUID of a node's child provider, which is derived from the node's name."""
    return str(uuid.uuid5(_SPACE, f"child of {host}"))


def _path(host: str) -> str:
    return f"/resource_providers/{_child(host)}"


def _has_names(present: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Return whether ``present`` has the same names as ``values`` under each key of ``values``.

    Under a key is a list of names, or a mapping whose keys are names. The function compares only
    the keys of such a mapping, because Placement adds defaults to the values.
    """
    return all(sorted(present[name]) == sorted(value) for name, value in values.items())


def _holder(host: str) -> str:
    """Return the consumer id of the allocation with which climate closes a node in Placement.

    The id is derived from the name of the node.
    """
    return str(uuid.uuid5(_SPACE, host))
