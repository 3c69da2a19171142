"""What Cinder's volume types say: whether one is a room of ours, and what its pools have. Pure."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from climate.core.lease import Inventory
from climate.plugins.rooms import Room, VolumeType, is_room

_ROOM = re.compile(r"climate (?P<over>ended )?reservation:(?P<id>\S+) of (?P<base>\S+)", re.ASCII)


def described(room: Room, *, is_over: bool = False) -> str:
    """Return the description of a room's type, by which it is known as ours."""
    over = "ended " if is_over else ""
    return f"climate {over}reservation:{room.reservation_id} of {room.base_id}"


def as_room(found: Mapping[str, Any]) -> Room | None:
    """Return the room that a volume type is, None if it is somebody else's type."""
    said = _ROOM.fullmatch(found.get("description") or "")
    if said is None or not is_room(found["name"]):
        return None
    room = Room(
        id=found["id"], reservation_id=said["id"], base_id=said["base"], is_over=bool(said["over"])
    )
    return room if room.name == found["name"] else None


def as_type(found: Mapping[str, Any]) -> VolumeType:
    """Return a volume type."""
    specs = found.get("extra_specs") or {}
    return VolumeType(
        id=found["id"], name=found["name"], is_public=found["is_public"], extra_specs=specs
    )


def capacity_of(pools: Sequence[Mapping[str, Any]]) -> Inventory | None:
    """Return the GiB of pools together; None if there are none, or one does not know.

    Counted as Cinder's CapacityFilter does, thin pools with their over-subscription. A volume is in
    one pool.
    """
    sizes = [_size(pool) for pool in pools]
    known = [size for size in sizes if size is not None]
    if not known or len(known) < len(sizes):
        return None
    return Inventory(sum(known), max_unit=max(known))


def _size(pool: Mapping[str, Any]) -> int | None:
    try:
        total = float(pool["total_capacity_gb"])
        kept = float(pool.get("reserved_percentage") or 0)
        thin = str(pool.get("thin_provisioning_support")).lower() == "true"
        ratio = float(pool.get("max_over_subscription_ratio") or 1) if thin else 1.0
        return max(0, math.floor(total * (1 - kept / 100) * ratio))
    except (KeyError, TypeError, ValueError, OverflowError):  # infinite, unknown, auto
        return None
