"""The events table as a queue: claim due events, renew and reclaim claims, store outcomes.

A claim reserves an event for one manager process, so that no other manager runs it. It has an owner
(the manager), an attempt number and an expiry. The manager names owner and attempt when it stores
an outcome. If the row has another owner or attempt, the manager has lost the claim, and the outcome
is not stored. ``ordering`` defines which events block which others. Finalizers are events that
outlive their lease and do not refer to it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.lifecycle import EventStatus, LeaseStatus
from climate.core.lease.schedule import END, rank
from climate.db.engine.database import LostRace
from climate.db.engine.types import any_of
from climate.db.events.ordering import IN_PROGRESS, OPEN, UNDONE, blocked, due, has_failed
from climate.db.tables.bulk import certify
from climate.db.tables.leases import EVENTS, AllocationRow, EventRow, LeaseRow, ReservationRow

_L = LeaseStatus
# The status of a lease while its start or end is in progress.
_UNDER_WAY = [status.value for status in (_L.STARTING, _L.TERMINATING, _L.DELETING, _L.ERROR)]


class Held(NamedTuple):
    """The stored claim on an event, which the manager ``owner`` may run until the time ``until``.

    ``attempt`` counts the attempts to run the event, from 1. Each renewal changes ``until``.
    """

    owner: str
    attempt: int
    until: datetime


def next_run(session: Session, after: datetime) -> datetime | None:
    """Return the earliest ``run_at`` later than ``after`` among the unclaimed events.

    Returns None if no unclaimed event has a later ``run_at``.
    """
    return session.scalar(_NEXT, {"now": after})


def count_due(session: Session, now: datetime, most: int) -> dict[str, int]:
    """Return how many events are due, by kind, for example {"start_lease": 3}.

    Blocked events are included. If more than ``most`` events are due, only ``most`` are counted.
    """
    at = sa.literal(now, EVENTS.c.run_at.type)
    open_kinds = sa.select(EVENTS.c.kind).where(*due(at)).limit(most).subquery()
    counts = sa.select(open_kinds.c.kind, sa.func.count()).group_by(open_kinds.c.kind)
    return dict(iter(session.execute(counts)))


def claim(
    session: Session, owner: str, now: datetime, until: datetime, ids: Collection[str]
) -> list[tuple[str, str | None, int]]:
    """Claim events for the manager ``owner`` until ``until``; return the claimed ones.

    ``ids`` are the ids of the events to claim. Events that are not due, are blocked, or are locked
    by another transaction are skipped. The result contains (event id, lease id, attempt), in the
    order of the queue. The lease id of a finalizer is None.
    """
    rows = session.execute(_CLAIMABLE, {"now": now, "ids": list(ids)}).all()
    if rows:
        values = {"ids": [row.id for row in rows], "by": owner, "until": until}
        session.execute(_CLAIM, values)
    return [(row.id, row.lease_id, row.attempt + 1) for row in rows]


def is_mine(session: Session, event_id: str, owner: str, attempt: int) -> bool:
    """Return whether ``owner`` still has its claim on an event; if so, lock the event's row.

    The manager ``owner`` has lost the claim if the row has another owner or another attempt number.
    """
    is_mine = session.scalar(_IS_MINE, _of([event_id], owner, attempt)) is not None
    if is_mine:
        certify(session, EventRow, [event_id])
    return is_mine


def finish(
    session: Session, event_id: str, owner: str, attempt: int, now: datetime, **outcome: Any
) -> bool:
    """Store the outcome of a claimed event; return whether ``owner`` still had the claim.

    ``owner`` is a manager. If it has lost the claim, nothing is stored. ``outcome`` contains the
    new values of columns (``status``, ``last_error``, ``run_at``).
    """
    finished = _MINE.values(**_RELEASED, updated_at=now, **outcome)
    result = session.execute(finished, _of([event_id], owner, attempt))
    return bool(result.rowcount)  # type: ignore[attr-defined]


def finish_all(
    session: Session, owner: str, claims: Iterable[tuple[str, int]], now: datetime, status: str
) -> None:
    """Store the same status for many claimed events; ``claims`` has (event id, attempt) of each.

    Raises LostRace if the manager ``owner`` has lost any of the claims. ``Database.write`` then
    runs the caller's transaction again, which must read again which claims ``owner`` has.
    """
    for attempt, ids in _ids_by_attempt(claims).items():
        values = {**_of(ids, owner, attempt), "now": now, "outcome": status}
        result = session.execute(_FINISH, values)
        if result.rowcount < len(ids):  # type: ignore[attr-defined]
            raise LostRace


def requeue(session: Session, event_id: str, owner: str, attempt: int, **again: datetime) -> None:
    """Release the claim on an event without counting the attempt; any manager may run it again.

    ``again`` may contain ``run_at``, the earliest time of the next attempt.
    """
    requeue_all(session, owner, [(event_id, attempt)], **again)


def requeue_all(
    session: Session, owner: str, claims: Iterable[tuple[str, int]], **again: datetime
) -> None:
    """Release many claims of ``owner`` as ``requeue`` does; ``claims`` has (event id, attempt)."""
    requeued = _REQUEUE.values(**again) if again else _REQUEUE
    for attempt, ids in _ids_by_attempt(claims).items():
        session.execute(requeued, _of(ids, owner, attempt))


def _ids_by_attempt(claims: Iterable[tuple[str, int]]) -> dict[int, list[str]]:
    ids_by_attempt: dict[int, list[str]] = {}
    for id_, attempt in claims:
        ids_by_attempt.setdefault(attempt, []).append(id_)
    return ids_by_attempt


def extend(session: Session, owner: str, ids: Collection[str], until: datetime) -> dict[str, int]:
    """Renew claims of the manager ``owner`` until ``until``; return attempt numbers by event id.

    Events that ``owner`` has lost are left out. Events whose rows another transaction has locked
    are left out, too: that transaction is beginning, finishing or reclaiming the event.
    """
    claims = _unlocked(session, ids).items()
    renewed = {id_: held.attempt for id_, held in claims if held.owner == owner}
    is_renewed = any_of(EVENTS.c.id, renewed)
    session.execute(sa.update(EVENTS).where(is_renewed).values(claimed_until=until))
    return renewed


def claimed(session: Session) -> dict[str, Held]:
    """Return all claims of all managers, by event id."""
    return _held(session, _CLAIMS)


def reclaim(session: Session, stale: Mapping[str, Held]) -> int:
    """Release claims that their managers have not renewed; return how many were released.

    ``stale`` contains claims that the caller read some time ago, by event id. If the claim on an
    event differs from the one in ``stale``, it was renewed and is kept. Claims in rows that another
    transaction has locked are kept, too.
    """
    expired = [id_ for id_, held in _unlocked(session, stale).items() if held == stale[id_]]
    return _free(session, any_of(EVENTS.c.id, expired))


def _unlocked(session: Session, event_ids: Collection[str]) -> dict[str, Held]:
    """Lock the claims on these events, except rows that other transactions have locked.

    Returns the locked claims by event id.
    """
    unlocked = _HELD.where(EVENTS.c.status == IN_PROGRESS, any_of(EVENTS.c.id, event_ids))
    return _held(session, unlocked.with_for_update(skip_locked=True))


def _held(session: Session, which: sa.Select[Any, Any, Any, Any]) -> dict[str, Held]:
    rows = session.execute(which)
    return {row.id: Held(row.owner, row.attempt, row.claimed_until) for row in rows}


def release(session: Session, owner: str) -> int:
    """Release all claims of ``owner``, a manager that is stopping; return how many."""
    return _free(session, EVENTS.c.owner == owner)


def _free(session: Session, which: sa.ColumnElement[bool]) -> int:
    claimed = sa.update(EVENTS).where(_IS_CLAIMED, which)
    result = session.execute(claimed.values(**_RELEASED, status=UNDONE))
    return int(result.rowcount)  # type: ignore[attr-defined]


def stuck(session: Session, now: datetime, late: datetime, max_retries: int) -> set[int]:
    """Return the ids of the resources that stay occupied because their lease fails to end.

    ``late`` is a time before ``now``. A lease fails to end if its end event is due at ``now`` and
    not done, and one of these is true:

    - The first attempt of the end event and ``max_retries`` retries have failed.
    - The end event was due before ``late``, and the lease has not changed since ``late``.

    ACTIVE leases are left out: no manager has begun to end them.
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


