"""Single nodes of a compute service that has several, kept apart in Placement.

Host aggregates hold services, so they cannot tell the nodes of one apart. A free node is closed
by an allocation of all its memory, which no server owns. A reservation opens it with a private
flavor that needs no memory, but a resource class that only a child provider of the node has:
whoever cannot see the flavor cannot get in. Tried with Nova 34 and Placement 16; a request for
the child alone finds no host, so the flavor takes one VCPU of the node as well.

Nodes are named ``service/node``. The child provider is made when a node is closed for the first
time and never removed, as nova-compute fails builds for minutes after a provider that it has seen
is gone. Which reservation has a node is its child's membership of a placement aggregate, whose
UUID is the reservation's.
"""

import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from keystoneauth1 import exceptions as answers
from keystoneauth1.adapter import Adapter
from novaclient import exceptions as refusals

from climate.core.errors import Conflict
from climate.plugins.openstack.placement_reservations import reservation_class
from climate.plugins.openstack.servers import HOLD

# 1.38: allocations say what kind of consumer holds them.
MICROVERSION = "1.38"
_SPACE = uuid.UUID("6d1c1a52-94a5-5f39-8f0a-0c0d6a5c9a11")
_RACES = 5
_PREFIX = "climate_"


class NovaNodes:
    """What NovaCloud does about hosts that are single nodes; the same verbs."""

    def __init__(self, placement: Adapter, nova: Any) -> None:  # noqa: ANN401 - novaclient's
        """Work with these two ways into the cloud."""
        self._placement = placement
        self._nova = nova

    def enroll(self, host: str) -> None:
        """Close a node: hold all its memory. Raises Conflict if it has none, or is in use."""
        root = self._root(host)
        made = {"name": _child_name(host), "uuid": _child(host), "parent_provider_uuid": root}
        with suppress(answers.Conflict):  # it is there
            self._placement.post("/resource_providers", json=made)
        if self.is_closed(host):
            return
        inventories = self._get(f"/resource_providers/{root}/inventories")["inventories"]
        if "MEMORY_MB" not in inventories:
            raise Conflict(f"{host} has no memory in Placement by which it could be closed")
        memory = inventories["MEMORY_MB"]["total"] - inventories["MEMORY_MB"]["reserved"]
        claim = {
            "allocations": {root: {"resources": {"MEMORY_MB": memory}}},
            "project_id": _holder(host),
            "user_id": _holder(host),
            "consumer_generation": None,
            "consumer_type": HOLD,
        }
        try:
            self._placement.put(f"/allocations/{_holder(host)}", json=claim)
        except answers.Conflict as error:
            if not self.is_closed(host):
                raise Conflict(f"{host} cannot be closed, something is on it: {error}") from error

    def withdraw(self, host: str) -> None:
        """Open a node to everybody again."""
        with suppress(answers.NotFound):
            self._placement.delete(f"/allocations/{_holder(host)}")

    def is_closed(self, host: str) -> bool:
        """Tell whether we hold the node's memory."""
        return bool(self._get(f"/allocations/{_holder(host)}")["allocations"])

    def of_pool(self, pool: str, services: Mapping[str, str]) -> list[str]:
        """Return the nodes that a reservation has; ``services`` is the service of each node."""
        found = self._get("/resource_providers", member_of=pool)["resource_providers"]
        names = (provider["name"].removeprefix(_PREFIX) for provider in found)
        return sorted(f"{services[name]}/{name}" for name in names if name in services)

    def add(self, pool: str, host: str, project_id: str, size: Mapping[str, int]) -> None:
        """Open a closed node to a project; ``size`` (vcpus, ram MiB, disk GiB) is the flavor's.

        Raises Conflict if another reservation still has the node.
        """
        self.enroll(host)
        present = set(self._get(f"{_path(host)}/aggregates")["aggregates"])
        if others := present - {pool}:
            raise Conflict(f"{host} is still of reservation {', '.join(sorted(others))}")
        self._write(f"{_path(host)}/aggregates", aggregates=[pool])
        self._placement.put(f"/resource_classes/{reservation_class(pool)}")
        self._ensure_flavor(pool, size)
        self._write(
            f"{_path(host)}/inventories", inventories={reservation_class(pool): {"total": 1}}
        )
        if project_id not in {one.tenant_id for one in self._access(pool)}:
            self._nova.flavor_access.add_tenant_access(pool, project_id)

    def close(self, pool: str) -> None:
        """Take the flavor of a reservation from everybody."""
        for one in self._access(pool):
            self._nova.flavor_access.remove_tenant_access(pool, one.tenant_id)

    def remove(self, pool: str, host: str) -> None:
        """Leave a node closed; Placement refuses while servers of the reservation are on it."""
        if pool in self._get(f"{_path(host)}/aggregates")["aggregates"]:
            self._write(f"{_path(host)}/inventories", inventories={})
            self._write(f"{_path(host)}/aggregates", aggregates=[])

    def clear(self, pool: str) -> None:
        """Remove what a reservation had besides its nodes; fine if it never had any."""
        with suppress(refusals.NotFound):
            self._nova.flavors.delete(pool)
        with suppress(answers.NotFound):
            self._placement.delete(f"/resource_classes/{reservation_class(pool)}")

    def _ensure_flavor(self, pool: str, size: Mapping[str, int]) -> None:
        try:
            flavor = self._nova.flavors.get(pool)
        except refusals.NotFound:
            name = f"reservation:{pool}"
            flavor = self._nova.flavors.create(name, **size, flavorid=pool, is_public=False)
        needs = {"VCPU": 1, "MEMORY_MB": 0, "DISK_GB": 0, reservation_class(pool): 1}
        flavor.set_keys({f"resources:{name}": str(count) for name, count in needs.items()})

    def _access(self, pool: str) -> list[Any]:
        try:
            return list(self._nova.flavor_access.list(flavor=pool))
        except refusals.NotFound:
            return []

    def _root(self, host: str) -> str:
        """Return the UUID of a node's provider; raises Conflict if Placement has none."""
        found = self._get("/resource_providers", name=_node(host))["resource_providers"]
        if not found:
            raise Conflict(f"Placement does not know {_node(host)}")
        return str(found[0]["uuid"])

    def _write(self, path: str, **wanted: Any) -> None:
        """Make what is at a provider's path so; again if somebody else wrote meanwhile."""
        for left in reversed(range(_RACES)):
            present = self._get(path)
            if _is_so(present, wanted):
                return
            try:
                self._placement.put(path, json={**present, **wanted})
            except answers.Conflict:
                if not left:
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
    """Return the UUID of the node's child provider: always the same."""
    return str(uuid.uuid5(_SPACE, f"child of {host}"))


def _path(host: str) -> str:
    return f"/resource_providers/{_child(host)}"


def _is_so(present: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Tell whether names are the same; Placement adds defaults to what is behind them."""
    return all(sorted(present[name]) == sorted(value) for name, value in wanted.items())


def _holder(host: str) -> str:
    """Return the consumer that holds a closed node's memory: always the same."""
    return str(uuid.uuid5(_SPACE, host))
