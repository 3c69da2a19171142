"""The slots that a cloud has, against those of leases. Looks only; repairs are offered."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from climate.plugins.base import Difference, Expected, Holding
from climate.plugins.instances.cloud import InstanceCloud, Slots

_NONE = Slots((), {})


def differences(
    cloud: InstanceCloud,
    expected: Callable[[], Expected],
    counts: Callable[[Holding], Mapping[str, int]],
) -> Iterator[Difference]:
    """Name every difference; reservations that a manager is at are left out.

    ``counts`` says how many slots a reservation has on each host that works.
    """
    present = cloud.slots()
    told = expected()
    for holding in told.running:
        slots = present.get(holding.reservation.id, _NONE)
        yield from _of_running(cloud, holding, counts(holding), slots)
    for id_ in sorted(present.keys() - set(told.known)):
        yield _stale(cloud, id_, present[id_])


def _of_running(
    cloud: InstanceCloud, holding: Holding, wanted: Mapping[str, int], slots: Slots
) -> Iterator[Difference]:
    """Compare a running reservation; the manager does it over again to repair it."""
    mine = f"reservation {holding.reservation.id} of lease {holding.lease.id}"
    again, owner = holding.lease.id, holding.lease.project_id
    if set(slots.projects) != {owner}:
        users = ", ".join(sorted(slots.projects)) or "nobody"
        yield Difference(f"{mine} is open to {users}, not to {owner} alone", lease_id=again)
    for host, count in sorted(wanted.items()):
        if slots.hosts.get(host) != count:
            there = slots.hosts.get(host, 0)
            yield Difference(f"{mine} has {there} slots on {host}, not {count}", lease_id=again)
    held = {resource.external_id for resource in holding.resources}
    for host in sorted(slots.hosts.keys() - held):
        servers = cloud.slot_servers(holding.reservation.id, host)
        yield Difference(
            f"{mine} has slots on {host}, which is not its own{_with(servers)}",
            lease_id=None if servers else again,
        )


def _stale(cloud: InstanceCloud, id_: str, slots: Slots) -> Difference:
    """Slots of which the reservation is over; cleared away unless somebody is in them."""
    servers = cloud.slot_servers(id_)
    hosts = ", ".join(sorted(slots.hosts)) or "none"
    return Difference(
        f"slots {id_} are of no running reservation, and on hosts {hosts}{_with(servers)}",
        None if servers else partial(_clear, cloud, id_, sorted(slots.hosts)),
        reservation_id=id_,
    )


def _with(servers: Sequence[str]) -> str:
    return f" with servers {', '.join(servers)}" if servers else ""


def _clear(cloud: InstanceCloud, id_: str, hosts: Sequence[str]) -> None:
    cloud.close_slots(id_)
    for host in hosts:
        cloud.clear_host(id_, host)
    cloud.delete_slots(id_)
