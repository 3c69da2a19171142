"""SQL statements that select the resources which fit a requirement, with a cache of statements.

A resource fits if its properties satisfy the requirement's query, and one unit fits on it. A unit
is the whole resource, or a share such as 4 VCPU. Building and compiling such a statement takes
longer than running it. So the values that differ between requests are SQL parameters (``start``,
``end``, ``locking``, ``rotation``, ``ids``), and the statements of the latest requirements are
cached.

Bookings of a whole resource never overlap (the schema forbids it). So only one of them must be
compared with a window: the last one that starts before the end of the window. The database finds
that row with one index search per examined resource, even if the resource has many bookings.
Bookings of shares can overlap: ``climate.db.resources.capacity`` computes the capacity that they
leave free.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import aliased

from climate.core.matching.query import Query
from climate.core.matching.requirement import EXCLUSIVE, Requirement
from climate.db.engine.types import UtcDateTime
from climate.db.resources import capacity
from climate.db.resources.properties.conditions import clause, equal, split
from climate.db.tables.leases import AllocationRow, ResourceProperty, ResourceRow

_CACHED_STATEMENTS = 512
_START = sa.bindparam("start", type_=UtcDateTime())
_END = sa.bindparam("end", type_=UtcDateTime())
_VERSION: sa.ColumnElement[str] = sa.literal_column("resources.xmin").label("version")


@dataclass(frozen=True, slots=True)
class Shape:
    """The parts of a requirement that change the SQL text, used as the key of the statement cache.

    ``amounts`` contains (resource class, amount) of one unit, for example (("VCPU", 4),). It is
    empty for whole resources. If ``failing_too`` is set, the statement also selects resources that
    are out of order. ``is_alone`` states that the resource must have no other booking. If ``named``
    is not empty, only resources with these ids match.
    """

    resource_type: str
    query: Query
    amounts: tuple[tuple[str, int], ...]
    failing_too: bool
    is_alone: bool
    named: frozenset[int]


def shape(requirement: Requirement, *, failing_too: bool = False) -> Shape:
    """Return the parts of a requirement that change the SQL text.

    If ``failing_too`` is set, the SQL statement will also select resources that are out of order.
    """
    amounts = tuple(requirement.amounts.items())
    return Shape(
        requirement.resource_type,
        requirement.condition,
        amounts,
        failing_too,
        requirement.is_alone,
        requirement.named,
    )


@lru_cache(_CACHED_STATEMENTS)
def available(wanted: Shape, limit: int | None) -> sa.Select[int]:
    """Build the query for the ids of up to ``limit`` resources that may be free.

    The resources match the requirement and can hold one unit. No booking of the whole resource
    overlaps the window from ``start`` to ``end``, and no exclusive share does. If the requirement
    is for whole resources, or exclusive, no share at all overlaps the window. The search begins at
    ``rotation`` (see ``allocations.candidates``).
    """
    return _rotated(wanted, _free(wanted), limit)


@lru_cache(_CACHED_STATEMENTS)
def available_versions(wanted: Shape, limit: int | None) -> sa.Select[Any]:
    """Build the query of ``available`` with one more column, the version of the row. PostgreSQL.

    The version is the id of the transaction that wrote the row.
    """
    return _rotated(wanted, _free(wanted), limit, _VERSION)


@lru_cache(_CACHED_STATEMENTS)
def suggested_versions(wanted: Shape) -> sa.Select[int, str]:
    """Build the query for up to ``most`` resources among ``ids``, with their versions. PostgreSQL.

    The resources match the requirement, and no booking of the whole resource overlaps the window.
    The query does not search for bookings of shares, because resources in ``ids`` probably have
    none in the window.
    """
    ids: sa.BindParameter[Any] = sa.bindparam("ids", type_=sa.ARRAY(sa.BigInteger))
    most: sa.BindParameter[int] = sa.bindparam("most", type_=sa.BigInteger())
    is_given = ResourceRow.id == sa.any_(ids)
    query = sa.select(ResourceRow.id.label("id"), _VERSION)
    return query.where(is_given, *conditions(wanted), _not_booked_whole()).limit(most)


@lru_cache(_CACHED_STATEMENTS)
def available_locked(wanted: Shape, limit: int | None) -> sa.Select[int, bool, bool]:
    """Build the query of ``available``, which also locks up to ``locking`` rows. For PostgreSQL.

    Rows that another transaction has locked are returned, too, but not locked. The result columns
    are:

    - the id,
    - whether this query locked the row,
    - whether another transaction changed the row after this query read it and before this query
      locked it.

    Locked rows come first.
    """
    candidates = available_versions(wanted, limit).cte("candidates")
    locked = (
        sa.select(ResourceRow.id, _VERSION)
        .where(ResourceRow.id.in_(sa.select(candidates.c.id)))
        .limit(sa.bindparam("locking", type_=sa.BigInteger()))
        .with_for_update(skip_locked=True)
        .cte("locked_rows")
    )
    is_locked = locked.c.id.is_not(None).label("is_locked")
    is_changed = sa.func.coalesce(locked.c.version != candidates.c.version, sa.false())
    joined = candidates.outerjoin(locked, locked.c.id == candidates.c.id)
    query = sa.select(candidates.c.id, is_locked, is_changed).select_from(joined)
    return query.order_by(is_locked.desc())


@lru_cache(_CACHED_STATEMENTS)
def matching(wanted: Shape, limit: int | None) -> sa.Select[int]:
    """Build the query for the ids of up to ``limit`` resources that fit, whether free or booked.

    The search begins at ``rotation`` (see ``allocations.candidates``).
    """
    return _rotated(wanted, [], limit)


def _rotated(
    wanted: Shape,
    conditions: list[sa.ColumnElement[bool]],
    limit: int | None,
    *more: sa.ColumnElement[str],
) -> sa.Select[int]:
    """Build the query for the ids of up to ``limit`` resources that fit and meet ``conditions``.

    The search goes through the ids in ascending order, from the first id after ``_pivot`` to the
    highest id, and then from the lowest id to ``_pivot``. Each of these two parts reads an index in
    order. ``more`` are further columns of the result.
    """
    # A literal, not a parameter: the planner needs the limit to choose the plan.
    few: sa.ColumnElement[int] | None = None if limit is None else sa.literal_column(str(limit))
    ids, matching = _walk(wanted)
    columns: list[Any] = [ids.label("id"), *more]
    ordered = sa.select(*columns).where(*matching, *conditions).order_by(ids).limit(few)
    pivot = _pivot(wanted)
    arms = (ordered.where(condition).subquery() for condition in (ids > pivot, ids <= pivot))
    both = sa.union_all(*(sa.select(arm) for arm in arms)).subquery()
    return sa.select(both).limit(few)


def _pivot(wanted: Shape) -> sa.ScalarSelect[int]:
    """Return an SQL expression: the id after which the search for resources begins.

    The parameter ``rotation`` is a fraction from 0 to 1. With 0, the search begins at the lowest
    id. With 0.5, it begins halfway to the highest id: after 50, if the ids are 1 to 100. With 1,
    the result is the highest id, so the search continues with the lowest one.
    """
    first, _ = split(wanted.query)
    prop = aliased(ResourceProperty)
    ids = aliased(ResourceRow).id if first is None else prop.resource_id
    conditions = [] if first is None else equal(prop, first)
    least, most = sa.func.min(ids), sa.func.max(ids)
    rotation: sa.BindParameter[float] = sa.bindparam("rotation", type_=sa.Double())
    pivot = sa.cast(least - 1 + (most - least + 1) * rotation, sa.BigInteger)
    return sa.select(pivot).where(*conditions).scalar_subquery()


@lru_cache(_CACHED_STATEMENTS)
def available_of(wanted: Shape) -> sa.Select[int]:
    """Build the query for the resources that ``available`` would select, among those in ``ids``.

    ``ids`` is an SQL parameter with resource ids.
    """
    is_given = ResourceRow.id.in_(sa.bindparam("ids", expanding=True))
    return sa.select(ResourceRow.id).where(is_given, *conditions(wanted), *_free(wanted))


@lru_cache(_CACHED_STATEMENTS)
def count(wanted: Shape) -> sa.Select[int]:
    """Build the query for the number of resources that fit, whether free or booked."""
    _, conditions = _walk(wanted)
    return sa.select(sa.func.count()).select_from(ResourceRow).where(*conditions)


@lru_cache(_CACHED_STATEMENTS)
def values(wanted: Shape, name: str) -> sa.Select[str | None]:
    """Build the query for the values of a property that fitting resources have, free or booked.

    One value is NULL if some of these resources do not have the property.
    """
    prop = aliased(ResourceProperty)
    has_property = sa.and_(prop.resource_id == ResourceRow.id, prop.name == name)
    query = sa.select(prop.value).select_from(ResourceRow).outerjoin(prop, has_property)
    return query.where(*conditions(wanted)).distinct()


def _walk(
    wanted: Shape,
) -> tuple[sa.SQLColumnExpression[int], list[sa.ColumnElement[bool]]]:
    """Return the column of resource ids to search in, and the SQL conditions of a match.

    If every match must have a certain value of a property, for example rack = 3, the column is in
    the table of properties, and the database reads only resources with this value. Otherwise, the
    column is in the table of resources. Both columns have an index.
    """
    first, rest = split(wanted.query)
    if first is None:
        return ResourceRow.id, _matching(wanted, rest)
    prop = aliased(ResourceProperty)
    has_property = [*equal(prop, first), ResourceRow.id == prop.resource_id]
    return prop.resource_id, [*has_property, *_matching(wanted, rest)]


def conditions(wanted: Shape) -> list[sa.ColumnElement[bool]]:
    """Return the SQL conditions that a resource fits the requirement, whether free or booked."""
    return _matching(wanted, wanted.query)


def _matching(wanted: Shape, query: Query) -> list[sa.ColumnElement[bool]]:
    return [
        ResourceRow.type == wanted.resource_type,
        sa.true() if wanted.failing_too else ResourceRow.reservable.is_(True),
        ResourceRow.id.in_(sorted(wanted.named)) if wanted.named else sa.true(),
        clause(query, ResourceRow.id),
        *(capacity.can_hold(ResourceRow.id, name, amount) for name, amount in wanted.amounts),
    ]


def _free(wanted: Shape) -> list[sa.ColumnElement[bool]]:
    return [_not_booked_whole(), _not_shared(only_exclusively=not wanted.is_alone)]


def _not_booked_whole() -> sa.ColumnElement[bool]:
    last_end = (
        sa.select(AllocationRow.busy_until)
        .where(AllocationRow.whole_id == ResourceRow.id, AllocationRow.start_at < _END)
        .order_by(AllocationRow.start_at.desc())
        .limit(sa.literal_column("1"))
        .correlate(ResourceRow)
        .scalar_subquery()
    )
    # Not `coalesce(last_end, ...) <= start`: with a literal in it MariaDB compares as text, and
    # "12:00:00.000000" is not "12:00:00".
    return ~sa.func.coalesce(last_end > _START, sa.false())


def _not_shared(*, only_exclusively: bool) -> sa.ColumnElement[bool]:
    """Return the condition that no share overlaps the window, or that no exclusive share does."""
    of_class = AllocationRow.resource_class
    sharing = sa.exists().where(
        AllocationRow.resource_id == ResourceRow.id,
        AllocationRow.busy_until > _START,
        AllocationRow.start_at < _END,
        of_class == sa.literal_column(f"'{EXCLUSIVE}'")
        if only_exclusively
        else of_class.is_not(None),
    )
    # As operand of IS it stays a subquery per examined resource; else the planner joins all rows.
    return ~sharing.correlate(ResourceRow).is_(True)
