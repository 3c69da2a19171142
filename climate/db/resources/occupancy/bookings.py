"""Queries for one page of a calendar: the bookings of its resources in a window of time.

A booking is for the whole resource, or for a share: an amount of a resource class, such as 4 VCPU.
The time of a booking includes the cleaning after the lease. A viewer is the user who looks at the
calendar. The queries return NULL in place of the data of leases that the viewer may not see.
"""

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.lifecycle import LeaseStatus
from climate.core.matching.calendar_rows import BookedSpan, VisibleLease
from climate.core.provisioning.preparation import OPEN
from climate.core.window import Window
from climate.db.engine.types import any_of
from climate.db.resources.occupancy.arithmetic import END, START
from climate.db.tables.leases import (
    ALLOCATIONS,
    LEASES,
    LeaseRow,
    ReservationRow,
    ResourceRow,
    columns,
)
from climate.db.tables.provisioning import PreparationRow

_MORE = columns(ALLOCATIONS, "reservation_id resource_class amount")
_IS_HELD = LeaseRow.status == LeaseStatus.CREATING.value
_OPEN = [state.value for state in OPEN]


def find(
    session: Session,
    resource_ids: Collection[int],
    window: Window,
    project_id: str | None,
    limit: int,
) -> list[BookedSpan]:
    """Return up to ``limit`` bookings of these resources that overlap the window, in any order.

    ``lease`` is None if the viewer may not see the lease: it is held (not confirmed yet), or does
    not belong to the project ``project_id`` (None: any project).
    """
    if not resource_ids:
        return []
    is_visible: sa.ColumnElement[bool] = LeaseRow.status != LeaseStatus.CREATING.value
    if project_id is not None:
        is_visible = sa.and_(is_visible, LeaseRow.project_id == project_id)
    of_page = any_of(ResourceRow.id, list(resource_ids))
    page = located(sa.select(ResourceRow.id).where(of_page), "page")
    item = sa.union_all(whole(page, *_MORE), shared(page, *_MORE)).subquery("item")
    names = {"start_at": "lease_start", "end_at": "lease_end"}
    shown = (
        sa.case((is_visible, column), else_=sa.null()).label(names.get(column.name, column.name))
        for column in columns(LEASES, "id name status degraded start_at end_at project_id")
    )
    query = (
        sa.select(
            *(column for column in item.c if column.name != "reservation_id"),
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


def located(resources: Any, name: str) -> sa.CTE:  # noqa: ANN401 - a SELECT
    """Return a CTE of resources and the time ``since`` from which ``whole`` reads their bookings.

    ``resources`` is a query for the column ``id`` of ResourceRow; ``name`` is the name of the CTE.
    ``since`` is the start of the last booking of the whole resource that begins at or before the
    start of the window. If there is no such booking, ``since`` is the start of the window. Bookings
    of a whole resource never overlap, so no booking before ``since`` reaches into the window.
    """
    last = (
        sa.select(sa.func.max(ALLOCATIONS.c.start_at))
        .where(ALLOCATIONS.c.whole_id == ResourceRow.id, ALLOCATIONS.c.start_at <= START)
        .correlate(ResourceRow)
        .scalar_subquery()
    )
    query: sa.Select[Any] = resources.add_columns(sa.func.coalesce(last, START).label("since"))
    return query.cte(name)


def whole(rows: sa.FromClause, *more: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Build the query for the bookings of whole resources that overlap the window.

    The SQL parameters ``start`` and ``end`` are the window. ``rows`` is a CTE from ``located``; its
    column ``since`` lets the query skip the past bookings of a resource. The columns of the query
    are resource id, start, end, and then the columns ``more``. If ``more`` is empty, the database
    reads all columns from an index.
    """
    of = ALLOCATIONS.c
    booked = sa.select(of.whole_id.label("resource_id"), of.start_at, of.busy_until, *more)
    return booked.join(rows, rows.c.id == of.whole_id).where(
        of.start_at >= rows.c.since, of.start_at < END, of.busy_until > START
    )


def shared(rows: sa.FromClause, *more: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Build the query for the bookings of shares (parts of resources) that overlap the window.

    ``rows`` is a CTE with the ids of the resources. The columns are the same as those of ``whole``.
    """
    of = ALLOCATIONS.c
    return (
        sa.select(of.resource_id, of.start_at, of.busy_until, *more)
        .join(rows, rows.c.id == of.resource_id)
        .where(of.resource_class.is_not(None), of.busy_until > START, of.start_at < END)
    )


def preparations(
    session: Session, resource_ids: Collection[int], window: Window, project_id: str | None
) -> dict[int, list[Window]]:
    """Return the windows in which provisioners prepare hosts for leases, by resource id.

    The result contains the preparations that overlap ``window``, have the state WANTED or ACCEPTED,
    and are not over. If ``project_id`` is not None, only preparations for leases of this project
    are included. A host without preparations is not in the result.
    """
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
