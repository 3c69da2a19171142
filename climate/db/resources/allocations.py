"""Who has which resource when: finding free resources, locking them, taking and releasing them.

Which ones are free is said in ``climate.db.resources.fitting``.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.lifecycle import ReservationStatus
from climate.core.lease.model import Allocation
from climate.core.matching.requirement import Requirement
from climate.core.window import Window
from climate.db.engine.array_in import any_of
from climate.db.resources import fitting
from climate.db.resources.fitting import shape
from climate.db.tables.bulk import Rows, insert
from climate.db.tables.leases import (
    ALLOCATIONS,
    RESOURCES,
    AllocationRow,
    LeaseRow,
    ReservationRow,
    ResourceRow,
)

_HELD = (
    sa.select(ALLOCATIONS)
    .where(any_of(ALLOCATIONS.c.reservation_id, "ids"))
    .order_by(ALLOCATIONS.c.resource_id)
)
_NAMED = (
    sa.select(
        ALLOCATIONS.c.reservation_id, RESOURCES.c.id, RESOURCES.c.type, RESOURCES.c.external_id
    )
    .join(RESOURCES, RESOURCES.c.id == ALLOCATIONS.c.resource_id)
    .where(any_of(ALLOCATIONS.c.reservation_id, "ids"))
    .distinct()  # more was taken of some later
    .order_by(RESOURCES.c.id)
)
_LOCK = {
    wait: sa.select(RESOURCES.c.id)
    .where(RESOURCES.c.id.in_(sa.bindparam("ids", expanding=True)))
    .order_by(RESOURCES.c.id)
    .with_for_update(skip_locked=not wait)
    for wait in (False, True)
}


class Named(NamedTuple):
    """A resource, as it is called in climate and in the cloud."""

    id: int
    type: str
    external_id: str


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
    statement = fitting.available(shape(requirement), limit)
    return list(session.connection().scalars(statement, _values(busy, rotation)))


@dataclass(frozen=True, slots=True)
class Grabbed:
    """Candidates: those that are ``locked`` are ours and first, ``changed`` some of them."""

    found: Sequence[int]
    locked: Collection[int] = ()
    changed: Collection[int] = ()


def grab(
    session: Session,
    requirement: Requirement,
    busy: Window,
    *,
    limit: int | None,
    locking: int,
    rotation: float,
) -> Grabbed:
    """Return candidates, and lock up to ``locking`` of them.

    So PostgreSQL is asked once and not twice; elsewhere none is locked yet. What was not changed
    meanwhile is as it was found, but for bookings that others committed just then: those the
    schema's guard keeps apart, so nobody need look again.
    """
    if session.get_bind().dialect.name != "postgresql":
        found = candidates(session, requirement, busy, limit=limit, rotation=rotation)
        return Grabbed(found)
    statement = fitting.available_locked(shape(requirement), limit)
    values = {**_values(busy, rotation), "locking": locking}
    rows = session.connection().execute(statement, values).all()
    return Grabbed(
        [id_ for id_, _, _ in rows],
        [id_ for id_, is_mine, _ in rows if is_mine],
        [id_ for id_, _, is_changed in rows if is_changed],
    )


def matching(
    session: Session, requirement: Requirement, *, limit: int | None, rotation: float
) -> list[int]:
    """Return up to ``limit`` ids of resources that match and are large enough, free or not."""
    statement = fitting.matching(shape(requirement), limit)
    return list(session.connection().scalars(statement, {"rotation": rotation}))


def still_free(
    session: Session,
    requirement: Requirement,
    busy: Window,
    among: Collection[int],
    *,
    failing_too: bool = False,
) -> set[int]:
    """Return those of ``among`` that are what ``candidates`` would return."""
    statement = fitting.available_of(shape(requirement, failing_too=failing_too))
    values = {"ids": list(among), "start": busy.start, "end": busy.end}
    return set(session.connection().scalars(statement, values))


def lock(session: Session, resource_ids: Collection[int], *, wait: bool) -> set[int]:
    """Lock resources in id order until the transaction ends; return those that are now ours.

    Without ``wait`` those that somebody else has locked are left out. On SQLite the writer has
    the whole database already.
    """
    return set(session.connection().scalars(_LOCK[wait], {"ids": list(resource_ids)}))


def take(session: Session, rows: Sequence[dict[str, Any]]) -> None:
    """Store allocations, each a row of the table (without its id and ``whole_id``)."""
    insert(session, as_rows(rows))


def as_rows(rows: Sequence[dict[str, Any]]) -> Rows:
    """Return what ``take`` would store."""
    return AllocationRow, rows


def held(session: Session, reservation_ids: Collection[str]) -> dict[str, dict[int, Held]]:
    """Return by reservation the ids of its resources and what it has of each."""
    found: dict[str, dict[int, Held]] = {id_: {} for id_ in reservation_ids}
    for row in session.execute(_HELD, {"ids": list(reservation_ids)}).all():
        mine = found[row.reservation_id]
        before = mine.get(row.resource_id, Held(row.start_at, {}))
        amounts = Counter(before.amounts)
        if row.resource_class is not None and row.amount is not None:
            amounts[row.resource_class] += row.amount
        # Who took more of it later has all of it since then.
        mine[row.resource_id] = Held(max(before.since, row.start_at), amounts)
    return found


def named(session: Session, reservation_ids: Collection[str]) -> dict[str, list[Named]]:
    """Return what each reservation has, by reservation: just what it is called."""
    found: dict[str, list[Named]] = {id_: [] for id_ in reservation_ids}
    for row in session.execute(_NAMED, {"ids": list(reservation_ids)}).all():
        found[row.reservation_id].append(Named(row.id, row.type, row.external_id))
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
    """Return who has which resource, or shares of it, by resource and start (one statement)."""
    query = (
        sa.select(AllocationRow, LeaseRow.id, LeaseRow.start_at, LeaseRow.end_at)
        .join(ResourceRow, ResourceRow.id == AllocationRow.resource_id)
        .join(ReservationRow, ReservationRow.id == AllocationRow.reservation_id)
        .join(LeaseRow, LeaseRow.id == ReservationRow.lease_id)
        .where(ResourceRow.type == resource_type)
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
    found = (
        Allocation(
            resource_id=row.resource_id,
            reservation_id=str(row.reservation_id),
            lease_id=lease,
            window=Window(start, end),
            busy_until=row.busy_until,
        )
        for row, lease, start, end in session.execute(query)
    )
    return list(dict.fromkeys(found))  # there is a row for each class of a share


def params_on(session: Session, resource_id: int) -> list[tuple[str, dict[str, Any]]]:
    """Return what the reservations that have or will have this resource asked for, by type."""
    query = (
        sa.select(ReservationRow.resource_type, ReservationRow.params)
        .join(AllocationRow, AllocationRow.reservation_id == ReservationRow.id)
        .where(
            AllocationRow.resource_id == resource_id,
            ReservationRow.status != ReservationStatus.DELETED.value,
        )
    )
    return [(type_, params) for type_, params in session.execute(query)]


def count(session: Session, requirement: Requirement) -> int:
    """Return how many reservable resources match and are large enough, free or not."""
    return session.connection().scalar(fitting.count(shape(requirement))) or 0


def _values(busy: Window, rotation: float) -> dict[str, Any]:
    return {"rotation": rotation, "start": busy.start, "end": busy.end}
