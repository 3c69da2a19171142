"""The names of the properties of resources, and some values of each property.

A query that reads the properties of all resources would be slow if there are many resources. So the
SQL query uses two recursions instead: one over the names, one over the values. Each step of a
recursion finds the next name or value in an index. The time of the query then depends only on the
number of names and values in the result.
"""

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session, aliased

from climate.db.engine.types import HEAD
from climate.db.tables.leases import ResourceProperty, ResourceRow

_PROPERTY = aliased(ResourceProperty)


def find(
    session: Session, resource_type: str, hidden: Collection[str], most_names: int, most_values: int
) -> dict[str, list[str]]:
    """Return the names of properties of a resource type, each with some of its values.

    Names and values are sorted as text. The query reads the first ``most_names`` names, and the
    first ``most_values`` values of each name. The result then leaves out the names in ``hidden``,
    and values of 64 or more characters. Executes one SQL statement.
    """
    # The index contains only the beginning of long values.
    names = _names(resource_type, most_names)
    first = sa.select(
        names.c.name,
        _next_value(resource_type)
        .where(_PROPERTY.name == names.c.name)
        .scalar_subquery()
        .label("value"),
        sa.literal(1).label("number"),
    ).where(names.c.name.is_not(None), names.c.name.not_in(hidden))
    found = first.cte("property_values", recursive=True)
    following = _next_value(resource_type).where(
        _PROPERTY.name == found.c.name, _PROPERTY.head > found.c.value
    )
    following_row = sa.select(found.c.name, following.scalar_subquery(), found.c.number + 1)
    found = found.union_all(
        following_row.where(found.c.value.is_not(None), found.c.number < most_values)
    )
    query = sa.select(found.c.name, found.c.value).order_by(found.c.name, found.c.number)
    values: dict[str, list[str]] = {}
    for name, value in session.execute(query):
        of_name = values.setdefault(name, [])
        if value is not None and len(value) < HEAD:
            of_name.append(value)
    return values


def _names(resource_type: str, most: int) -> sa.CTE:
    step = _of_type(sa.select(_PROPERTY.name), resource_type).order_by(_PROPERTY.name).limit(1)
    first = sa.select(step.scalar_subquery().label("name"), sa.literal(1).label("number"))
    found = first.cte("property_names", recursive=True)
    following = step.where(_PROPERTY.name > found.c.name).scalar_subquery()
    return found.union_all(
        sa.select(following, found.c.number + 1).where(
            found.c.name.is_not(None), found.c.number < most
        )
    )


def _next_value(resource_type: str) -> sa.Select[Any]:
    values = _of_type(sa.select(_PROPERTY.head), resource_type)
    return values.order_by(_PROPERTY.head).limit(1)


def _of_type(query: sa.Select[Any], resource_type: str) -> sa.Select[Any]:
    is_resource = ResourceRow.id == _PROPERTY.resource_id
    return query.join(ResourceRow, is_resource).where(ResourceRow.type == resource_type)