def run_now(
    session: Session,
    lease_id: str,
    kinds: Collection[str],
    now: datetime,
    *,
    is_ahead: bool = False,
) -> None:
    """End the pause before a retry: let the unclaimed events of a lease run now.

    Only events whose kind is in ``kinds`` change. Unless ``is_ahead`` is set, an event that is not
    due yet still waits until its due time.
    """
    at = sa.literal(now, EVENTS.c.run_at.type)
    soonest = at if is_ahead else sa.case((EVENTS.c.due_at > at, EVENTS.c.due_at), else_=at)
    of_kinds = _UNDONE.where(EVENTS.c.lease_id == lease_id, EVENTS.c.kind.in_(kinds))
    session.execute(of_kinds.where(EVENTS.c.run_at > soonest).values(run_at=soonest))


def discard(session: Session, lease_ids: Collection[str], kind: str, now: datetime) -> None:
    """Set the unclaimed events of one ``kind`` of these leases to ERROR, so that they never run."""
    of_kind = _UNDONE.where(any_of(EVENTS.c.lease_id, lease_ids), EVENTS.c.kind == kind)
    session.execute(of_kind.values(status=EventStatus.ERROR.value, updated_at=now))


def remove(session: Session, event_ids: Sequence[str]) -> None:
    """Delete events that their lease does not need any more, even if a manager has claimed them."""
    if event_ids:
        session.execute(sa.delete(EVENTS).where(EVENTS.c.id.in_(event_ids)))


