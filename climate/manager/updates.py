"""Changing a lease: all of it in one transaction, so a refused change changes nothing.

The lease's own bookings do not count against it: they are given up first, and a pending lease
then keeps those of its resources that still fit. A running lease keeps all it has or the change
is refused; what it gains is handed over by an ``update_lease`` event that is due at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from climate.core import wire
from climate.core.change import (
    Change,
    changed_notices,
    changed_window,
    check_changeable,
    check_resource_type,
    has_started,
    moved,
)
from climate.core.errors import InvalidInput
from climate.core.lease import Event, Lease, Reservation
from climate.core.lifecycle import OPEN_EVENT, EventStatus, LeaseStatus
from climate.core.schedule import (
    BEFORE_END,
    BEFORE_START,
    END,
    START,
    UPDATE,
    Planned,
    plan,
)
from climate.db import events, leases, outbox
from climate.manager.admission import Shortage
from climate.manager.leases import Precondition, new_event
from climate.manager.reallocation import reallocate
from climate.manager.refusal import explained
from climate.manager.runtime import Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationChange:
    """New parameters for one reservation of the lease; those not named stay."""

    id: str
    resource_type: str | None
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseChange:
    """What is to change; None or nothing keeps what is."""

    name: str | None = None
    dates: Change = field(default_factory=Change)
    reservations: tuple[ReservationChange, ...] = ()

    @property
    def only_name(self) -> bool:
        """Tell whether nothing but the name (or nothing at all) changes."""
        return self.dates == Change() and not self.reservations


def update(
    runtime: Runtime, lease_id: str, change: LeaseChange, precondition: Precondition | None = None
) -> Lease:
    """Change a lease and return it as it is then.

    Raises NotFound, LeaseBusy, InvalidInput, Conflict, NotEnoughResources, Contention, and what
    ``precondition`` raises.
    """
    now = runtime.clock.now()

    def work(session: Session) -> Lease:
        lease = leases.get(session, lease_id, lock=True)
        if precondition is not None:
            precondition(lease)
        check_changeable(lease, only_name=change.only_name, wants_more=bool(change.reservations))
        if change == LeaseChange():
            return lease
        renamed = replace(lease, name=change.name or lease.name, updated_at=now)
        if change.only_name:
            leases.update(session, renamed)
        else:
            _apply(runtime, session, renamed, change, now)
        after = leases.get(session, lease_id)
        outbox.write(session, "lease.update", wire.payload(after), now)
        return after

    lease = runtime.database.write(work)
    runtime.wakeup.hint()
    return lease


def _apply(
    runtime: Runtime, session: Session, lease: Lease, change: LeaseChange, now: datetime
) -> None:
    window = changed_window(lease, change.dates, now)
    notices = changed_notices(lease, change.dates, window)
    reservations = _changed_reservations(runtime, lease, change.reservations)
    try:
        grown = reallocate(runtime, session, lease, reservations, window, now)
    except Shortage as shortage:
        wished, can_move = replace(lease, window=window), not has_started(lease, now)
        raise explained(runtime, session, shortage, wished, can_move=can_move) from None
    for old, new in zip(lease.reservations, reservations, strict=True):
        if old.params != new.params:
            leases.set_reservation(session, new.id, now, params=dict(new.params))
    after = moved(lease, window, notices, now)
    leases.update(session, after)
    _reschedule(session, lease, after, now)
    unfinished = lease.degraded and bool(change.reservations)
    if (grown or unfinished) and lease.status is LeaseStatus.ACTIVE:
        leases.insert_events(session, [new_event(lease.id, Planned(UPDATE, now), now)])


def _changed_reservations(
    runtime: Runtime, lease: Lease, changes: Sequence[ReservationChange]
) -> tuple[Reservation, ...]:
    """Return the reservations with their new parameters, checked as a whole by the plugin."""
    present = {reservation.id: reservation for reservation in lease.reservations}
    for change in changes:
        if change.id not in present:
            raise InvalidInput(f"Lease {lease.id} has no reservation {change.id}")
        before = present[change.id]
        check_resource_type(before.resource_type, change.resource_type)
        schema = runtime.plugin(before.resource_type).schema()
        present[change.id] = replace(before, params=schema.load({**before.params, **change.params}))
    return tuple(present.values())


def _reschedule(session: Session, before: Lease, after: Lease, now: datetime) -> None:
    """Make the lease's open events those that its new dates and notices call for."""
    planned = plan(after.window, after.notices, now)
    for event in planned:
        if event.kind in {START, END, BEFORE_END}:
            _move(session, after, before.event(event.kind), event, now)
    present = {event.kind for event in planned} | {event.kind for event in before.events}
    kinds = present - {START, UPDATE, END, BEFORE_END}
    if before.window.start == after.window.start:
        kinds.discard(BEFORE_START)  # nothing new to announce
    stale = [
        event.id
        for event in before.events
        if event.kind in kinds
        and event.status is EventStatus.UNDONE
        and (event.due_at > now or event.kind == BEFORE_START)
    ]
    events.remove(session, stale)
    fresh = [e for e in planned if e.kind in kinds and (e.kind == BEFORE_START or e.due_at > now)]
    leases.insert_events(session, [new_event(after.id, event, now) for event in fresh])


def _move(
    session: Session, lease: Lease, present: Event | None, planned: Planned, now: datetime
) -> None:
    """Move an event that every lease has once; a before-end that fired may be armed again."""
    if present is None:
        leases.insert_events(session, [new_event(lease.id, planned, now)])
    elif present.due_at == planned.due_at:
        return
    elif present.status in OPEN_EVENT:
        # A claim on it was not begun yet, or this lease would be busy: it is fenced out.
        events.rearm(session, present.id, planned.due_at, now)
    elif planned.kind == BEFORE_END and planned.due_at > now:
        # It happened (or failed for good) and will happen again: a new event, with all its tries.
        events.remove(session, [present.id])
        leases.insert_events(session, [new_event(lease.id, planned, now)])
        outbox.write(session, "lease.event.before_end_lease.stop", wire.payload(lease), now)
