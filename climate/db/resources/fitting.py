"""Which resources fit a requirement: the conditions, as statements built once and used again.

Building and compiling such a statement takes longer than running it. So what changes from request
to request is a parameter (``start``, ``end``, ``limit``, ``rotation``, ``ids``), and what remains
is kept for the requirements that were asked for last.

The probe: whole bookings of one resource never overlap (the schema forbids it), so only the last
one that starts before my end can be in my way. That is one index descent for each resource
tried, however many bookings there are. Shares of a resource do overlap; what is left of it is
``climate.db.resources.capacity``'s to say.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import aliased

from climate.core.matching.query import Query
from climate.core.matching.requirement import Requirement
from climate.db.engine.types import UtcDateTime
from climate.db.resources import capacity
from climate.db.resources.properties import clause, equal, split
from climate.db.tables.leases import AllocationRow, ResourceProperty, ResourceRow

_KEPT = 512
_START = sa.bindparam("start", type_=UtcDateTime())
_END = sa.bindparam("end", type_=UtcDateTime())


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a requirement, and of what is asked about it, makes a statement another one."""

    resource_type: str
    query: Query
    amounts: tuple[tuple[str, int], ...]
    failing_too: bool


def shape(requirement: Requirement, *, failing_too: bool = False) -> Shape:
    """Return the requirement's shape; resources that fail now may count as well."""
    amounts = tuple(requirement.amounts.items())
    return Shape(requirement.resource_type, requirement.query, amounts, failing_too)


@lru_cache(_KEPT)
def available(wanted: Shape, limit: int | None) -> sa.Select[int]:
    """Select up to ``limit`` that fit from ``start`` to ``end``, beginning at ``rotation``."""
    return _rotated(wanted, _free(wanted), limit)


@lru_cache(_KEPT)
def available_locked(wanted: Shape, limit: int | None) -> sa.Select[int, bool, bool]:
    """Select the same, and lock up to ``locking`` of them that nobody has locked: those first.

    For PostgreSQL. It sees bookings and properties as they were when it began; whether a row that
    it locked was changed since, by whoever had it locked before, is told with it.
    """
    version: sa.ColumnElement[str] = sa.literal_column("resources.xmin").label("version")
    found = _rotated(wanted, _free(wanted), limit, version).cte("found")
    mine = (
        sa.select(ResourceRow.id, version)
        .where(ResourceRow.id.in_(sa.select(found.c.id)))
        .limit(sa.bindparam("locking", type_=sa.BigInteger()))
        .with_for_update(skip_locked=True)
        .cte("mine")
    )
    is_mine = mine.c.id.is_not(None).label("is_mine")
    is_changed = sa.func.coalesce(mine.c.version != found.c.version, sa.false())
    both = found.outerjoin(mine, mine.c.id == found.c.id)
    return sa.select(found.c.id, is_mine, is_changed).select_from(both).order_by(is_mine.desc())


@lru_cache(_KEPT)
def matching(wanted: Shape, limit: int | None) -> sa.Select[int]:
    """Select up to ``limit`` that match, free or not, beginning at ``rotation``."""
    return _rotated(wanted, [], limit)


def _rotated(
    wanted: Shape,
    conditions: list[sa.ColumnElement[bool]],
    limit: int | None,
    *more: sa.ColumnElement[str],
) -> sa.Select[int]:
    # Not a parameter: how much is worth looking at depends on it, and so does the plan.
    few: sa.ColumnElement[int] | None = None if limit is None else sa.literal_column(str(limit))
    ids, matching = _along(wanted)
    columns: list[Any] = [ids.label("id"), *more]
    ordered = sa.select(*columns).where(*matching, *conditions).order_by(ids).limit(few)
    pivot = _pivot(wanted)
    arms = [
        sa.select(ordered.where(ids > pivot).subquery()),
        sa.select(ordered.where(ids <= pivot).subquery()),
    ]
    found = sa.union_all(*arms).subquery()
    return sa.select(found).limit(few)


def _pivot(wanted: Shape) -> sa.ScalarSelect[int]:
    """Return the id that the search begins after, ``rotation`` of the way through the ids."""
    first, _ = split(wanted.query)
    if first is None:
        every = aliased(ResourceRow)
        ids, conditions = every.id, []
    else:
        found = aliased(ResourceProperty)
        ids, conditions = found.resource_id, equal(found, first)
    least, most = sa.func.min(ids), sa.func.max(ids)
    rotation: sa.BindParameter[float] = sa.bindparam("rotation", type_=sa.Double())
    pivot = sa.cast(least - 1 + (most - least + 1) * rotation, sa.BigInteger)
    return sa.select(pivot).where(*conditions).scalar_subquery()


@lru_cache(_KEPT)
def available_of(wanted: Shape) -> sa.Select[int]:
    """Select those of ``ids`` that fit from ``start`` to ``end``."""
    mine = ResourceRow.id.in_(sa.bindparam("ids", expanding=True))
    conditions = [*_matching(wanted, wanted.query), *_free(wanted)]
    return sa.select(ResourceRow.id).where(mine, *conditions)


@lru_cache(_KEPT)
def count(wanted: Shape) -> sa.Select[int]:
    """Count what matches and is large enough, free or not."""
    _, conditions = _along(wanted)
    return sa.select(sa.func.count()).select_from(ResourceRow).where(*conditions)


def _along(
    wanted: Shape,
) -> tuple[sa.SQLColumnExpression[int], list[sa.ColumnElement[bool]]]:
    """Return the ids to go along, in the order of an index, and which of them match.

    With an equality among what is asked that index has only those for which it holds.
    """
    first, rest = split(wanted.query)
    if first is None:
        return ResourceRow.id, _matching(wanted, rest)
    found = aliased(ResourceProperty)
    mine = [*equal(found, first), ResourceRow.id == found.resource_id]
    return found.resource_id, [*mine, *_matching(wanted, rest)]


def _matching(wanted: Shape, query: Query) -> list[sa.ColumnElement[bool]]:
    return [
        ResourceRow.type == wanted.resource_type,
        sa.true() if wanted.failing_too else ResourceRow.reservable.is_(True),
        clause(query, ResourceRow.id),
        *(capacity.can_hold(ResourceRow.id, name, amount) for name, amount in wanted.amounts),
    ]


def _free(wanted: Shape) -> list[sa.ColumnElement[bool]]:
    conditions = [_nobody_has_it_all()]
    if not wanted.amounts:
        conditions.append(_nobody_shares_it())
    return conditions


def _nobody_has_it_all() -> sa.ColumnElement[bool]:
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


def _nobody_shares_it() -> sa.ColumnElement[bool]:
    sharing = sa.exists().where(
        AllocationRow.resource_id == ResourceRow.id,
        AllocationRow.busy_until > _START,
        AllocationRow.start_at < _END,
        AllocationRow.resource_class.is_not(None),
    )
    # As the operand of IS it stays a subquery for each resource tried, and is no join over all.
    return ~sharing.correlate(ResourceRow).is_(True)
