"""Queries for the rows of a calendar: one row per resource, sorted, and optionally in groups.

A page begins at an offset, a number of rows to skip, so that a viewer can jump to any position. A
group has the rows of all resources with the same value of a property.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session, aliased

from climate.core.matching.calendar_rows import Group, ListedRow, RowFilter
from climate.db.engine.types import UtcDateTime, code_points
from climate.db.resources.properties.conditions import clause, contains
from climate.db.tables.leases import AllocationRow, ResourceProperty, ResourceRow

_NOW = sa.bindparam("now", type_=UtcDateTime())
_GROUP = aliased(ResourceProperty)


def count(session: Session, wanted: RowFilter) -> tuple[int, int]:
    """Return the number of rows of a calendar, and how many of them new leases can book.

    The rows are the resources that match the filter ``wanted``.
    """
    reservable = sa.func.sum(sa.case((ResourceRow.reservable.is_(True), 1), else_=0))
    query = sa.select(sa.func.count(), reservable).where(*_conditions(wanted))
    total, usable = session.execute(query).one()
    return total, int(usable or 0)


def page(session: Session, wanted: RowFilter, offset: int, limit: int) -> list[ListedRow]:
    """Return up to ``limit`` rows of a calendar, after the first ``offset`` rows.

    The rows are the resources that match the filter ``wanted``. Rows are sorted by group, if the
    filter has ``group_by``, and then by name or id.
    """
    since = sa.func.coalesce(ResourceRow.updated_at, ResourceRow.created_at, type_=UtcDateTime())
    group = sa.null() if wanted.group_by is None else _GROUP.value
    query = _joined(
        wanted,
        sa.select(ResourceRow.id, ResourceRow.external_id, ResourceRow.reservable, since, group),
    )
    order: list[Any] = [ResourceRow.id] if not wanted.by_name else [_by_name(), ResourceRow.id]
    if wanted.group_by is not None:
        order = [_GROUP.value.is_(None), _GROUP.value, *order]
    rows = session.execute(query.order_by(*order).offset(offset).limit(limit))
    return [ListedRow(*row) for row in rows]


def groups(session: Session, wanted: RowFilter, now: datetime, limit: int) -> list[Group]:
    """Return the first groups of rows of a calendar, at most ``limit``, in the order of the rows.

    A group has the rows of all resources with the same value of the property ``wanted.group_by``,
    which must not be None. Its ``free_now`` counts the resources that can be booked and are not
    booked at ``now``.
    """
    is_free = sa.and_(ResourceRow.reservable.is_(True), ~_is_occupied())
    counts = sa.func.count(), sa.func.sum(sa.case((is_free, 1), else_=0))
    query = _joined(wanted, sa.select(_GROUP.value, *counts)).group_by(_GROUP.value)
    ordered = query.order_by(_GROUP.value.is_(None), _GROUP.value).limit(limit)
    return _placed(session.execute(ordered, {"now": now}).all())


def _placed(counted: Sequence[Any]) -> list[Group]:
    found: list[Group] = []
    first = 0
    for name, rows, free_now in counted:
        found.append(Group(name, first, rows, int(free_now)))
        first += rows
    return found


def _by_name() -> sa.ColumnElement[str]:
    return code_points(ResourceRow.external_id)


def _conditions(wanted: RowFilter) -> list[sa.ColumnElement[bool]]:
    conditions = [ResourceRow.type == wanted.resource_type]
    if wanted.part is not None:
        conditions.append(contains(ResourceRow.external_id, wanted.part))
    return [*conditions, clause(wanted.query, ResourceRow.id)]


def _joined(wanted: RowFilter, query: Any) -> Any:  # noqa: ANN401 - a SELECT
    joined = query.select_from(ResourceRow).where(*_conditions(wanted))
    if wanted.group_by is None:
        return joined
    of_resource = sa.and_(_GROUP.resource_id == ResourceRow.id, _GROUP.name == wanted.group_by)
    return joined.outerjoin(_GROUP, of_resource)


def _is_occupied() -> sa.ColumnElement[bool]:
    """Return the SQL condition that a booking of the resource includes the time ``now``.

    The booking can be for the whole resource or for a part of it. Its time includes the cleaning
    after the lease.
    """
    last_end = (
        sa.select(AllocationRow.busy_until)
        .where(AllocationRow.whole_id == ResourceRow.id, AllocationRow.start_at <= _NOW)
        .order_by(AllocationRow.start_at.desc())
        .limit(sa.literal_column("1"))
        .correlate(ResourceRow)
        .scalar_subquery()
    )
    share = sa.exists().where(
        AllocationRow.resource_id == ResourceRow.id,
        AllocationRow.busy_until > _NOW,
        AllocationRow.start_at <= _NOW,
        AllocationRow.resource_class.is_not(None),
    )
    # As in climate.db.resources.fitting: whole bookings never overlap, so the last one decides.
    return sa.or_(sa.func.coalesce(last_end > _NOW, sa.false()), share.correlate(ResourceRow))
