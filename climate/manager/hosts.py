"""The use cases of hosts: register, show, list, change and remove what can be reserved."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from sqlalchemy.orm import Session

from climate.core import query as expressions
from climate.core.errors import Conflict, InvalidInput
from climate.core.lease import Allocation, Resource
from climate.db import allocations, capacity, resources
from climate.db.resources import Property
from climate.manager.runtime import Runtime

HOST = "physical:host"


def register(
    runtime: Runtime, name: str | None, external_number: str | None, extra: Mapping[str, str]
) -> Resource:
    """Make a host of the cloud reservable; the number wins over the name.

    Extra properties named like one of the cloud's are dropped. Raises NotFound, or Conflict if
    the host is ambiguous, in use, not reservable or registered already.

    It is written down before anything is done to it in the cloud: what is interrupted in between
    is found and finished by ``inventory.synchronise``.
    """
    plugin = runtime.plugin(HOST)
    found = plugin.find(name=name, external_number=external_number)
    taken = plugin.native_properties | found.properties.keys()
    own = {key: value for key, value in extra.items() if key not in taken}
    write, now = runtime.database.write, runtime.clock.now()

    def insert(session: Session) -> Resource:
        made = resources.insert(session, HOST, found.external_id, found.properties, own, now)
        capacity.store(session, made.id, found.inventories)
        return made

    host = write(insert)
    try:
        plugin.enroll(found.external_id)
    except Exception:
        if _forget(runtime, host.id):
            # The cloud may have done it, and only the answer was lost.
            with suppress(Exception):
                plugin.withdraw(found.external_id)
            raise
        return get(runtime, host.id)
    if not found.usable:
        return host
    write(lambda session: resources.set_reservable(session, [host.id], None, reservable=True))
    return replace(host, reservable=True)


def _forget(runtime: Runtime, host_id: int) -> bool:
    """Remove a host whose registration failed, unless a look finished it meanwhile."""

    def work(session: Session) -> bool:
        if resources.get(session, HOST, host_id, lock=True).reservable:
            return False
        resources.delete(session, host_id)
        return True

    return runtime.database.write(work)


def get(runtime: Runtime, host_id: int) -> Resource:
    """Return a host; raises NotFound."""
    with runtime.database.read() as session:
        return resources.get(session, HOST, host_id)


def find_all(runtime: Runtime) -> list[Resource]:
    """Return all registered hosts."""
    with runtime.database.read() as session:
        return resources.find_all(session, HOST)


def set_properties(runtime: Runtime, host_id: int, extra: Mapping[str, str]) -> Resource:
    """Add or change extra properties of a host.

    Raises NotFound, InvalidInput for a property of the cloud's, and Conflict for one that a
    reservation of this host asked for.
    """
    now = runtime.clock.now()

    def work(session: Session) -> Resource:
        host = resources.get(session, HOST, host_id, lock=True)
        native = (runtime.plugin(HOST).native_properties | host.native) & extra.keys()
        if native:
            raise InvalidInput(
                f"{', '.join(sorted(native))}: told by the cloud, cannot be changed here"
            )
        changing = {name for name in extra if host.properties.get(name) != extra[name]}
        used = {
            name
            for params in allocations.params_on(session, host_id)
            for name in expressions.names(runtime.plugin(HOST).requirement(params).query)
        }
        if changing & used:
            raise Conflict(
                f"Extra capability {', '.join(sorted(changing & used))} is asked for by a"
                f" reservation of host {host_id}"
            )
        resources.set_properties(session, host, extra, now)
        return resources.get(session, HOST, host_id)

    return runtime.database.write(work)


def delete(runtime: Runtime, host_id: int) -> None:
    """Remove a host; raises NotFound, or Conflict if a lease has or will have it."""
    now = runtime.clock.now()

    def check(session: Session) -> Resource:
        host = resources.get(session, HOST, host_id, lock=True)
        if allocations.params_on(session, host_id):
            raise Conflict(f"Can't delete host {host_id}. The host is reserved.")
        return host

    def close(session: Session) -> Resource:
        host = check(session)
        resources.set_reservable(session, [host_id], now, reservable=False)
        return host

    def remove(session: Session) -> None:
        check(session)
        resources.delete(session, host_id)

    host, plugin = runtime.database.write(close), runtime.plugin(HOST)
    plugin.withdraw(host.external_id)
    try:
        runtime.database.write(remove)
    except Conflict:  # a look made it reservable again meanwhile, and somebody booked it
        plugin.enroll(host.external_id)
        raise


def find_allocations(
    runtime: Runtime,
    *,
    host_id: int | None = None,
    lease_id: str | None = None,
    reservation_id: str | None = None,
) -> dict[int, list[Allocation]]:
    """Return allocations by host, hosts without any included; raises NotFound for a host.

    Of leases that are over only if a lease or reservation is named.
    """
    named = lease_id is not None or reservation_id is not None
    with runtime.database.read() as session:
        hosts = (
            resources.find_all(session, HOST)
            if host_id is None
            else [resources.get(session, HOST, host_id)]
        )
        found = allocations.find_all(
            session,
            HOST,
            ending_after=None if named else runtime.clock.now(),
            resource_id=host_id,
            lease_id=lease_id,
            reservation_id=reservation_id,
        )
    by_host: dict[int, list[Allocation]] = {host.id: [] for host in hosts}
    for allocation in found:
        by_host.setdefault(allocation.resource_id, []).append(allocation)
    return by_host


def find_properties(runtime: Runtime) -> tuple[list[Property], dict[str, list[str]]]:
    """Return the extra properties that hosts have, and the values in use of each."""
    with runtime.database.read() as session:
        return resources.definitions(session, HOST), resources.values(session, HOST)


def set_property_private(runtime: Runtime, name: str, *, private: bool) -> Property:
    """Hide a property from ordinary listings, or show it; raises NotFound."""
    now = runtime.clock.now()
    return runtime.database.write(
        lambda session: resources.set_private(session, HOST, name, private=private, now=now)
    )
