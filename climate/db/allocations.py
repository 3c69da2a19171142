"""Who has which resource when: finding free resources, locking them, taking and releasing them.

The probe: allocations of one resource never overlap (the schema forbids it), so only the last
one that starts before my end can be in my way. That is one index descent for each resource
tried, however many bookings there are.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core import query as expressions
from climate.core.lease import Allocation
from climate.core.lifecycle import ReservationStatus
from climate.core.window import Window
from climate.db.property_filter import clause
from climate.db.tables import AllocationRow, LeaseRow, ReservationRow, ResourceRow


def candidates(
    session: Session,
    resource_type: str,
    query: expressions.Query,
    busy: Window,
    *,
    limit: int,
    rotation: float,
) -> list[int]:
    """Return up to ``limit`` ids of resources that match ``query`` and are free over ``busy``.

    The search starts ``rotation`` (0..1) of the way through the ids and wraps around, so that
    parallel requests do not all try the same resources. One statement; it stops at ``limit``.
    """
    first, last = sa.func.min(ResourceRow.id), sa.func.max(ResourceRow.id)
    pivot = sa.select(
        sa.cast(first - 1 + (last - first + 1) * rotation, sa.BigInteger)
    ).scalar_subquery()
    fitting = _fitting(resource_type, query, busy).order_by(ResourceRow.id).limit(limit)
    arms = [
        sa.select(fitting.where(ResourceRow.id > pivot).subquery()),
        sa.select(fitting.where(ResourceRow.id <= pivot).subquery()),
    ]
    return list(session.scalars(sa.union_all(*arms).limit(limit)))


def still_free(
    session: Session,
    resource_type: str,
    query: expressions.Query,
    busy: Window,
    among: Collection[int],
    *,
    failing_too: bool = False,
) -> set[int]:
    """Return those of ``among`` that match ``query`` and are free over ``busy``."""
    fitting = _fitting(resource_type, query, busy, failing_too=failing_too)
    return set(session.scalars(fitting.where(ResourceRow.id.in_(among))))


def lock(session: Session, resource_ids: Collection[int], *, wait: bool) -> set[int]:
    """Lock resources in id order until the transaction ends; return those that are now ours.

    Without ``wait`` those that somebody else has locked are left out. On SQLite the writer has
    the whole database already.
    """
    query = (
        sa.select(ResourceRow.id)
        .where(ResourceRow.id.in_(resource_ids))
        .order_by(ResourceRow.id)
        .with_for_update(skip_locked=not wait)
    )
    return set(session.scalars(query))


def take(session: Session, rows: Sequence[dict[str, Any]]) -> None:
    """Store allocations: resource_id, reservation_id, start_at, busy_until each."""
    if rows:
        session.execute(sa.insert(AllocationRow), rows)


def held(session: Session, reservation_ids: Collection[str]) -> dict[str, dict[int, datetime]]:
    """Return by reservation the ids of its resources and since when each is taken."""
    query = (
        sa.select(AllocationRow)
        .where(AllocationRow.reservation_id.in_(reservation_ids))
        .order_by(AllocationRow.resource_id)
    )
    found: dict[str, dict[int, datetime]] = {id_: {} for id_ in reservation_ids}
    for row in session.scalars(query):
        found[str(row.reservation_id)][row.resource_id] = row.start_at
    return found


def release(session: Session, reservation_ids: Collection[str]) -> None:
    """Give up all resources of these reservations."""
    session.execute(
        sa.delete(AllocationRow).where(AllocationRow.reservation_id.in_(reservation_ids))
    )


def give_up(session: Session, reservation_id: str, resource_ids: Collection[int]) -> None:
    """Give up some resources of a reservation."""
    session.execute(
        sa.delete(AllocationRow).where(
            AllocationRow.reservation_id == reservation_id,
            AllocationRow.resource_id.in_(resource_ids),
        )
    )


def detach(session: Session, reservation_ids: Collection[str], busy_until: datetime) -> None:
    """Leave the resources to their cleaning until ``busy_until``, without a reservation."""
    mine = AllocationRow.reservation_id.in_(reservation_ids)
    session.execute(sa.delete(AllocationRow).where(mine, AllocationRow.start_at >= busy_until))
    session.execute(
        sa.update(AllocationRow)
        .where(mine, AllocationRow.busy_until > busy_until)
        .values(busy_until=busy_until)
    )
    session.execute(sa.update(AllocationRow).where(mine).values(reservation_id=None))


def forget_cleaned(session: Session, now: datetime) -> None:
    """Remove what is left of deleted leases once their cleaning time is over."""
    session.execute(
        sa.delete(AllocationRow).where(
            AllocationRow.reservation_id.is_(None), AllocationRow.busy_until <= now
        )
    )


def find_all(
    session: Session,
    resource_type: str,
    *,
    ending_after: datetime | None = None,
    resource_id: int | None = None,
    lease_id: str | None = None,
    reservation_id: str | None = None,
) -> list[Allocation]:
    """Return allocations of leases, by resource and start (one statement)."""
    query = (
        sa.select(AllocationRow, LeaseRow.id, LeaseRow.start_at, LeaseRow.end_at)
        .join(ReservationRow, ReservationRow.id == AllocationRow.reservation_id)
        .join(LeaseRow, LeaseRow.id == ReservationRow.lease_id)
        .where(ReservationRow.resource_type == resource_type)
        .order_by(AllocationRow.resource_id, AllocationRow.start_at)
    )
    if ending_after is not None:
        query = query.where(LeaseRow.end_at >= ending_after)
    for column, wanted in (
        (AllocationRow.resource_id, resource_id),
        (LeaseRow.id, lease_id),
        (ReservationRow.id, reservation_id),
    ):
        if wanted is not None:
            query = query.where(column == wanted)
    return [
        Allocation(
            resource_id=row.resource_id,
            reservation_id=str(row.reservation_id),
            lease_id=lease,
            window=Window(start, end),
            busy_until=row.busy_until,
        )
        for row, lease, start, end in session.execute(query)
    ]


def params_on(session: Session, resource_id: int) -> list[dict[str, Any]]:
    """Return what the reservations that have or will have this resource asked for."""
    query = (
        sa.select(ReservationRow.params)
        .join(AllocationRow, AllocationRow.reservation_id == ReservationRow.id)
        .where(
            AllocationRow.resource_id == resource_id,
            ReservationRow.status != ReservationStatus.DELETED.value,
        )
    )
    return list(session.scalars(query))


def count(session: Session, resource_type: str, query: expressions.Query) -> int:
    """Return how many reservable resources match ``query``, free or not."""
    matching = sa.select(sa.func.count()).select_from(ResourceRow)
    return session.scalar(matching.where(*_matching(resource_type, query))) or 0


def _matching(
    resource_type: str, query: expressions.Query, *, failing_too: bool = False
) -> list[sa.ColumnElement[bool]]:
    return [
        ResourceRow.type == resource_type,
        sa.true() if failing_too else ResourceRow.reservable.is_(True),
        clause(query, ResourceRow.id),
    ]


def _fitting(
    resource_type: str, query: expressions.Query, busy: Window, *, failing_too: bool = False
) -> sa.Select[int]:
    last_end = (
        sa.select(AllocationRow.busy_until)
        .where(AllocationRow.resource_id == ResourceRow.id, AllocationRow.start_at < busy.end)
        .order_by(AllocationRow.start_at.desc())
        .limit(1)
        .correlate(ResourceRow)
        .scalar_subquery()
    )
    # Not `coalesce(last_end, ...) <= start`: with a literal in it MariaDB compares as text, and
    # "12:00:00.000000" is not "12:00:00".
    is_free = ~sa.func.coalesce(last_end > busy.start, sa.false())
    return sa.select(ResourceRow.id).where(
        *_matching(resource_type, query, failing_too=failing_too), is_free
    )
