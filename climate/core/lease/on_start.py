"""When climate creates what a reservation is for: decisions about ``on_start``. Pure.

With ``create``, climate creates the resource at the start of the lease. With ``manual``, it only
reserves the capacity; users start and stop the reservation while the lease runs. The run state
(``RunState``) of such a reservation is stored in its details. The parts of a stack have the run
state of the stack.

With ``create``, climate can begin some time before the start of the lease, the *lead*, so that the
resource is ready at the start. The capacity is booked for the lead as well.
"""

import math
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any, NamedTuple

from climate.core.errors import (
    Conflict,
    LeaseBusy,
    LeaseNotRunning,
    NotFound,
    NotManual,
    ReservationStopping,
)
from climate.core.lease.lifecycle import OPEN_EVENT, EventStatus, LeaseStatus, RunState
from climate.core.lease.model import (
    CREATE,
    MANUAL,
    NOTHING,
    ON_START,
    RUN_STATE,
    Lease,
    Reservation,
)
from climate.core.lease.schedule import BEFORE_END, START, UPDATE

_DONE = {RunState.STARTING: RunState.STARTED, RunState.STOPPING: RunState.STOPPED}
#: The run states that a manager still has to bring about.
UNDER_WAY = frozenset(_DONE)
# Leases that a manager starts within moments.
_SOON = {LeaseStatus.PENDING, LeaseStatus.STARTING}


class Kind(NamedTuple):
    """What determines how long a creation takes: the type, and an image or a template.

    ``source`` is an id of the image or the template; it is empty if there is none.
    """

    resource_type: str
    source: str


class Action(Enum):
    """What a manager does for a reservation of a running lease: call a plug-in, or nothing."""

    START = auto()
    STOP = auto()
    NONE = auto()


def creates(params: Mapping[str, Any]) -> bool:
    """Return whether climate creates the resource, at the start of the lease or on request."""
    return params.get(ON_START) in {CREATE, MANUAL}


def is_created(reservation: Reservation) -> bool:
    """Return whether climate creates something for the reservation at the start of the lease."""
    return reservation.stays and reservation.params.get(ON_START) == CREATE


def created(lease: Lease) -> list[Reservation]:
    """Return the reservations for which climate creates something at the start of the lease."""
    return [each for each in lease.reservations if is_created(each)]


def needed(lease: Lease) -> set[str]:
    """Return the ids of the reservations that must be started for what climate creates.

    These are the reservations in ``created``, and the parts of the stacks among them.
    """
    own = {each.id for each in created(lease)}
    return own.union(each.id for each in lease.reservations if each.stack_id in own)


def is_ahead(lease: Lease, event_kind: str, now: datetime) -> bool:
    """Return whether a start that runs now only creates, because the lease starts later."""
    return event_kind == START and bool(lease.start.lead) and now < lease.window.start


def booked_lead(lead: timedelta, start: datetime, now: datetime) -> timedelta:
    """Return the part of a ``lead``, in whole seconds, that is left until ``start``."""
    left = math.ceil((start - now).total_seconds())
    return min(lead, timedelta(seconds=max(left, 0)))


def creation_seconds(lease: Lease, now: datetime) -> float:
    """Return for how long the creation for a lease has been running, in seconds."""
    begun = lease.start.began_at
    return 0.0 if begun is None else max(0.0, (now - begun).total_seconds())


