"""Use cases that exist only for hosts: their allocations and property names in API version 1.

An extra property is a property that an operator added to a host.
"""

from climate.core.lease.model import HOST, Allocation
from climate.db.resources import allocations, resources
from climate.db.resources.resources import Property
from climate.manager.process.runtime import Runtime


def find_allocations(
    runtime: Runtime,
    *,
    host_id: int | None = None,
    lease_id: str | None = None,
    reservation_id: str | None = None,
) -> dict[int, list[Allocation]]:
    """Return the allocations of hosts by host id; a host without allocations has an empty list.

    If ``host_id`` is set, the result contains only that host. Raises NotFound if that host is not
    registered. Past allocations are included only if ``lease_id`` or ``reservation_id`` is set.
    """
    includes_past = lease_id is not None or reservation_id is not None
    with runtime.database.read() as session:
        if host_id is None:
            hosts = resources.find_all(session, HOST)
        else:
            hosts = [resources.get(session, HOST, host_id)]
        matching = allocations.find_all(
            session,
            HOST,
            ending_after=None if includes_past else runtime.clock.now(),
            resource_id=host_id,
            lease_id=lease_id,
            reservation_id=reservation_id,
        )
    by_host: dict[int, list[Allocation]] = {host.id: [] for host in hosts}
    for allocation in matching:
        by_host.setdefault(allocation.resource_id, []).append(allocation)
    return by_host


def find_properties(runtime: Runtime) -> tuple[list[Property], dict[str, list[str]]]:
    """Return the extra properties of hosts by name, and the distinct values of each property."""
    with runtime.database.read() as session:
        return resources.definitions(session, HOST), resources.values(session, HOST)


def set_property_private(runtime: Runtime, name: str, *, private: bool) -> Property:
    """Hide an extra property of hosts from ordinary users; if ``private`` is false, show it again.

    Raises NotFound.
    """
    now = runtime.clock.now()
    return runtime.database.write(
        lambda session: resources.set_private(session, HOST, name, private=private, now=now)
    )
