"""What a lease and its reservations are after an event that succeeded. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from climate.core.lease import HANDED_OVER, LEAVING, SHARES, Event, Lease, Reservation
from climate.core.lifecycle import LEASE, RESERVATION, LeaseStatus, ReservationStatus, step
from climate.core.schedule import END, START, UPDATE
from climate.manager.claims import Work

_LEASE_AFTER = {START: LeaseStatus.ACTIVE, END: LeaseStatus.TERMINATED}


@dataclass(frozen=True, slots=True)
class Done:
    """What plugins told of each reservation, and why stacks that were given up are still there."""

    details: Mapping[str, Mapping[str, Any]]
    lost: Mapping[str, str]


def after(work: Work, lease: Lease, events: tuple[Event, ...], done: Done, now: datetime) -> Lease:
    """Return what a lease is after the work, whose ``events`` are what is left of its own.

    What it became meanwhile (DELETING) it stays.
    """
    kind, status, degraded = work.event.kind, lease.status, lease.degraded
    reservations = tuple(_reservation(work, one, done, now) for one in lease.reservations)
    if kind in {START, UPDATE}:
        degraded = any(one.missing_resources for one in reservations)
    if status is not LeaseStatus.DELETING:
        status = step(LEASE, status, _LEASE_AFTER.get(kind, status))
    start = replace(lease.start, started_at=now) if kind == START else lease.start
    return replace(
        lease,
        status=status,
        degraded=degraded,
        reservations=reservations,
        events=events,
        start=start,
        updated_at=now,
    )


def _reservation(work: Work, reservation: Reservation, done: Done, now: datetime) -> Reservation:
    if reservation.id in done.details:
        fields = _handed_over(work, reservation, done.details[reservation.id])
        wanted = _status_after(work, reservation)
    elif reservation.id in done.lost:
        # It is shown that what was reserved is taken back, and what was made of it still there.
        fields = {"details": {**reservation.details, "error": done.lost[reservation.id]}}
        wanted = ReservationStatus.ERROR
    else:
        return reservation
    status = step(RESERVATION, reservation.status, wanted)
    return replace(reservation, **fields, status=status, updated_at=now)


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
