"""Capacity of resources, and how much of it stays free during a window of time.

A resource class is a kind of amount that a resource has, such as VCPU. An inventory says how much
of one class a resource has. A share is a booking of a part of a resource: amounts of classes, such
as 4 VCPU of a host. The database stores a share as one row per class.

The use of a class at an instant is the sum of the shares that are booked at this instant. The use
during a window is the highest of these sums: the peak. To find the peak, the SQL query goes through
the shares in the order of time. Each share adds its amount to a running total at its start. It
subtracts the amount at its end. The peak is the maximum of the running total.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.model import Inventory
from climate.core.window import Window
from climate.db.engine.types import UtcDateTime, chunks
from climate.db.tables.bulk import record
from climate.db.tables.leases import AllocationRow, InventoryRow

_IDS: sa.BindParameter[Any] = sa.bindparam("ids", expanding=True)
_CLASSES: sa.BindParameter[Any] = sa.bindparam("classes", expanding=True)
_START = sa.bindparam("start", type_=UtcDateTime())
_END = sa.bindparam("end", type_=UtcDateTime())


def store(session: Session, resource_id: int, inventories: Mapping[str, Inventory]) -> None:
    """Replace all inventories of a resource; ``inventories`` maps resource class to inventory.

    An inventory says how much of one class, such as VCPU, the resource has.
    """
    session.execute(sa.delete(InventoryRow).where(InventoryRow.resource_id == resource_id))
    rows = [
        {"resource_id": resource_id, "resource_class": name, **asdict(inventory)}
        for name, inventory in inventories.items()
    ]
    if rows:
        session.execute(sa.insert(InventoryRow), rows)


def find_some(
    session: Session, resource_ids: Collection[int]
) -> dict[int, Mapping[str, Inventory]]:
    """Return the inventories of these resources, by resource id and then by resource class.

    The result contains an empty mapping for a resource without inventories.
    """
    by_resource: dict[int, dict[str, Inventory]] = {id_: {} for id_ in resource_ids}
    for ids in chunks(list(resource_ids)):
        query = sa.select(InventoryRow).where(InventoryRow.resource_id.in_(ids))
        for row in session.scalars(query):
            by_resource[row.resource_id][row.resource_class] = record(Inventory, row)
    return dict(by_resource)


def free(
    session: Session, resource_ids: Collection[int], classes: Collection[str], busy: Window
) -> dict[int, dict[str, int]]:
    """Return how much of each resource class is free during the whole window ``busy``.

    The result contains amounts by resource id and then by class. Classes that a resource does not
    have are left out. ``busy`` is the time of a lease and the cleaning after it. Only shares
    (bookings of a part of a resource) reduce the amounts: the caller must check separately whether
    the whole resource is booked. Executes one SQL statement per 10,000 resources.
    """
    free_amounts: dict[int, dict[str, int]] = {id_: {} for id_ in resource_ids}
    values = {"classes": list(classes), "start": busy.start, "end": busy.end}
    for ids in chunks(list(resource_ids)):
        rows = session.connection().execute(_capacity_and_peak(), {**values, "ids": ids})
        for resource_id, name, capacity, peak in rows:
            free_amounts[resource_id][name] = math.floor(capacity) - int(peak or 0)
    return free_amounts


def can_hold(
    resource_id: sa.SQLColumnExpression[int], name: str, amount: int
) -> sa.ColumnElement[bool]:
    """Return the SQL condition that an empty resource has enough of one resource class for a unit.

    A unit needs ``amount`` of the class ``name``, such as 4 VCPU. The amount must not exceed the
    capacity of the resource, nor the largest unit that the resource allows (``max_unit``).
    """
    of_class = (InventoryRow.resource_id == resource_id, InventoryRow.resource_class == name)
    allowed = sa.or_(InventoryRow.max_unit.is_(None), InventoryRow.max_unit >= amount)
    enough = sa.and_(_capacity() >= amount, allowed)
    # As in climate.db.resources.properties: one index lookup per examined resource.
    one: sa.ColumnElement[int] = sa.literal_column("1")
    inventory = sa.select(one).where(*of_class, enough).correlate_except(InventoryRow).limit(one)
    return inventory.scalar_subquery().is_not(None)


def _capacity() -> sa.ColumnElement[Any]:
    available = InventoryRow.total - InventoryRow.reserved
    return available * InventoryRow.allocation_ratio


@cache
def _capacity_and_peak() -> sa.Select[Any]:
    """Build the query for capacity and peak use, one row per resource and resource class.

    The SQL parameters ``ids`` and ``classes`` select the rows. The peak is the highest sum of
    shares at an instant from ``start`` to ``end``. The peak is NULL if no share overlaps this
    window.
    """
    peaks = _peaks().subquery()
    id_, name = InventoryRow.resource_id, InventoryRow.resource_class
    same_class = sa.and_(peaks.c.resource_id == id_, peaks.c.resource_class == name)
    return (
        sa.select(id_, name, _capacity(), peaks.c.peak)
        .outerjoin(peaks, same_class)
        .where(id_.in_(_IDS), name.in_(_CLASSES))
    )


def _peaks() -> sa.Select[Any]:
    """Build the query for the peak use, one row per resource and resource class.

    Each row of ``_steps`` changes a running total of the shares. The peak is the maximum of this
    total.
    """
    steps = sa.union_all(
        _steps(AllocationRow.start_at, AllocationRow.amount),
        _steps(AllocationRow.busy_until, -AllocationRow.amount),
    ).subquery()
    # At the same instant, ends come before starts: adjacent windows do not overlap.
    level = sa.func.sum(steps.c.delta).over(
        partition_by=[steps.c.resource_id, steps.c.resource_class],
        order_by=[steps.c.at, steps.c.delta],
        rows=(None, 0),
    )
    levels = sa.select(steps.c.resource_id, steps.c.resource_class, level.label("level")).subquery()
    key = (levels.c.resource_id, levels.c.resource_class)
    return sa.select(*key, sa.func.max(levels.c.level).label("peak")).group_by(*key)


def _steps(
    at: sa.SQLColumnExpression[object], delta: sa.SQLColumnExpression[object]
) -> sa.Select[Any, Any, Any, Any]:
    """Build the query for the starts of shares, or for their ends, as changes of a running total.

    For the starts, ``at`` is the start of the share, and ``delta`` is its amount. For the ends,
    ``at`` is the end of the share, and ``delta`` is minus its amount. The query selects the shares
    that overlap the window from ``start`` to ``end``.
    """
    # Shares count outside of the window, too. That adds no peak: a share that overlaps the window
    # and is active before (after) it is also active at the start (end) of the window.
    key = (AllocationRow.resource_id, AllocationRow.resource_class)
    return sa.select(*key, at.label("at"), delta.label("delta")).where(
        AllocationRow.resource_id.in_(_IDS),
        AllocationRow.resource_class.in_(_CLASSES),
        AllocationRow.start_at < _END,
        AllocationRow.busy_until > _START,
    )
