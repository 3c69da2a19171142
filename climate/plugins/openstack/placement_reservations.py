"""How many instances of a reservation a host has room for, as Placement is told.

Each reservation has a resource class, of which its flavor takes one. What a host has of it is on a
child of the host's provider, for nova-compute removes from its own what it does not know (tried
with Nova 34). The child is made when it is first needed and never removed, as nova-compute fails
builds for minutes after a provider that it has seen is gone.

A provider's generation moves whenever a server comes or goes, so what is written is read before,
and written again if somebody else was faster.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from keystoneauth1 import exceptions as answers
from keystoneauth1.adapter import Adapter

from climate.plugins.base import NotYet

_CLASS = "CUSTOM_RESERVATION_"
_CHILD = "climate_"
_RACES = 10


def reservation_class(reservation_id: str) -> str:
    """Return the resource class of a reservation."""
    return f"{_CLASS}{reservation_id.upper().replace('-', '_')}"


class PlacementSlots:
    """Slots by host (compute service) and reservation. Raises what keystoneauth raises."""

    def __init__(self, placement: Adapter) -> None:
        """Work with this way into Placement."""
        self._placement = placement

    def put(self, host: str, root: Callable[[], str], reservation_id: str, count: int) -> None:
        """Have so many slots on a host, the UUID of whose provider is ``root`` if need be."""
        child = self._child(host) or self._make(host, root())
        path, name = f"{_path(child)}/inventories", reservation_class(reservation_id)
        for left in reversed(range(_RACES)):
            present = self._get(path)
            inventories = present["inventories"]
            if inventories.get(name, {}).get("total") == count:
                return
            wanted = {**inventories, name: {"total": count, "max_unit": 1}}
            try:
                self._placement.put(path, json={**present, "inventories": wanted})
            except answers.Conflict:
                if not left:
                    raise
            else:
                return

    def clear(self, host: str, reservation_id: str) -> None:
        """Have no slots on a host; raises NotYet if one is in use."""
        if child := self._child(host):
            self._clear(child, reservation_id)

    def servers(self, host: str, reservation_id: str) -> list[str]:
        """Return who is in the slots on a host, or on the way there."""
        if not (child := self._child(host)):
            return []
        found = self._get(f"{_path(child)}/allocations")["allocations"]
        name = reservation_class(reservation_id)
        return sorted(id_ for id_, taken in found.items() if name in taken["resources"])

    def counts(self) -> dict[str, dict[str, int]]:
        """Return all slots there are, by host and reservation."""
        return {
            one["name"].removeprefix(_CHILD): {
                _reservation(name): told["total"]
                for name, told in self._get(f"{_path(one['uuid'])}/inventories")[
                    "inventories"
                ].items()
                if name.startswith(_CLASS)
            }
            for one in self._children()
        }

    def reservations(self) -> set[str]:
        """Return the reservations that have a resource class."""
        found = self._get("/resource_classes")["resource_classes"]
        return {_reservation(one["name"]) for one in found if one["name"].startswith(_CLASS)}

    def ensure_class(self, reservation_id: str) -> None:
        """Make the resource class of a reservation."""
        self._placement.put(f"/resource_classes/{reservation_class(reservation_id)}")

    def delete_class(self, reservation_id: str) -> None:
        """Remove the resource class of a reservation, and what any host still has of it."""
        path = f"/resource_classes/{reservation_class(reservation_id)}"
        with suppress(answers.NotFound):
            try:
                self._placement.delete(path)
            except answers.Conflict:
                for child in self._children():
                    self._clear(child["uuid"], reservation_id)
                self._placement.delete(path)

    def _clear(self, child: str, reservation_id: str) -> None:
        try:
            self._placement.delete(
                f"{_path(child)}/inventories/{reservation_class(reservation_id)}"
            )
        except answers.NotFound:
            return
        except answers.Conflict as error:
            raise NotYet(f"slots of reservation {reservation_id} are in use: {error}") from error

    def _children(self) -> list[dict[str, Any]]:
        found = self._get("/resource_providers")["resource_providers"]
        return [one for one in found if one["name"].startswith(_CHILD)]

    def _child(self, host: str) -> str | None:
        found = self._get("/resource_providers", name=f"{_CHILD}{host}")["resource_providers"]
        return str(found[0]["uuid"]) if found else None

    def _make(self, host: str, root: str) -> str:
        made = {"name": f"{_CHILD}{host}", "parent_provider_uuid": root}
        with suppress(answers.Conflict):  # somebody else was first
            self._placement.post("/resource_providers", json=made)
        return str(self._child(host))

    def _get(self, path: str, **query: str) -> dict[str, Any]:
        return dict(self._placement.get(path, params=query).json())


def _path(provider: str) -> str:
    return f"/resource_providers/{provider}"


def _reservation(resource_class: str) -> str:
    return resource_class.removeprefix(_CLASS).lower().replace("_", "-")
