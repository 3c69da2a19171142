"""The use cases of what can be reserved, whatever it is: register, show, list and remove it."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial

from sqlalchemy.orm import Session

from climate.core.errors import Conflict
from climate.core.lease.model import Resource
from climate.db.resources import allocations, capacity, resources
from climate.manager.runtime import Runtime
from climate.plugins.base import DiscoveredResource


def register(
    runtime: Runtime,
    resource_type: str,
    name: str | None,
    external_number: str | None = None,
    extra: Mapping[str, str] | None = None,
) -> Resource:
    """Make something that the cloud has reservable; the number wins over the name.

    Extra properties named like one of the cloud's are dropped. Raises NotFound, InvalidInput, or
    Conflict if it is ambiguous, in use, not reservable or registered already.

    It is written down before anything is done to it in the cloud: what is interrupted in between
    is found and finished by ``inventory.synchronise``.
    """
    plugin = runtime.plugin(resource_type)
    found = plugin.find(name=name, external_number=external_number)
    taken = plugin.native_properties | found.properties.keys()
    own = {key: value for key, value in (extra or {}).items() if key not in taken}
    found = plugin.declared(found, own)
    write, now = runtime.database.write, runtime.clock.now()
    made = write(partial(_insert, resource_type, found, own, now))
    try:
        plugin.enroll(found.external_id)
    except Exception:
        if _forget(runtime, made):
            # The cloud may have done it, and only the answer was lost.
            with suppress(Exception):
                plugin.withdraw(found.external_id)
            raise
        return get(runtime, resource_type, made.id)
    if not found.usable:
        return made
    write(lambda session: resources.set_reservable(session, [made.id], None, reservable=True))
    return replace(made, reservable=True)


def _insert(
    resource_type: str,
    found: DiscoveredResource,
    own: Mapping[str, str],
    now: datetime,
    session: Session,
) -> Resource:
    made = resources.insert(session, resource_type, found.external_id, found.properties, own, now)
    capacity.store(session, made.id, found.inventories)
    return made


def _forget(runtime: Runtime, made: Resource) -> bool:
    """Remove what could not be registered, unless a look finished it meanwhile."""

    def work(session: Session) -> bool:
        if resources.get(session, made.type, made.id, lock=True).reservable:
            return False
        resources.delete(session, made.id)
        return True

    return runtime.database.write(work)


def get(runtime: Runtime, resource_type: str, resource_id: int) -> Resource:
    """Return a resource; raises NotFound."""
    with runtime.database.read() as session:
        return resources.get(session, resource_type, resource_id)


def find_all(runtime: Runtime, resource_type: str) -> list[Resource]:
    """Return all registered resources of a type."""
    with runtime.database.read() as session:
        return resources.find_all(session, resource_type)


def delete(runtime: Runtime, resource_type: str, resource_id: int) -> None:
    """Remove a resource; raises NotFound, or Conflict if a lease has or will have it."""
    now = runtime.clock.now()

    def check(session: Session) -> Resource:
        found = resources.get(session, resource_type, resource_id, lock=True)
        if allocations.params_on(session, resource_id):
            noun = resources.noun(resource_type)
            raise Conflict(f"Can't delete {noun} {resource_id}. The {noun} is reserved.")
        return found

    def close(session: Session) -> Resource:
        found = check(session)
        resources.set_reservable(session, [resource_id], now, reservable=False)
        return found

    def remove(session: Session) -> None:
        check(session)
        resources.delete(session, resource_id)

    closed, plugin = runtime.database.write(close), runtime.plugin(resource_type)
    plugin.withdraw(closed.external_id)
    try:
        runtime.database.write(remove)
    except Conflict:  # a look made it reservable again meanwhile, and somebody booked it
        plugin.enroll(closed.external_id)
        raise