def cancel(session: Session, event_ids: Sequence[str]) -> None:
    """Delete events that are still UNDONE; claimed and finished events stay."""
    if event_ids:
        is_unclaimed = (any_of(EVENTS.c.id, event_ids), EVENTS.c.status == UNDONE)
        session.execute(sa.delete(EVENTS).where(*is_unclaimed))


def remove_untried(session: Session, event_id: str) -> bool:
    """Delete an event, unless a manager has claimed it; return whether it is deleted.

    An event whose first attempt was requeued counts as not claimed.
    """
    return bool(session.connection().execute(_REMOVE_UNTRIED, {"event_id": event_id}).rowcount)


def reschedule(
    session: Session,
    event_id: str,
    due_at: datetime,
    now: datetime,
    *,
    run_at: datetime | None = None,
) -> None:
    """Set the due time of an event to ``due_at``, and make the event UNDONE again.

    Managers can run the event from ``run_at`` on (None: from its due time on). If a manager has
    claimed the event, the manager loses the claim. The attempt number stays. ``now`` becomes the
    time of creation and of the last change.
    """
    times = {"due_at": due_at, "run_at": run_at or due_at, "created_at": now, "updated_at": now}
    new = {**_RELEASED, **times, "status": UNDONE, "last_error": None}
    session.execute(sa.update(EVENTS).where(EVENTS.c.id == event_id).values(**new))


def insert_finalizer(
    session: Session, event_id: str, kind: str, payload: Mapping[str, Any], now: datetime
) -> None:
    """Store a finalizer, an event that outlives its lease; managers can run it from ``now`` on.

    ``payload`` contains all data for running the finalizer, because the lease may be deleted by
    then.
    """
    times = {"due_at": now, "run_at": now, "created_at": now}
    event = {"id": event_id, "kind": kind, "rank": rank(kind), "status": UNDONE, "attempt": 0}
    session.execute(sa.insert(EVENTS).values(**event, **times, payload=dict(payload)))


