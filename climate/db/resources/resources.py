"""Statements on resources, their properties, and the definitions of extra properties.

A resource, such as a host, has properties, which are texts such as ``vcpus`` = "64". The cloud
reports the native properties. Operators set the extra properties. The definition of an extra
property applies to all resources of a type, and says whether the property is private.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.errors import Conflict, NotFound
from climate.core.lease.model import Resource
from climate.core.matching.property_type import ALLOWED_PROJECTS
from climate.core.matching.query import as_number, version_key
from climate.db.engine import ids
from climate.db.engine.types import any_of, chunks
from climate.db.tables.bulk import certify, record, update
from climate.db.tables.leases import (
    PROPERTIES,
    RESOURCES,
    AllocationRow,
    PropertyRow,
    ReservationRow,
    ResourceProperty,
    ResourceRow,
    columns,
)

# An id that a column can have.
_ID = re.compile(r"[1-9][0-9]{0,17}")
_SOME = sa.select(RESOURCES).where(any_of(RESOURCES.c.id, "ids"))
_PROPERTIES = (
    sa.select(*columns(PROPERTIES, "resource_id name value native"))
    .where(any_of(PROPERTIES.c.resource_id, "ids"))
    .order_by(PROPERTIES.c.name)
)
_PRIVACY = sa.select(PropertyRow.name, PropertyRow.private).where(
    PropertyRow.resource_type == sa.bindparam("type")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """The definition of an extra property: a property of resources that operators set.

    It applies to all resources of ``resource_type``. If ``private`` is true, ordinary listings hide
    the property. ``updated_at`` is None if the definition never changed.
    """

    id: str
    resource_type: str
    name: str
    private: bool
    created_at: datetime
    updated_at: datetime | None


def insert(
    session: Session,
    resource_type: str,
    external_id: str,
    native: Mapping[str, str],
    extra: Mapping[str, str],
    now: datetime,
) -> Resource:
    """Store a new resource and return it; raise Conflict if the resource is stored already.

    ``external_id`` is the name or id of the resource in the cloud. The cloud reports the properties
    ``native``; an operator sets the properties ``extra``. Leases cannot book the resource until
    ``set_reservable`` is called.
    """
    same = (ResourceRow.type == resource_type, ResourceRow.external_id == external_id)
    if session.scalar(sa.select(ResourceRow.id).where(*same)) is not None:
        raise Conflict(f"{external_id} is registered already")
    row = ResourceRow(type=resource_type, external_id=external_id, reservable=False, created_at=now)
    session.add(row)
    session.flush()
    # The id is a property, too, so that expressions can select one host by number.
    _store(session, row.id, {**native, "id": str(row.id)}, native=True)
    _store(session, row.id, extra, native=False)
    define(session, resource_type, {*extra, *{ALLOWED_PROJECTS}.intersection(native)}, now)
    return get(session, resource_type, row.id)


def noun(resource_type: str) -> str:
    """Return the noun of a resource type in the v1 API: ``host`` for ``physical:host``."""
    return resource_type.rpartition(":")[2]


def get(session: Session, resource_type: str, resource_id: int, *, lock: bool = False) -> Resource:
    """Return a resource with its properties; raise NotFound if the type has no such resource.

    If ``lock`` is true, lock the row of the resource until the transaction ends.
    """
    is_resource = (ResourceRow.type == resource_type, ResourceRow.id == resource_id)
    query = sa.select(ResourceRow).where(*is_resource)
    row = session.scalars(query.with_for_update() if lock else query).one_or_none()
    if lock and row is not None:
        certify(session, ResourceRow, [row.id])
    if row is None:
        key = f"{noun(resource_type)}_id"
        raise NotFound(f"Object with {{'{key}': '{resource_id}'}} not found")
    return complete(session, [row])[0]


def find_all(
    session: Session, resource_type: str, limit: int | None = None, after: int = 0
) -> list[Resource]:
    """Return up to ``limit`` resources of a type (None: all), sorted by id.

    Their ids are greater than ``after``. To read the next page, pass the last id of the page
    before.
    """
    query = sa.select(ResourceRow).where(ResourceRow.type == resource_type, ResourceRow.id > after)
    query = query.order_by(ResourceRow.id).limit(limit)
    return complete(session, session.scalars(query).all())


def find_some(session: Session, resource_ids: Collection[int]) -> dict[int, Resource]:
    """Return the resources with these ids, by id; ids without a resource are left out."""
    if not resource_ids:
        return {}
    rows = session.execute(_SOME, {"ids": list(resource_ids)}).all()
    return {resource.id: resource for resource in complete(session, rows)}


def find_named(session: Session, resource_type: str, names: Collection[str]) -> list[Resource]:
    """Return the resources of a type whose name (``external_id``) or id as text is in ``names``.

    On some databases, the result also has names that differ only in case.
    """
    ids = [int(name) for name in names if _ID.fullmatch(name)]
    is_named = sa.or_(ResourceRow.external_id.in_(names), ResourceRow.id.in_(ids))
    query = sa.select(ResourceRow).where(ResourceRow.type == resource_type, is_named)
    return complete(session, session.scalars(query).all())


def booked_by(session: Session, lease_id: str) -> list[Resource]:
    """Return the resources that a lease has booked, ordered by id."""
    query = (
        sa.select(ResourceRow)
        .join(AllocationRow, AllocationRow.resource_id == ResourceRow.id)
        .join(ReservationRow, ReservationRow.id == AllocationRow.reservation_id)
        .where(ReservationRow.lease_id == lease_id)
        .order_by(ResourceRow.id)
    )
    return complete(session, session.scalars(query).unique().all())


def set_properties(
    session: Session, resource: Resource, extra: Mapping[str, str | None], now: datetime
) -> None:
    """Add extra properties to a resource, or replace or remove those that it has.

    ``extra`` contains the values by name; None removes the property. A name without a definition is
    defined as an extra property of the resource type. ``now`` becomes the time of the last change
    of the resource.
    """
    given = {name: value for name, value in extra.items() if value is not None}
    is_replaced = (ResourceProperty.resource_id == resource.id, ResourceProperty.name.in_(extra))
    session.execute(sa.delete(ResourceProperty).where(*is_replaced))
    _store(session, resource.id, given, native=False)
    define(session, resource.type, given, now)
    _note_change(session, resource.id, now)


def set_reservable(
    session: Session, resource_ids: Collection[int], now: datetime | None, *, reservable: bool
) -> None:
    """Store whether new leases can book these resources; existing bookings stay.

    ``now`` becomes the time of the last change of the resources. It is None for new resources,
    which have not changed yet.
    """
    resources = sa.update(ResourceRow).where(ResourceRow.id.in_(resource_ids))
    version = ResourceRow.version + (0 if now is None else 1)
    session.execute(resources.values(reservable=reservable, updated_at=now, version=version))


def reservable(session: Session, resource_ids: Collection[int]) -> set[int]:
    """Return which of these resources are reservable: new leases can book them."""
    is_bookable = (ResourceRow.id.in_(resource_ids), ResourceRow.reservable.is_(True))
    return set(session.scalars(sa.select(ResourceRow.id).where(*is_bookable)))


def set_native(
    session: Session, resource: Resource, native: Mapping[str, str], now: datetime
) -> None:
    """Replace all native properties of a resource: the properties that the cloud reports.

    If an extra property has a name in ``native``, the native property replaces it. ``now`` becomes
    the time of the last change of the resource.
    """
    is_replaced = sa.or_(ResourceProperty.native.is_(True), ResourceProperty.name.in_(native))
    of_resource = ResourceProperty.resource_id == resource.id
    session.execute(sa.delete(ResourceProperty).where(of_resource, is_replaced))
    _store(session, resource.id, native, native=True)
    define(session, resource.type, {ALLOWED_PROJECTS}.intersection(native), now)
    _note_change(session, resource.id, now)


def _note_change(session: Session, resource_id: int, now: datetime) -> None:
    changed = sa.update(ResourceRow).where(ResourceRow.id == resource_id)
    session.execute(changed.values(updated_at=now, version=ResourceRow.version + 1))


def fill_version_keys(session: Session, names: Collection[str], limit: int) -> int:
    """Compute the version keys of up to ``limit`` properties with these names; return how many.

    A release before schema 0029 left them NULL.
    """
    is_open = (PROPERTIES.c.name.in_(names), PROPERTIES.c.version_key.is_(None))
    query = sa.select(*columns(PROPERTIES, "resource_id name value")).where(*is_open).limit(limit)
    rows = [
        {"resource_id": id_, "name": name, "version_key": version_key(value) or ""}
        for id_, name, value in session.execute(query)
    ]
    update(session, ResourceProperty, rows, key=("resource_id", "name"))
    return len(rows)


def delete(session: Session, resource_id: int) -> None:
    """Delete a resource with its properties, inventories and allocations (bookings)."""
    # Not by the cascade: InnoDB fires no triggers for it, and the booking feed needs them.
    session.execute(sa.delete(AllocationRow).where(AllocationRow.resource_id == resource_id))
    session.execute(sa.delete(ResourceRow).where(ResourceRow.id == resource_id))


def define(session: Session, resource_type: str, names: Collection[str], now: datetime) -> None:
    """Define the extra properties ``names`` for a resource type, as not private.

    The allowed projects are private. Names that are defined already keep their definitions.
    """
    known = privacy(session, resource_type) if names else {}
    row = {"resource_type": resource_type, "created_at": now}
    rows = [
        {**row, "id": ids.new_id(), "name": name, "private": name == ALLOWED_PROJECTS}
        for name in names
        if name not in known
    ]
    if rows:
        session.execute(sa.insert(PropertyRow), rows)


def definitions(session: Session, *resource_types: str) -> list[Property]:
    """Return the definitions of all extra properties of these resource types, sorted by name."""
    query = sa.select(PropertyRow).where(PropertyRow.resource_type.in_(resource_types))
    return [record(Property, row) for row in session.scalars(query.order_by(PropertyRow.name))]


def count_of_types(session: Session, types: Collection[str]) -> int:
    """Return the number of resources of these types that new leases can book."""
    query = sa.select(sa.func.count()).where(RESOURCES.c.type.in_(types), RESOURCES.c.reservable)
    return session.scalar(query) or 0


def names_in_use(session: Session, resource_type: str, candidates: Collection[str]) -> set[str]:
    """Return which of the names ``candidates`` are names of properties of the resource type.

    A name is in use if at least one resource of the type has a native or extra property with it.
    """
    names = sorted(candidates)
    if not names:
        return set()
    in_use = [
        sa.exists().where(
            ResourceProperty.name == name,
            ResourceProperty.resource_id == ResourceRow.id,
            ResourceRow.type == resource_type,
        )
        for name in names
    ]
    flags = session.execute(sa.select(*in_use)).one()
    return {name for name, is_used in zip(names, flags, strict=True) if is_used}


def privacy(session: Session, resource_type: str) -> dict[str, bool]:
    """Return, by name, whether each extra property of a resource type is private.

    Ordinary listings hide private properties.
    """
    rows = session.connection().execute(_PRIVACY, {"type": resource_type})
    return {row.name: row.private for row in rows}


def set_private(
    session: Session, resource_type: str, name: str, *, private: bool, now: datetime
) -> Property:
    """Set whether ordinary listings hide an extra property; return its definition.

    Raises NotFound if the resource type has no extra property ``name``.
    """
    is_property = (PropertyRow.resource_type == resource_type, PropertyRow.name == name)
    row = session.scalars(sa.select(PropertyRow).where(*is_property)).one_or_none()
    if row is None:
        raise NotFound(f"Object with {{'property_name': '{name}'}} not found")
    row.private, row.updated_at = private, now
    session.flush()
    return record(Property, row)


def values(session: Session, resource_type: str) -> dict[str, list[str]]:
    """Return the values of the extra properties of a resource type, by property name.

    Each list contains the distinct values of all resources of the type, sorted as text.
    """
    query = (
        sa.select(ResourceProperty.name, ResourceProperty.value)
        .join(ResourceRow, ResourceRow.id == ResourceProperty.resource_id)
        .where(ResourceRow.type == resource_type, ResourceProperty.native.is_(False))
        .distinct()
        .order_by(ResourceProperty.name, ResourceProperty.value)
    )
    values: dict[str, list[str]] = {}
    for name, value in session.execute(query):
        values.setdefault(name, []).append(value)
    return values


def _store(
    session: Session, resource_id: int, properties: Mapping[str, str], *, native: bool
) -> None:
    fixed = {"resource_id": resource_id, "native": native}
    rows = [{**fixed, "name": name, **compared(value)} for name, value in properties.items()]
    if rows:
        session.execute(sa.insert(ResourceProperty), rows)


def compared(value: str) -> dict[str, Any]:
    """Return the columns of a property that depend on its value, with which queries compare."""
    return {"value": value, "number": as_number(value), "version_key": version_key(value) or ""}


def complete(session: Session, rows: Sequence[Any]) -> list[Resource]:
    """Return rows of the table of resources as Resource objects, with their properties.

    The result has the order of ``rows``. Executes one SQL statement per 10,000 rows.
    """
    properties: dict[int, dict[str, str]] = {row.id: {} for row in rows}
    native: dict[int, set[str]] = {row.id: set() for row in rows}
    texts: dict[str, str] = {}  # shares equal texts: there may be half a million properties
    for part in chunks(list(properties)):
        for resource_id, name, value, from_cloud in session.execute(_PROPERTIES, {"ids": part}):
            shared_name = texts.setdefault(name, name)
            properties[resource_id][shared_name] = texts.setdefault(value, value)
            if from_cloud:
                native[resource_id].add(shared_name)
    return [
        record(Resource, row, properties=properties[row.id], native=frozenset(native[row.id]))
        for row in rows
    ]
