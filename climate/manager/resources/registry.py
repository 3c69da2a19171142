"""Use cases of resources of any type: register, show, list and remove resources."""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial

from sqlalchemy.orm import Session

from climate.core.errors import Conflict, InvalidInput, NotFound
from climate.core.lease.model import Resource
from climate.core.matching import query as expressions
from climate.core.matching.property_type import ALLOWED_PROJECTS, canonical, permitted, reported
from climate.core.matching.query import ITEM_SEPARATOR, both
from climate.core.page import Page, Part, ResourceFilter
from climate.core.provisioning.host_state import HostState
from climate.db.engine.database import Database
from climate.db.provisioning import host_facts
from climate.db.resources import allocations, capacity, resources
from climate.db.resources import pages as resource_pages
from climate.db.resources.resources import Property
from climate.manager.process.runtime import Catalog, Runtime, reading
from climate.plugins.base import DiscoveredResource, ResourcePlugin

get = reading(resources.get)
find_all = reading(resources.find_all)


def register(
    runtime: Runtime,
    resource_type: str,
    name: str | None,
    external_number: str | None = None,
    extra: Mapping[str, str | None] | None = None,
) -> Resource:
    """Register a resource of the cloud, so that leases can reserve it; return the resource.

    The plug-in finds the resource by ``external_number``, its number in the cloud, or by ``name``.
    ``extra`` are extra properties by name; one that the cloud also reports, or without a value, is
    ignored. If the cloud reports that the resource is unusable now, leases can book it only after
    the inventory sync finds it usable.

    Raises NotFound and InvalidInput. Raises Conflict if several resources have the name, or if the
    resource is in use, is already registered, or can never be reserved.

    climate stores the resource before it changes the cloud, so that the inventory sync can finish
    an interrupted registration.
    """
    discovered = runtime.plugin(resource_type).find(name=name, external_number=external_number)
    return register_found(runtime, resource_type, discovered, extra)


def register_found(
    runtime: Runtime,
    resource_type: str,
    discovered: DiscoveredResource,
    extra: Mapping[str, str | None] | None = None,
) -> Resource:
    """Register a resource that the plug-in has found, and that is not in use; see ``register``."""
    plugin, types = runtime.plugin(resource_type), runtime.settings.property_types
    discovered = replace(discovered, properties=reported(types, discovered.properties))
    native = plugin.native_properties | discovered.properties.keys()
    own_extra = _values(canonical(types, extra or {}), besides=native)
    discovered = plugin.declared(discovered, own_extra)
    write, now = runtime.database.write, runtime.clock.now()
    created = write(partial(_insert, resource_type, discovered, own_extra, now))
    try:
        plugin.enroll(discovered.external_id)
    except Exception:
        if _forget(runtime.database, created):
            # The call may have succeeded even though its response was lost.
            with suppress(Exception):
                plugin.withdraw(discovered.external_id)
            raise
        return get(runtime, resource_type, created.id)
    if not discovered.usable:
        return created
    write(lambda session: resources.set_reservable(session, [created.id], None, reservable=True))
    return replace(created, reservable=True)


def _values(extra: Mapping[str, str | None], besides: Collection[str] = ()) -> dict[str, str]:
    """Return the properties that have a value, without those named ``besides``."""
    return {n: text for n, text in extra.items() if text is not None and n not in besides}


def _insert(
    resource_type: str,
    discovered: DiscoveredResource,
    extra: Mapping[str, str],
    now: datetime,
    session: Session,
) -> Resource:
    native = discovered.properties
    created = resources.insert(session, resource_type, discovered.external_id, native, extra, now)
    capacity.store(session, created.id, discovered.inventories)
    return created


def _forget(database: Database, created: Resource) -> bool:
    """Delete the resource of a failed registration.

    Returns False, and deletes nothing, if an inventory sync has finished the registration.
    """

    def work(session: Session) -> bool:
        if resources.get(session, created.type, created.id, lock=True).reservable:
            return False
        resources.delete(session, created.id)
        return True

    return database.write(work)


