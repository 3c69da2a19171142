"""Where a cloud's hosts are, against where leases have them. Looks only; repairs are offered."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from climate.plugins.base import Difference, Expected, Holding


@dataclass(frozen=True, slots=True)
class Pool:
    """A reservation's pool as the cloud has it: whom it is open to, and its hosts."""

    project_id: str | None
    hosts: tuple[str, ...]


class AuditedCloud(Protocol):
    """What an audit needs of a HostCloud."""

    def pools(self) -> Mapping[str, Pool]:
        """Return the reservations' pools by reservation id."""

    def free_hosts(self) -> Sequence[str]:
        """Return the hosts in the free pool."""

    def servers(self, host: str) -> Sequence[str]:
        """Return the ids of the servers on a host."""

    def enroll(self, host: str) -> None:
        """Put a host among the free ones."""

    def remove_host(self, pool: str, host: str) -> None:
        """Move a host back to the free ones."""

    def delete_pool(self, pool: str) -> None:
        """Remove a pool."""


def differences(cloud: AuditedCloud, expected: Callable[[], Expected]) -> Iterator[Difference]:
    """Name every difference; reservations that a manager is at are left out."""
    pools, free = cloud.pools(), set(cloud.free_hosts())
    told = expected()
    registered, running = told.registered, told.running
    for holding in running:
        yield from _of_running(cloud, holding, pools.get(holding.reservation.id))
    for name, pool in sorted(pools.items()):
        if name not in told.known:
            yield _stale(cloud, name, pool)
    names = {resource.external_id for resource in registered}
    closed = free.union(*(pool.hosts for pool in pools.values()))
    held = {resource.external_id for holding in running for resource in holding.resources}
    for host in sorted(names - closed - held):
        yield Difference(
            f"host {host} is registered and open to everybody", partial(cloud.enroll, host)
        )
    for host in sorted(free - names):
        yield Difference(f"host {host} is in the free pool and not registered")
    for host in sorted(free.intersection(names).difference(told.shared)):
        if servers := cloud.servers(host):
            yield Difference(f"host {host} is free, and has servers {', '.join(servers)}")


def _of_running(cloud: AuditedCloud, holding: Holding, pool: Pool | None) -> Iterator[Difference]:
    """Compare a running reservation; the manager does it over again to repair it."""
    mine = f"reservation {holding.reservation.id} of lease {holding.lease.id}"
    again = holding.lease.id
    if pool is None:
        yield Difference(f"{mine} has no pool", lease_id=again)
        return
    if pool.project_id != holding.lease.project_id:
        yield Difference(
            f"{mine} is open to {pool.project_id}, not to {holding.lease.project_id}",
            lease_id=again,
        )
    wanted = {resource.external_id for resource in holding.resources}
    working = {resource.external_id for resource in holding.resources if resource.reservable}
    for host in sorted(working - set(pool.hosts)):
        yield Difference(f"{mine} lacks host {host}", lease_id=again)
    for host in sorted(set(pool.hosts) - wanted):
        servers = cloud.servers(host)
        on_it = f", on which are servers {', '.join(servers)}" if servers else ""
        yield Difference(
            f"{mine} has host {host}, which is not its own{on_it}",
            lease_id=None if servers else again,
        )


def _stale(cloud: AuditedCloud, name: str, pool: Pool) -> Difference:
    """A pool whose reservation is over; cleared away unless somebody is still on its hosts."""
    servers = [server for host in pool.hosts for server in cloud.servers(host)]
    on_it = f" and servers {', '.join(servers)}" if servers else ""
    return Difference(
        f"pool {name} is of no running reservation, and has hosts {', '.join(pool.hosts) or 'none'}"
        f"{on_it}",
        None if servers else partial(_clear, cloud, name, pool),
        reservation_id=name,
    )


def _clear(cloud: AuditedCloud, name: str, pool: Pool) -> None:
    for host in pool.hosts:
        cloud.remove_host(name, host)
    cloud.delete_pool(name)
