"""The events table as a queue: what is due, who claims it, who is done with it.

A claim has an owner, an attempt number and an expiry. Whoever finishes names owner and attempt;
if the row says otherwise, somebody else took over and the result is dropped. What has to wait for
what is in ``order``.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.lifecycle import EventStatus, LeaseStatus
from climate.core.lease.schedule import END
from climate.db.engine.array_in import among
from climate.db.engine.database import LostRace
from climate.db.order import IN_PROGRESS, OPEN, UNDONE, blocked, due, has_failed
from climate.db.tables.leases import EVENTS, AllocationRow, EventRow, LeaseRow, ReservationRow

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
    return session.scalar(_NEXT, {"now": after})


def count_due(session: Session, now: datetime, most: int) -> dict[str, int]:
    """Return how many events may run now, by kind; ``most`` of them are looked at."""
    at = sa.literal(now, EVENTS.c.run_at.type)
    found = sa.select(EVENTS.c.kind).where(*due(at)).limit(most).subquery()
    counts = sa.select(found.c.kind, sa.func.count()).group_by(found.c.kind)
    return dict(iter(session.execute(counts)))


def claim(
    session: Session, owner: str, now: datetime, until: datetime, ids: Collection[str]
) -> list[tuple[str, str | None, int]]:
    """Claim those of some events that may run; return (id, lease id, attempt) of each, in order.

    An event that outlives its lease has no lease id.
    """
    rows = session.execute(_CLAIMABLE, {"now": now, "ids": list(ids)}).all()
    found = [(row.id, row.lease_id, row.attempt + 1) for row in rows]
    if found:
        mine = {"ids": [id_ for id_, _, _ in found], "by": owner, "until": until}
        session.execute(_CLAIM, mine)
    return found


def is_mine(session: Session, event_id: str, owner: str, attempt: int) -> bool:
    """Tell whether this claim still holds, and lock the event if so."""
    return session.scalar(_IS_MINE, _of([event_id], owner, attempt)) is not None


def finish(
    session: Session,
    event_id: str,
    owner: str,
    attempt: int,
    now: datetime,
    **outcome: Any,
) -> bool:
    """Store the outcome of a claim (status, last_error, run_at); False if it is not ours."""
    finished = _MINE.values(owner=None, claimed_until=None, updated_at=now, **outcome)
    result = session.execute(finished, _of([event_id], owner, attempt))
    return bool(result.rowcount)  # type: ignore[attr-defined]


def finish_all(
    session: Session, owner: str, claims: Iterable[tuple[str, int]], now: datetime, status: str
) -> None:
    """Store one outcome of many claims: (event id, attempt) each.

    Raises LostRace if not all are ours: looked at again, those that are not will be seen.
    """
    alike: dict[int, list[str]] = {}
    for id_, attempt in claims:
        alike.setdefault(attempt, []).append(id_)
    for attempt, ids in alike.items():
        outcome = {"now": now, "outcome": status}
        result = session.execute(_FINISH, {**_of(ids, owner, attempt), **outcome})
        if result.rowcount < len(ids):  # type: ignore[attr-defined]
            raise LostRace


def give_way(session: Session, event_id: str, owner: str, attempt: int, **again: datetime) -> None:
    """Undo a claim of ours as if it had not been made, perhaps to a later ``run_at``."""
    undone = {"status": UNDONE, "owner": None, "claimed_until": None}
    undoing = _MINE.values(**undone, attempt=EVENTS.c.attempt - 1, **again)
    session.execute(undoing, _of([event_id], owner, attempt))


def extend(session: Session, owner: str, ids: Collection[str], until: datetime) -> dict[str, int]:
    """Keep claims alive while their work goes on; return the attempts of those that are kept.

    One that is locked is being begun or finished: it is not waited for, and nobody else takes it.
    """
    found = _unlocked(session, ids).items()
    kept = {id_: held.attempt for id_, held in found if held.owner == owner}
    mine = among(EVENTS.c.id, kept)
    session.execute(sa.update(EVENTS).where(mine).values(claimed_until=until))
    return kept


def claimed(session: Session) -> dict[str, Held]:
    """Return who has claimed what, by event id, as it is stored."""
    return _held(session, _CLAIMS)


def reap(session: Session, stale: Mapping[str, Held]) -> int:
    """Return events whose claims are still as they were seen; return how many.

    One that is locked is not waited for: whoever is in the middle of it may be frozen there.
    """
    gone = [id_ for id_, held in _unlocked(session, stale).items() if held == stale[id_]]
    return _return(session, among(EVENTS.c.id, gone))


def _unlocked(session: Session, event_ids: Collection[str]) -> dict[str, Held]:
    """Lock and return those of these claims that nobody has locked."""
    mine = _HELD.where(EVENTS.c.status == IN_PROGRESS, among(EVENTS.c.id, event_ids))
    return _held(session, mine.with_for_update(skip_locked=True))


def _held(session: Session, which: sa.Select[Any, Any, Any, Any]) -> dict[str, Held]:
    found = session.execute(which)
    return {row.id: Held(row.owner, row.attempt, row.claimed_until) for row in found}


def hand_back(session: Session, owner: str) -> int:
    """Return all events of ``owner`` (it is stopping); return how many."""
    return _return(session, EVENTS.c.owner == owner)


def _return(session: Session, *which: sa.ColumnElement[bool]) -> int:
    result = session.execute(
        sa.update(EVENTS)
        .where(_IS_CLAIMED, *which)
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
            sa.or_(has_failed(EVENTS.c, max_retries), too_long),
        )
    )
    return set(session.scalars(query))


def hurry(session: Session, lease_id: str, kinds: Collection[str], now: datetime) -> None:
    """Have what is to be tried again of a lease tried at once.

    ``now`` may be a little ago: what has become due and given way since is hurried, too.
    """
    at = sa.literal(now, EVENTS.c.run_at.type)
    soonest = sa.case((EVENTS.c.due_at > at, EVENTS.c.due_at), else_=at)
    session.execute(
        sa.update(EVENTS)
        .where(
            EVENTS.c.lease_id == lease_id,
            EVENTS.c.kind.in_(kinds),
            EVENTS.c.status == UNDONE,
            EVENTS.c.run_at > soonest,
        )
        .values(run_at=soonest)
    )


def give_up(session: Session, lease_ids: Collection[str], kind: str, now: datetime) -> None:
    """Try this event of leases no more, unless somebody is at it."""
    session.execute(
        sa.update(EVENTS)
        .where(
            among(EVENTS.c.lease_id, lease_ids),
            EVENTS.c.kind == kind,
            EVENTS.c.status == UNDONE,
        )
        .values(status=EventStatus.ERROR.value, updated_at=now)
    )


def remove(session: Session, event_ids: Sequence[str]) -> None:
    """Remove events that their lease does not have any more."""
    if event_ids:
        session.execute(sa.delete(EventRow).where(EventRow.id.in_(event_ids)))


def drop(session: Session, event_ids: Sequence[str]) -> None:
    """Remove events that nobody needs any more, but not those that somebody is at, or has done."""
    if event_ids:
        useless = sa.delete(EVENTS).where(among(EVENTS.c.id, event_ids), EVENTS.c.status == UNDONE)
        session.execute(useless)


def rearm(session: Session, event_id: str, due_at: datetime, now: datetime) -> None:
    """Make an event due (again) at ``due_at``, as if it was new; whoever is at it is fenced out."""
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
            created_at=now,
            updated_at=now,
        )
    )


def _of(ids: Sequence[str], owner: str, attempt: int) -> dict[str, Any]:
    """Return the parameters that say which claims are meant."""
    return {"ids": ids, "by": owner, "which": attempt}


def _claimable() -> sa.Select[str, str | None, int]:
    """Select those of ``ids`` that may run at ``now``, all given when it is executed."""
    of = EVENTS.c
    return (
        sa.select(of.id, of.lease_id, of.attempt)
        .where(among(of.id, "ids"), of.status == UNDONE, of.run_at <= _NOW, ~blocked(_NOW))
        .order_by(of.run_at, of.rank, of.id)
        .with_for_update(of=EVENTS, skip_locked=True)
    )


# Made once: putting it together takes longer than the database needs to answer it.
_NOW = sa.bindparam("now", type_=EVENTS.c.run_at.type)
_CLAIMABLE = _claimable()
_CLAIM = (
    sa.update(EVENTS)
    .where(among(EVENTS.c.id, "ids"))
    .values(
        status=IN_PROGRESS,
        owner=sa.bindparam("by"),
        claimed_until=sa.bindparam("until"),
        attempt=EVENTS.c.attempt + 1,
    )
)
_CLAIMED_SO = (
    among(EVENTS.c.id, "ids"),
    EVENTS.c.owner == sa.bindparam("by"),
    EVENTS.c.attempt == sa.bindparam("which"),
    EVENTS.c.status == IN_PROGRESS,
)
_IS_MINE = sa.select(EVENTS.c.id).where(*_CLAIMED_SO).with_for_update()
_MINE = sa.update(EVENTS).where(*_CLAIMED_SO)
_FINISH = _MINE.values(
    owner=None, claimed_until=None, updated_at=_NOW, status=sa.bindparam("outcome")
)
_SOONEST = sa.func.min(EVENTS.c.run_at, type_=EVENTS.c.run_at.type)
_NEXT: sa.Select[datetime | None] = sa.select(_SOONEST).where(
    EVENTS.c.status == UNDONE, EVENTS.c.run_at > _NOW
)
# As a text, not a parameter: so PostgreSQL knows how few they are, and goes along the index.
_IS_CLAIMED = EVENTS.c.status == sa.literal_column(f"'{IN_PROGRESS}'")
_HELD = sa.select(EVENTS.c.id, EVENTS.c.owner, EVENTS.c.attempt, EVENTS.c.claimed_until)
_CLAIMS = _HELD.where(_IS_CLAIMED)
