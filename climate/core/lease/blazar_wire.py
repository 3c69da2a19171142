"""A lease as JSON: in Blazar's v1 API, in notifications, and for the enforcement service.

The enforcement service is an operator's program that may reject leases. Dates of a lease have the
form ``2030-01-15T12:00:00.000000``, without a zone, because Blazar's clients parse exactly this.
``created_at`` and ``updated_at`` have the form ``2030-01-15 12:00:00``. For the enforcement
service, dates are ISO 8601 in UTC without a zone, and each reservation lists the resources
(``allocations``) that it has or would get.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from climate.core.lease.lifecycle import EventStatus, LeaseStatus
from climate.core.lease.model import NOT_NOTIFIED, NOT_SHOWN, Event, Lease, Reservation, Resource
from climate.core.window import Window

# A list of leases contains few different times, and formatting one is slow.
_cached = lru_cache(maxsize=1024)


@_cached
def date(moment: datetime) -> str:
    """Return a date of a lease as text, such as ``2030-01-15T12:00:00.000000``.

    Blazar's clients parse exactly this format. The function does not use ``strftime``, which would
    not pad years below 1000.
    """
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds")


@_cached
def stamp(moment: datetime | None) -> str | None:
    """Return the time of a record's creation or change as text, such as ``2030-01-15 12:00:00``.

    Returns None if ``moment`` is None.
    """
    return moment.replace(tzinfo=None).isoformat(sep=" ", timespec="seconds") if moment else None


def lease_body(lease: Lease) -> dict[str, Any]:
    """Return a lease as a dict, in the form of v1 answers.

    ``trust_id`` is always null, because clients may not see the Keystone trust of a lease.
    """
    return {
        "id": lease.id,
        "name": lease.name,
        "user_id": lease.user_id,
        "project_id": lease.project_id,
        "start_date": date(lease.window.start),
        "end_date": date(lease.window.end),
        "trust_id": None,
        "status": lease.status.value,
        "degraded": lease.is_degraded,
        "created_at": stamp(lease.created_at),
        "updated_at": stamp(lease.updated_at),
        "reservations": [reservation_body(reservation) for reservation in lease.reservations],
        "events": [event_body(_shown(lease, event)) for event in lease.events],
    }


def reservation_body(reservation: Reservation) -> dict[str, Any]:
    """Return a reservation as a dict, in the form of v1 answers.

    The dict has the keys common to all reservations, and this reservation's parameters and details.
    """
    return {
        **reservation.shown_params,
        **{key: value for key, value in reservation.details.items() if key not in NOT_SHOWN},
        "id": reservation.id,
        "lease_id": reservation.lease_id,
        "resource_id": reservation.id,
        "resource_type": reservation.resource_type,
        "status": reservation.status.value,
        "missing_resources": reservation.missing_resources,
        "resources_changed": reservation.resources_changed,
        "created_at": stamp(reservation.created_at),
        "updated_at": stamp(reservation.updated_at),
    }


def event_body(event: Event) -> dict[str, Any]:
    """Return an event of a lease, such as its start, as a dict in the form of v1 answers."""
    return {
        "id": event.id,
        "lease_id": event.lease_id,
        "event_type": event.kind,
        "time": date(event.due_at),
        "status": event.status.value,
        "created_at": stamp(event.created_at),
        "updated_at": stamp(event.updated_at),
    }


def _shown(lease: Lease, event: Event) -> Event:
    """Return the event with the status that v1 clients must see.

    If the lease is in ERROR and the event waits for a retry, the event is shown as ERROR, although
    it is stored as UNDONE.
    """
    waits = event.status is EventStatus.UNDONE and event.last_error is not None
    if waits and lease.status is LeaseStatus.ERROR:
        return replace(event, status=EventStatus.ERROR)
    return event


def floatingip_body(resource: Resource) -> dict[str, Any]:
    """Return a reservable floating IP address as a dict, in the form of v1 answers."""
    return {
        "id": str(resource.id),
        "floating_network_id": resource.properties["network_id"],
        "subnet_id": resource.properties["subnet_id"],
        "floating_ip_address": resource.external_id,
        "reservable": resource.reservable,
        "created_at": stamp(resource.created_at),
        "updated_at": stamp(resource.updated_at),
    }


def payload(lease: Lease, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the payload of a notification about a lease, with the additional keys ``extra``.

    The payload is the lease as in v1 answers, with two differences: the key of the lease's id is
    ``lease_id``, and parameters that may be secret are left out.
    """
    body = lease_body(lease)
    for reservation in body["reservations"]:
        for name in NOT_NOTIFIED & reservation.keys():
            del reservation[name]
    return {"lease_id": body.pop("id"), **body, **(extra or {})}


def offer_payload(lease: Lease) -> dict[str, Any]:
    """Return the payload of a notification about an offer.

    It has the members of ``payload``, and when the offer expires. An offer has no events of users.
    """
    expires_at = lease.offered_until.isoformat() if lease.offered_until else None
    return payload(replace(lease, events=()), {"expires_at": expires_at})


def window(payload: Mapping[str, Any]) -> Window | None:
    """Return the window of the lease in ``payload``, the payload of a notification.

    Returns None if the notification is not about a lease.
    """
    if "start_date" not in payload:
        return None
    return Window(_moment(payload["start_date"]), _moment(payload["end_date"]))


@_cached
def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def enforcement_body(lease: Lease, resources: Mapping[str, Sequence[Resource]]) -> dict[str, Any]:
    """Return a lease as a dict, in the form that the enforcement service receives.

    ``resources`` maps the id of each reservation to its resources.
    """
    return {
        "id": lease.id,
        "name": lease.name,
        "user_id": lease.user_id,
        "project_id": lease.project_id,
        "start_date": lease.window.start.replace(tzinfo=None).isoformat(),
        "end_date": lease.window.end.replace(tzinfo=None).isoformat(),
        "reservations": [
            {
                **{k: v for k, v in reservation.shown_params.items() if k not in NOT_NOTIFIED},
                "id": reservation.id,
                "resource_type": reservation.resource_type,
                "allocations": list(map(_allocation, resources.get(reservation.id, ()))),
            }
            for reservation in lease.reservations
        ],
    }


def _allocation(resource: Resource) -> dict[str, Any]:
    if resource.type == "virtual:floatingip":
        return floatingip_body(resource)
    properties = resource.properties
    return {
        **{name: properties[name] for name in resource.native},
        "id": str(resource.id),
        "hypervisor_hostname": resource.external_id,
        "extra": {name: properties[name] for name in properties.keys() - resource.native},
    }
