"""Audit of hosts: compares the pools in the cloud with the running reservations.

A pool is the set of hosts of one reservation. The audit changes nothing. The Drift objects that it
returns have functions that repair the differences.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from climate.plugins.base import Drift, ExpectedState, HeldReservation


@dataclass(frozen=True, slots=True)
class Pool:
    """The pool of a reservation in the cloud: its hosts, and the project that can use them.

    ``project_id`` is None if no project can use them.
    """

    project_id: str | None
    hosts: tuple[str, ...]


class AuditedCloud(Protocol):
    """The methods of a driver for hosts that an audit needs. HostCloud adds the other methods."""

    def pools(self) -> Mapping[str, Pool]:
        """Return the pools of all reservations by reservation id."""

    def free_hosts(self) -> Sequence[str]:
        """Return the names of the hosts in the free pool, which no project can use."""

    def servers(self, host: str) -> Sequence[str]:
        """Return the ids of the servers on a host."""

    def enroll(self, host: str) -> None:
        """Put a host into the free pool, which no project can use.

        Do nothing if the host is in a pool already.
        """

    def remove_host(self, pool: str, host: str) -> None:
        """Move a host from the pool of a reservation into the free pool."""

    def delete_pool(self, pool: str) -> None:
        """Delete the pool of a reservation, if the pool exists."""


def find_drifts(cloud: AuditedCloud, expected: Callable[[], ExpectedState]) -> Iterator[Drift]:
    """Yield the differences between the hosts in the cloud and the running reservations.

    Reservations that change at the moment (``ExpectedState.changing``) are ignored.
    """
    pools, free = cloud.pools(), set(cloud.free_hosts())
    state = expected()
    registered, running = state.registered, state.running
    for held in running:
        yield from _drifts_of_running(cloud, held, pools.get(held.reservation.id))
    for name, pool in sorted(pools.items()):
        if name not in state.known:
            yield _leftover(cloud, name, pool)
    names = {resource.external_id for resource in registered}
    closed = free.union(*(pool.hosts for pool in pools.values()))
    reserved = {resource.external_id for held in running for resource in held.resources}
    for host in sorted(names - closed - reserved):
        yield Drift(
            f"host {host} is registered and open to all projects", partial(cloud.enroll, host)
        )
    for host in sorted(free - names):
        yield Drift(f"host {host} is in the free pool and not registered")
    for host in sorted(free.intersection(names).difference(state.shared)):
        if servers := cloud.servers(host):
            yield Drift(f"host {host} is free, and has servers {', '.join(servers)}")


def _drifts_of_running(
    cloud: AuditedCloud, held: HeldReservation, pool: Pool | None
) -> Iterator[Drift]:
    """Yield the differences between the cloud and a running reservation.

    ``pool`` is the pool of the reservation; None if the pool is missing in the cloud. To repair a
    difference, a manager starts the reservation again. There is no automatic repair if servers are
    on a host that the reservation should not have.
    """
    subject = f"reservation {held.reservation.id} of lease {held.lease.id}"
    lease_id = held.lease.id
    if pool is None:
        yield Drift(f"{subject} has no pool", lease_id=lease_id)
        return
    if pool.project_id != held.lease.project_id:
        yield Drift(
            f"{subject} is open to {pool.project_id}, not to {held.lease.project_id}",
            lease_id=lease_id,
        )
    reserved = {resource.external_id for resource in held.resources}
    working = {resource.external_id for resource in held.resources if resource.reservable}
    for host in sorted(working - set(pool.hosts)):
        yield Drift(f"{subject} lacks host {host}", lease_id=lease_id)
    for host in sorted(set(pool.hosts) - reserved):
        servers = cloud.servers(host)
        with_servers = f", on which are servers {', '.join(servers)}" if servers else ""
        yield Drift(
            f"{subject} has host {host}, which is not its own{with_servers}",
            lease_id=None if servers else lease_id,
        )


def _leftover(cloud: AuditedCloud, name: str, pool: Pool) -> Drift:
    """Return the drift for a pool in the cloud that belongs to no running reservation.

    The repair deletes the pool. If servers are on the pool's hosts, there is no automatic repair.
    """
    servers = [server for host in pool.hosts for server in cloud.servers(host)]
    with_servers = f" and servers {', '.join(servers)}" if servers else ""
    return Drift(
        f"pool {name} is of no running reservation, and has hosts {', '.join(pool.hosts) or 'none'}"
        f"{with_servers}",
        None if servers else partial(_delete, cloud, name, pool),
        reservation_id=name,
    )


def _delete(cloud: AuditedCloud, name: str, pool: Pool) -> None:
    for host in pool.hosts:
        cloud.remove_host(name, host)
    cloud.delete_pool(name)
