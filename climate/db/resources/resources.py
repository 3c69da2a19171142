"""Resources, their properties, and the definitions of extra properties."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.errors import Conflict, NotFound
from climate.core.lease.model import Resource
from climate.core.matching.query import as_number
from climate.db.engine import ids
from climate.db.engine.types import any_of
from climate.db.tables.bulk import record
from climate.db.tables.leases import (
    PROPERTIES,
    RESOURCES,
    PropertyRow,
    ResourceProperty,
    ResourceRow,
)

_CHUNK = 10_000
_SOME = sa.select(RESOURCES).where(any_of(RESOURCES.c.id, "ids"))
_PROPERTIES = (
    sa.select(PROPERTIES.c.resource_id, PROPERTIES.c.name, PROPERTIES.c.value, PROPERTIES.c.native)
    .where(any_of(PROPERTIES.c.resource_id, "ids"))
    .order_by(PROPERTIES.c.name)
)
_NAMES = sa.select(PropertyRow.name).where(PropertyRow.resource_type == sa.bindparam("type"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """An extra property of a resource type. Only operators see private ones."""

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
    """Register a resource, not reservable yet; raises Conflict if it is registered already."""
    row = ResourceRow(type=resource_type, external_id=external_id, reservable=False, created_at=now)
    registered = sa.select(ResourceRow.id).where(
        ResourceRow.type == resource_type, ResourceRow.external_id == external_id
    )
    if session.scalar(registered) is not None:
        raise Conflict(f"{external_id} is registered already")
    session.add(row)
    session.flush()
    # The id is a property, too, so that expressions can select one host by number.
    _store(session, row.id, {**native, "id": str(row.id)}, native=True)
    _store(session, row.id, extra, native=False)
    define(session, resource_type, extra, now)
    return get(session, resource_type, row.id)


def noun(resource_type: str) -> str:
    """Return the noun of a resource type in v1: ``host`` for ``physical:host``."""
    return resource_type.rpartition(":")[2]


def get(session: Session, resource_type: str, resource_id: int, *, lock: bool = False) -> Resource:
    """Return a resource; ``lock`` locks its row until the commit. Raises NotFound."""
    query = sa.select(ResourceRow).where(
        ResourceRow.type == resource_type, ResourceRow.id == resource_id
    )
    row = session.scalars(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        key = f"{noun(resource_type)}_id"
        raise NotFound(f"Object with {{'{key}': '{resource_id}'}} not found")
    return complete(session, [row])[0]


def find_all(session: Session, resource_type: str) -> list[Resource]:
    """Return all resources of a type, sorted by id."""
    query = sa.select(ResourceRow).where(ResourceRow.type == resource_type).order_by(ResourceRow.id)
    return complete(session, session.scalars(query).all())


def find_some(session: Session, resource_ids: Collection[int]) -> dict[int, Resource]:
    """Return resources by id."""
    if not resource_ids:
        return {}
    rows = session.execute(_SOME, {"ids": list(resource_ids)}).all()
    return {resource.id: resource for resource in complete(session, rows)}


def set_properties(
    session: Session, resource: Resource, extra: Mapping[str, str], now: datetime
) -> None:
    """Add or change extra properties of a resource; define those that are new to its type."""
    session.execute(
        sa.delete(ResourceProperty).where(
            ResourceProperty.resource_id == resource.id, ResourceProperty.name.in_(extra)
        )
    )
    _store(session, resource.id, extra, native=False)
    define(session, resource.type, extra, now)
    session.execute(
        sa.update(ResourceRow).where(ResourceRow.id == resource.id).values(updated_at=now)
    )


def set_reservable(
    session: Session, resource_ids: Collection[int], now: datetime | None, *, reservable: bool
) -> None:
    """Set whether resources are bookable (bookings stay); ``now`` is None for new resources."""
    session.execute(
        sa.update(ResourceRow)
        .where(ResourceRow.id.in_(resource_ids))
        .values(reservable=reservable, updated_at=now)
    )


def reservable(session: Session, resource_ids: Collection[int]) -> set[int]:
    """Return those of the ids whose resources are bookable."""
    query = sa.select(ResourceRow.id).where(
        ResourceRow.id.in_(resource_ids), ResourceRow.reservable.is_(True)
    )
    return set(session.scalars(query))


def set_native(
    session: Session, resource: Resource, native: Mapping[str, str], now: datetime
) -> None:
    """Replace the properties that the cloud reports, and extra properties of the same names."""
    is_of_resource = ResourceProperty.resource_id == resource.id
    is_replaced = sa.or_(ResourceProperty.native.is_(True), ResourceProperty.name.in_(native))
    session.execute(sa.delete(ResourceProperty).where(is_of_resource, is_replaced))
    _store(session, resource.id, native, native=True)
    session.execute(
        sa.update(ResourceRow).where(ResourceRow.id == resource.id).values(updated_at=now)
    )


def delete(session: Session, resource_id: int) -> None:
    """Delete a resource with its properties, inventories and allocations."""
    session.execute(sa.delete(ResourceRow).where(ResourceRow.id == resource_id))


def define(session: Session, resource_type: str, names: Collection[str], now: datetime) -> None:
    """Define extra properties of a resource type; names that are defined already do not change."""
    known = {prop.name for prop in definitions(session, resource_type)} if names else set()
    for name in names:
        if name not in known:
            session.add(
                PropertyRow(
                    id=ids.new_id(),
                    resource_type=resource_type,
                    name=name,
                    private=False,
                    created_at=now,
                )
            )
    session.flush()


def definitions(session: Session, *resource_types: str) -> list[Property]:
    """Return the definitions of the extra properties of resource types, sorted by name."""
    query = (
        sa.select(PropertyRow)
        .where(PropertyRow.resource_type.in_(resource_types))
        .order_by(PropertyRow.name)
    )
    return [record(Property, row) for row in session.scalars(query)]


def names_in_use(session: Session, resource_type: str, candidates: Collection[str]) -> set[str]:
    """Return those of ``candidates`` that are names of a property of any resource of the type."""
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


def property_names(session: Session, resource_type: str) -> set[str]:
    """Return the names of the extra properties of a resource type."""
    return set(session.connection().scalars(_NAMES, {"type": resource_type}))


def set_private(
    session: Session, resource_type: str, name: str, *, private: bool, now: datetime
) -> Property:
    """Show or hide an extra property in ordinary listings; raises NotFound."""
    query = sa.select(PropertyRow).where(
        PropertyRow.resource_type == resource_type, PropertyRow.name == name
    )
    row = session.scalars(query).one_or_none()
    if row is None:
        raise NotFound(f"Object with {{'property_name': '{name}'}} not found")
    row.private, row.updated_at = private, now
    session.flush()
    return record(Property, row)


def values(session: Session, resource_type: str) -> dict[str, list[str]]:
    """Return the distinct values of each extra property, sorted, by property name."""
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
    rows = [
        {
            "resource_id": resource_id,
            "name": name,
            "value": value,
            "number": as_number(value),
            "native": native,
        }
        for name, value in properties.items()
    ]
    if rows:
        session.execute(sa.insert(ResourceProperty), rows)


def complete(session: Session, rows: Sequence[Any]) -> list[Resource]:
    """Return rows of RESOURCES as resources with their properties.

    Executes one SQL statement per 10,000 rows.
    """
    properties: dict[int, dict[str, str]] = {row.id: {} for row in rows}
    native: dict[int, set[str]] = {row.id: set() for row in rows}
    texts: dict[str, str] = {}  # shares equal texts: there may be half a million properties
    ids = list(properties)
    for at in range(0, len(ids), _CHUNK):
        property_rows = session.execute(_PROPERTIES, {"ids": ids[at : at + _CHUNK]})
        for resource_id, name, value, from_cloud in property_rows:
            shared_name = texts.setdefault(name, name)
            properties[resource_id][shared_name] = texts.setdefault(value, value)
            if from_cloud:
                native[resource_id].add(shared_name)
    return [
        Resource(
            id=row.id,
            type=row.type,
            external_id=row.external_id,
            reservable=row.reservable,
            properties=properties[row.id],
            native=frozenset(native[row.id]),
            created_at=row.created_at,
            updated_at=row.updated_at,
        )
        for row in rows
    ]