def set_properties(
    runtime: Runtime,
    resource_type: str,
    resource_id: int,
    changes: Mapping[str, str | None],
    permit: Callable[[Resource], object] | None = None,
) -> Resource:
    """Add, change or remove (None) extra properties of a resource; return it with the new ones.

    ``permit`` is called with the locked resource before the change; it raises an error to reject
    the change. Raises NotFound. Raises InvalidInput if the cloud defines a property of that name,
    if a value does not fit the declared type of its property, or if a property that declares a
    capacity is not an amount. Such a capacity applies after the next inventory sync. Raises
    Conflict if a changed property occurs in the expression of a present or future reservation of
    this resource, or if the resource is restricted to other projects than those of its leases.
    """
    plugin, now = runtime.plugin(resource_type), runtime.clock.now()
    extra = canonical(runtime.settings.property_types, changes)

    def work(session: Session) -> Resource:
        resource = resources.get(session, resource_type, resource_id, lock=True)
        if permit is not None:
            permit(resource)
        check_not_native(plugin, resource.native, extra)
        _check_not_required(runtime, session, resource, extra)
        _check_allowed(session, resource, extra.get(ALLOWED_PROJECTS))
        check_declared(session, plugin, resource, extra)
        resources.set_properties(session, resource, extra, now)
        return resources.get(session, resource_type, resource_id)

    return runtime.database.write(work)


def check_not_native(
    plugin: ResourcePlugin, native: Collection[str], names: Collection[str]
) -> None:
    """Raise InvalidInput if the cloud reports one of the properties ``names``.

    ``native`` are the properties that the cloud reports for the resource.
    """
    reported = sorted(plugin.native_properties.union(native).intersection(names))
    if reported:
        raise InvalidInput(
            f"{', '.join(reported)}: the cloud reports these properties, so climate cannot change"
            " them"
        )


def _check_not_required(
    runtime: Runtime, session: Session, resource: Resource, extra: Mapping[str, str | None]
) -> None:
    """Raise Conflict if a changed property occurs in the expression of a reservation."""
    changing = {name for name in extra if resource.properties.get(name) != extra[name]}
    required = {
        name
        for type_, params in allocations.params_on(session, resource.id)
        for part in runtime.plugin(type_).requirement(params).parts
        for name in expressions.names(part.query)
    }
    if changing & required:
        raise Conflict(
            f"Extra capability {', '.join(sorted(changing & required))} is required by a"
            f" reservation of {resources.noun(resource.type)} {resource.id}"
        )


def _check_allowed(session: Session, resource: Resource, allowed: str | None) -> None:
    """Raise Conflict if a lease of a project that is not ``allowed`` has or will have the resource.

    ``allowed`` is the changed value of the property (None: it is not restricted).
    """
    if allowed is None:
        return
    others = allocations.projects_on(session, resource.id).difference(allowed.split(ITEM_SEPARATOR))
    if others:
        raise Conflict(
            f"Leases of other projects have or will have {resources.noun(resource.type)}"
            f" {resource.id}: {', '.join(sorted(others))}"
        )


def check_declared(
    session: Session, plugin: ResourcePlugin, resource: Resource, extra: Mapping[str, str | None]
) -> None:
    """Raise InvalidInput if the changed properties ``extra`` declare an invalid capacity."""
    known = DiscoveredResource(
        external_id=resource.external_id,
        properties=resource.properties,
        inventories=capacity.find_some(session, [resource.id])[resource.id],
    )
    plugin.declared(known, _values({**resource.extra_properties, **extra}))


