"""Leases with their reservations and events: found and stored."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.errors import NotFound
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.model import Event, Lease, Reservation
from climate.core.lease.schedule import rank
from climate.db import starts
from climate.db.engine.array_in import among
from climate.db.lease_records import COLUMNS, complete
from climate.db.tables.bulk import Rows, insert
from climate.db.tables.leases import (
    LEASES,
    AllocationRow,
    EventRow,
    LeaseRow,
    ReservationRow,
    ResourceRow,
    columns,
)


def rows(lease: Lease) -> tuple[Rows, Rows, Rows]:
    """Return what is to be stored of a new lease, its reservations and its events."""
    return (
        (LeaseRow, [_lease_values(lease)]),
        _reservations(lease.reservations),
        _events(lease.events),
    )


def insert_reservations(
    session: Session, reservations: Sequence[Reservation], position: int = 0
) -> None:
    """Store reservations, in their order from ``position`` on."""
    insert(session, _reservations(reservations, position))


def _reservations(reservations: Sequence[Reservation], position: int = 0) -> Rows:
    return ReservationRow, [
        {
            "id": reservation.id,
            "lease_id": reservation.lease_id,
            "position": at,
            "resource_type": reservation.resource_type,
            "status": reservation.status.value,
            "params": dict(reservation.params),
            "details": dict(reservation.details),
            "missing_resources": reservation.missing_resources,
            "resources_changed": reservation.resources_changed,
            "created_at": reservation.created_at,
            "updated_at": reservation.updated_at,
        }
        for at, reservation in enumerate(reservations, position)
    ]


def delete_reservations(session: Session, ids: Collection[str]) -> None:
    """Remove reservations with what they have."""
    if ids:
        session.execute(sa.delete(ReservationRow).where(ReservationRow.id.in_(ids)))


def insert_events(session: Session, events: Sequence[Event]) -> None:
    """Store events; each may run from its due time on."""
    insert(session, _events(events))


def _events(events: Sequence[Event]) -> Rows:
    return EventRow, [
        {
            "id": event.id,
            "lease_id": event.lease_id,
            "kind": event.kind,
            "rank": rank(event.kind),
            "due_at": event.due_at,
            "run_at": event.due_at,
            "status": event.status.value,
            "attempt": event.attempt,
            "created_at": event.created_at,
        }
        for event in events
    ]


def get(session: Session, lease_id: str, *, lock: bool = False) -> Lease:
    """Return the lease; with ``lock``, nobody else changes it before this transaction ends.

    Raises NotFound.
    """
    if lock:
        lock_one(session, lease_id)
    found = find_some(session, [lease_id])
    if not found:
        raise NotFound(f"Object with {{'lease_id': '{lease_id}'}} not found")
    return found[lease_id]


def lock_one(session: Session, lease_id: str) -> None:
    """Have nobody else change the lease, or begin its start, before this transaction ends.

    That counts as a change.
    """
    count_up(session, [lease_id])


def count_up(session: Session, lease_ids: Collection[str]) -> None:
    """Count a change of leases: whoever is at work for them looks at all of them again."""
    session.execute(_COUNT_UP, {"lease_ids": list(lease_ids)})


def find_some(
    session: Session, lease_ids: Collection[str], *, lock: bool = False, patient: bool = True
) -> dict[str, Lease]:
    """Return those of the leases that are there, by id.

    With ``lock``, in their order, nobody else changes them before this transaction ends; those that
    somebody else has locked are left out unless we are ``patient``. It is for the progress of
    events: it does not count as a change.
    """
    found = session.execute(_LOOKS[lock, patient], {"lease_ids": list(lease_ids)})
    return {lease.id: lease for lease in complete(session, found.all())}


def lock_unchanged(session: Session, known: Collection[Lease], *, patient: bool) -> set[str]:
    """Lock leases as ``find_some`` does; return the ids of those that are stored as ``known``.

    Code of before schema 0019, which may be at work beside us, counts no version, but notes when it
    changed what users may change.
    """
    ids = [lease.id for lease in known]
    found = session.execute(_VERSIONS[patient], {"lease_ids": ids}).all()
    versions = {(one.id, one.version, one.status, one.updated_at) for one in known}
    return {row[0] for row in found if tuple(row) in versions}


def find_all(session: Session, project_id: str | None) -> list[Lease]:
    """Return the leases of a project (None: of all), by start time (three statements).

    What is only held while somebody is asked about it is no lease yet.
    """
    query = sa.select(*COLUMNS).order_by(LEASES.c.start_at, LEASES.c.id)
    query = query.where(LEASES.c.status != LeaseStatus.CREATING.value)
    if project_id is not None:
        query = query.where(LEASES.c.project_id == project_id)
    return complete(session, session.execute(query).all())


def ailing(session: Session, now: datetime, until: datetime | None) -> list[str]:
    """Return the ids of leases that run or start before ``until`` and have failing resources.

    Those that are marked degraded are among them, to be looked at again.
    """
    failing = (
        sa.select(AllocationRow.id)
        .join(ReservationRow, ReservationRow.id == AllocationRow.reservation_id)
        .join(ResourceRow, ResourceRow.id == AllocationRow.resource_id)
        .where(ReservationRow.lease_id == LeaseRow.id, ResourceRow.reservable.is_(False))
        .correlate(LeaseRow)
        .exists()
    )
    alive = LeaseRow.status.in_([LeaseStatus.PENDING.value, LeaseStatus.ACTIVE.value])
    query = sa.select(LeaseRow.id).where(alive, LeaseRow.end_at > now)
    if until is not None:
        query = query.where(LeaseRow.start_at < until)
    return list(session.scalars(query.where(sa.or_(LeaseRow.degraded, failing))))


def exists(session: Session, lease_id: str) -> bool:
    """Tell whether the lease is (still) there."""
    return session.scalar(sa.select(LeaseRow.id).where(LeaseRow.id == lease_id)) is not None


def update(session: Session, lease: Lease) -> None:
    """Store the lease's own fields (not its reservations and events)."""
    values = _lease_values(lease)
    session.execute(sa.update(LeaseRow).where(LeaseRow.id == lease.id).values(**values))


