"""The statuses of leases, reservations and events; transitions of leases and reservations.

Statuses and transitions are Blazar's v1 contract. climate writes a lease with its reservations in
one transaction, so UPDATING is never visible, and CREATING only while an enforcement service
decides. In Blazar, only a change leads from ERROR to active; climate also retries a failed start.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from climate.core.errors import InvalidTransition


class LeaseStatus(StrEnum):
    """The status of a lease; upper case on the wire."""

    CREATING = "CREATING"
    PENDING = "PENDING"
    STARTING = "STARTING"
    ACTIVE = "ACTIVE"
    UPDATING = "UPDATING"
    TERMINATING = "TERMINATING"
    TERMINATED = "TERMINATED"
    DELETING = "DELETING"
    ERROR = "ERROR"


class ReservationStatus(StrEnum):
    """The status of a reservation; lower case on the wire."""

    PENDING = "pending"
    ACTIVE = "active"
    DELETED = "deleted"
    ERROR = "error"


class EventStatus(StrEnum):
    """The status of an event; upper case on the wire."""

    UNDONE = "UNDONE"
    IN_PROGRESS = "IN_PROGRESS"
    DONE = "DONE"
    ERROR = "ERROR"


OPEN_EVENT = (EventStatus.UNDONE, EventStatus.IN_PROGRESS)
STABLE_LEASE = frozenset(
    {LeaseStatus.PENDING, LeaseStatus.ACTIVE, LeaseStatus.TERMINATED, LeaseStatus.ERROR}
)

_L, _R = LeaseStatus, ReservationStatus

LEASE: Mapping[LeaseStatus, frozenset[LeaseStatus]] = {
    _L.CREATING: frozenset({_L.PENDING, _L.DELETING}),
    _L.PENDING: frozenset({_L.STARTING, _L.UPDATING, _L.DELETING}),
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
    """Return ``wanted`` if it is ``present`` or ``machine`` allows it; raises InvalidTransition."""
    if wanted == present or wanted in machine[present]:
        return wanted
    raise InvalidTransition(f"{present.value} cannot become {wanted.value}")
