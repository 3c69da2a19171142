"""The events table as a queue: what is due, who claims it, who is done with it.

A claim has an owner, an attempt number and an expiry. Whoever finishes names owner and attempt;
if the row says otherwise, somebody else took over and the result is dropped.

Order is a rule in the data. An action (start, update, before-end, end) waits while another
action of its lease is running or is due earlier; a start or update also waits for the end of
whoever had one of its resources before. Once the end of a lease is due, actions that failed
before give way to it. Heads-ups and users' events never block.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session, aliased

from climate.core.lifecycle import OPEN_EVENT, EventStatus
from climate.core.schedule import ACTIONS, END, START, TELL_END, UPDATE, rank
from climate.db.tables import AllocationRow, EventRow, ReservationRow

UNDONE, IN_PROGRESS = EventStatus.UNDONE.value, EventStatus.IN_PROGRESS.value


def next_run(session: Session, after: datetime) -> datetime | None:
    """Return when the first event later than ``after`` may run; None if there is none."""
    return session.scalar(
        sa.select(sa.func.min(EventRow.run_at, type_=EventRow.run_at.type)).where(
            EventRow.status == UNDONE, EventRow.run_at > after
        )
    )


def is_due(session: Session, now: datetime) -> bool:
    """Tell whether any event may run now (blocked ones included)."""
    query = sa.select(EventRow.id).where(EventRow.status == UNDONE, EventRow.run_at <= now)
    return session.scalar(query.limit(1)) is not None


def claim(
    session: Session, owner: str, now: datetime, until: datetime, limit: int
) -> list[tuple[str, str | None, int]]:
    """Claim up to ``limit`` due events; return (id, lease id, attempt) of each, in order.

    An event that outlives its lease has no lease id.
    """
    due = session.execute(_CLAIMABLE, {"now": now, "limit": limit})
    found = [(row.id, row.lease_id, row.attempt + 1) for row in due]
    if found:
        session.execute(
            sa.update(EventRow)
            .where(EventRow.id.in_([id_ for id_, _, _ in found]))
            .values(
                status=IN_PROGRESS,
                owner=owner,
                claimed_until=until,
                attempt=EventRow.attempt + 1,
            )
        )
    return found


def is_mine(session: Session, event_id: str, owner: str, attempt: int) -> bool:
    """Tell whether this claim still holds, and lock the event if so."""
    query = sa.select(EventRow.id).where(*_mine(event_id, owner, attempt)).with_for_update()
    return session.scalar(query) is not None


def finish(
    session: Session,
    event_id: str,
    owner: str,
    attempt: int,
    now: datetime,
    **outcome: Any,
) -> bool:
    """Store the outcome of a claim (status, last_error, run_at); False if it is not ours."""
    result = session.execute(
        sa.update(EventRow)
        .where(*_mine(event_id, owner, attempt))
        .values(owner=None, claimed_until=None, updated_at=now, **outcome)
    )
    return bool(result.rowcount)  # type: ignore[attr-defined]


def give_way(session: Session, event_id: str, owner: str, attempt: int, **again: datetime) -> None:
    """Undo a claim of ours as if it had not been made, perhaps to a later ``run_at``."""
    session.execute(
        sa.update(EventRow)
        .where(*_mine(event_id, owner, attempt))
        .values(
            status=UNDONE,
            owner=None,
            claimed_until=None,
            attempt=EventRow.attempt - 1,
            **again,
        )
    )


def extend(session: Session, owner: str, event_ids: Collection[str], until: datetime) -> None:
    """Keep claims alive while their work goes on."""
    session.execute(
        sa.update(EventRow)
        .where(EventRow.id.in_(event_ids), EventRow.owner == owner, EventRow.status == IN_PROGRESS)
        .values(claimed_until=until)
    )


def reap(session: Session, now: datetime) -> int:
    """Return the events of owners that stopped extending their claims; return how many."""
    return _return(session, EventRow.claimed_until < now)


def hand_back(session: Session, owner: str) -> int:
    """Return all events of ``owner`` (it is stopping); return how many."""
    return _return(session, EventRow.owner == owner)


def _return(session: Session, whose: sa.ColumnElement[bool]) -> int:
    result = session.execute(
        sa.update(EventRow)
        .where(EventRow.status == IN_PROGRESS, whose)
        .values(status=UNDONE, owner=None, claimed_until=None)
    )
    return int(result.rowcount)  # type: ignore[attr-defined]


def remove(session: Session, event_ids: Sequence[str]) -> None:
    """Remove events that their lease does not have any more."""
    if event_ids:
        session.execute(sa.delete(EventRow).where(EventRow.id.in_(event_ids)))


def rearm(session: Session, event_id: str, due_at: datetime, now: datetime) -> None:
    """Make an event due (again) at ``due_at``; whoever is at it is fenced out."""
    session.execute(
        sa.update(EventRow)
        .where(EventRow.id == event_id)
        .values(
            due_at=due_at,
            run_at=due_at,
            status=UNDONE,
            owner=None,
            claimed_until=None,
            last_error=None,
            updated_at=now,
        )
    )


def insert_farewell(
    session: Session, event_id: str, payload: Mapping[str, Any], now: datetime
) -> None:
    """Store that an end is to be told, from now on; the event outlives its lease."""
    session.execute(
        sa.insert(EventRow).values(
            id=event_id,
            kind=TELL_END,
            rank=rank(TELL_END),
            due_at=now,
            run_at=now,
            status=UNDONE,
            attempt=0,
            created_at=now,
            payload=dict(payload),
        )
    )


def farewell(session: Session, event_id: str) -> tuple[dict[str, Any], datetime] | None:
    """Return what is to be told and since when; None if it was."""
    row = session.get(EventRow, event_id)
    return None if row is None else (row.payload or {}, row.due_at)


def _mine(event_id: str, owner: str, attempt: int) -> list[sa.ColumnElement[bool]]:
    return [
        EventRow.id == event_id,
        EventRow.owner == owner,
        EventRow.attempt == attempt,
        EventRow.status == IN_PROGRESS,
    ]


def _claimable() -> sa.Select[str, str | None, int]:
    """Select up to ``limit`` events that may run at ``now``, both given when it is executed."""
    now = sa.bindparam("now", type_=EventRow.run_at.type)
    return (
        sa.select(EventRow.id, EventRow.lease_id, EventRow.attempt)
        .where(EventRow.status == UNDONE, EventRow.run_at <= now, ~_blocked(now))
        .order_by(EventRow.run_at, EventRow.rank, EventRow.id)
        .limit(sa.bindparam("limit", type_=sa.Integer))
        .with_for_update(of=EventRow, skip_locked=True)
    )


def _blocked(now: sa.ColumnElement[datetime]) -> sa.ColumnElement[bool]:
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

    A lease that is over need not wait for a resource that nobody can take back.
    """
    my_reservation, mine = aliased(ReservationRow), aliased(AllocationRow)
    theirs, their_reservation = aliased(AllocationRow), aliased(ReservationRow)
    their_end = aliased(EventRow)
    failed = sa.or_(
        sa.and_(their_end.status == UNDONE, their_end.attempt > 0), their_end.attempt > 1
    )
    return (
        sa.select(their_end.id)
        .select_from(my_reservation)
        .join(mine, mine.reservation_id == my_reservation.id)
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
            their_end.status.in_([status.value for status in OPEN_EVENT]),
            failed if stuck else sa.true(),
        )
        .correlate(EventRow)
        .exists()
    )


# Made once: putting it together takes longer than the database needs to answer it.
_CLAIMABLE = _claimable()
