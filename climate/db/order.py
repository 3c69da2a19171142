"""Which due events have to wait for which others: conditions in the statement that claims.

Order is a rule in the data. An action (start, update, before-end, end) waits while another
action of its lease is running or is due earlier; a start or update also waits for the end of
whoever had one of its resources before, unless the resource fails (then it goes without). Once the
end of a lease is due, actions that failed before give way to it. Heads-ups and users' events never
block.
"""

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.orm import aliased

from climate.core.lifecycle import OPEN_EVENT, EventStatus
from climate.core.schedule import ACTIONS, END, START, UPDATE
from climate.db.tables import AllocationRow, EventRow, ReservationRow, ResourceRow

UNDONE, IN_PROGRESS = EventStatus.UNDONE.value, EventStatus.IN_PROGRESS.value
OPEN = [status.value for status in OPEN_EVENT]


def blocked(now: sa.ColumnElement[datetime]) -> sa.ColumnElement[bool]:
    """Tell whether the event has to wait for another, or to give way to it."""
    is_action = EventRow.kind.in_(ACTIONS)
    acquires = EventRow.kind.in_([START, UPDATE])
    return sa.or_(sa.and_(is_action, _sibling(now)), sa.and_(acquires, _previous_holder()))


def _sibling(now: sa.ColumnElement[datetime]) -> sa.ColumnElement[bool]:
    """An action of the same lease that is running or goes before this one.

    Of two actions that are due, one always goes before the other: never are both claimed.
    """
    other, end = aliased(EventRow), aliased(EventRow)
    earlier = sa.tuple_(other.due_at, other.rank, other.id) < sa.tuple_(
        EventRow.due_at, EventRow.rank, EventRow.id
    )
    end_is_due = (
        sa.select(end.id)
        .where(
            end.lease_id == EventRow.lease_id,
            end.kind == END,
            end.status == UNDONE,
            end.run_at <= now,
        )
        .correlate(EventRow)
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
            other.lease_id == EventRow.lease_id,
            other.id != EventRow.id,
            other.kind.in_(ACTIONS),
            sa.or_(other.status == IN_PROGRESS, before),
        )
        .correlate(EventRow)
        .exists()
    )
    return sa.or_(waits, sa.and_(EventRow.kind != END, EventRow.attempt > 0, end_is_due))


def _previous_holder(*, stuck: bool = False) -> sa.ColumnElement[bool]:
    """An open end (a failing one, if ``stuck``) of a lease that had a resource of this one before.

    A lease that is over need not wait for a resource that nobody can take back. Nor is one that
    fails waited for: it is not handed over, but missing.
    """
    my_reservation, mine = aliased(ReservationRow), aliased(AllocationRow)
    theirs, their_reservation = aliased(AllocationRow), aliased(ReservationRow)
    their_end = aliased(EventRow)
    return (
        sa.select(their_end.id)
        .select_from(my_reservation)
        .join(mine, mine.reservation_id == my_reservation.id)
        .join(ResourceRow, ResourceRow.id == mine.resource_id)
        .join(
            theirs,
            sa.and_(
                theirs.resource_id == mine.resource_id,
                theirs.busy_until <= mine.start_at,  # those who share it now are not before us
            ),
        )
        .join(their_reservation, their_reservation.id == theirs.reservation_id)
        .join(their_end, their_end.lease_id == their_reservation.lease_id)
        .where(
            my_reservation.lease_id == EventRow.lease_id,
            their_reservation.lease_id != EventRow.lease_id,
            their_end.kind == END,
            their_end.status.in_(OPEN),
            has_failed(their_end, 0) if stuck else sa.true(),
            ResourceRow.reservable.is_(True),
        )
        .correlate(EventRow)
        .exists()
    )


def has_failed(event: type[EventRow], retries: int) -> sa.ColumnElement[bool]:
    """Tell whether the first try and ``retries`` more have failed; one under way does not count."""
    return sa.or_(
        sa.and_(event.status == UNDONE, event.attempt > retries), event.attempt > retries + 1
    )
