"""The events of a lease whose dates have changed: those that it still needs, at their new times."""

from datetime import datetime

from sqlalchemy.orm import Session

from climate.core import wire
from climate.core.lease import Event, Lease
from climate.core.lifecycle import OPEN_EVENT, EventStatus
from climate.core.schedule import BEFORE_END, BEFORE_START, END, START, UPDATE, Planned, plan
from climate.db import events, leases, outbox
from climate.manager.leases.drafts import new_event


def reschedule(session: Session, before: Lease, after: Lease, now: datetime) -> None:
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
