"""Pages of long lists by keyset pagination.

A page begins after the last item of the previous page. Its position is the sort key and the id of
that item, not a number of rows to skip. So rows that are inserted or deleted in the meantime do not
shift the next page. The number of SQL statements for a page depends neither on the length of the
page nor on the size of the table.
"""

import operator
from collections.abc import Iterable
from datetime import datetime
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.history import PastLease
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.model import Lease, Resource
from climate.core.page import LeaseFilter, Page, Part, PastLeaseFilter, ResourceFilter
from climate.db.leases import records as lease_records
from climate.db.resources import resources
from climate.db.resources.properties.conditions import clause
from climate.db.tables.bulk import record
from climate.db.tables.leases import LeaseRow, PastLeaseRow, ReservationRow, ResourceRow

Column = sa.SQLColumnExpression[Any]
Q = TypeVar("Q", bound=sa.Select[Any])

_LEASES: dict[str, Column] = {
    "start": LeaseRow.start_at,
    "end": LeaseRow.end_at,
    "created": LeaseRow.created_at,
    "name": LeaseRow.name,
}
_RESOURCES: dict[str, Column] = {"id": ResourceRow.id, "name": ResourceRow.external_id}


def find_leases(session: Session, wanted: LeaseFilter, page: Page) -> Part[Lease]:
    """Return a page of the leases that match the filter ``wanted``, with their reservations.

    Held leases (not confirmed yet) are left out. Executes three SQL statements.
    """
    query = sa.select(*lease_records.COLUMNS).where(*_conditions(wanted))
    rows = session.execute(cut(query, _LEASES[page.sort], LeaseRow.id, page)).all()
    items = lease_records.complete(session, rows[: page.limit])
    return Part(items=items, more=len(rows) > page.limit)


def find_offers(session: Session, project_id: str | None, now: datetime, page: Page) -> Part[Lease]:
    """Return a page of the offers of a project that are open at ``now`` (None: of all projects).

    Offers that a request is accepting are left out. Executes three SQL statements.
    """
    conditions = [LeaseRow.offered_until > now, LeaseRow.updated_at.is_(None)]
    conditions.append(LeaseRow.status == LeaseStatus.CREATING.value)
    conditions += _comparisons([(LeaseRow.project_id, operator.eq, project_id)])
    query = sa.select(*lease_records.COLUMNS).where(*conditions)
    rows = session.execute(cut(query, LeaseRow.offered_until, LeaseRow.id, page)).all()
    items = lease_records.complete(session, rows[: page.limit])
    return Part(items=items, more=len(rows) > page.limit)


def find_past_leases(session: Session, wanted: PastLeaseFilter, page: Page) -> Part[PastLease]:
    """Return a page of the past leases that match the filter ``wanted``.

    A past lease was started and then removed; the history keeps it. Executes one SQL statement.
    """
    compared = (
        (PastLeaseRow.project_id, operator.eq, wanted.project_id),
        (PastLeaseRow.user_id, operator.eq, wanted.user_id),
        (PastLeaseRow.ended_at, operator.lt, wanted.ended_before),
        (PastLeaseRow.ended_at, operator.gt, wanted.ended_after),
    )
    query = sa.select(PastLeaseRow).where(*_comparisons(compared))
    rows = session.scalars(cut(query, PastLeaseRow.ended_at, PastLeaseRow.id, page)).all()
    items = [record(PastLease, row, status=LeaseStatus(row.status)) for row in rows[: page.limit]]
    return Part(items=items, more=len(rows) > page.limit)


def find_resources(
    session: Session, wanted: ResourceFilter, page: Page, *more: sa.ColumnElement[bool]
) -> Part[Resource]:
    """Return a page of the resources that match the filter ``wanted``, with their properties.

    The resources must also satisfy the SQL conditions ``more``. Executes two SQL statements.
    """
    conditions = [
        *more,
        ResourceRow.type.in_(wanted.resource_types),
        clause(wanted.query, ResourceRow.id),
    ]
    if wanted.name_part:
        conditions.append(ResourceRow.external_id.icontains(wanted.name_part, autoescape=True))
    query = sa.select(ResourceRow).where(*conditions)
    rows = session.scalars(cut(query, _RESOURCES[page.sort], ResourceRow.id, page)).all()
    items = resources.complete(session, rows[: page.limit])
    return Part(items=items, more=len(rows) > page.limit)


def _conditions(wanted: LeaseFilter) -> list[sa.ColumnElement[bool]]:
    compared = [
        (LeaseRow.project_id, operator.eq, wanted.project_id),
        (LeaseRow.name, operator.eq, wanted.name),
        (LeaseRow.start_at, operator.lt, wanted.starts_before),
        (LeaseRow.start_at, operator.gt, wanted.starts_after),
        (LeaseRow.end_at, operator.lt, wanted.ends_before),
        (LeaseRow.end_at, operator.gt, wanted.ends_after),
    ]
    conditions = _comparisons(compared)
    conditions.append(LeaseRow.status != LeaseStatus.CREATING.value)  # held, not confirmed yet
    if wanted.statuses:
        conditions.append(LeaseRow.status.in_(wanted.statuses))
    if wanted.resource_type is not None:
        of_lease = sa.exists().where(ReservationRow.lease_id == LeaseRow.id).correlate(LeaseRow)
        conditions.append(of_lease.where(ReservationRow.resource_type == wanted.resource_type))
    return conditions


def _comparisons(compared: Iterable[tuple[Column, Any, Any]]) -> list[sa.ColumnElement[bool]]:
    """Return an SQL condition for each (column, operator, value) whose value is not None."""
    return [compare(column, value) for column, compare, value in compared if value is not None]


def cut(query: Q, column: Column, id_: Column, page: Page) -> Q:
    """Restrict a query to the rows of ``page`` and one more row, sorted as ``page`` says.

    The additional row shows the caller that a next page exists. Rows are sorted by ``column``. Rows
    with equal values are sorted by ``id_``.
    """
    if page.after is not None:
        value, last = page.after
        # Databases walk the index by the first condition; the OR alone would not use it.
        if page.descending:
            query = query.where(column <= value, sa.or_(column < value, id_ < last))
        else:
            query = query.where(column >= value, sa.or_(column > value, id_ > last))
    order = (column.desc(), id_.desc()) if page.descending else (column, id_)
    return query.order_by(*order).limit(page.limit + 1)