def needs_start(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether ``on_start`` becomes ``create``, or is not ``manual`` any more."""
    old, new = before.get(ON_START), after.get(ON_START)
    return new != old and (new == CREATE or old == MANUAL)


def state_of(lease: Lease, reservation: Reservation) -> RunState | None:
    """Return the run state of a reservation of ``lease``, or of the stack of which it is a part.

    The result is None if users cannot start and stop it.
    """
    if reservation.stack_id is None:
        return reservation.run_state
    stacks = (each for each in lease.reservations if each.id == reservation.stack_id)
    return next((stack.run_state for stack in stacks), None)


def action_for(lease: Lease, reservation: Reservation) -> Action:
    """Return what a start or update of the lease does for a reservation that stays."""
    match state_of(lease, reservation):
        case RunState.STOPPED:
            return Action.NONE
        case RunState.STOPPING:
            return Action.STOP
    return Action.START


def exists(lease: Lease, reservation: Reservation) -> bool:
    """Return whether the cloud has what climate creates for a running reservation."""
    return state_of(lease, reservation) in {None, RunState.STARTED}


def find(lease: Lease, reservation_id: str) -> Reservation:
    """Return the reservation of ``lease`` with this id. Raises NotFound if the lease has none."""
    for reservation in lease.reservations:
        if reservation.id == reservation_id:
            return reservation
    raise NotFound(f"Lease {lease.id} has no reservation {reservation_id}")


def requested_state(
    lease: Lease, reservation: Reservation, wanted: RunState, now: datetime
) -> RunState:
    """Return the run state after a user's request to start or stop a reservation at ``now``.

    ``wanted`` is STARTED or STOPPED. If the reservation already is, or becomes, what the user
    wants, the result is its present state.

    Raises NotManual, LeaseNotRunning, LeaseBusy, ReservationStopping, and NotFound if a user has
    removed the reservation.
    """
    state = reservation.run_state
    if state is None:
        raise _not_manual(reservation)
    _check_running(lease, now)
    if not reservation.stays:
        raise NotFound(f"Reservation {reservation.id} was removed from lease {lease.id}")
    if wanted is RunState.STOPPED:
        return RunState.STOPPING if state in {RunState.STARTING, RunState.STARTED} else state
    if state is RunState.STOPPING:
        raise ReservationStopping(
            f"Reservation {reservation.id} is being stopped: start it after its run_state is"
            f" {RunState.STOPPED.value}"
        )
    return RunState.STARTING if state is RunState.STOPPED else state


def needs_event(lease: Lease, before: RunState | None, after: RunState) -> bool:
    """Return whether a request needs a new update event, for the new run state ``after``.

    A repeated request needs one if all attempts of the first event have failed.
    """
    is_waiting = any(e.kind == UPDATE and e.status in OPEN_EVENT for e in lease.events)
    return after in UNDER_WAY and (after is not before or not is_waiting)


def _not_manual(reservation: Reservation) -> NotManual:
    if reservation.stack_id is not None:
        return NotManual(
            f"Reservation {reservation.id} is for a part of a stack: start and stop reservation"
            f" {reservation.stack_id}, which is the stack's"
        )
    if ON_START not in reservation.params:
        return NotManual(f"A reservation of {reservation.resource_type} has no start of its own")
    return NotManual(
        f"on_start of reservation {reservation.id} is {reservation.params[ON_START]}: only"
        f" reservations with {MANUAL} can be started and stopped"
    )


def _check_running(lease: Lease, now: datetime) -> None:
    """Raise LeaseNotRunning or LeaseBusy if no user may start or stop a reservation now."""
    window, before_end = lease.window, lease.event(BEFORE_END)
    if now < window.start and lease.status is not LeaseStatus.ACTIVE:
        raise LeaseNotRunning(f"Lease {lease.id} begins at {window.start:%Y-%m-%d %H:%M} UTC")
    if window.end <= now or lease.status is LeaseStatus.TERMINATED:
        raise LeaseNotRunning(f"Lease {lease.id} has ended")
    if lease.status in _SOON:
        raise LeaseBusy(f"Lease {lease.id} is about to start: try again when it is ACTIVE")
    if lease.status is not LeaseStatus.ACTIVE:
        raise LeaseNotRunning(f"Lease {lease.id} is {lease.status.value}, not ACTIVE")
    if before_end and before_end.status is EventStatus.IN_PROGRESS:
        raise LeaseBusy(f"Lease {lease.id} is being prepared for its end: try again shortly")


def state_after(work: Reservation, present: Reservation) -> RunState | None:
    """Return the run state after a manager's action succeeded; None if there is none to store.

    ``work`` is the reservation on which the manager acted, ``present`` the stored one. If a user
    has requested another state in the meantime, this state stays.
    """
    if RUN_STATE not in present.details:
        return None
    state = RunState(present.details[RUN_STATE])
    return _DONE.get(state, state) if work.details.get(RUN_STATE) == state else state


def reached(before: Lease, after: Lease) -> Iterator[tuple[str, RunState]]:
    """Yield the id and run state of each reservation that a manager has started or stopped.

    ``before`` and ``after`` are the lease before and after the manager's action.
    """
    for old, new in zip(before.reservations, after.reservations, strict=True):
        state = new.run_state
        if state is not None and state is not old.run_state and state not in UNDER_WAY:
            yield new.id, state


def marks_of_change(
    lease: Lease, before: Mapping[str, Any], after: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the details to store if a reservation changes its parameters to ``after``.

    What climate created for ``create`` stays if ``on_start`` becomes ``manual``. Raises Conflict
    if a running reservation would become ``manual`` although its project may have created objects.
    """
    if not lease.has_begun or after.get(ON_START) != MANUAL or before.get(ON_START) == MANUAL:
        return {}
    if before.get(ON_START) == NOTHING:
        raise Conflict(
            f"on_start cannot change from {NOTHING} to {MANUAL} in a running lease: change it to"
            f" {CREATE} first, then to {MANUAL}"
        )
    return {RUN_STATE: RunState.STARTED.value}
