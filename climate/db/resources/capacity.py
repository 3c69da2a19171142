"""How much of each resource class a resource has, and has left over a window.

What shares take of a class at an instant is the sum of those that overlap it; over a window the
peak counts, not the sum of all. The peak is found by a sweep: every share is a step up when it
starts and a step down when it is over, and the running total has its maximum at some step.
"""

import math
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.model import Inventory
from climate.core.window import Window
from climate.db.engine.types import UtcDateTime
from climate.db.tables.leases import AllocationRow, InventoryRow

# Stay below every database's limit of bound parameters (SQLite: 32,766).
_CHUNK = 10_000
_IDS: sa.BindParameter[Any] = sa.bindparam("ids", expanding=True)
_CLASSES: sa.BindParameter[Any] = sa.bindparam("classes", expanding=True)
_START = sa.bindparam("start", type_=UtcDateTime())
_END = sa.bindparam("end", type_=UtcDateTime())


def store(session: Session, resource_id: int, inventories: Mapping[str, Inventory]) -> None:
    """Replace what a resource has to share."""
    session.execute(sa.delete(InventoryRow).where(InventoryRow.resource_id == resource_id))
    rows = [
        {
            "resource_id": resource_id,
            "resource_class": name,
            "total": found.total,
            "reserved": found.reserved,
            "allocation_ratio": found.allocation_ratio,
            "max_unit": found.max_unit,
        }
        for name, found in inventories.items()
    ]
    if rows:
        session.execute(sa.insert(InventoryRow), rows)


def find_some(
    session: Session, resource_ids: Collection[int]
) -> dict[int, Mapping[str, Inventory]]:
    """Return what each of the resources has to share."""
    found: dict[int, dict[str, Inventory]] = {id_: {} for id_ in resource_ids}
    for ids in _chunks(resource_ids):
        query = sa.select(InventoryRow).where(InventoryRow.resource_id.in_(ids))
        for row in session.scalars(query):
            found[row.resource_id][row.resource_class] = Inventory(
                row.total, row.reserved, row.allocation_ratio, row.max_unit
            )
    return dict(found)


def free(
    session: Session, resource_ids: Collection[int], classes: Collection[str], busy: Window
) -> dict[int, dict[str, int]]:
    """Return how much of each class is left all through ``busy`` (one statement for 10,000).

    Shares alone are looked at: whether somebody has the resource as a whole is not.
    """
    left: dict[int, dict[str, int]] = {id_: {} for id_ in resource_ids}
    values = {"classes": list(classes), "start": busy.start, "end": busy.end}
    for ids in _chunks(resource_ids):
        found = session.connection().execute(_left(), {**values, "ids": ids})
        for resource_id, name, capacity, peak in found:
            left[resource_id][name] = math.floor(capacity) - int(peak or 0)
    return left


def can_hold(
    resource_id: sa.SQLColumnExpression[int], name: str, amount: int
) -> sa.ColumnElement[bool]:
    """Return the condition that a resource, were it empty, had ``amount`` of a class for one."""
    mine = (InventoryRow.resource_id == resource_id, InventoryRow.resource_class == name)
    allowed = sa.or_(InventoryRow.max_unit.is_(None), InventoryRow.max_unit >= amount)
    enough = sa.and_(_capacity() >= amount, allowed)
    # As in climate.db.resources.properties: one look for each resource tried.
    one: sa.ColumnElement[int] = sa.literal_column("1")
    there = sa.select(one).where(*mine, enough).correlate_except(InventoryRow).limit(one)
    return there.scalar_subquery().is_not(None)


def _capacity() -> sa.ColumnElement[Any]:
    available = InventoryRow.total - InventoryRow.reserved
    return available * InventoryRow.allocation_ratio


@cache
def _left() -> sa.Select[Any]:
    """Select capacity and peak of ``classes`` of ``ids`` from ``start`` to ``end``, built once."""
    peaks = _peaks().subquery()
    same_class = sa.and_(
        peaks.c.resource_id == InventoryRow.resource_id,
        peaks.c.resource_class == InventoryRow.resource_class,
    )
    mine = (InventoryRow.resource_id.in_(_IDS), InventoryRow.resource_class.in_(_CLASSES))
    return (
        sa.select(InventoryRow.resource_id, InventoryRow.resource_class, _capacity(), peaks.c.peak)
        .outerjoin(peaks, same_class)
        .where(*mine)
    )


def _peaks() -> sa.Select[Any]:
    steps = sa.union_all(
        _steps(AllocationRow.start_at, AllocationRow.amount),
        _steps(AllocationRow.busy_until, -AllocationRow.amount),
    ).subquery()
    # At one instant what is over goes before what starts: windows that touch do not overlap.
    level = sa.func.sum(steps.c.delta).over(
        partition_by=[steps.c.resource_id, steps.c.resource_class],
        order_by=[steps.c.at, steps.c.delta],
        rows=(None, 0),
    )
    levels = sa.select(steps.c.resource_id, steps.c.resource_class, level.label("level")).subquery()
    return sa.select(
        levels.c.resource_id, levels.c.resource_class, sa.func.max(levels.c.level).label("peak")
    ).group_by(levels.c.resource_id, levels.c.resource_class)


def _steps(
    at: sa.SQLColumnExpression[object], delta: sa.SQLColumnExpression[object]
) -> sa.Select[Any, Any, Any, Any]:
    # All that overlaps counts from its own start: before the window no more of it can meet than
    # does at the window's start, nor after it than at its end.
    return sa.select(
        AllocationRow.resource_id,
        AllocationRow.resource_class,
        at.label("at"),
        delta.label("delta"),
    ).where(
        AllocationRow.resource_id.in_(_IDS),
        AllocationRow.resource_class.in_(_CLASSES),
        AllocationRow.start_at < _END,
        AllocationRow.busy_until > _START,
    )


def _chunks(ids: Collection[int]) -> list[list[int]]:
    all_ids = list(ids)
    return [all_ids[at : at + _CHUNK] for at in range(0, len(all_ids), _CHUNK)]
