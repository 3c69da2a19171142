"""The rooms that a cloud has, against those of leases. Looks only; repairs are offered."""

from collections.abc import Callable, Iterator
from functools import partial

from climate.plugins.base import Difference, Expected, Holding
from climate.plugins.volumes.cloud import Quota, Room, VolumeCloud


def differences(
    cloud: VolumeCloud, expected: Callable[[], Expected], wanted: Callable[[Holding], Quota]
) -> Iterator[Difference]:
    """Name every difference; reservations that a manager is at are left out.

    ``wanted`` says what a reservation may have. Volumes in no room are other people's.
    """
    there = {room.reservation_id: room for room in cloud.rooms()}
    told = expected()
    for holding in told.running:
        yield from _of_running(cloud, holding, wanted(holding), there)
    for id_ in sorted(there.keys() - told.known):
        yield _stale(cloud, there[id_])


def _of_running(
    cloud: VolumeCloud, holding: Holding, wanted: Quota, there: dict[str, Room]
) -> Iterator[Difference]:
    """Compare a running reservation; the manager does it over again to repair it."""
    mine = f"reservation {holding.reservation.id} of lease {holding.lease.id}"
    again, owner = holding.lease.id, holding.lease.project_id
    room = there.get(holding.reservation.id)
    if room is None:
        if any(one.reservable for one in holding.resources):
            yield Difference(f"{mine} lacks its volume type", lease_id=again)
        return
    users = cloud.users(room)
    if set(users) != {owner}:
        named = ", ".join(sorted(users)) or "nobody"
        yield Difference(
            f"{mine}: its volume type is open to {named}, not to {owner} alone", None, again
        )
    quota = cloud.quota(room, owner)
    if quota != wanted:
        yield Difference(
            f"{mine} has a quota of {quota.volumes} volumes and {quota.gigabytes} GiB, not"
            f" {wanted.volumes} and {wanted.gigabytes}",
            lease_id=again,
        )


def _stale(cloud: VolumeCloud, room: Room) -> Difference:
    """A room of which the reservation is over; deleted unless there is something in it."""
    volumes = cloud.volumes(room.id)
    ids = ", ".join(one.id for one in volumes)
    return Difference(
        f"volume type {room.name} is of no running reservation"
        + (f", and volumes {ids} are of it" if volumes else ""),
        None if volumes else partial(cloud.delete_room, room),
        reservation_id=room.reservation_id,
    )
