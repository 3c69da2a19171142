"""Leases with their reservations and events: rows to records and back."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.errors import NotFound
from climate.core.lease import Event, Lease, Reservation
from climate.core.lifecycle import EventStatus, LeaseStatus, ReservationStatus
from climate.core.schedule import Anchor, Notice, rank
from climate.core.window import Window
from climate.db.rows import Rows, insert
from climate.db.tables import AllocationRow, EventRow, LeaseRow, ReservationRow, ResourceRow


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
    query = sa.select(LeaseRow).where(LeaseRow.id == lease_id)
    query = query.execution_options(populate_existing=True)
    if lock:
        # PostgreSQL: rows that refer to this one (new events) need not wait for us.
        query = query.with_for_update(key_share=True)
    row = session.scalars(query).one_or_none()
    if row is None:
        raise NotFound(f"Object with {{'lease_id': '{lease_id}'}} not found")
    return complete(session, [row])[0]


def find_all(session: Session, project_id: str | None) -> list[Lease]:
    """Return the leases of a project (None: of all), by start time (three statements).

    What is only held while somebody is asked about it is no lease yet.
    """
    query = sa.select(LeaseRow).order_by(LeaseRow.start_at, LeaseRow.id)
    query = query.where(LeaseRow.status != LeaseStatus.CREATING.value)
    if project_id is not None:
        query = query.where(LeaseRow.project_id == project_id)
    return complete(session, session.scalars(query).all())


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


def trusted(session: Session, until: datetime) -> list[tuple[str, str]]:
    """Return (id, trust id) of the leases with a trust that are there or start before ``until``."""
    query = sa.select(LeaseRow.id, LeaseRow.trust_id).where(
        LeaseRow.trust_id.is_not(None),
        LeaseRow.start_at < until,
        LeaseRow.status != LeaseStatus.CREATING.value,
    )
    return [(id_, trust_id) for id_, trust_id in session.execute(query) if trust_id]


def trust_ids(session: Session) -> set[str]:
    """Return the trusts of all leases, also of those that are only held."""
    query = sa.select(LeaseRow.trust_id).where(LeaseRow.trust_id.is_not(None))
    return {trust_id for trust_id in session.scalars(query) if trust_id}


def exists(session: Session, lease_id: str) -> bool:
    """Tell whether the lease is (still) there."""
    return session.scalar(sa.select(LeaseRow.id).where(LeaseRow.id == lease_id)) is not None


def update(session: Session, lease: Lease) -> None:
    """Store the lease's own fields (not its reservations and events)."""
    values = _lease_values(lease)
    session.execute(sa.update(LeaseRow).where(LeaseRow.id == lease.id).values(**values))


def set_trust(session: Session, lease_id: str, trust_id: str | None) -> None:
    """Store by which trust the lease's user is acted for; that it had been lost is over."""
    session.execute(
        sa.update(LeaseRow)
        .where(LeaseRow.id == lease_id)
        .values(trust_id=trust_id, trust_lost=None)
    )


def set_status(session: Session, lease_id: str, status: LeaseStatus, now: datetime) -> None:
    """Store where the lease stands."""
    session.execute(
        sa.update(LeaseRow)
        .where(LeaseRow.id == lease_id)
        .values(status=status.value, updated_at=now)
    )


def catch_up(session: Session, lease_id: str, now: datetime, late_at: datetime) -> bool:
    """Note that it is told now what is late of a lease; False if that was so since ``late_at``."""
    told = LeaseRow.caught_up_at
    result = session.execute(
        sa.update(LeaseRow)
        .where(LeaseRow.id == lease_id, sa.or_(told.is_(None), told < late_at))
        .values(caught_up_at=now)
    )
    return bool(result.rowcount)  # type: ignore[attr-defined]


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
    }


def complete(session: Session, rows: Sequence[LeaseRow]) -> list[Lease]:
    """Complete lease rows with their children, one statement per kind of child."""
    ids = [row.id for row in rows]
    reservations = _children(session, ReservationRow, ids, ReservationRow.position)
    events = _children(session, EventRow, ids, EventRow.due_at, EventRow.rank, EventRow.id)
    return [
        Lease(
            id=row.id,
            name=row.name,
            user_id=row.user_id,
            project_id=row.project_id,
            window=Window(row.start_at, row.end_at),
            status=LeaseStatus(row.status),
            degraded=row.degraded,
            notices=tuple(
                Notice(notice["kind"], Anchor(notice["anchor"]), notice["offset"])
                for notice in row.notices
            ),
            reservations=tuple(_reservation(r) for r in reservations.get(row.id, ())),
            events=tuple(_event(row.id, e) for e in events.get(row.id, ())),
            created_at=row.created_at,
            updated_at=row.updated_at,
            trust_id=row.trust_id,
            trust_lost=row.trust_lost,
        )
        for row in rows
    ]


def _children(
    session: Session,
    table: Any,  # noqa: ANN401 - the two tables that refer to leases
    lease_ids: Sequence[str],
    *order: Any,
) -> dict[str, list[Any]]:
    """Return the rows of ``table`` by lease id; the whole table is read if nearly all is asked."""
    query = sa.select(table).order_by(*order).execution_options(populate_existing=True)
    found: dict[str, list[Any]] = {}
    for ids in _chunks(lease_ids):
        for row in session.scalars(query.where(table.lease_id.in_(ids))):
            found.setdefault(row.lease_id, []).append(row)
    return found


def _chunks(ids: Sequence[str], size: int = 10_000) -> Iterable[Sequence[str]]:
    """Stay below every database's limit of bound parameters (SQLite: 32,766)."""
    return (ids[at : at + size] for at in range(0, len(ids), size))


def _reservation(row: ReservationRow) -> Reservation:
    return Reservation(
        id=row.id,
        lease_id=row.lease_id,
        resource_type=row.resource_type,
        status=ReservationStatus(row.status),
        params=row.params,
        details=row.details,
        missing_resources=row.missing_resources,
        resources_changed=row.resources_changed,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _event(lease_id: str, row: EventRow) -> Event:
    return Event(
        id=row.id,
        lease_id=lease_id,
        kind=row.kind,
        due_at=row.due_at,
        status=EventStatus(row.status),
        attempt=row.attempt,
        last_error=row.last_error,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
