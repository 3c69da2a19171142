"""The state machines of leases, reservations and events, as data.

Statuses and transitions are Blazar's v1 contract. climate writes a lease and all it consists of
in one transaction, so nobody ever sees CREATING or UPDATING; they stay in the table because
they are part of the contract. The contract has no way from ERROR to active but by a change; climate
tries a start that failed again.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from climate.core.errors import InvalidTransition


class LeaseStatus(StrEnum):
    """Where a lease stands; upper case on the wire."""

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
    """Where a reservation stands; lower case on the wire."""

    PENDING = "pending"
    ACTIVE = "active"
    DELETED = "deleted"
    ERROR = "error"


class EventStatus(StrEnum):
    """Where an event stands; upper case on the wire."""

    UNDONE = "UNDONE"
    IN_PROGRESS = "IN_PROGRESS"
    DONE = "DONE"
    ERROR = "ERROR"


OPEN_EVENT = (EventStatus.UNDONE, EventStatus.IN_PROGRESS)
STABLE_LEASE = frozenset(
    {LeaseStatus.PENDING, LeaseStatus.ACTIVE, LeaseStatus.TERMINATED, LeaseStatus.ERROR}
)

_L, _R, _E = LeaseStatus, ReservationStatus, EventStatus

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
EVENT: Mapping[EventStatus, frozenset[EventStatus]] = {
    _E.UNDONE: frozenset({_E.IN_PROGRESS, _E.ERROR}),  # a start in retry, when the end begins
    _E.IN_PROGRESS: frozenset({_E.DONE, _E.ERROR, _E.UNDONE}),
    _E.DONE: frozenset({_E.UNDONE}),  # a before_end whose lease was prolonged is armed again
    _E.ERROR: frozenset(),
}

Status = TypeVar("Status", LeaseStatus, ReservationStatus, EventStatus)


def step(machine: Mapping[Status, frozenset[Status]], present: Status, wanted: Status) -> Status:
    """Return ``wanted`` if ``machine`` allows the step (or there is none to make).

    Raises InvalidTransition otherwise.
    """
    if wanted == present or wanted in machine[present]:
        return wanted
    raise InvalidTransition(f"{present.value} cannot become {wanted.value}")
