"""What is stored of a reservation after it was acted on."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from climate.core.lease import HANDED_OVER, LEAVING, SHARES, Lease, Reservation
from climate.core.lifecycle import RESERVATION, ReservationStatus, step
from climate.core.schedule import END, START, UPDATE
from climate.db import leases
from climate.manager.claims import Work


@dataclass(frozen=True, slots=True)
class Done:
    """What plugins told of each reservation, and why stacks that were given up are still there."""

    details: Mapping[str, Mapping[str, Any]]
    lost: Mapping[str, str]


def store(session: Session, work: Work, lease: Lease, done: Done, now: datetime) -> None:
    """Store what the lease's reservations are and have after an event that succeeded."""
    for reservation in lease.reservations:
        if reservation.id in done.details:
            _store(session, work, reservation, done.details[reservation.id], now)
        elif reservation.id in done.lost:
            _store_loss(session, reservation, done.lost[reservation.id], now)


def _store_loss(session: Session, reservation: Reservation, why: str, now: datetime) -> None:
    """Show that what was reserved is taken back, and that what was made of it is still there."""
    status = step(RESERVATION, reservation.status, ReservationStatus.ERROR)
    details = {**reservation.details, "error": why}
    leases.set_reservation(session, reservation.id, now, status=status.value, details=details)


def _store(
    session: Session,
    work: Work,
    reservation: Reservation,
    details: Mapping[str, Any],
    now: datetime,
) -> None:
    fields = _handed_over(work, reservation, details)
    wanted = _status_after(work, reservation)
    fields["status"] = step(RESERVATION, reservation.status, wanted).value
    leases.set_reservation(session, reservation.id, now, **fields)


def _handed_over(
    work: Work, reservation: Reservation, details: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what is to be stored: what the reservation has now, and whether some is missing.

    What was handed over before and cannot be booked now is still the user's. What was removed while
    it was handed over is still to be taken back.
    """
    if work.event.kind not in {START, UPDATE} or work.is_leaving(reservation.id):
        return {"details": dict(details)}
    marks: dict[str, Any] = {LEAVING: True} if LEAVING in reservation.details else {}
    before = set(reservation.details.get(HANDED_OVER, ()))
    given = work.resources[reservation.id]
    present = [one.id for one in given if one.reservable or one.id in before]
    known = reservation.missing_resources and not all(one.reservable for one in given)
    shares = {
        **reservation.details.get(SHARES, {}),
        **{str(one.id): dict(one.amounts) for one in given if one.amounts and one.reservable},
    }
    if shares:
        marks[SHARES] = {id_: shares[id_] for id_ in map(str, present) if id_ in shares}
    return {
        "details": {**details, **marks, HANDED_OVER: present},
        "missing_resources": known or len(present) < len(given),
    }


def _status_after(work: Work, reservation: Reservation) -> ReservationStatus:
    """Return where a reservation stands after an event that succeeded."""
    kind = work.event.kind
    if kind == END or work.is_leaving(reservation.id):
        return ReservationStatus.DELETED
    is_new = kind == UPDATE and reservation.status is ReservationStatus.PENDING
    return ReservationStatus.ACTIVE if kind == START or is_new else reservation.status
