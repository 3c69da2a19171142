"""Long lists by pages: the rows beyond a key, in order of that key, and their children.

The number of statements depends on neither the page nor the table.
"""

import operator
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.model import Lease, Resource
from climate.core.page import LeaseFilter, Page, Part, ResourceFilter
from climate.db.leases import records as lease_records
from climate.db.resources import properties, resources
from climate.db.tables.leases import LeaseRow, ReservationRow, ResourceRow

Column = sa.SQLColumnExpression[Any]
Q = TypeVar("Q", bound=sa.Select[Any])

_LEASES: dict[str, Column] = {
    "start": LeaseRow.start_at,
    "end": LeaseRow.end_at,
    "created": LeaseRow.created_at,
    "name": LeaseRow.name,
}


def find_leases(session: Session, wanted: LeaseFilter, page: Page) -> Part[Lease]:
    """Return a page of the leases that are wanted (three statements)."""
    query = sa.select(*lease_records.COLUMNS).where(*_conditions(wanted))
    rows = session.execute(cut(query, _LEASES[page.sort], LeaseRow.id, page)).all()
    items = lease_records.complete(session, rows[: page.limit])
    return Part(items=items, more=len(rows) > page.limit)


def find_resources(session: Session, wanted: ResourceFilter, page: Page) -> Part[Resource]:
    """Return a page of the resources that are wanted, by id (two statements)."""
    query = sa.select(ResourceRow).where(
        ResourceRow.type.in_(wanted.resource_types),
        properties.clause(wanted.query, ResourceRow.id),
    )
    rows = session.scalars(cut(query, ResourceRow.id, ResourceRow.id, page)).all()
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
    found = [compare(column, value) for column, compare, value in compared if value is not None]
    found.append(LeaseRow.status != LeaseStatus.CREATING.value)  # held so far, and nobody's yet
    if wanted.statuses:
        found.append(LeaseRow.status.in_(wanted.statuses))
    if wanted.resource_type is not None:
        found.append(_reserves(wanted.resource_type))
    return found


def _reserves(resource_type: str) -> sa.ColumnElement[bool]:
    mine = (ReservationRow.lease_id == LeaseRow.id, ReservationRow.resource_type == resource_type)
    return sa.exists().where(*mine).correlate(LeaseRow)


def cut(query: Q, column: Column, id_: Column, page: Page) -> Q:
    """Return the query for the rows of the page and one more, which tells if there is another."""
    if page.after is not None:
        value, last = page.after
        # The first condition alone is what databases walk an index by.
        if page.descending:
            query = query.where(column <= value, sa.or_(column < value, id_ < last))
        else:
            query = query.where(column >= value, sa.or_(column > value, id_ > last))
    order = (column.desc(), id_.desc()) if page.descending else (column, id_)
    return query.order_by(*order).limit(page.limit + 1)
