"""Holds in Placement: allocations with which climate keeps a part of a host from all servers.

A hold leaves room on a host for the servers of one reservation. It has all of the other capacity of
the host's own resource provider, so Placement itself rejects the first server that does not fit.
Placement limits what one consumer can allocate (``max_unit``), but with an allocation ratio above 1
a host has more than that. So a hold has as many consumers as it needs, and one request changes all
of them together. Their ids are derived from the reservation, the host and a number.
"""

import math
import uuid
from collections.abc import Mapping
from typing import Any

from keystoneauth1 import exceptions as http_errors
from keystoneauth1.adapter import Adapter
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from climate.plugins.openstack.servers import HOLD

_SPACE = uuid.UUID("0f5b9b5e-5d0e-5f0e-9e0a-6a2f4c1d7b3e")
# The largest number of consumers of a hold: an allocation ratio above this leaves room.
_MOST = 1_000
# The number of attempts to write allocations that other processes change at the same time.
_RACES = 10

Amounts = Mapping[str, int]


class PlacementHolds:
    """Reads and changes the holds of reservations in Placement. Raises keystoneauth's errors."""

    def __init__(self, placement: Adapter) -> None:
        self._placement = placement

    @retry(
        retry=retry_if_exception_type(http_errors.Conflict),
        stop=stop_after_attempt(_RACES),
        reraise=True,
    )
    def put(self, reservation_id: str, host: str, root: str, room: Amounts) -> None:
        """Hold all of a host except ``room``, which maps resource classes to amounts. Idempotent.

        ``root`` is the UUID of the host's resource provider. Raises Conflict if servers already use
        more than ``room``.
        """
        inventories = self._get(f"/resource_providers/{root}/inventories")["inventories"]
        wanted = parts(inventories, room)
        present = self.consumers(reservation_id, host, root)
        changed: dict[str, Any] = {}
        for number, amounts in enumerate(wanted):
            id_ = _consumer(reservation_id, host, number)
            if present.pop(id_, None) != amounts:
                changed[id_] = self._changed(reservation_id, id_, root, amounts)
        for id_ in present:
            changed[id_] = self._changed(reservation_id, id_, root, {})
        if changed:
            self._placement.post("/allocations", json=changed)

    def remove(self, reservation_id: str, host: str, root: str) -> None:
        """Delete the hold of a reservation on a host, if there is one."""
        for id_ in self.consumers(reservation_id, host, root):
            self._placement.delete(f"/allocations/{id_}", raise_exc=False)

    def consumers(self, reservation_id: str, host: str, root: str) -> dict[str, Amounts]:
        """Return what each consumer of a hold has allocated, by consumer id; empty: no hold."""
        found = self._get(f"/resource_providers/{root}/allocations")["allocations"]
        own = {_consumer(reservation_id, host, number) for number in range(_MOST)}
        return {id_: found[id_]["resources"] for id_ in own & found.keys()}

    def _changed(
        self, reservation_id: str, consumer: str, root: str, amounts: Amounts
    ) -> dict[str, Any]:
        present = self._get(f"/allocations/{consumer}")
        return {
            "allocations": {root: {"resources": amounts}} if amounts else {},
            "project_id": reservation_id,
            "user_id": reservation_id,
            "consumer_generation": present.get("consumer_generation"),
            "consumer_type": HOLD,
        }

    def _get(self, path: str) -> dict[str, Any]:
        return dict(self._placement.get(path).json())


def parts(inventories: Mapping[str, Mapping[str, Any]], room: Amounts) -> list[dict[str, int]]:
    """Return the allocations that leave only ``room`` of a provider, one per consumer. Pure.

    ``inventories`` are those of the provider in Placement.
    """
    consumers: list[dict[str, int]] = []
    for name, record in sorted(inventories.items()):
        capacity = math.floor((record["total"] - record["reserved"]) * record["allocation_ratio"])
        step = record["step_size"]
        rest = (capacity - room.get(name, 0)) // step * step
        most = record["max_unit"] // step * step
        for number in range(_MOST):
            amount = min(rest, most)
            if amount < max(1, record["min_unit"]):
                break
            if number == len(consumers):
                consumers.append({})
            consumers[number][name] = amount
            rest -= amount
    return consumers


def _consumer(reservation_id: str, host: str, number: int) -> str:
    return str(uuid.uuid5(_SPACE, f"{reservation_id} {host} {number}"))