def get_finalizer(session: Session, event_id: str) -> tuple[str, dict[str, Any], datetime] | None:
    """Return kind, payload and due time of a finalizer (event without a lease); None if absent."""
    row = session.get(EventRow, event_id)
    return None if row is None else (row.kind, row.payload or {}, row.due_at)


def find_finalizers(session: Session, kind: str) -> list[dict[str, Any]]:
    """Return the payloads of all finalizers (events without a lease) of this ``kind``."""
    query = sa.select(EVENTS.c.payload).where(EVENTS.c.kind == kind, EVENTS.c.lease_id.is_(None))
    return [payload or {} for payload in session.scalars(query)]


def _of(ids: Sequence[str], owner: str, attempt: int) -> dict[str, Any]:
    return {"ids": ids, "by": owner, "which": attempt}


def _claimable() -> sa.Select[str, str | None, int]:
    """Build the query that locks and returns the events that a manager can claim.

    These events are due, unclaimed and not blocked by another event. The parameter ``ids`` of the
    query has the ids of the events to consider.
    """
    of = EVENTS.c
    return (
        sa.select(of.id, of.lease_id, of.attempt)
        .where(any_of(of.id, "ids"), of.status == UNDONE, of.run_at <= _NOW, ~blocked(_NOW))
        .order_by(of.run_at, of.rank, of.id)
        .with_for_update(of=EVENTS, skip_locked=True)
    )


_RELEASED = {"owner": None, "claimed_until": None}
_UNDONE = sa.update(EVENTS).where(EVENTS.c.status == UNDONE)
# Built once: SQLAlchemy takes longer to build it than the database to run it.
_NOW = sa.bindparam("now", type_=EVENTS.c.run_at.type)
_CLAIMABLE = _claimable()
_CLAIM = (
    sa.update(EVENTS)
    .where(any_of(EVENTS.c.id, "ids"))
    .values(
        status=IN_PROGRESS,
        owner=sa.bindparam("by"),
        claimed_until=sa.bindparam("until"),
        attempt=EVENTS.c.attempt + 1,
    )
)
_CLAIMED_SO = (
    any_of(EVENTS.c.id, "ids"),
    EVENTS.c.owner == sa.bindparam("by"),
    EVENTS.c.attempt == sa.bindparam("which"),
    EVENTS.c.status == IN_PROGRESS,
)
_IS_MINE = sa.select(EVENTS.c.id).where(*_CLAIMED_SO).with_for_update()
_MINE = sa.update(EVENTS).where(*_CLAIMED_SO)
_FINISH = _MINE.values(**_RELEASED, updated_at=_NOW, status=sa.bindparam("outcome"))
_REMOVE_UNTRIED = sa.delete(EVENTS).where(
    EVENTS.c.id == sa.bindparam("event_id"), EVENTS.c.attempt == 0, EVENTS.c.status == UNDONE
)
_REQUEUE = _MINE.values(**_RELEASED, status=UNDONE, attempt=EVENTS.c.attempt - 1)
_SOONEST = sa.func.min(EVENTS.c.run_at, type_=EVENTS.c.run_at.type)
_NEXT: sa.Select[datetime | None] = sa.select(_SOONEST).where(
    EVENTS.c.status == UNDONE, EVENTS.c.run_at > _NOW
)
# A literal, not a parameter: PostgreSQL then knows how few rows match, and uses the index.
_IS_CLAIMED = EVENTS.c.status == sa.literal_column(f"'{IN_PROGRESS}'")
_HELD = sa.select(EVENTS.c.id, EVENTS.c.owner, EVENTS.c.attempt, EVENTS.c.claimed_until)
_CLAIMS = _HELD.where(_IS_CLAIMED)
