"""Reserves single nodes of a compute service with several nodes, with the help of Placement.

Nova's host aggregates contain whole services, so they cannot separate the nodes of one service.
Therefore climate uses Placement:

- To close a node to all projects, climate allocates all memory of the node. A node of Ironic has no
  memory in Placement, but one unit of its resource class; then climate allocates this unit.
- climate adds a child provider to the resource provider of each node. Each reservation has its own
  resource class. Only the child providers of the reservation's nodes offer this class.
- The reservation's private flavor requests this class, and no memory. The flavor also requests one
  VCPU of the node: if a flavor requests only a class of a child provider, Nova finds no host for it
  (Nova 34, Placement 16). A node of Ironic has no VCPU in Placement. There the flavor requests one
  unit of the class NODE_CLASS, which a configuration file of nova-compute adds to each node.
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
from climate.plugins.base import NotYet
from climate.plugins.openstack.placement_reservations import reservation_class
from climate.plugins.openstack.servers import HOLD

# Since 1.38 allocations have a consumer type.
MICROVERSION = "1.38"
_SPACE = uuid.UUID("6d1c1a52-94a5-5f39-8f0a-0c0d6a5c9a11")
# Attempts to write to a provider that others change at the same time.
_RACES = 5
_PREFIX = "climate_"
# The resource class that a file in nova-compute's ``provider_config_location`` adds to each node.
NODE_CLASS = "CUSTOM_CLIMATE_NODE"
_CUSTOM = "CUSTOM_"

Inventories = Mapping[str, Mapping[str, Any]]


class NovaNodes:
    """The operations of NovaCloud on hosts that are single nodes of a compute service.

    climate never deletes the child providers that it adds to nodes. After the deletion of a
    provider that nova-compute knows, nova-compute cannot build servers for minutes.
    """

    def __init__(self, placement: Adapter, nova: Any) -> None:  # noqa: ANN401 - novaclient's
        self._placement = placement
        self._nova = nova

    def enroll(self, host: str) -> None:
        """Close a node to all projects by allocating all its memory, or its class. Idempotent.

        Raises Conflict if Placement lacks an inventory that climate needs, or if the node is in use
        or unavailable.
        """
        root = self._root(host)
        provider = {"name": _child_name(host), "uuid": _child(host), "parent_provider_uuid": root}
        with suppress(http_errors.Conflict):  # it exists
            self._placement.post("/resource_providers", json=provider)
        if self.is_closed(host):
            return
        inventories = self._get(f"/resource_providers/{root}/inventories")["inventories"]
        base_class(host, inventories)
        allocation = {
            "allocations": {root: {"resources": closing_amounts(host, inventories)}},
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
        """Delete the allocation with which climate closes a node: all projects can use the node."""
        with suppress(http_errors.NotFound):
            self._placement.delete(f"/allocations/{_holder(host)}")

    def is_closed(self, host: str) -> bool:
        """Return whether climate's allocation closes the node."""
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
        Raises Conflict if another reservation still has the node, and NotYet while Ironic has the
        node not available, for instance while it cleans the node.
        """
        self.enroll(host)
        inventories = self._get(f"/resource_providers/{self._root(host)}/inventories")[
            "inventories"
        ]
        if is_unavailable(inventories) and not self._is_open(pool, host):
            raise NotYet(
                f"{host} is not available in Ironic: in cleaning, in maintenance or in use"
            )
        present = set(self._get(f"{_path(host)}/aggregates")["aggregates"])
        if others := present - {pool}:
            raise Conflict(f"{host} still belongs to reservation {', '.join(sorted(others))}")
        self._write(f"{_path(host)}/aggregates", aggregates=[pool])
        self._placement.put(f"/resource_classes/{reservation_class(pool)}")
        self._ensure_flavor(pool, size, base_class(host, inventories))
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

    def _is_open(self, pool: str, host: str) -> bool:
        """Return whether the servers of a reservation can already use a node."""
        inventories = self._get(f"{_path(host)}/inventories")["inventories"]
        return reservation_class(pool) in inventories

    def _ensure_flavor(self, pool: str, size: Mapping[str, int], base: str) -> None:
        """Create the private flavor of a reservation. ``base`` is the class of the node itself.

        Raises Conflict if the flavor requests another class, because of the reservation's other
        nodes: then nothing could start on one of the nodes.
        """
        try:
            flavor = self._nova.flavors.get(pool)
        except nova_errors.NotFound:
            name = f"reservation:{pool}"
            flavor = self._nova.flavors.create(name, **size, flavorid=pool, is_public=False)
        specs, present = flavor_specs(pool, base), flavor.get_keys()
        if contradict(present, specs):
            raise Conflict(f"reservation {pool} has nodes of Ironic together with other nodes")
        flavor.set_keys(specs)

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


def closing_amounts(host: str, inventories: Inventories) -> dict[str, int]:
    """Return the amounts to allocate so that no other server fits on a node.

    ``inventories`` are those of the node's own provider in Placement. Raises Conflict if climate
    cannot close the node.
    """
    memory = {"MEMORY_MB"} & inventories.keys()
    amounts = {
        name: inventories[name]["total"] - inventories[name]["reserved"]
        for name in memory or _hardware_classes(inventories)
    }
    if not amounts:
        raise Conflict(
            f"{host} cannot be closed: it has neither MEMORY_MB nor a class of its hardware in"
            " Placement"
        )
    if not all(amounts.values()):
        raise Conflict(
            f"{host} cannot be closed, because it is in use or not available: all of its"
            f" {', '.join(sorted(amounts))} is reserved in Placement"
        )
    return amounts


def base_class(host: str, inventories: Inventories) -> str:
    """Return the resource class of a node of which a reservation's flavor requests one unit.

    Raises Conflict if the node has no such class.
    """
    for name in ("VCPU", NODE_CLASS):
        if name in inventories:
            return name
    raise Conflict(
        f"{host} has neither VCPU nor {NODE_CLASS} in Placement: add {NODE_CLASS} with a file in"
        " provider_config_location of its nova-compute"
    )


def is_unavailable(inventories: Inventories) -> bool:
    """Return whether a node belongs to Ironic and cannot get a server now.

    Nova reserves the class of such a node in Placement: while a server is on the node, during its
    cleaning, and during maintenance.
    """
    if "MEMORY_MB" in inventories:
        return False
    classes = [inventories[name] for name in _hardware_classes(inventories)]
    return any(record["reserved"] >= record["total"] for record in classes)


def flavor_specs(pool: str, base: str) -> dict[str, str]:
    """Return the extra specs of a reservation's flavor: one unit of ``base``, and one of a node."""
    needs = {"VCPU": 0, "MEMORY_MB": 0, "DISK_GB": 0, base: 1, reservation_class(pool): 1}
    return {f"resources:{name}": str(count) for name, count in needs.items()}


def contradict(present: Mapping[str, str], specs: Mapping[str, str]) -> bool:
    """Return whether a flavor already has other values of ``specs``. It may have further specs."""
    return any(present.get(name, value) != value for name, value in specs.items())


def _hardware_classes(inventories: Inventories) -> set[str]:
    """Return the custom resource classes of a node, which Ironic has set."""
    return {name for name in inventories if name.startswith(_CUSTOM) and name != NODE_CLASS}


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
