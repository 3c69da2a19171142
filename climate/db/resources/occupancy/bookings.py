"""The allocations of the resources of one page of a calendar, during its window.

Leases that the viewer may not see are not read: their columns are NULL in the result.
"""

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session, aliased

from climate.core.lease.lifecycle import LeaseStatus
from climate.core.matching.calendar_rows import BookedSpan, VisibleLease
from climate.core.provisioning.preparation import OPEN
from climate.core.window import Window
from climate.db.engine.types import UtcDateTime, any_of
from climate.db.tables.leases import (
    ALLOCATIONS,
    LEASES,
    AllocationRow,
    LeaseRow,
    ReservationRow,
    ResourceRow,
    columns,
)
from climate.db.tables.provisioning import PreparationRow

_START = sa.bindparam("start", type_=UtcDateTime())
_END = sa.bindparam("end", type_=UtcDateTime())
_COLUMNS = columns(
    ALLOCATIONS, "id resource_id reservation_id start_at busy_until resource_class amount"
)
_INTERNAL = {"id", "reservation_id"}
_IS_HELD = LeaseRow.status == LeaseStatus.CREATING.value
_OPEN = [state.value for state in OPEN]


def find(
    session: Session,
    resource_ids: Collection[int],
    window: Window,
    project_id: str | None,
    limit: int,
) -> list[BookedSpan]:
    """Return up to ``limit`` allocations of the resources that overlap the window.

    Leases of ``project_id`` (None: of all projects) are visible, except held ones.
    """
    if not resource_ids:
        return []
    is_visible: sa.ColumnElement[bool] = LeaseRow.status != LeaseStatus.CREATING.value
    if project_id is not None:
        is_visible = sa.and_(is_visible, LeaseRow.project_id == project_id)
    item = overlapping(resource_ids).subquery("item")
    names = {"start_at": "lease_start", "end_at": "lease_end"}
    shown = (
        sa.case((is_visible, column), else_=sa.null()).label(names.get(column.name, column.name))
        for column in columns(LEASES, "id name status degraded start_at end_at project_id")
    )
    query = (
        sa.select(
            *(item.c[column.name] for column in _COLUMNS if column.name not in _INTERNAL),
            _IS_HELD.label("is_held"),
            item.c.reservation_id.is_(None).label("is_deleted"),
            *shown,
        )
        .select_from(item)
        .outerjoin(ReservationRow, ReservationRow.id == item.c.reservation_id)
        .outerjoin(LeaseRow, LeaseRow.id == ReservationRow.lease_id)
        .limit(limit)
    )
    leases: dict[str, VisibleLease] = {}
    rows = session.execute(query, {"start": window.start, "end": window.end})
    return [_span(row, leases) for row in rows]


def _span(row: Any, leases: dict[str, VisibleLease]) -> BookedSpan:  # noqa: ANN401 - a row
    lease = None if row.id is None else leases.get(row.id)
    if lease is None and row.id is not None:
        window = row.lease_start, row.lease_end
        state = row.name, row.status, bool(row.degraded)
        lease = leases[row.id] = VisibleLease(row.id, *state, *window, row.project_id)
    return BookedSpan(
        resource_id=row.resource_id,
        start=row.start_at,
        end=row.busy_until,
        resource_class=row.resource_class,
        amount=row.amount or 0,
        is_held=bool(row.is_held),
        is_deleted=bool(row.is_deleted),
        lease=lease,
    )


def overlapping(resource_ids: Collection[int]) -> sa.CompoundSelect[Any]:
    """Select the allocations of resources that overlap [start, end).

    Whole bookings of a resource never overlap. So only the last one that begins by ``start`` can
    reach into the window, and no statement reads the past of a resource.
    """
    row, inner = aliased(ResourceRow), aliased(AllocationRow)
    last = (
        sa.select(sa.func.max(inner.start_at))
        .where(inner.whole_id == row.id, inner.start_at <= _START)
        .correlate(row)
        .scalar_subquery()
    )
    of_page = any_of(row.id, list(resource_ids))
    is_whole = sa.and_(row.id == AllocationRow.whole_id, of_page)
    present = AllocationRow.busy_until > _START
    first = sa.select(*_COLUMNS).join(row, is_whole)
    return sa.union_all(
        first.where(AllocationRow.start_at == last, present),
        first.where(AllocationRow.start_at > _START, AllocationRow.start_at < _END),
        sa.select(*_COLUMNS).where(
            any_of(AllocationRow.resource_id, list(resource_ids)),
            AllocationRow.resource_class.is_not(None),
            present,
            AllocationRow.start_at < _END,
        ),
    )


def preparations(
    session: Session, resource_ids: Collection[int], window: Window, project_id: str | None
) -> dict[int, list[Window]]:
    """Return when hosts are made ready for leases of a project (None: of all), by resource id."""
    query = sa.select(
        PreparationRow.resource_id, PreparationRow.wanted_at, PreparationRow.needed_at
    ).where(
        any_of(PreparationRow.resource_id, list(resource_ids)),
        PreparationRow.over_at.is_(None),
        PreparationRow.progress.in_(_OPEN),
        PreparationRow.wanted_at < PreparationRow.needed_at,
        PreparationRow.wanted_at < window.end,
        PreparationRow.needed_at > window.start,
    )
    if project_id is not None:
        is_own = LeaseRow.project_id == project_id
        query = query.join(LeaseRow, sa.and_(LeaseRow.id == PreparationRow.lease_id, is_own))
    found: dict[int, list[Window]] = {}
    for resource_id, start, end in session.execute(query):
        found.setdefault(resource_id, []).append(Window(start, end))
    return found
