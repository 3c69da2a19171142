"""Audit of instances: compares the slots in the cloud with the running reservations.

A slot is reserved capacity on a host for one instance. The audit changes nothing. The Drift objects
that it returns have functions that repair the differences.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from climate.plugins.base import Drift, ExpectedState, HeldReservation
from climate.plugins.instances.cloud import InstanceCloud, Slots

_NONE = Slots((), {})


def find_drifts(
    cloud: InstanceCloud,
    expected: Callable[[], ExpectedState],
    counts: Callable[[HeldReservation], Mapping[str, int]],
) -> Iterator[Drift]:
    """Yield the differences between the slots in the cloud and the running reservations.

    A slot is reserved capacity on a host for one instance. Reservations in
    ``ExpectedState.changing`` are ignored. ``counts`` returns the number of slots that a
    reservation must have, by host.
    """
    present = cloud.slots()
    state = expected()
    for held in state.running:
        slots = present.get(held.reservation.id, _NONE)
        yield from _drifts_of_running(cloud, held, counts(held), slots)
    for id_ in sorted(present.keys() - set(state.known)):
        yield _leftover(cloud, id_, present[id_])


def _drifts_of_running(
    cloud: InstanceCloud, held: HeldReservation, counts: Mapping[str, int], slots: Slots
) -> Iterator[Drift]:
    """Yield the differences between the cloud and a running reservation.

    ``counts`` contains the number of slots that the reservation must have, by host. ``slots`` are
    the slots in the cloud. To repair a difference, a manager starts the reservation again. There is
    no automatic repair if servers are on a host that the reservation should not have.
    """
    subject = f"reservation {held.reservation.id} of lease {held.lease.id}"
    lease_id, owner = held.lease.id, held.lease.project_id
    if set(slots.projects) != {owner}:
        users = ", ".join(sorted(slots.projects)) or "no project"
        yield Drift(f"{subject} is open to {users}, not to {owner} alone", lease_id=lease_id)
    for host, count in sorted(counts.items()):
        if slots.hosts.get(host) != count:
            present = slots.hosts.get(host, 0)
            yield Drift(f"{subject} has {present} slots on {host}, not {count}", lease_id=lease_id)
    reserved = {resource.external_id for resource in held.resources}
    for host in sorted(slots.hosts.keys() - reserved):
        servers = cloud.slot_servers(held.reservation.id, host)
        yield Drift(
            f"{subject} has slots on {host}, which is not its own{_with(servers)}",
            lease_id=None if servers else lease_id,
        )


def _leftover(cloud: InstanceCloud, id_: str, slots: Slots) -> Drift:
    """Return the drift for slots that belong to no running reservation.

    ``id_`` is the reservation id of the slots. The repair deletes the slots. If servers are in the
    slots, there is no automatic repair.
    """
    servers = cloud.slot_servers(id_)
    hosts = ", ".join(sorted(slots.hosts)) or "none"
    return Drift(
        f"slots {id_} are of no running reservation, and on hosts {hosts}{_with(servers)}",
        None if servers else partial(_delete, cloud, id_, sorted(slots.hosts)),
        reservation_id=id_,
    )


def _with(servers: Sequence[str]) -> str:
    return f" with servers {', '.join(servers)}" if servers else ""


def _delete(cloud: InstanceCloud, id_: str, hosts: Sequence[str]) -> None:
    cloud.close_slots(id_)
    for host in hosts:
        cloud.clear_host(id_, host)
    cloud.delete_slots(id_)
