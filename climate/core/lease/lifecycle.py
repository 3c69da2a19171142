"""The statuses of leases, reservations and events, and which status may follow which.

The statuses are those of Blazar's v1 API, with some differences. UPDATING is never visible, because
climate changes a lease in one transaction. A lease is CREATING only while an external service
decides whether to allow it, and clients do not see the lease during that time. A lease is WAITING
while it is in the wait list and has no resources; v1 does not show it. Unlike Blazar,
climate retries a failed start. So a lease can become ACTIVE after ERROR without a change by its
owner.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from climate.core.errors import InvalidTransition


class LeaseStatus(StrEnum):
    """The status of a lease; upper case in the API."""

    CREATING = "CREATING"
    WAITING = "WAITING"
    PENDING = "PENDING"
    STARTING = "STARTING"
    ACTIVE = "ACTIVE"
    UPDATING = "UPDATING"
    TERMINATING = "TERMINATING"
    TERMINATED = "TERMINATED"
    DELETING = "DELETING"
    ERROR = "ERROR"


class ReservationStatus(StrEnum):
    """The status of a reservation; lower case in the API."""

    PENDING = "pending"
    ACTIVE = "active"
    DELETED = "deleted"
    ERROR = "error"


class EventStatus(StrEnum):
    """The status of an event; upper case in the API."""

    UNDONE = "UNDONE"
    IN_PROGRESS = "IN_PROGRESS"
    DONE = "DONE"
    ERROR = "ERROR"


class RunState(StrEnum):
    """The run state of a reservation that users start and stop; lower case in the API."""

    STOPPED = "stopped"
    STARTING = "starting"
    STARTED = "started"
    STOPPING = "stopping"


OPEN_EVENT = (EventStatus.UNDONE, EventStatus.IN_PROGRESS)
STABLE_LEASE = frozenset(
    {LeaseStatus.PENDING, LeaseStatus.ACTIVE, LeaseStatus.TERMINATED, LeaseStatus.ERROR}
)

_L, _R = LeaseStatus, ReservationStatus

LEASE: Mapping[LeaseStatus, frozenset[LeaseStatus]] = {
    _L.CREATING: frozenset({_L.PENDING, _L.DELETING}),
    _L.WAITING: frozenset({_L.PENDING, _L.DELETING}),
    _L.PENDING: frozenset({_L.WAITING, _L.STARTING, _L.UPDATING, _L.DELETING}),
    _L.STARTING: frozenset({_L.ACTIVE, _L.ERROR, _L.DELETING}),
    _L.ACTIVE: frozenset({_L.TERMINATING, _L.UPDATING, _L.DELETING}),
    _L.UPDATING: STABLE_LEASE | {_L.DELETING},
    _L.TERMINATING: frozenset({_L.TERMINATED, _L.ERROR, _L.DELETING}),
    _L.TERMINATED: frozenset({_L.UPDATING, _L.DELETING}),
    _L.ERROR: frozenset({_L.ACTIVE, _L.TERMINATING, _L.UPDATING, _L.DELETING}),
    _L.DELETING: frozenset({_L.ERROR}),
}
RESERVATION: Mapping[ReservationStatus, frozenset[ReservationStatus]] = {
    _R.PENDING: frozenset({_R.ACTIVE, _R.DELETED, _R.ERROR}),
    _R.ACTIVE: frozenset({_R.DELETED, _R.ERROR}),
    _R.ERROR: frozenset({_R.ACTIVE, _R.DELETED}),
    _R.DELETED: frozenset(),
}

Status = TypeVar("Status", LeaseStatus, ReservationStatus)


def step(machine: Mapping[Status, frozenset[Status]], present: Status, wanted: Status) -> Status:
    """Return the status ``wanted`` if it may follow ``present``; else raise InvalidTransition.

    ``machine`` is the table of allowed transitions, LEASE or RESERVATION. A status may always
    follow itself.
    """
    if wanted == present or wanted in machine[present]:
        return wanted
    raise InvalidTransition(f"{present.value} cannot become {wanted.value}")
