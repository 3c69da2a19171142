"""Which due events have to wait for which others: conditions in the statement that claims.

Order is a rule in the data. An action (start, update, before-end, end) waits while another
action of its lease is running or is due earlier; a start or update also waits for the end of
whoever had one of its resources before, unless the resource fails (then it goes without). Once the
end of a lease is due, actions that failed before give way to it. Heads-ups and users' events never
block.
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


# Nothing is due before it.
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_BEGINNING = sa.literal(BEGINNING, EVENTS.c.run_at.type)


def due(
    now: sa.ColumnElement[datetime], since: sa.ColumnElement[datetime] = _BEGINNING
) -> tuple[sa.ColumnElement[bool], ...]:
    """Tell whether the event is to be run, and its time has come, but not before ``since``.

    PostgreSQL, which plans for values that it does not know, takes a range for few rows only if it
    has two ends, and then goes along the index instead of the whole table.
    """
    return EVENTS.c.status == UNDONE, EVENTS.c.run_at >= since, EVENTS.c.run_at <= now


def blocked(now: sa.ColumnElement[datetime]) -> sa.ColumnElement[bool]:
    """Tell whether the event has to wait for another, or to give way to it."""
    is_action = EVENTS.c.kind.in_(ACTIONS)
    acquires = EVENTS.c.kind.in_([START, UPDATE])
    return sa.or_(sa.and_(is_action, _sibling(now)), sa.and_(acquires, _previous_holder()))


def _sibling(now: sa.ColumnElement[datetime]) -> sa.ColumnElement[bool]:
    """An action of the same lease that is running or goes before this one.

    Of two actions that are due, one always goes before the other: never are both claimed.
    """
    other, end = EVENTS.alias().c, EVENTS.alias().c
    earlier = sa.tuple_(other.due_at, other.rank, other.id) < sa.tuple_(
        EVENTS.c.due_at, EVENTS.c.rank, EVENTS.c.id
    )
    end_is_due = (
        sa.select(end.id)
        .where(
            end.lease_id == EVENTS.c.lease_id,
            end.kind == END,
            end.status == UNDONE,
            end.run_at <= now,
        )
        .correlate(EVENTS)
        .exists()
    )
    # Once the end is due, it waits only for what was not tried yet and will get its turn.
    can_run = sa.or_(other.kind.not_in([START, UPDATE]), ~_previous_holder(stuck=True))
    before = sa.and_(
        other.status == UNDONE,
        earlier,
        sa.or_(~end_is_due, sa.and_(other.attempt == 0, can_run)),
    )
    waits = (
        sa.select(other.id)
        .where(
            other.lease_id == EVENTS.c.lease_id,
            other.id != EVENTS.c.id,
            other.kind.in_(ACTIONS),
            sa.or_(other.status == IN_PROGRESS, before),
        )
        .correlate(EVENTS)
        .exists()
    )
    return sa.or_(waits, sa.and_(EVENTS.c.kind != END, EVENTS.c.attempt > 0, end_is_due))


def _previous_holder(*, stuck: bool = False) -> sa.ColumnElement[bool]:
    """An open end (a failing one, if ``stuck``) of a lease that had a resource of this one before.

    A lease that is over need not wait for a resource that nobody can take back. Nor is one that
    fails waited for: it is not handed over, but missing.
    """
    my_reservation, mine = RESERVATIONS.alias(), ALLOCATIONS.alias()
    theirs, their_reservation = ALLOCATIONS.alias(), RESERVATIONS.alias()
    their_end = EVENTS.alias()
    return (
        sa.select(their_end.c.id)
        .select_from(my_reservation)
        .join(mine, mine.c.reservation_id == my_reservation.c.id)
        .join(RESOURCES, RESOURCES.c.id == mine.c.resource_id)
        .join(
            theirs,
            sa.and_(
                theirs.c.resource_id == mine.c.resource_id,
                theirs.c.busy_until <= mine.c.start_at,  # those who share it now are not before us
            ),
        )
        .join(their_reservation, their_reservation.c.id == theirs.c.reservation_id)
        .join(their_end, their_end.c.lease_id == their_reservation.c.lease_id)
        .where(
            my_reservation.c.lease_id == EVENTS.c.lease_id,
            their_reservation.c.lease_id != EVENTS.c.lease_id,
            their_end.c.kind == END,
            their_end.c.status.in_(OPEN),
            has_failed(their_end.c, 0) if stuck else sa.true(),
            RESOURCES.c.reservable.is_(True),
        )
        .correlate(EVENTS)
        .exists()
    )


def has_failed(event: Columns, retries: int) -> sa.ColumnElement[bool]:
    """Tell whether the first try and ``retries`` more have failed; one under way does not count."""
    return sa.or_(
        sa.and_(event.status == UNDONE, event.attempt > retries), event.attempt > retries + 1
    )
