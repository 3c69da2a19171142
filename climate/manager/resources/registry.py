"""Use cases of resources of any type: register, show, list and remove them."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial

from sqlalchemy.orm import Session

from climate.core.errors import Conflict, NotFound
from climate.core.lease.model import Resource
from climate.core.matching import query as expressions
from climate.core.page import Page, Part, ResourceFilter
from climate.db.resources import allocations, capacity, resources
from climate.db.resources import pages as resource_pages
from climate.db.resources.resources import Property
from climate.manager.process.runtime import Runtime, reading
from climate.plugins.base import DiscoveredResource

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


def find_resources(
    runtime: Runtime, wanted: ResourceFilter, page: Page, *, private: bool
) -> Part[Resource]:
    """Return a page of resources; without ``private``, private properties do not exist.

    Raises InvalidQuery if the expression names a property that there is not.
    """
    with runtime.database.read() as session:
        extra = resources.definitions(session, *wanted.resource_types)
        hidden = _hidden(extra, private)
        _check_names(session, runtime, wanted, extra, {prop.name for prop in hidden})
        found = resource_pages.find_resources(session, wanted, page)
    items = [_without(resource, hidden) for resource in found.items]
    return Part(items=items, more=found.more)


def get_resource(runtime: Runtime, resource_id: int, *, private: bool) -> Resource:
    """Return a resource of an enabled type, as ``find_resources`` shows it; raises NotFound."""
    with runtime.database.read() as session:
        found = resources.find_some(session, [resource_id]).get(resource_id)
        if found is None or found.type not in runtime.plugins:
            raise NotFound(f"There is no resource {resource_id}")
        extra = resources.definitions(session, found.type)
    return _without(found, _hidden(extra, private))


def _check_names(
    session: Session,
    runtime: Runtime,
    wanted: ResourceFilter,
    extra: list[Property],
    hidden: Collection[str],
) -> None:
    """Raise InvalidQuery if the expression asks about what no resource has, or what is hidden."""
    asked = expressions.names(wanted.query).difference(hidden)
    known = {prop.name for prop in extra}
    for type_ in wanted.resource_types if asked else ():
        known |= runtime.plugin(type_).native_properties
        known |= resources.names_in_use(session, type_, asked - known)
    expressions.check_names(wanted.query, known.difference(hidden))


def _hidden(extra: list[Property], private: bool) -> list[Property]:  # noqa: FBT001 - passed on
    return [prop for prop in extra if prop.private and not private]


def _without(resource: Resource, hidden: list[Property]) -> Resource:
    """Return the resource without those of its extra properties that are hidden."""
    names = {prop.name for prop in hidden if prop.resource_type == resource.type} - resource.native
    shown = {name: text for name, text in resource.properties.items() if name not in names}
    return replace(resource, properties=shown)
