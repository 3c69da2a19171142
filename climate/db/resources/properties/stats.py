"""Statements on pushed stats: properties of many resources at once, with a generation for each.

The number of statements does not depend on the number of resources. No statement locks rows of the
table of resources, because admissions skip locked resources.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.db.engine.types import any_of
from climate.db.resources.resources import compared
from climate.db.tables.bulk import insert, update
from climate.db.tables.leases import (
    PROPERTIES,
    RESOURCES,
    ResourceProperty,
    ResourceStatsRow,
    columns,
)

_STATS = ResourceStatsRow.metadata.tables[ResourceStatsRow.__tablename__]
_KEY = ("resource_id", "name")

#: A property of a resource: the id of the resource, and the name of the property.
Key = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Target:
    """A registered resource that a push can name; ``name`` is its name or id in the cloud."""

    id: int
    type: str
    name: str


@dataclass(frozen=True, slots=True)
class StoredValue:
    """The value of a property. If ``native`` is set, the cloud reports it."""

    value: str
    native: bool


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a push: values by property, properties to remove, generations by resource.

    ``added`` has the values of new properties, ``changed`` the new values of present ones.
    ``first`` has the generations of resources that have none yet, ``newer`` those of the others.
    """

    added: dict[Key, str] = field(default_factory=dict)
    changed: dict[Key, str] = field(default_factory=dict)
    removed: set[Key] = field(default_factory=set)
    first: dict[int, int] = field(default_factory=dict)
    newer: dict[int, int] = field(default_factory=dict)


def find_targets(
    session: Session, names: Collection[str], resource_ids: Collection[int]
) -> list[Target]:
    """Return the resources of all types that have one of these names or ids."""
    is_named = any_of(RESOURCES.c.external_id, names)
    has_id = any_of(RESOURCES.c.id, resource_ids)
    query = sa.select(*columns(RESOURCES, "id type external_id"))
    # Two searches, because each uses its index.
    found = {row.id: row for row in session.execute(query.where(is_named)) if names}
    if resource_ids:
        found |= {row.id: row for row in session.execute(query.where(has_id))}
    return [Target(*row) for row in found.values()]


def lock_generations(session: Session, resource_ids: Collection[int]) -> dict[int, int]:
    """Lock the stats of resources, and return their generations.

    Resources without a generation are left out. If two transactions insert the first generation of
    a resource, ``Database.write`` runs the later one again.
    """
    if not resource_ids:
        return {}
    # In one order, so that two pushes do not wait for each other.
    query = sa.select(*columns(_STATS, "resource_id generation")).order_by(_STATS.c.resource_id)
    which = any_of(_STATS.c.resource_id, sorted(resource_ids))
    rows = session.execute(query.where(which).with_for_update())
    return {row.resource_id: row.generation for row in rows}


def find_values(
    session: Session, resource_ids: Collection[int], names: Collection[str]
) -> dict[Key, StoredValue]:
    """Return the present properties of these resources with these names."""
    if not resource_ids or not names:
        return {}
    query = sa.select(*columns(PROPERTIES, "resource_id name value native")).where(
        any_of(PROPERTIES.c.resource_id, sorted(resource_ids)),
        any_of(PROPERTIES.c.name, sorted(names)),
    )
    return {(row[0], row[1]): StoredValue(row[2], row[3]) for row in session.execute(query)}


def store(session: Session, changes: Changes, now: datetime) -> None:
    """Store the changes of a push; ``now`` becomes the time of the generations."""
    insert(session, (ResourceProperty, [{**row, "native": False} for row in _rows(changes.added)]))
    update(session, ResourceProperty, _rows(changes.changed), key=_KEY)
    if changes.removed:
        is_removed = [PROPERTIES.c[name] == sa.bindparam(f"removed_{name}") for name in _KEY]
        keys = [
            {"removed_resource_id": id_, "removed_name": n} for id_, n in sorted(changes.removed)
        ]
        session.connection().execute(sa.delete(PROPERTIES).where(*is_removed), keys)
    insert(session, (ResourceStatsRow, _generations(changes.first, now)))
    update(session, ResourceStatsRow, _generations(changes.newer, now), key=("resource_id",))


def _rows(values: dict[Key, str]) -> list[dict[str, object]]:
    return [
        {"resource_id": id_, "name": name, **compared(value)}
        for (id_, name), value in sorted(values.items())
    ]


def _generations(generations: dict[int, int], now: datetime) -> Sequence[dict[str, object]]:
    return [
        {"resource_id": id_, "generation": generation, "updated_at": now}
        for id_, generation in sorted(generations.items())
    ]
