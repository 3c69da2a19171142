"""Filling rooms with volumes, and emptying them, in steps that may be interrupted anywhere.

What is in a room is looked at each time, and its quota bounds what is ever made there: a request
that was on its way when somebody died cannot make more than was reserved.
"""

from collections.abc import Sequence
from functools import partial

from climate.core.lease.model import Lease
from climate.plugins.base import NotYet, do_all
from climate.plugins.volumes.cloud import Room, Volume, VolumeCloud

# What Cinder is at by itself. Whoever meets such a volume waits, until it is still.
_BUSY = {
    "attaching",
    "backing-up",
    "creating",
    "deleting",
    "detaching",
    "downloading",
    "extending",
    "maintenance",
    "managing",
    "restoring-backup",
    "retyping",
    "uploading",
}
_GOING = {"deleting", "error_deleting"}
_MADE = {"available", "in-use"}


class NotMade(RuntimeError):
    """Cinder took a volume on and could not make it."""


def fill(cloud: VolumeCloud, lease: Lease, room: Room, count: int, size: int) -> list[str]:
    """Have ``count`` volumes in a room; return the ids of those that were made for its lease.

    Those that the project made count. Raises NotYet while they are being made, and NotMade if
    Cinder could not; what is left of that is deleted.
    """
    there = cloud.volumes(room.id)
    ours = [one for one in there if one.reservation_id == room.reservation_id]
    failed = [one for one in ours if one.status == "error"]
    do_all(*(partial(cloud.delete, one) for one in failed))
    if failed:
        ids = ", ".join(one.id for one in failed)
        raise NotMade(f"Cinder could not make volumes {ids}: its messages of them say why")
    staying = [one for one in there if one.status not in _GOING]
    if len(staying) < count:
        names = (f"{lease.name}-{number}" for number in range(len(staying) + 1, count + 1))
        do_all(*(partial(_make, cloud, lease, room, name, size) for name in names))
        there = cloud.volumes(room.id)
        ours = [one for one in there if one.reservation_id == room.reservation_id]
    _wait([one for one in ours if one.status not in _MADE], "made")
    return sorted(one.id for one in ours)


def _make(cloud: VolumeCloud, lease: Lease, room: Room, name: str, size: int) -> None:
    cloud.create(lease, room, name, size)


def empty(cloud: VolumeCloud, room: Room, *, keep: bool) -> None:
    """Have no volume in a room: they are deleted, or made volumes of the type that it is of.

    Raises NotYet while there are any; one that cannot be deleted strands no other.
    """
    do_all(*(partial(_take, cloud, room, one, keep=keep) for one in cloud.volumes(room.id)))
    _wait(cloud.volumes(room.id), "taken from the reservation")


def _take(cloud: VolumeCloud, room: Room, volume: Volume, *, keep: bool) -> None:
    """Do the next that there is to do about one."""
    if volume.status in _BUSY and not volume.is_still:
        return
    if keep and volume.status in _MADE:
        cloud.move(volume, room.base_id)
    elif keep and volume.status not in {"error", *_GOING}:
        raise NotYet(f"volume {volume.id} is {volume.status}, and cannot be kept as that")
    elif volume.is_attached:
        cloud.detach(volume)
    else:
        cloud.delete(volume)


def _wait(volumes: Sequence[Volume], what: str) -> None:
    if volumes:
        said = ", ".join(f"{one.id} is {one.status}" for one in volumes)
        raise NotYet(f"volumes are not {what} yet: {said}")