def set_status(session: Session, lease_id: str, status: LeaseStatus, now: datetime) -> None:
    """Store where the lease stands."""
    session.execute(
        sa.update(LeaseRow)
        .where(LeaseRow.id == lease_id)
        .values(status=status.value, updated_at=now)
    )


def set_reservation(session: Session, reservation_id: str, now: datetime, **fields: Any) -> None:
    """Store some fields of a reservation: status, params, details, flags."""
    session.execute(
        sa.update(ReservationRow)
        .where(ReservationRow.id == reservation_id)
        .values(**fields, updated_at=now)
    )


def delete(session: Session, lease_id: str) -> None:
    """Remove the lease with everything that is part of it."""
    session.execute(sa.delete(LeaseRow).where(LeaseRow.id == lease_id))


def _lease_values(lease: Lease) -> dict[str, Any]:
    return {
        "id": lease.id,
        "name": lease.name,
        "user_id": lease.user_id,
        "project_id": lease.project_id,
        "start_at": lease.window.start,
        "end_at": lease.window.end,
        "status": lease.status.value,
        "degraded": lease.degraded,
        "notices": [
            {"kind": notice.kind, "anchor": notice.anchor, "offset": notice.offset}
            for notice in lease.notices
        ],
        "created_at": lease.created_at,
        "updated_at": lease.updated_at,
        "trust_id": lease.trust_id,
        "trust_lost": lease.trust_lost,
        **starts.values(lease.start),
    }


_COUNT_UP = (
    sa.update(LEASES).where(among(LEASES.c.id, "lease_ids")).values(version=LEASES.c.version + 1)
)
_LOOK = sa.select(*COLUMNS).where(among(LEASES.c.id, "lease_ids")).order_by(LEASES.c.id)
# As ``find_some`` says, by ``lock`` and ``patient``. PostgreSQL: rows that refer to what is locked
# (new events) need not wait for us.
_LOOKS = {
    (True, patient): _LOOK.with_for_update(key_share=True, skip_locked=not patient)
    for patient in (True, False)
} | {(False, patient): _LOOK for patient in (True, False)}
_VERSIONS = {
    patient: look.with_only_columns(*columns(LEASES, "id version status updated_at"))
    for (lock, patient), look in _LOOKS.items()
    if lock
}
