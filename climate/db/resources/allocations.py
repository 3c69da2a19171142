"""Statements on allocations, the rows that book a resource for a reservation in a time window.

The functions find, lock, book and release resources. An allocation books a whole resource, or a
share: amounts of resource classes, such as 4 VCPU of a host.

A requirement says which resources a reservation needs: a type, a query on properties, and how many
units. A unit is a whole resource, or a share of one. The parameter ``busy`` is the window to book,
including the cleaning time after the lease. ``climate.db.resources.fitting`` defines which
resources are free.
"""

import operator
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.lifecycle import ReservationStatus
from climate.core.lease.model import Allocation
from climate.core.matching.requirement import EXCLUSIVE, Requirement
from climate.core.window import Window
from climate.db.engine.types import any_of
from climate.db.resources import fitting
from climate.db.resources.fitting import shape
from climate.db.tables.bulk import certify, insert, record
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
    .distinct()  # a share that grew later has several rows
    .order_by(RESOURCES.c.id)
)
_NAMES = (
    sa.select(RESOURCES.c.id, RESOURCES.c.type, RESOURCES.c.external_id)
    .where(any_of(RESOURCES.c.id, "ids"))
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
    """A resource, by its id in climate, its type, and its id in the cloud (``external_id``).

    For example (7, "physical:host", "compute-12").
    """

    id: int
    type: str
    external_id: str


@dataclass(frozen=True, slots=True)
class Held:
    """What a reservation has booked of one resource.

    ``amounts`` maps resource class to amount, for example {"VCPU": 4}. It is empty if the
    reservation has booked the whole resource. ``since`` is the start of the booking, or of the last
    addition if a share grew later.
    """

    since: datetime
    amounts: Mapping[str, int]


def candidates(
    session: Session, requirement: Requirement, busy: Window, *, limit: int | None, rotation: float
) -> list[int]:
    """Find resources that match and may be free during ``busy``; return their ids.

    The result has at most ``limit`` ids (None: all). For a requirement of whole resources, all
    returned resources are free. For a requirement of shares, each returned resource is large enough
    for one unit and not booked as a whole. But other shares may have used up its capacity: the
    caller must check this.

    ``rotation`` is a fraction from 0 to 1 that says where the search starts: 0 is the lowest id,
    0.5 the id halfway to the highest one. After the highest id, the search continues with the
    lowest one. With different fractions, parallel requests try different resources first. Executes
    one SQL statement.
    """
    statement = fitting.available(shape(requirement), limit)
    return list(session.connection().scalars(statement, _values(busy, rotation)))


@dataclass(frozen=True, slots=True)
class Grabbed:
    """The result of ``grab``: the candidates, which are resources that may be free.

    ``found`` contains the ids of all candidates, the locked ones first. ``locked`` contains the ids
    that this transaction has locked. ``changed`` contains the locked ids whose rows another
    transaction changed after the search and before the lock.
    """

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
    """Return the ids of resources that may be free during ``busy``, and lock some on PostgreSQL.

    ``candidates`` explains the search and its parameters. On PostgreSQL, up to ``locking`` of the
    resources are locked by the same statement. The caller must check the resources in ``changed``
    again, but not the other locked ones. On other databases, nothing is locked: the caller locks
    the resources that it chooses.
    """
    if session.get_bind().dialect.name != "postgresql":
        found = candidates(session, requirement, busy, limit=limit, rotation=rotation)
        return Grabbed(found)
    statement = fitting.available_locked(shape(requirement), limit)
    values = {**_values(busy, rotation), "locking": locking}
    rows = session.connection().execute(statement, values).all()
    return Grabbed(
        [id_ for id_, _, _ in rows],
        [id_ for id_, is_locked, _ in rows if is_locked],
        [id_ for id_, _, is_changed in rows if is_changed],
    )


def matching(
    session: Session, requirement: Requirement, *, limit: int | None, rotation: float
) -> list[int]:
    """Return the ids of resources that match a requirement, free or booked.

    The result has at most ``limit`` ids (None: all). A resource matches if new leases can book it
    (``reservable``), its properties satisfy the query, and it is large enough for one unit.
    ``rotation`` is a fraction from 0 to 1 that says where the search through the ids starts: 0 is
    the lowest id, 0.5 the id halfway to the highest one.
    """
    statement = fitting.matching(shape(requirement), limit)
    return list(session.connection().scalars(statement, {"rotation": rotation}))


def still_free(
    session: Session,
    requirement: Requirement,
    busy: Window,
    resource_ids: Collection[int],
    *,
    failing_too: bool = False,
) -> set[int]:
    """Return which of the given resources match a requirement and may be free during ``busy``.

    The conditions are those of ``candidates``. If ``failing_too`` is set, the result also includes
    resources that are out of order now.
    """
    statement = fitting.available_of(shape(requirement, failing_too=failing_too))
    values = {"ids": list(resource_ids), "start": busy.start, "end": busy.end}
    return set(session.connection().scalars(statement, values))


def lock(session: Session, resource_ids: Collection[int], *, wait: bool) -> set[int]:
    """Lock resources until the transaction ends; return the ids of the locked ones.

    Resources are locked in the order of their ids. If ``wait`` is true, the function waits for
    resources that another transaction has locked. Otherwise, it skips these resources. On SQLite,
    the transaction has already locked the whole database, so the function returns all of them.
    """
    locked = set(session.connection().scalars(_LOCK[wait], {"ids": list(resource_ids)}))
    certify(session, ResourceRow, locked)
    return locked


def take(session: Session, rows: Sequence[dict[str, Any]]) -> None:
    """Insert allocations, which book resources.

    Each row has the columns of the table, except ``id`` and ``whole_id``.
    """
    insert(session, (AllocationRow, rows))


def held(session: Session, reservation_ids: Collection[str]) -> dict[str, dict[int, Held]]:
    """Return what each reservation has booked, by reservation id and then by resource id.

    A reservation without bookings has an empty mapping.
    """
    by_reservation: dict[str, dict[int, Held]] = {id_: {} for id_ in reservation_ids}
    for row in session.execute(_HELD, {"ids": list(reservation_ids)}).all():
        resources = by_reservation[row.reservation_id]
        before = resources.get(row.resource_id, Held(row.start_at, {}))
        amounts = Counter(before.amounts)
        if row.resource_class not in {None, EXCLUSIVE} and row.amount is not None:
            amounts[row.resource_class] += row.amount
        # If its share grew later, the reservation holds all of it only since then.
        resources[row.resource_id] = Held(max(before.since, row.start_at), amounts)
    return by_reservation


def named(session: Session, reservation_ids: Collection[str]) -> dict[str, list[Named]]:
    """Return the type and ids of the resources that each reservation has booked.

    The result maps each given reservation id to a list, sorted by resource id. The list is empty if
    the reservation has booked no resource.
    """
    by_reservation: dict[str, list[Named]] = {id_: [] for id_ in reservation_ids}
    for row in session.execute(_NAMED, {"ids": list(reservation_ids)}).all():
        by_reservation[row.reservation_id].append(Named(row.id, row.type, row.external_id))
    return by_reservation


def names(session: Session, resource_ids: Collection[int]) -> dict[int, Named]:
    """Return type and cloud id of resources, by resource id; ids that do not exist are left out."""
    if not resource_ids:
        return {}
    rows = session.execute(_NAMES, {"ids": list(resource_ids)})
    return {row.id: Named(row.id, row.type, row.external_id) for row in rows}


def release(session: Session, reservation_ids: Collection[str]) -> None:
    """Delete all allocations of these reservations."""
    _delete(session, ALLOCATIONS.c.reservation_id.in_(reservation_ids))


def give_up(session: Session, reservation_id: str, resource_ids: Collection[int]) -> None:
    """Delete the allocations of a reservation on the given resources; its other bookings stay."""
    of_reservation = ALLOCATIONS.c.reservation_id == reservation_id
    _delete(session, of_reservation, ALLOCATIONS.c.resource_id.in_(resource_ids))


def hand_on(
    session: Session, reservation_id: str, new_id: str, resource_ids: Collection[int]
) -> None:
    """Move the allocations of a reservation on these resources to the reservation ``new_id``."""
    of_reservation = ALLOCATIONS.c.reservation_id == reservation_id
    on_resources = ALLOCATIONS.c.resource_id.in_(resource_ids)
    moved = sa.update(ALLOCATIONS).where(of_reservation, on_resources)
    session.execute(moved.values(reservation_id=new_id))


def _delete(session: Session, *conditions: sa.ColumnElement[bool]) -> None:
    session.execute(sa.delete(ALLOCATIONS).where(*conditions))


def shorten(session: Session, reservation_ids: Collection[str], busy_until: datetime) -> None:
    """Let all bookings of the given reservations end at ``busy_until``.

    Allocations that would start at or after ``busy_until`` are deleted.
    """
    of_reservations = ALLOCATIONS.c.reservation_id.in_(reservation_ids)
    _delete(session, of_reservations, ALLOCATIONS.c.start_at >= busy_until)
    session.execute(sa.update(ALLOCATIONS).where(of_reservations).values(busy_until=busy_until))


def detach(session: Session, reservation_ids: Collection[str], busy_until: datetime) -> None:
    """Separate allocations from reservations that are about to be deleted.

    The rows stay, without a reservation, so that the resources remain booked until ``busy_until``,
    the end of the cleaning. Rows that end later are shortened to ``busy_until``. Rows that start at
    or after ``busy_until`` are deleted.
    """
    of_reservations = ALLOCATIONS.c.reservation_id.in_(reservation_ids)
    _delete(session, of_reservations, ALLOCATIONS.c.start_at >= busy_until)
    allocations = sa.update(ALLOCATIONS).where(of_reservations)
    longer = allocations.where(ALLOCATIONS.c.busy_until > busy_until)
    session.execute(longer.values(busy_until=busy_until))
    session.execute(allocations.values(reservation_id=None))


def forget_cleaned(session: Session, now: datetime) -> None:
    """Delete the allocations without a reservation whose cleaning is over at ``now``.

    Such an allocation stays after its lease is deleted, so that no lease can book the resource
    before it is clean.
    """
    _delete(session, ALLOCATIONS.c.reservation_id.is_(None), ALLOCATIONS.c.busy_until <= now)


def find_all(
    session: Session,
    resource_type: str,
    *,
    ending_after: datetime | None,
    resource_id: int | None,
    lease_id: str | None,
    reservation_id: str | None,
) -> list[Allocation]:
    """Return the allocations of a resource type, sorted by resource id and start.

    Only allocations of leases that end at ``ending_after`` or later are returned. The other
    arguments select one resource, lease or reservation. An argument that is None does not restrict
    the result.
    """
    compared = (
        (LeaseRow.end_at, operator.ge, ending_after),
        (AllocationRow.resource_id, operator.eq, resource_id),
        (LeaseRow.id, operator.eq, lease_id),
        (ReservationRow.id, operator.eq, reservation_id),
    )
    query = (
        sa.select(AllocationRow, LeaseRow.id, LeaseRow.start_at, LeaseRow.end_at)
        .join(ResourceRow, ResourceRow.id == AllocationRow.resource_id)
        .join(ReservationRow, ReservationRow.id == AllocationRow.reservation_id)
        .join(LeaseRow, LeaseRow.id == ReservationRow.lease_id)
        .where(ResourceRow.type == resource_type)
        .where(
            *(compare(column, value) for column, compare, value in compared if value is not None)
        )
        .order_by(AllocationRow.resource_id, AllocationRow.start_at)
    )
    allocations = (
        record(Allocation, row, lease_id=lease, window=Window(start, end))
        for row, lease, start, end in session.execute(query)
    )
    return list(dict.fromkeys(allocations))  # a share has a row per resource class


def params_on(session: Session, resource_id: int) -> list[tuple[str, dict[str, Any]]]:
    """Return (resource type, params) of the reservations that have booked the resource.

    ``params`` are the parameters of the user's request. Reservations with the status DELETED are
    left out.
    """
    query = (
        sa.select(ReservationRow.resource_type, ReservationRow.params)
        .join(AllocationRow, AllocationRow.reservation_id == ReservationRow.id)
        .where(
            AllocationRow.resource_id == resource_id,
            ReservationRow.status != ReservationStatus.DELETED.value,
        )
    )
    return [(type_, params) for type_, params in session.execute(query)]


def projects_on(session: Session, resource_id: int) -> set[str]:
    """Return the projects whose leases have booked the resource, as in ``params_on``."""
    query = (
        sa.select(LeaseRow.project_id)
        .join(ReservationRow, ReservationRow.lease_id == LeaseRow.id)
        .join(AllocationRow, AllocationRow.reservation_id == ReservationRow.id)
        .where(
            AllocationRow.resource_id == resource_id,
            ReservationRow.status != ReservationStatus.DELETED.value,
        )
    )
    return set(session.scalars(query))


def count(session: Session, requirement: Requirement) -> int:
    """Return how many resources match a requirement, free or booked; see ``matching``."""
    return session.connection().scalar(fitting.count(shape(requirement))) or 0


def values(session: Session, requirement: Requirement, name: str) -> set[str | None]:
    """Return the values of a property that matching resources have; see ``matching``.

    The result contains None if some of these resources do not have the property.
    """
    return set(session.connection().scalars(fitting.values(shape(requirement), name)))


def _values(busy: Window, rotation: float) -> dict[str, Any]:
    return {"rotation": rotation, "start": busy.start, "end": busy.end}
