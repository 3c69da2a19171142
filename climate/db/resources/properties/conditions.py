"""Queries on properties as SQL conditions, so that the database filters the resources.

A query is a tree of conditions on the properties of a resource, such as ``vcpus >= 16``. The SQL
condition of a query is true exactly for the resources for which
``climate.core.matching.query.matches`` is true. The SQL condition on each property is true or
false, never NULL. So ``not`` in the query can become NOT in SQL. The collation of the column makes
the database compare text by code point.
"""

from collections.abc import Iterator
from dataclasses import replace

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import aliased
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import GenericFunction

from climate.core.matching.query import (
    COMPARE,
    ITEM_SEPARATOR,
    And,
    Compare,
    Contains,
    Everything,
    In,
    Misfit,
    Not,
    Operand,
    Or,
    Query,
    version_key,
)
from climate.db.engine.types import HEAD
from climate.db.tables.leases import ResourceProperty

ResourceId = sa.SQLColumnExpression[int]
Condition = sa.ColumnElement[bool]
Property = type[ResourceProperty]
_ONE: sa.ColumnElement[int] = sa.literal_column("1")


class _position(GenericFunction[int]):  # noqa: N801 - a function in SQL
    """An SQL expression: the position (from 1) of the second text in the first; 0 if it is absent.

    LIKE is no alternative, because LIKE ignores case on SQLite.
    """

    inherit_cache = True
    name = "instr"


@compiles(_position, "postgresql")
def _postgresql(element: _position, compiler: SQLCompiler, **kwargs: object) -> str:
    return f"strpos{compiler.process(element.clause_expr, **kwargs)}"


def clause(query: Query, resource_id: ResourceId) -> Condition:
    """Return the SQL condition that a resource matches ``query``, a tree of conditions.

    ``resource_id`` is the column with the id of the resource in the enclosing SQL statement.
    """
    match query:
        case Everything() | Misfit():
            return sa.true() if isinstance(query, Everything) else sa.false()
        case Compare():
            return _compare(query, resource_id)
        case In():
            return _is_in(query, resource_id)
        case Contains():
            prop = aliased(ResourceProperty)
            return _exists(prop, query.name, resource_id, _contains(prop, query))
        case And() | Or():
            combine = sa.and_ if isinstance(query, And) else sa.or_
            return combine(*(clause(part, resource_id) for part in query.parts))
        case Not():
            return sa.not_(clause(query.part, resource_id))


def generalised(query: Query) -> tuple[Query, dict[str, str]]:
    """Return the query with placeholders for texts that do not change its SQL, and their meaning.

    All queries with the same result have the same SQL, as built by ``clause`` and ``equal``. Their
    parameters differ only in the texts for which the placeholders stand. So a statement that is
    compiled for one of these queries serves all of them.
    """
    meaning: dict[str, str] = {}

    def placeholder(text: str) -> str:
        name = f"\0{len(meaning)}"  # no text of a user contains this character
        meaning[name] = text
        return name

    def general(part: Query) -> Query:
        if isinstance(part, Compare) and _is_plain_text(part):
            name, value = placeholder(part.name), placeholder(part.value.text)
            return replace(part, name=name, value=Operand(value))
        if isinstance(part, And | Or):
            return replace(part, parts=tuple(map(general, part.parts)))
        return Not(general(part.part)) if isinstance(part, Not) else part

    return general(query), meaning


def _is_plain_text(query: Compare) -> bool:
    """Return whether the SQL has the value as it is, and would have any such value in its place."""
    is_text = query.kind == "text" or (query.kind == "either" and query.value.number is None)
    return is_text and not _is_absence(query) and len(query.value.text) < HEAD


def split(query: Query) -> tuple[Compare | None, Query]:
    """Split a query into one condition for an index search, and the rest of the query.

    The condition has the form "property equals value", such as ``rack == 3``, and every matching
    resource must satisfy it. If the query has several such conditions, the first one is returned.
    If it has none, the results are None and the whole query.
    """
    demands = list(_demands(query))
    for demand in demands:
        if isinstance(demand, Compare) and demand.op == "==" and _has_index(demand):
            demands.remove(demand)
            return demand, And(tuple(demands)) if demands else Everything()
    return None, query


