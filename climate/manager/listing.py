"""The use cases of looking around: leases by the page, and what there is to be reserved."""

from collections.abc import Collection
from dataclasses import replace

from sqlalchemy.orm import Session

from climate.core.errors import NotFound
from climate.core.lease.model import Lease, Resource
from climate.core.matching import query as expressions
from climate.core.page import LeaseFilter, Page, Part, ResourceFilter
from climate.db.resources import pages as resource_pages
from climate.db.resources import resources
from climate.db.resources.resources import Property
from climate.manager.process.runtime import Runtime


def find_leases(runtime: Runtime, wanted: LeaseFilter, page: Page) -> Part[Lease]:
    """Return a page of leases."""
    with runtime.database.read() as session:
        return resource_pages.find_leases(session, wanted, page)


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
