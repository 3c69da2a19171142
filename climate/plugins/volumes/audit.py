"""Audit of volumes: compares the reserved volume types in the cloud with the leases.

A reserved type is the private volume type of a reservation. The audit changes nothing. The Drift
objects that it returns have functions that repair the differences.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from climate.plugins.base import Drift, ExpectedState, HeldReservation
from climate.plugins.request_fields import is_open
from climate.plugins.volumes.cloud import Quota, ReservedType, VolumeCloud
from climate.plugins.volumes.default_types import is_default


def find_drifts(
    cloud: VolumeCloud,
    expected: Callable[[], ExpectedState],
    quota_of: Callable[[HeldReservation], Quota],
    restore_default: Callable[[ReservedType, str], None],
) -> Iterator[Drift]:
    """Yield the differences between the reserved volume types in the cloud and the leases.

    Reservations in ``ExpectedState.changing`` are ignored, and so are volume types that climate did
    not create. ``quota_of`` returns the quota that a reservation should have. ``restore_default``
    ends the use of a reserved type as the default type of a project.
    """
    present = {
        reserved_type.reservation_id: reserved_type for reserved_type in cloud.reserved_types()
    }
    state = expected()
    for held in state.running:
        yield from _drifts_of_running(cloud, held, quota_of(held), present)
    yield from _drifts_of_defaults(cloud, state.running, present)
    for id_ in sorted(present.keys() - state.known):
        yield _leftover(cloud, present[id_], restore_default)


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


def _drifts_of_defaults(
    cloud: VolumeCloud, running: Sequence[HeldReservation], present: Mapping[str, ReservedType]
) -> Iterator[Drift]:
    """Yield the open reservations of projects whose default type is not one of an open reservation.

    The start of one of them, as for other differences, sets the default type again.
    """
    held = [each for each in running if is_open(each.reservation.params)]
    defaults = cloud.default_types() if held else {}
    for each in held:
        is_present = each.reservation.id in present
        if is_present and not is_default(defaults, list(present.values()), each.lease.project_id):
            yield Drift(
                f"reservation {each.reservation.id} of lease {each.lease.id} is open, but the"
                f" default volume type of project {each.lease.project_id} is"
                f" {defaults.get(each.lease.project_id, 'not set')}",
                lease_id=each.lease.id,
            )


def _leftover(
    cloud: VolumeCloud,
    reserved_type: ReservedType,
    restore_default: Callable[[ReservedType, str], None],
) -> Drift:
    """Return the drift for a reserved volume type that belongs to no running reservation.

    The repair restores the default types of projects, and deletes the type. If volumes of the type
    exist, there is no automatic repair.
    """
    volumes = cloud.volumes(reserved_type.id)
    ids = ", ".join(volume.id for volume in volumes)

    def repair() -> None:
        if reserved_type.former_default is not None:
            for project_id, type_id in cloud.default_types().items():
                if type_id == reserved_type.id:
                    restore_default(reserved_type, project_id)
        cloud.delete_reserved_type(reserved_type)

    return Drift(
        f"volume type {reserved_type.name} is of no running reservation"
        + (f", and volumes {ids} are of it" if volumes else ""),
        None if volumes else repair,
        reservation_id=reserved_type.reservation_id,
    )
