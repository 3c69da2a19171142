"""Renders leases as JSON, as ``schemas.Lease`` describes them.

marshmallow took a quarter of the processor time of a request to create a lease for this.
``tests/api/v2/leases/test_rendering.py`` checks that both results are equal.
"""

from datetime import datetime
from typing import Any

from climate.api.v2.http.fields import show
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.model import NOT_SHOWN, Event, Lease, Reservation
from climate.manager.wait_list.waiting import Place


def lease_body(lease: Lease, place: Place | None = None) -> dict[str, Any]:
    """Return a lease as the answers of v2 contain it; ``place`` is its place in the wait list."""
    is_waiting = lease.status is LeaseStatus.WAITING
    return {
        "id": lease.id,
        "name": lease.name,
        "user_id": lease.user_id,
        "project_id": lease.project_id,
        "start": show(lease.window.start),
        "end": show(lease.window.end),
        "booked_from": None if is_waiting else show(lease.booked_from),
        "start_when": lease.start.when.value,
        "ready_at": _show(lease.start.ready_at),
        "start_delayed_at": _show(lease.start.delayed_at),
        "started_at": _show(lease.start.started_at),
        "status": lease.status.value,
        "degraded": lease.is_degraded,
        "trust_lost": lease.trust_lost,
        "reservations": [reservation_body(reservation) for reservation in lease.reservations],
        "events": [_event_body(event) for event in lease.events],
        "waiting": None if place is None else waiting_body(place),
        "created_at": show(lease.created_at),
        "updated_at": _show(lease.updated_at),
    }


def waiting_body(place: Place) -> dict[str, Any]:
    """Return the place of a lease in the wait list as the answers of v2 contain it."""
    wait = place.wait
    return {
        "position": place.position,
        "priority": wait.priority,
        "until": show(wait.until),
        "promised_start": _show(wait.promised_start),
        "expected_start": _show(place.expected_start),
        "held_back": wait.held_back and wait.held_back.value,
    }


def reservation_body(reservation: Reservation) -> dict[str, Any]:
    """Return a reservation as the answers of v2 contain it."""
    details = reservation.details.items()
    return {
        "id": reservation.id,
        "resource_type": reservation.resource_type,
        "status": reservation.status.value,
        "run_state": reservation.run_state and reservation.run_state.value,
        "params": dict(reservation.shown_params),
        "details": {name: value for name, value in details if name not in NOT_SHOWN},
        "missing_resources": reservation.missing_resources,
        "resources_changed": reservation.resources_changed,
        "created_at": show(reservation.created_at),
        "updated_at": _show(reservation.updated_at),
    }


def _event_body(event: Event) -> dict[str, Any]:
    return {
        "id": event.id,
        "type": event.kind,
        "at": show(event.due_at),
        "status": event.status.value,
    }


def _show(moment: datetime | None) -> str | None:
    return None if moment is None else show(moment)