def equal(prop: Property, query: Compare) -> list[Condition]:
    """Return SQL conditions that a property has the name and the value in ``query``.

    ``prop`` is the aliased table of properties. ``query`` is a condition from ``split``, such as
    ``rack == 3``. A property must meet all the returned conditions; the database can check them
    with an index.
    """
    number, text = query.value.number, query.value.text
    of_name: Condition = prop.name == query.name
    if number is not None and query.kind != "text":
        return [of_name, prop.number == number]
    whole_value = [prop.value == text] if len(text) >= HEAD else []
    return [of_name, prop.head == text[:HEAD], *whole_value]


def _demands(query: Query) -> Iterator[Query]:
    if not isinstance(query, And):
        yield query
        return
    for part in query.parts:
        yield from _demands(part)


def _has_index(query: Compare) -> bool:
    return query.kind != "version" and not _is_absence(query)


def _is_absence(query: Compare) -> bool:
    return query.value.is_null and query.kind == "either"


def _compare(query: Compare, resource_id: ResourceId) -> Condition:
    prop = aliased(ResourceProperty)
    if _is_absence(query):
        present = _exists(prop, query.name, resource_id, sa.true())
        return sa.not_(present) if query.op == "==" else present
    return _exists(prop, query.name, resource_id, _holds(prop, query))


def _is_in(query: In, resource_id: ResourceId) -> Condition:
    prop = aliased(ResourceProperty)
    values = [value for value in query.values if not value.is_null]
    numbers = [value.number for value in values if value.number is not None]
    # Equal texts are the same number or no number at all, so the OR needs no distinction.
    equal = sa.or_(prop.number.in_(numbers), prop.value.in_([value.text for value in values]))
    has_value = _exists(prop, query.name, resource_id, equal)
    if len(values) == len(query.values):
        return has_value
    absent = _compare(Compare("==", query.name, Operand("null")), resource_id)
    return sa.or_(has_value, absent)


def _contains(prop: Property, query: Contains) -> Condition:
    if not query.is_item:
        return _position(prop.value, query.text) > 0
    comma = sa.literal_column(f"'{ITEM_SEPARATOR}'", sa.String)
    items = comma.concat(prop.value).concat(comma)
    return _position(items, f"{ITEM_SEPARATOR}{query.text}{ITEM_SEPARATOR}") > 0


def _holds(prop: Property, query: Compare) -> Condition:
    compare, operand = COMPARE[query.op], query.value
    if query.kind == "version":
        key = version_key(operand.text)
        if key is None:
            return sa.false()
        by_version: Condition = compare(prop.version_key, key)
        return sa.and_(prop.version_key != "", by_version)
    as_text: Condition = compare(prop.value, operand.text)
    if query.kind == "number":
        by_number: Condition = compare(prop.number, operand.number)
        return by_number
    if query.kind == "text" or operand.number is None:
        return as_text
    return sa.or_(compare(prop.number, operand.number), sa.and_(prop.number.is_(None), as_text))


def _exists(prop: Property, name: str, resource_id: ResourceId, condition: Condition) -> Condition:
    # With an alias, the subquery is independent even if the statement itself reads properties.
    conditions = (prop.resource_id == resource_id, prop.name == name, condition)
    # PostgreSQL would turn EXISTS into a join (planning 30 takes 1 s, 200 take 15 s), or read all
    # properties. A scalar subquery is one index lookup per examined resource.
    subquery: sa.Select[int] = sa.select(_ONE).where(*conditions).correlate_except(prop).limit(_ONE)
    return subquery.scalar_subquery().is_not(None)


def contains(column: sa.SQLColumnExpression[str], part: str) -> Condition:
    """Return the SQL condition that a text column contains ``part``; the case is ignored."""
    return _position(sa.func.lower(column), part.lower()) > 0
