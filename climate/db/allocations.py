"""Who has which resource when: finding free resources, locking them, taking and releasing them.

The probe: whole bookings of one resource never overlap (the schema forbids it), so only the last
one that starts before my end can be in my way. That is one index descent for each resource
tried, however many bookings there are. Shares of a resource do overlap; what is left of it is
``climate.db.capacity``'s to say.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease import Allocation
from climate.core.lifecycle import ReservationStatus
from climate.core.requirement import Requirement
from climate.core.window import Window
from climate.db import capacity
from climate.db.property_filter import clause
from climate.db.tables import AllocationRow, LeaseRow, ReservationRow, ResourceRow


@dataclass(frozen=True, slots=True)
class Held:
    """A resource that a reservation has: since when, and how much of which classes of it.

    No amounts: it has the whole of it.
    """

    since: datetime
    amounts: Mapping[str, int]


def candidates(
    session: Session, requirement: Requirement, busy: Window, *, limit: int | None, rotation: float
) -> list[int]:
    """Return up to ``limit`` ids of resources that match and may serve over ``busy``.

    Those for whole bookings are free; those for shares nobody has as a whole, and they could hold
    a unit if nobody shared them. The search starts ``rotation`` (0..1) of the way through the ids
    and wraps around, so that parallel requests do not all try the same resources. One statement;
    it stops at ``limit``.
    """
    return list(session.scalars(_rotated(_fitting(requirement, busy), limit, rotation)))


def matching(
    session: Session, requirement: Requirement, *, limit: int | None, rotation: float
) -> list[int]:
    """Return up to ``limit`` ids of resources that match and are large enough, free or not."""
    found = sa.select(ResourceRow.id).where(*_matching(requirement))
    return list(session.scalars(_rotated(found, limit, rotation)))


def still_free(
    session: Session,
    requirement: Requirement,
    busy: Window,
    among: Collection[int],
    *,
    failing_too: bool = False,
) -> set[int]:
    """Return those of ``among`` that are what ``candidates`` would return."""
    fitting = _fitting(requirement, busy, failing_too=failing_too)
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
    """Store allocations, each a row of the table (without its id and ``whole_id``)."""
    if rows:
        session.execute(sa.insert(AllocationRow), rows)


def held(session: Session, reservation_ids: Collection[str]) -> dict[str, dict[int, Held]]:
    """Return by reservation the ids of its resources and what it has of each."""
    query = (
        sa.select(AllocationRow)
        .where(AllocationRow.reservation_id.in_(reservation_ids))
        .order_by(AllocationRow.resource_id)
    )
    found: dict[str, dict[int, Held]] = {id_: {} for id_ in reservation_ids}
    for row in session.scalars(query):
        mine = found[str(row.reservation_id)]
        before = mine.get(row.resource_id, Held(row.start_at, {}))
        amounts = Counter(before.amounts)
        if row.resource_class is not None and row.amount is not None:
            amounts[row.resource_class] += row.amount
        # Who took more of it later has all of it since then.
        mine[row.resource_id] = Held(max(before.since, row.start_at), amounts)
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


def shorten(session: Session, reservation_ids: Collection[str], busy_until: datetime) -> None:
    """Have these reservations' resources until ``busy_until``, and none that starts after it."""
    mine = AllocationRow.reservation_id.in_(reservation_ids)
    session.execute(sa.delete(AllocationRow).where(mine, AllocationRow.start_at >= busy_until))
    session.execute(sa.update(AllocationRow).where(mine).values(busy_until=busy_until))


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


def count(session: Session, requirement: Requirement) -> int:
    """Return how many reservable resources match and are large enough, free or not."""
    matching = sa.select(sa.func.count()).select_from(ResourceRow)
    return session.scalar(matching.where(*_matching(requirement))) or 0


def _rotated(query: sa.Select[int], limit: int | None, rotation: float) -> sa.CompoundSelect[int]:
    first, last = sa.func.min(ResourceRow.id), sa.func.max(ResourceRow.id)
    pivot = sa.select(
        sa.cast(first - 1 + (last - first + 1) * rotation, sa.BigInteger)
    ).scalar_subquery()
    ordered = query.order_by(ResourceRow.id).limit(limit)
    arms = [
        sa.select(ordered.where(ResourceRow.id > pivot).subquery()),
        sa.select(ordered.where(ResourceRow.id <= pivot).subquery()),
    ]
    return sa.union_all(*arms).limit(limit)


def _matching(
    requirement: Requirement, *, failing_too: bool = False
) -> list[sa.ColumnElement[bool]]:
    return [
        ResourceRow.type == requirement.resource_type,
        sa.true() if failing_too else ResourceRow.reservable.is_(True),
        clause(requirement.query, ResourceRow.id),
        *(
            capacity.can_hold(ResourceRow.id, name, amount)
            for name, amount in requirement.amounts.items()
        ),
    ]


def _fitting(
    requirement: Requirement, busy: Window, *, failing_too: bool = False
) -> sa.Select[int]:
    conditions = [*_matching(requirement, failing_too=failing_too), _nobody_has_it_all(busy)]
    if requirement.is_whole:
        conditions.append(_nobody_shares_it(busy))
    return sa.select(ResourceRow.id).where(*conditions)


def _nobody_has_it_all(busy: Window) -> sa.ColumnElement[bool]:
    last_end = (
        sa.select(AllocationRow.busy_until)
        .where(AllocationRow.whole_id == ResourceRow.id, AllocationRow.start_at < busy.end)
        .order_by(AllocationRow.start_at.desc())
        .limit(1)
        .correlate(ResourceRow)
        .scalar_subquery()
    )
    # Not `coalesce(last_end, ...) <= start`: with a literal in it MariaDB compares as text, and
    # "12:00:00.000000" is not "12:00:00".
    return ~sa.func.coalesce(last_end > busy.start, sa.false())


def _nobody_shares_it(busy: Window) -> sa.ColumnElement[bool]:
    sharing = sa.exists().where(
        AllocationRow.resource_id == ResourceRow.id,
        AllocationRow.busy_until > busy.start,
        AllocationRow.start_at < busy.end,
        AllocationRow.resource_class.is_not(None),
    )
    # As the operand of IS it stays a subquery for each resource tried, and is no join over all.
    return ~sharing.correlate(ResourceRow).is_(True)
