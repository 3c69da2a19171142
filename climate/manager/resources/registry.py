"""Use cases of resources of any type: register, show, list and remove them."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial

from sqlalchemy.orm import Session

from climate.core.errors import Conflict
from climate.core.lease.model import Resource
from climate.db.resources import allocations, capacity, resources
from climate.manager.process.runtime import Runtime, reading
from climate.plugins.base import Found

get = reading(resources.get)
find_all = reading(resources.find_all)


def register(
    runtime: Runtime,
    resource_type: str,
    name: str | None,
    external_number: str | None = None,
    extra: Mapping[str, str] | None = None,
) -> Resource:
    """Register a resource of the cloud as reservable; the number takes precedence over the name.

    Drops extra properties with the name of a native one. Raises NotFound, InvalidInput, or
    Conflict if the resource is ambiguous, in use, not reservable or registered already.

    climate stores the resource before it changes the cloud, so ``inventory.synchronise`` can
    finish a registration that was interrupted.
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
            # The cloud may have enrolled it, and only the answer was lost.
            with suppress(Exception):
                plugin.withdraw(found.external_id)
            raise
        return get(runtime, resource_type, made.id)
    if not found.usable:
        return made
    write(lambda session: resources.set_reservable(session, [made.id], None, reservable=True))
    return replace(made, reservable=True)


def _insert(
    resource_type: str, found: Found, own: Mapping[str, str], now: datetime, session: Session
) -> Resource:
    made = resources.insert(session, resource_type, found.external_id, found.properties, own, now)
    capacity.store(session, made.id, found.inventories)
    return made


def _forget(runtime: Runtime, made: Resource) -> bool:
    """Delete a failed registration, unless an inventory sync finished it in the meantime."""

    def work(session: Session) -> bool:
        if resources.get(session, made.type, made.id, lock=True).reservable:
            return False
        resources.delete(session, made.id)
        return True

    return runtime.database.write(work)


def delete(runtime: Runtime, resource_type: str, resource_id: int) -> None:
    """Remove a resource; raises NotFound, or Conflict if a lease uses or will use it."""
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
    except Conflict:  # an inventory sync made it reservable again, and a lease booked it
        plugin.enroll(closed.external_id)
        raise