def delete(runtime: Runtime, resource_type: str, resource_id: int) -> None:
    """Remove a resource from climate.

    Raises NotFound. Raises Conflict if a present or future lease has an allocation of the resource.
    """
    now = runtime.clock.now()

    def check(session: Session) -> Resource:
        resource = resources.get(session, resource_type, resource_id, lock=True)
        if allocations.params_on(session, resource_id):
            noun = resources.noun(resource_type)
            raise Conflict(f"Can't delete {noun} {resource_id}. The {noun} is reserved.")
        return resource

    def close(session: Session) -> Resource:
        resource = check(session)
        resources.set_reservable(session, [resource_id], now, reservable=False)
        return resource

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
    runtime: Runtime,
    wanted: ResourceFilter,
    page: Page,
    *,
    private: bool,
    project_id: str,
    states: Collection[HostState] = (),
) -> Part[Resource]:
    """Return a page of the resources that match the filter ``wanted``.

    If ``states`` is not empty, only resources in one of these states match. If ``private`` is
    false, private properties (hidden from ordinary users) and resources that the project may not
    book are left out, and the expression in the filter must not name such properties. Raises
    InvalidQuery if the expression names an unknown or forbidden property.
    """
    with runtime.database.read() as session:
        extra = resources.definitions(session, *wanted.resource_types)
        hidden = _hidden(extra, private)
        _check_names(session, runtime.catalog, wanted, extra, {prop.name for prop in hidden})
        in_states = host_facts.in_states(
            states, provisioning=runtime.settings.provisioning is not None
        )
        if not private:
            may_book = permitted(runtime.settings.property_types, project_id)
            wanted = replace(wanted, query=both(wanted.query, may_book))
        part = resource_pages.find_resources(session, wanted, page, *in_states)
    items = [_without(resource, hidden) for resource in part.items]
    return Part(items=items, more=part.more)


def get_resource(
    runtime: Runtime, resource_id: int, *, private: bool, project_id: str | None = None
) -> Resource:
    """Return a resource; raises NotFound if it does not exist, or if its type is not enabled.

    If ``private`` is false, the result omits private properties (hidden from ordinary users), and
    a resource that the project ``project_id`` may not book raises NotFound (None: no such check).
    """
    with runtime.database.read() as session:
        resource = resources.find_some(session, [resource_id]).get(resource_id)
        if resource is None or resource.type not in runtime.plugins:
            raise NotFound(f"There is no resource {resource_id}")
        extra = resources.definitions(session, resource.type)
    if not private and project_id is not None:
        may_book = permitted(runtime.settings.property_types, project_id)
        if not expressions.matches(may_book, resource.properties):
            raise NotFound(f"There is no resource {resource_id}")
    return _without(resource, _hidden(extra, private))


def find_shown(
    session: Session, resource_ids: Collection[int], *, private: bool
) -> dict[int, Resource]:
    """Return the existing resources among ``resource_ids``, by id.

    If ``private`` is false, the result omits private properties (hidden from ordinary users).
    """
    found = resources.find_some(session, resource_ids)
    types = {resource.type for resource in found.values()}
    hidden = _hidden(resources.definitions(session, *types), private)
    return {id_: _without(resource, hidden) for id_, resource in found.items()}


def _check_names(
    session: Session,
    catalog: Catalog,
    wanted: ResourceFilter,
    extra: list[Property],
    hidden: Collection[str],
) -> None:
    """Raise InvalidQuery if the expression of a filter names an unknown or hidden property.

    Also raise InvalidQuery if a value does not fit the declared type of its property.

    ``extra`` are the extra properties of the resource types. ``hidden`` contains the names of the
    properties that the requester may not see.
    """
    queried = expressions.names(wanted.query).difference(hidden)
    existing = {prop.name for prop in extra}
    for type_ in wanted.resource_types if queried else ():
        existing |= catalog.plugins[type_].native_properties
        existing |= resources.names_in_use(session, type_, queried - existing)
    expressions.check_names(wanted.query, existing.difference(hidden))
    expressions.check_values(wanted.query)


def _hidden(extra: list[Property], private: bool) -> list[Property]:  # noqa: FBT001 - passed on
    return [prop for prop in extra if prop.private and not private]


def _without(resource: Resource, hidden: list[Property]) -> Resource:
    """Return the resource without the extra properties in ``hidden``."""
    names = {prop.name for prop in hidden if prop.resource_type == resource.type} - resource.native
    shown = {name: text for name, text in resource.properties.items() if name not in names}
    return replace(resource, properties=shown)
