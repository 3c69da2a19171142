"""SQL conditions that define which due events must wait for which other events.

Actions are the events that start, update or end a lease, and the event ``before_end_lease``. An
action waits for:

- other actions of its lease that a manager has claimed,
- other actions of its lease that are UNDONE and were due earlier,
- if it is a start or an update: the end of other leases that booked the same resources for an
  earlier time. It does not wait for resources that are out of order.

Once the end of a lease is due, managers no longer retry failed actions of the lease, except the end
itself. Reminders and users' events never block other events.
"""

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from climate.core.lease.lifecycle import OPEN_EVENT, EventStatus
from climate.core.lease.schedule import ACTIONS, END, START, UPDATE
from climate.db.tables.leases import ALLOCATIONS, EVENTS, RESERVATIONS, RESOURCES

Columns = sa.ColumnCollection[str, sa.ColumnElement[Any]]

UNDONE, IN_PROGRESS = EventStatus.UNDONE.value, EventStatus.IN_PROGRESS.value
OPEN = [status.value for status in OPEN_EVENT]


# Earlier than every due time.
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_BEGINNING = sa.literal(BEGINNING, EVENTS.c.run_at.type)


def due(
    now: sa.ColumnElement[datetime], since: sa.ColumnElement[datetime] = _BEGINNING
) -> tuple[sa.ColumnElement[bool], ...]:
    """Return the SQL conditions that an event is UNDONE and its ``run_at`` is in [since, now].

    By default, ``since`` is earlier than every due time.
    """
    # PostgreSQL plans the query without the values. It uses the index if the range has two ends.
    return EVENTS.c.status == UNDONE, EVENTS.c.run_at >= since, EVENTS.c.run_at <= now


def blocked(now: sa.ColumnElement[datetime]) -> sa.ColumnElement[bool]:
    """Return the SQL condition that another event prevents an event from running now."""
    is_action = EVENTS.c.kind.in_(ACTIONS)
    acquires = EVENTS.c.kind.in_([START, UPDATE])
    return sa.or_(sa.and_(is_action, _sibling(now)), sa.and_(acquires, _previous_holder()))


def _sibling(now: sa.ColumnElement[datetime]) -> sa.ColumnElement[bool]:
    """Return the SQL condition that another action of the same lease blocks an event.

    The check has one gap: when an end becomes due, two managers may each claim an action of the
    same lease. ``climate.manager.events.begin`` then defers one of the two actions.
    """
    other, end = EVENTS.alias().c, EVENTS.alias().c
    earlier = sa.tuple_(other.due_at, other.rank, other.id) < sa.tuple_(
        EVENTS.c.due_at, EVENTS.c.rank, EVENTS.c.id
    )
    is_end = (end.lease_id == EVENTS.c.lease_id, end.kind == END)
    due_end = sa.select(end.id).where(*is_end, end.status == UNDONE, end.run_at <= now)
    end_is_due = due_end.correlate(EVENTS).exists()
    # Once the end is due, it waits only for actions that were not attempted and can run. A start
    # cannot run if it waits for a lease whose end has failed.
    can_run = sa.or_(other.kind.not_in([START, UPDATE]), ~_previous_holder(stuck=True))
    counts = sa.or_(~end_is_due, sa.and_(other.attempt == 0, can_run))
    before = sa.and_(other.status == UNDONE, earlier, counts)
    is_sibling = (other.lease_id == EVENTS.c.lease_id, other.id != EVENTS.c.id)
    blocking = sa.select(other.id).where(
        *is_sibling, other.kind.in_(ACTIONS), sa.or_(other.status == IN_PROGRESS, before)
    )
    waits = blocking.correlate(EVENTS).exists()
    return sa.or_(waits, sa.and_(EVENTS.c.kind != END, EVENTS.c.attempt > 0, end_is_due))


def _previous_holder(*, stuck: bool = False) -> sa.ColumnElement[bool]:
    """Return the SQL condition that another lease must release a resource before an event runs.

    If ``stuck`` is set, the other lease must also have failed to end (see ``previous_holders``).
    """
    return previous_holders(stuck=stuck).exists()


def previous_holders(*, stuck: bool = False) -> sa.Select[str | None, str]:
    """Build the query for the leases that must release a resource before an event can run.

    The event is the row of EVENTS in the enclosing statement. A lease is selected if it has not
    ended, and has booked a resource of the event's lease for an earlier time. Each result row has
    the id of such a lease and the cloud id of the resource. Resources that are out of order are
    left out, because the event's lease starts without them.

    If ``stuck`` is set, only leases whose end event has failed are selected.
    """
    reservation, allocation = RESERVATIONS.alias(), ALLOCATIONS.alias()
    earlier, earlier_reservation = ALLOCATIONS.alias(), RESERVATIONS.alias()
    earlier_end = EVENTS.alias()
    precedes = sa.and_(
        earlier.c.resource_id == allocation.c.resource_id,
        earlier.c.busy_until <= allocation.c.start_at,  # shares that overlap do not precede
    )
    return (
        sa.select(earlier_end.c.lease_id, RESOURCES.c.external_id.label("resource"))
        .select_from(reservation)
        .join(allocation, allocation.c.reservation_id == reservation.c.id)
        .join(RESOURCES, RESOURCES.c.id == allocation.c.resource_id)
        .join(earlier, precedes)
        .join(earlier_reservation, earlier_reservation.c.id == earlier.c.reservation_id)
        .join(earlier_end, earlier_end.c.lease_id == earlier_reservation.c.lease_id)
        .where(
            reservation.c.lease_id == EVENTS.c.lease_id,
            earlier_reservation.c.lease_id != EVENTS.c.lease_id,
            earlier_end.c.kind == END,
            earlier_end.c.status.in_(OPEN),
            has_failed(earlier_end.c, 0) if stuck else sa.true(),
            RESOURCES.c.reservable.is_(True),
        )
        .correlate(EVENTS)
    )


def has_failed(event: Columns, retries: int) -> sa.ColumnElement[bool]:
    """Return the SQL condition that an event has failed in its first attempt and all its retries.

    ``retries`` is the number of retries, for example 2 for three failed attempts.
    """
    return sa.or_(
        sa.and_(event.status == UNDONE, event.attempt > retries), event.attempt > retries + 1
    )
