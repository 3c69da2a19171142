"""Queries that say which lease has which resource, and when.

A booking gives a resource to a reservation of a lease for a time, which includes the cleaning after
the lease. A booking is for the whole resource, or for a share: amounts of resource classes, such as
4 VCPU.

A held lease has the status CREATING: climate has booked its resources, but has not confirmed it
yet. ``bookings`` and ``current_and_next`` leave out the bookings of held leases, as no client may
see such a lease.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.holding import Booking, HeldResource
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.matching.requirement import EXCLUSIVE
from climate.core.page import Page, Part
from climate.db.engine.types import any_of
from climate.db.resources.pages import cut
from climate.db.tables.bulk import record
from climate.db.tables.leases import ALLOCATIONS, LEASES, RESERVATIONS, RESOURCES, columns

Q = TypeVar("Q", bound=sa.Select[Any])

_BUSY_UNTIL = sa.func.max(ALLOCATIONS.c.busy_until, type_=ALLOCATIONS.c.busy_until.type)
_TIMES = (
    sa.func.min(ALLOCATIONS.c.start_at, type_=ALLOCATIONS.c.start_at.type).label("start"),
    _BUSY_UNTIL.label("busy_until"),
)
_KEY = columns(RESOURCES, "id external_id type")
_SHARE = columns(ALLOCATIONS, "reservation_id resource_id start_at resource_class")
_AMOUNTS = (
    sa.select(*_SHARE, sa.func.sum(ALLOCATIONS.c.amount).label("amount"))
    .where(
        any_of(ALLOCATIONS.c.reservation_id, "reservation_ids"),
        any_of(ALLOCATIONS.c.resource_id, "resource_ids"),
        ALLOCATIONS.c.resource_class != EXCLUSIVE,
    )
    .group_by(*_SHARE)
)
_OF_LEASE = (
    LEASES.c.id.label("lease_id"),
    LEASES.c.name.label("lease_name"),
    *columns(LEASES, "project_id user_id status"),
    LEASES.c.end_at.label("end"),
)
_BOOKED = (
    *_OF_LEASE,
    *columns(ALLOCATIONS, "reservation_id resource_id"),
    ALLOCATIONS.c.start_at.label("start"),
)
_OVER = {LeaseStatus.TERMINATED, LeaseStatus.DELETING}
_IS_VISIBLE = LEASES.c.status != LeaseStatus.CREATING.value
_IS_SHARE = ALLOCATIONS.c.resource_class.is_not(None)


def of_lease(session: Session, lease_id: str, page: Page) -> Part[HeldResource]:
    """Return a page of the resources that a lease has booked, sorted by resource name.

    Each item is for one resource and one reservation of the lease. Executes up to two SQL
    statements.
    """
    query = (
        sa.select(ALLOCATIONS.c.reservation_id, *_KEY, *_TIMES)
        .join(RESERVATIONS, RESERVATIONS.c.id == ALLOCATIONS.c.reservation_id)
        .join(RESOURCES, RESOURCES.c.id == ALLOCATIONS.c.resource_id)
        .where(RESERVATIONS.c.lease_id == lease_id)
        .group_by(ALLOCATIONS.c.reservation_id, *_KEY)
    )
    by_name = cut(query, RESOURCES.c.external_id, ALLOCATIONS.c.reservation_id, page)
    rows = session.execute(by_name).all()
    held = rows[: page.limit]
    amounts: dict[tuple[str, int], Counter[str]] = {}
    for share in _shares(session, [(row.reservation_id, row.id) for row in held]):
        of_pair = amounts.setdefault((share.reservation_id, share.resource_id), Counter())
        of_pair[share.resource_class] += int(share.amount)
    items = [
        HeldResource(
            reservation_id=row.reservation_id,
            resource_id=row.id,
            name=row.external_id,
            resource_type=row.type,
            start=row.start,
            busy_until=row.busy_until,
            amounts=amounts.get((row.reservation_id, row.id), {}),
        )
        for row in held
    ]
    return Part(items=items, more=len(rows) > page.limit)


def bookings(
    session: Session, resource_id: int, start: datetime, end: datetime | None, page: Page
) -> Part[Booking]:
    """Return a page of the bookings of a resource that overlap ``[start, end)``, sorted by start.

    If ``end`` is None, the page has all bookings that are not over at ``start``. The time of a
    booking includes the cleaning after the lease. If a reservation got more of the resource later,
    each addition is a booking with its own start. Executes up to two SQL statements.
    """
    whole = ALLOCATIONS.c.whole_id == resource_id
    shared = sa.and_(ALLOCATIONS.c.resource_id == resource_id, _IS_SHARE)
    query = _joined(sa.select(*_BOOKED, _BUSY_UNTIL.label("busy_until"))).where(
        sa.or_(whole, shared), ALLOCATIONS.c.busy_until > start
    )
    if end is not None:
        query = query.where(ALLOCATIONS.c.start_at < end)
    by_start = cut(
        query.group_by(*_BOOKED), ALLOCATIONS.c.start_at, ALLOCATIONS.c.reservation_id, page
    )
    rows = session.execute(by_start).all()
    items = rows[: page.limit]
    amounts: dict[tuple[str, datetime], dict[str, int]] = {}
    for share in _shares(session, [(row.reservation_id, resource_id) for row in items]):
        of_part = amounts.setdefault((share.reservation_id, share.start_at), {})
        of_part[share.resource_class] = int(share.amount)
    return Part(
        items=[_booking(row, amounts.get((row.reservation_id, row.start), {})) for row in items],
        more=len(rows) > page.limit,
    )


def current_and_next(
    session: Session, resource_ids: Collection[int], now: datetime
) -> dict[int, tuple[Booking | None, Booking | None]]:
    """Return the present and the next booking of each resource, by resource id (None: no booking).

    The present booking is the first of these that exists:

    - The latest booking of the whole resource that has started, if it is not over. It is over if
      the end date of its lease is past and the lease is TERMINATED or DELETING.
    - The present share (booking of a part of the resource) that started first. Shares of leases
      past their end date are left out.

    The next booking is the first that starts after ``now``. The ``amounts`` of all bookings are
    left empty. Executes two SQL statements.
    """
    probes = session.execute(_PROBES, {"ids": list(resource_ids), "now": now}).all()
    wanted = {id_ for _, *ids in probes for id_ in ids if id_ is not None}
    rows = session.execute(_BY_ID, {"ids": list(wanted)}).all() if wanted else ()
    found = {row.id: _booking(row, {}) for row in rows}

    def first(*ids: int | None) -> Booking | None:
        some = (found[id_] for id_ in ids if id_ in found)
        return min(some, key=lambda booking: booking.start, default=None)

    pairs: dict[int, tuple[Booking | None, Booking | None]] = {}
    for resource_id, whole, share, *following in probes:
        last = found.get(whole)
        is_over = last is None or (last.end <= now and last.status in _OVER)
        pairs[resource_id] = (first(share) if is_over else last, first(*following))
    return pairs


def _booking(row: Any, amounts: Mapping[str, int]) -> Booking:  # noqa: ANN401 - a row with _BOOKED
    return record(Booking, row, status=LeaseStatus(row.status), amounts=amounts)


def _joined(query: Q) -> Q:
    """Join the reservation and the lease of each allocation to a query; leave out held leases.

    A held lease has the status CREATING: climate has not confirmed it yet.
    """
    return (
        query.select_from(ALLOCATIONS)
        .join(RESERVATIONS, RESERVATIONS.c.id == ALLOCATIONS.c.reservation_id)
        .join(LEASES, LEASES.c.id == RESERVATIONS.c.lease_id)
        .where(_IS_VISIBLE)
    )


def _probe(*conditions: sa.ColumnElement[bool], order: sa.ColumnElement[Any]) -> Any:  # noqa: ANN401 - a scalar subquery
    """Return an SQL expression: the id of a resource's first booking that meets ``conditions``.

    The expression is a subquery (probe) that the database runs for each row of the table of
    resources. ``order`` says which booking is first. The result is NULL if no booking meets the
    conditions.
    """
    query = _joined(sa.select(ALLOCATIONS.c.id)).where(*conditions)
    first = query.order_by(order, ALLOCATIONS.c.id).limit(1)
    return first.correlate(RESOURCES).scalar_subquery()


def _probes() -> sa.Select[Any]:
    """Build the query for the present and the next booking of resources, one row per resource.

    A row has four allocation ids: the last booking of the whole resource that has started, the
    present share that started first, the next booking of the whole resource, and the next share. An
    id is NULL if there is no such booking. A share is a booking of a part of the resource.
    """
    now = sa.bindparam("now", type_=ALLOCATIONS.c.start_at.type)
    start, busy_until = ALLOCATIONS.c.start_at, ALLOCATIONS.c.busy_until
    is_whole = ALLOCATIONS.c.whole_id == RESOURCES.c.id
    is_share = sa.and_(ALLOCATIONS.c.resource_id == RESOURCES.c.id, _IS_SHARE, busy_until > now)
    return sa.select(
        RESOURCES.c.id,
        _probe(is_whole, start <= now, order=start.desc()).label("whole"),
        _probe(is_share, start <= now, LEASES.c.end_at > now, order=start).label("share"),
        _probe(is_whole, start > now, order=start).label("next_whole"),
        _probe(is_share, start > now, order=start).label("next_share"),
    ).where(any_of(RESOURCES.c.id, "ids"))


def _shares(session: Session, held: Collection[tuple[str, int]]) -> Sequence[Any]:
    """Return the amounts of shares that reservations have booked, such as 4 VCPU of a resource.

    ``held`` contains pairs of reservation id and resource id. The result contains a row per
    reservation, resource, start and resource class: if a share grew later, each addition has its
    own start.
    """
    if not held:
        return ()
    reservations, resources = ({pair[at] for pair in held} for at in (0, 1))
    values = {"reservation_ids": sorted(reservations), "resource_ids": sorted(resources)}
    return session.execute(_AMOUNTS, values).all()


# Built once: SQLAlchemy takes longer to build them than the database to run them.
_PROBES = _probes()
_BY_ID = _joined(sa.select(ALLOCATIONS.c.id, *_BOOKED, ALLOCATIONS.c.busy_until)).where(
    any_of(ALLOCATIONS.c.id, "ids")
)
