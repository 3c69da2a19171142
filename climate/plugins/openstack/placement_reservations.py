"""Instance slots in Placement: how many instances of a reservation each host can run.

Each reservation has a resource class, and the reservation's flavor requests one unit of this class.
The inventory of the class is on a child provider of the host's provider, because nova-compute
removes unknown classes from the host's provider (Nova 34). climate creates the child provider with
the first slots of a host, and never deletes it: after the deletion of a provider that nova-compute
knows, nova-compute cannot build servers for minutes.

Each new server changes the generation of a provider, and Placement rejects writes with an old
generation. Therefore climate reads the generation before each write, and retries after a conflict.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from keystoneauth1 import exceptions as http_errors
from keystoneauth1.adapter import Adapter
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from climate.plugins.base import NotYet

_CLASS = "CUSTOM_RESERVATION_"
_CHILD = "climate_"
# The number of attempts to write an inventory that other processes change at the same time.
_RACES = 10


def reservation_class(reservation_id: str) -> str:
    """Return the name of a reservation's resource class."""
    return f"{_CLASS}{reservation_id.upper().replace('-', '_')}"


class PlacementSlots:
    """Reads and changes the slots of reservations in Placement. Raises keystoneauth's errors.

    A slot is reserved capacity on a compute service for one instance.
    """

    def __init__(self, placement: Adapter) -> None:
        self._placement = placement

    def put(self, host: str, root: Callable[[], str], reservation_id: str, count: int) -> None:
        """Set the number of slots of a reservation on a host to ``count``.

        A slot is reserved capacity for one instance. The function ``root`` returns the UUID of the
        host's resource provider. ``put`` calls ``root`` only if the host has no child provider yet.
        """
        child = self._child(host) or self._create_child(host, root())
        self._write(f"{_path(child)}/inventories", reservation_class(reservation_id), count)

    @retry(
        retry=retry_if_exception_type(http_errors.Conflict),
        stop=stop_after_attempt(_RACES),
        reraise=True,
    )
    def _write(self, path: str, name: str, count: int) -> None:
        present = self._get(path)
        inventories = present["inventories"]
        if inventories.get(name, {}).get("total") != count:
            changed = {**inventories, name: {"total": count, "max_unit": 1}}
            self._placement.put(path, json={**present, "inventories": changed})

    def clear(self, host: str, reservation_id: str) -> None:
        """Remove the slots of a reservation from a host; raise NotYet while a slot is in use."""
        if child := self._child(host):
            self._clear(child, reservation_id)

    def servers(self, host: str, reservation_id: str) -> list[str]:
        """Return the ids of the servers in a reservation's slots on a host.

        Servers that Nova is still building are included.
        """
        if not (child := self._child(host)):
            return []
        allocations = self._get(f"{_path(child)}/allocations")["allocations"]
        name = reservation_class(reservation_id)
        return sorted(id_ for id_, record in allocations.items() if name in record["resources"])

    def counts(self) -> dict[str, dict[str, int]]:
        """Return the number of slots of each reservation on each host.

        The result is a mapping from host to a mapping from reservation id to number.
        """
        return {
            child["name"].removeprefix(_CHILD): {
                _reservation(name): inventory["total"]
                for name, inventory in self._inventories(child["uuid"]).items()
                if name.startswith(_CLASS)
            }
            for child in self._children()
        }

    def reservations(self) -> set[str]:
        """Return the ids of the reservations that have a resource class."""
        classes = self._get("/resource_classes")["resource_classes"]
        names = (record["name"] for record in classes)
        return {_reservation(name) for name in names if name.startswith(_CLASS)}

    def ensure_class(self, reservation_id: str) -> None:
        """Create the resource class of a reservation, if it does not exist yet."""
        self._placement.put(f"/resource_classes/{reservation_class(reservation_id)}")

    def delete_class(self, reservation_id: str) -> None:
        """Delete the slots of a reservation on all hosts, and the reservation's resource class.

        Does nothing if the class does not exist. Raises NotYet while a slot is in use.
        """
        path = f"/resource_classes/{reservation_class(reservation_id)}"
        with suppress(http_errors.NotFound):
            try:
                self._placement.delete(path)
            except http_errors.Conflict:
                for child in self._children():
                    self._clear(child["uuid"], reservation_id)
                self._placement.delete(path)

    def _clear(self, child: str, reservation_id: str) -> None:
        try:
            self._placement.delete(
                f"{_path(child)}/inventories/{reservation_class(reservation_id)}"
            )
        except http_errors.NotFound:
            return
        except http_errors.Conflict as error:
            raise NotYet(f"slots of reservation {reservation_id} are in use: {error}") from error

    def _children(self) -> list[dict[str, Any]]:
        providers = self._get("/resource_providers")["resource_providers"]
        return [provider for provider in providers if provider["name"].startswith(_CHILD)]

    def _inventories(self, child: str) -> dict[str, Any]:
        return dict(self._get(f"{_path(child)}/inventories")["inventories"])

    def _child(self, host: str) -> str | None:
        query = {"name": f"{_CHILD}{host}"}
        providers = self._get("/resource_providers", **query)["resource_providers"]
        return str(providers[0]["uuid"]) if providers else None

    def _create_child(self, host: str, root: str) -> str:
        provider = {"name": f"{_CHILD}{host}", "parent_provider_uuid": root}
        with suppress(http_errors.Conflict):  # another process was first
            self._placement.post("/resource_providers", json=provider)
        return str(self._child(host))

    def _get(self, path: str, **query: str) -> dict[str, Any]:
        return dict(self._placement.get(path, params=query).json())


def _path(provider: str) -> str:
    return f"/resource_providers/{provider}"


def _reservation(resource_class: str) -> str:
    return resource_class.removeprefix(_CLASS).lower().replace("_", "-")
