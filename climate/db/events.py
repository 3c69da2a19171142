"""The events table as a queue: what is due, who claims it, who is done with it.

A claim has an owner, an attempt number and an expiry. Whoever finishes names owner and attempt;
if the row says otherwise, somebody else took over and the result is dropped. What has to wait for
what is in ``order``.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lifecycle import EventStatus, LeaseStatus
from climate.core.schedule import END, rank
from climate.db.order import IN_PROGRESS, OPEN, UNDONE, blocked, has_failed
from climate.db.tables import AllocationRow, EventRow, LeaseRow, ReservationRow

# Where a lease stands from the moment a manager is at its start or end until that is done.
_UNDER_WAY = [
    status.value
    for status in (
        LeaseStatus.STARTING,
        LeaseStatus.TERMINATING,
        LeaseStatus.DELETING,
        LeaseStatus.ERROR,
    )
]


class Held(NamedTuple):
    """A claim as it is stored; ``until`` moves each time that it is extended."""

    owner: str
    attempt: int
    until: datetime


def next_run(session: Session, after: datetime) -> datetime | None:
    """Return when the first event later than ``after`` may run; None if there is none."""
    return session.scalar(
        sa.select(sa.func.min(EventRow.run_at, type_=EventRow.run_at.type)).where(
            EventRow.status == UNDONE, EventRow.run_at > after
        )
    )


def count_due(session: Session, now: datetime, most: int) -> dict[str, int]:
    """Return how many events may run now, by kind; ``most`` of them are looked at."""
    due = sa.select(EventRow.kind).where(EventRow.status == UNDONE, EventRow.run_at <= now)
    found = due.limit(most).subquery()
    counts = sa.select(found.c.kind, sa.func.count()).group_by(found.c.kind)
    return dict(iter(session.execute(counts)))


def claim(
    session: Session, owner: str, now: datetime, until: datetime, ids: Collection[str]
) -> list[tuple[str, str | None, int]]:
    """Claim those of some events that may run; return (id, lease id, attempt) of each, in order.

    An event that outlives its lease has no lease id.
    """
    due = session.execute(_CLAIMABLE, {"now": now, "ids": list(ids)})
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


def claimed(session: Session) -> dict[str, Held]:
    """Return who has claimed what, by event id, as it is stored."""
    columns = (EventRow.id, EventRow.owner, EventRow.attempt, EventRow.claimed_until)
    found = session.execute(sa.select(*columns).where(EventRow.status == IN_PROGRESS))
    return {row.id: Held(row.owner, row.attempt, row.claimed_until) for row in found}


def reap(session: Session, stale: Mapping[str, Held]) -> int:
    """Return events whose claims are still as they were seen; return how many."""
    return sum(
        _return(
            session,
            EventRow.id == id_,
            EventRow.owner == seen.owner,
            EventRow.attempt == seen.attempt,
            EventRow.claimed_until == seen.until,
        )
        for id_, seen in stale.items()
    )


def hand_back(session: Session, owner: str) -> int:
    """Return all events of ``owner`` (it is stopping); return how many."""
    return _return(session, EventRow.owner == owner)


def _return(session: Session, *which: sa.ColumnElement[bool]) -> int:
    result = session.execute(
        sa.update(EventRow)
        .where(EventRow.status == IN_PROGRESS, *which)
        .values(status=UNDONE, owner=None, claimed_until=None)
    )
    return int(result.rowcount)  # type: ignore[attr-defined]


def stuck(session: Session, now: datetime, late: datetime, max_retries: int) -> set[int]:
    """Return the ids of resources that a lease which is over does not give back.

    Its end has failed and so have ``max_retries`` more tries, or it was due, and a manager was at
    it, before ``late``. (What nobody was at yet is no failure: all managers may have been away.)
    """
    too_long = sa.and_(EventRow.due_at < late, LeaseRow.updated_at < late)
    query = (
        sa.select(AllocationRow.resource_id)
        .join(ReservationRow, ReservationRow.id == AllocationRow.reservation_id)
        .join(LeaseRow, LeaseRow.id == ReservationRow.lease_id)
        .join(EventRow, EventRow.lease_id == LeaseRow.id)
        .where(
            LeaseRow.status.in_(_UNDER_WAY),
            EventRow.kind == END,
            EventRow.status.in_(OPEN),
            EventRow.due_at <= now,
            sa.or_(has_failed(EventRow, max_retries), too_long),
        )
    )
    return set(session.scalars(query))


def hurry(session: Session, lease_id: str, kinds: Collection[str], now: datetime) -> None:
    """Have what has failed of a lease tried again at once."""
    session.execute(
        sa.update(EventRow)
        .where(
            EventRow.lease_id == lease_id,
            EventRow.kind.in_(kinds),
            EventRow.status == UNDONE,
            EventRow.attempt > 0,
            EventRow.due_at <= now,
            EventRow.run_at > now,
        )
        .values(run_at=now)
    )


def give_up(session: Session, lease_id: str, kind: str, now: datetime) -> None:
    """Try this event of a lease no more, unless somebody is at it."""
    session.execute(
        sa.update(EventRow)
        .where(EventRow.lease_id == lease_id, EventRow.kind == kind, EventRow.status == UNDONE)
        .values(status=EventStatus.ERROR.value, updated_at=now)
    )


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
    session: Session, event_id: str, kind: str, payload: Mapping[str, Any], now: datetime
) -> None:
    """Store what is to be done about an end, from now on; the event outlives its lease."""
    session.execute(
        sa.insert(EventRow).values(
            id=event_id,
            kind=kind,
            rank=rank(kind),
            due_at=now,
            run_at=now,
            status=UNDONE,
            attempt=0,
            created_at=now,
            payload=dict(payload),
        )
    )


def farewell(session: Session, event_id: str) -> tuple[str, dict[str, Any], datetime] | None:
    """Return what is to be done, about what and since when; None if it was."""
    row = session.get(EventRow, event_id)
    return None if row is None else (row.kind, row.payload or {}, row.due_at)


def farewells(session: Session, kind: str) -> list[dict[str, Any]]:
    """Return what else is to be done of a kind."""
    query = sa.select(EventRow.payload).where(EventRow.kind == kind, EventRow.lease_id.is_(None))
    return [payload or {} for payload in session.scalars(query)]


def _mine(event_id: str, owner: str, attempt: int) -> list[sa.ColumnElement[bool]]:
    return [
        EventRow.id == event_id,
        EventRow.owner == owner,
        EventRow.attempt == attempt,
        EventRow.status == IN_PROGRESS,
    ]


def _claimable() -> sa.Select[str, str | None, int]:
    """Select those of ``ids`` that may run at ``now``, all given when it is executed."""
    return (
        sa.select(EventRow.id, EventRow.lease_id, EventRow.attempt)
        .where(
            EventRow.id.in_(sa.bindparam("ids", expanding=True)),
            EventRow.status == UNDONE,
            EventRow.run_at <= _NOW,
            ~blocked(_NOW),
        )
        .order_by(EventRow.run_at, EventRow.rank, EventRow.id)
        .with_for_update(of=EventRow, skip_locked=True)
    )


# Made once: putting it together takes longer than the database needs to answer it.
_NOW = sa.bindparam("now", type_=EventRow.run_at.type)
_CLAIMABLE = _claimable()
