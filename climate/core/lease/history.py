"""The history: records of leases that had started and were then removed."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from climate.core.lease.lifecycle import EventStatus, LeaseStatus
from climate.core.lease.model import Granted, Lease
from climate.core.lease.schedule import END
from climate.core.record import record


@record(frozen=True, slots=True, kw_only=True)
class PastLease:
    """A removed lease in the history, with its planned and actual times and its last resources.

    ``status`` is DELETING if the lease was deleted before its end, else TERMINATED. ``started_at``
    is when climate handed over the resources (None: never). ``ended_at`` is when the lease really
    ended. ``reservations`` are JSON objects.
    """

    id: str
    name: str
    user_id: str
    project_id: str
    status: LeaseStatus
    degraded: bool
    start_at: datetime
    end_at: datetime
    started_at: datetime | None
    ended_at: datetime
    created_at: datetime
    reservations: Sequence[Mapping[str, Any]]


def past(lease: Lease, granted: Mapping[str, Sequence[Granted]], now: datetime) -> PastLease:
    """Return the record of ``lease`` for the history.

    ``granted`` maps the id of each reservation to its resources. ``now`` is when the lease is
    removed.
    """
    end = lease.event(END)
    ended_at = end.updated_at if end and end.status is EventStatus.DONE else None
    return PastLease(
        id=lease.id,
        name=lease.name,
        user_id=lease.user_id,
        project_id=lease.project_id,
        status=lease.status,
        degraded=lease.degraded,
        start_at=lease.window.start,
        end_at=lease.window.end,
        started_at=lease.start.started_at,
        ended_at=ended_at or min(lease.window.end, now),
        created_at=lease.created_at,
        reservations=[
            {
                "id": reservation.id,
                "resource_type": reservation.resource_type,
                "status": reservation.status.value,
                "resources": [_shown(resource) for resource in granted[reservation.id]],
            }
            for reservation in lease.reservations
        ],
    )


def _shown(resource: Granted) -> dict[str, Any]:
    """Return a resource as a JSON object with the keys ``id``, ``name`` and ``amounts``.

    ``amounts`` is how much of the resource the reservation had, such as ``{"VCPU": 4}``. It is
    empty if the reservation had the whole resource.
    """
    id_, amounts = str(resource.id), dict(resource.amounts)
    return {"id": id_, "name": resource.external_id, "amounts": amounts}
