"""Who holds which resource: pages of the resources of a lease."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.holding import HeldResource
from climate.core.page import Page, Part
from climate.db.engine.types import any_of
from climate.db.resources.pages import cut
from climate.db.tables.leases import ALLOCATIONS, RESERVATIONS, RESOURCES, columns

_TIMES = (
    sa.func.min(ALLOCATIONS.c.start_at, type_=ALLOCATIONS.c.start_at.type).label("start"),
    sa.func.max(ALLOCATIONS.c.busy_until, type_=ALLOCATIONS.c.busy_until.type).label("busy_until"),
)
_KEY = columns(RESOURCES, "id external_id type")
_AMOUNTS = (
    sa.select(
        *columns(ALLOCATIONS, "reservation_id resource_id resource_class"),
        sa.func.sum(ALLOCATIONS.c.amount).label("amount"),
    )
    .where(
        any_of(ALLOCATIONS.c.reservation_id, "reservation_ids"),
        any_of(ALLOCATIONS.c.resource_id, "resource_ids"),
        ALLOCATIONS.c.resource_class.is_not(None),
    )
    .group_by(*columns(ALLOCATIONS, "reservation_id resource_id resource_class"))
)
_Amounts = dict[tuple[str, int], dict[str, int]]


def of_lease(session: Session, lease_id: str, page: Page) -> Part[HeldResource]:
    """Return a page of the resources of a lease, by name (two statements)."""
    query = (
        sa.select(ALLOCATIONS.c.reservation_id, *_KEY, *_TIMES)
        .join(RESERVATIONS, RESERVATIONS.c.id == ALLOCATIONS.c.reservation_id)
        .join(RESOURCES, RESOURCES.c.id == ALLOCATIONS.c.resource_id)
        .where(RESERVATIONS.c.lease_id == lease_id)
        .group_by(ALLOCATIONS.c.reservation_id, *_KEY)
    )
    by_name = cut(query, RESOURCES.c.external_id, ALLOCATIONS.c.reservation_id, page)
    rows = session.execute(by_name).all()
    amounts = _amounts(session, [(row.reservation_id, row.id) for row in rows])
    items = [_held(row, amounts) for row in rows[: page.limit]]
    return Part(items=items, more=len(rows) > page.limit)


def _held(row: Any, amounts: Mapping[tuple[str, int], Mapping[str, int]]) -> HeldResource:  # noqa: ANN401 - a row of of_lease
    return HeldResource(
        reservation_id=row.reservation_id,
        resource_id=row.id,
        name=row.external_id,
        resource_type=row.type,
        start=row.start,
        busy_until=row.busy_until,
        amounts=amounts.get((row.reservation_id, row.id), {}),
    )


def _amounts(session: Session, held: Collection[tuple[str, int]]) -> _Amounts:
    """Return the amounts by class of each (reservation id, resource id) that is a share."""
    values = {
        "reservation_ids": _distinct(reservation_id for reservation_id, _ in held),
        "resource_ids": _distinct(resource_id for _, resource_id in held),
    }
    amounts: _Amounts = {}
    for row in session.execute(_AMOUNTS, values) if held else ():
        of_pair = amounts.setdefault((row.reservation_id, row.resource_id), {})
        of_pair[row.resource_class] = int(row.amount)
    return amounts


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))
