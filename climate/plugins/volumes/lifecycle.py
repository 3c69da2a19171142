"""Creates and removes the volumes of a reserved volume type, in steps that can be interrupted.

Each call lists the present volumes first. The quota of the type limits how many volumes can exist.
So there cannot be more volumes than reserved, even if a request of a manager that died arrives late
at Cinder.
"""

from collections.abc import Sequence
from functools import partial

from climate.core.lease.model import Lease
from climate.plugins.base import NotYet, run_all
from climate.plugins.volumes.cloud import ReservedType, Volume, VolumeCloud

# States in which Cinder works on a volume. climate waits until it has finished or is stuck.
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
_DELETING = {"deleting", "error_deleting"}
_READY = {"available", "in-use"}


class VolumeCreationFailed(RuntimeError):
    """Raised if Cinder accepted the request for a volume, but could not create the volume."""


def create_volumes(
    cloud: VolumeCloud, lease: Lease, reserved_type: ReservedType, count: int, size: int
) -> list[str]:
    """Create volumes of ``size`` GiB until the reserved type has ``count`` volumes.

    Volumes that the project created are counted, too; volumes that are being deleted are not.
    Returns the ids of the volumes that climate created. Raises NotYet while volumes are being
    created. If Cinder could not create a volume, deletes it and raises VolumeCreationFailed.
    """
    present = cloud.volumes(reserved_type.id)
    own = _own(present, reserved_type)
    failed = [volume for volume in own if volume.status == "error"]
    run_all(*(partial(cloud.delete, volume) for volume in failed))
    if failed:
        ids = ", ".join(volume.id for volume in failed)
        raise VolumeCreationFailed(
            f"Cinder could not create volumes {ids}: its messages about them have the reason"
        )
    staying = [volume for volume in present if volume.status not in _DELETING]
    if len(staying) < count:
        names = (f"{lease.name}-{number}" for number in range(len(staying) + 1, count + 1))
        run_all(*(partial(cloud.create, lease, reserved_type, name, size) for name in names))
        own = _own(cloud.volumes(reserved_type.id), reserved_type)
    _wait([volume for volume in own if volume.status not in _READY], "created")
    return sorted(volume.id for volume in own)


def _own(volumes: Sequence[Volume], reserved_type: ReservedType) -> list[Volume]:
    return [each for each in volumes if each.reservation_id == reserved_type.reservation_id]


def drain_volumes(cloud: VolumeCloud, reserved_type: ReservedType, *, keep: bool) -> None:
    """Delete all volumes of a reserved volume type (the private type of a reservation).

    If ``keep`` is set, delete only failed volumes, and change the type of all others to the base
    type. If one volume cannot be deleted or changed, go on with the next. Raises NotYet while
    volumes of the reserved type exist.
    """
    volumes = cloud.volumes(reserved_type.id)
    run_all(*(partial(_drain, cloud, reserved_type, each, keep=keep) for each in volumes))
    _wait(cloud.volumes(reserved_type.id), "removed from the reservation")


def _drain(cloud: VolumeCloud, reserved_type: ReservedType, volume: Volume, *, keep: bool) -> None:
    if volume.status in _BUSY and not volume.is_stuck:
        return
    if keep and volume.status in _READY:
        cloud.move(volume, reserved_type.base_id)
    elif keep and volume.status not in {"error", *_DELETING}:
        raise NotYet(f"volume {volume.id} is {volume.status} and cannot be kept in this state")
    elif volume.is_attached:
        cloud.detach(volume)
    else:
        cloud.delete(volume)


def _wait(volumes: Sequence[Volume], action: str) -> None:
    if volumes:
        states = ", ".join(f"{volume.id} is {volume.status}" for volume in volumes)
        raise NotYet(f"volumes are not {action} yet: {states}")
