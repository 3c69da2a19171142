"""Audit of volumes: compares the reserved volume types in the cloud with the leases.

A reserved type is the private volume type of a reservation. The audit changes nothing. The Drift
objects that it returns have functions that repair the differences.
"""

from collections.abc import Callable, Iterator
from functools import partial

from climate.plugins.base import Drift, ExpectedState, HeldReservation
from climate.plugins.volumes.cloud import Quota, ReservedType, VolumeCloud


def find_drifts(
    cloud: VolumeCloud,
    expected: Callable[[], ExpectedState],
    quota_of: Callable[[HeldReservation], Quota],
) -> Iterator[Drift]:
    """Yield the differences between the reserved volume types in the cloud and the leases.

    Reservations in ``ExpectedState.changing`` are ignored, and so are volume types that climate did
    not create. ``quota_of`` returns the quota that a reservation should have.
    """
    present = {
        reserved_type.reservation_id: reserved_type for reserved_type in cloud.reserved_types()
    }
    state = expected()
    for held in state.running:
        yield from _drifts_of_running(cloud, held, quota_of(held), present)
    for id_ in sorted(present.keys() - state.known):
        yield _leftover(cloud, present[id_])


def _drifts_of_running(
    cloud: VolumeCloud, held: HeldReservation, expected: Quota, present: dict[str, ReservedType]
) -> Iterator[Drift]:
    """Yield the differences between the cloud and a running reservation.

    ``expected`` is the quota that the reservation should have. ``present`` contains the reserved
    types in the cloud by reservation id. To repair a difference, a manager starts the reservation
    again.
    """
    subject = f"reservation {held.reservation.id} of lease {held.lease.id}"
    lease_id, owner = held.lease.id, held.lease.project_id
    reserved_type = present.get(held.reservation.id)
    if reserved_type is None:
        if any(resource.reservable for resource in held.resources):
            yield Drift(f"{subject} lacks its volume type", lease_id=lease_id)
        return
    users = cloud.users(reserved_type)
    if set(users) != {owner}:
        projects = ", ".join(sorted(users)) or "no project"
        yield Drift(
            f"{subject}: its volume type is open to {projects}, not to {owner} alone",
            None,
            lease_id,
        )
    quota = cloud.quota(reserved_type, owner)
    if quota != expected:
        yield Drift(
            f"{subject} has a quota of {quota.volumes} volumes and {quota.gigabytes} GiB, not"
            f" {expected.volumes} and {expected.gigabytes}",
            lease_id=lease_id,
        )


def _leftover(cloud: VolumeCloud, reserved_type: ReservedType) -> Drift:
    """Return the drift for a reserved volume type that belongs to no running reservation.

    The repair deletes the type. If volumes of the type exist, there is no automatic repair.
    """
    volumes = cloud.volumes(reserved_type.id)
    ids = ", ".join(volume.id for volume in volumes)
    return Drift(
        f"volume type {reserved_type.name} is of no running reservation"
        + (f", and volumes {ids} are of it" if volumes else ""),
        None if volumes else partial(cloud.delete_reserved_type, reserved_type),
        reservation_id=reserved_type.reservation_id,
    )
