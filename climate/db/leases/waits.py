"""Statements on the wait list: leases that wait for capacity, in the order of their ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.wait_list import HeldBack, Wait
from climate.core.page import Page
from climate.db.engine.types import any_of
from climate.db.tables.bulk import Rows, record, values
from climate.db.tables.leases import LEASES
from climate.db.tables.waiting import WAIT_TURNS, WAITS, WaitRow

_WAITING, _PENDING = LeaseStatus.WAITING.value, LeaseStatus.PENDING.value
_ORDER = (WAITS.c.rank_at, WAITS.c.lease_id)
# A lease that a limit holds back is tried again after this time.
RETRY = timedelta(minutes=1)
_NOW = sa.bindparam("now", type_=WAITS.c.tried_at.type)
_POOL = WAITS.c.pool == sa.bindparam("pool")
_WITH_LEASES = WAITS.join(LEASES, LEASES.c.id == WAITS.c.lease_id)
_IS_LISTED = LEASES.c.status.in_([_WAITING, _PENDING])


@dataclass(frozen=True, slots=True)
class Shape:
    """The waiting leases of a pool whose reservations are equal.

    ``shortest`` and ``longest`` are the extremes of their durations. ``lease_id`` is one of them.
    """

    name: str
    shortest: timedelta
    longest: timedelta
    lease_id: str


def rows(wait: Wait) -> Rows:
    """Return the row of a new entry."""
    names = (
        "lease_id project_id user_id pool shape rank_at priority asked_at earliest end_by until"
        " is_exempt promised_start held_back tried_at"
    )
    return WaitRow, [{**values(wait, names), "length_s": int(wait.length.total_seconds())}]


def find(session: Session, lease_ids: Sequence[str]) -> dict[str, Wait]:
    """Return the entries of these leases by lease id; leases that do not wait are left out."""
    query = sa.select(WAITS).where(any_of(WAITS.c.lease_id, list(lease_ids)))
    return {row.lease_id: _wait(row) for row in session.execute(query)} if lease_ids else {}


def positions(session: Session, entries: Sequence[Wait]) -> dict[str, int]:
    """Return the place of each entry in the list of its pool, from 1, by lease id."""
    if not entries:
        return {}
    place = sa.func.row_number().over(partition_by=WAITS.c.pool, order_by=_ORDER)
    listed = (
        sa.select(WAITS.c.lease_id, place.label("place"))
        .select_from(_WITH_LEASES)
        .where(
            WAITS.c.pool.in_({wait.pool for wait in entries}),
            WAITS.c.rank_at <= max(wait.rank_at for wait in entries),
            _IS_LISTED,
        )
        .subquery()
    )
    wanted = any_of(listed.c.lease_id, [wait.lease_id for wait in entries])
    query = sa.select(listed.c.lease_id, listed.c.place).where(wanted)
    return dict(iter(session.execute(query)))


def listed(session: Session, pool: str | None, page: Page) -> list[Wait]:
    """Return the entries of a page, and one more, by rank (``pool`` is None: of all pools).

    ``page.after`` is the rank of the last entry before, and how many entries up to it have that
    rank.
    """
    query = sa.select(WAITS).select_from(_WITH_LEASES).where(_IS_LISTED)
    if pool is not None:
        query = query.where(WAITS.c.pool == pool)
    if page.after is not None:
        query = query.where(WAITS.c.rank_at >= page.after[0]).offset(page.after[1])
    return [_wait(row) for row in session.execute(query.order_by(*_ORDER).limit(page.limit + 1))]


def pools(session: Session) -> list[str]:
    """Return the pools that have entries."""
    return list(session.scalars(_POOLS))


def promised(session: Session, pool: str, now: datetime) -> list[Wait]:
    """Return the entries of a pool that have a booking which starts after ``now``, by rank."""
    return [_wait(row) for row in session.execute(_PROMISED, {"pool": pool, "now": now})]


def first_waiting(
    session: Session, pool: str, now: datetime, after: Wait | None, limit: int
) -> list[Wait]:
    """Return the first entries without a booking, except those that are held back.

    The result begins after the entry ``after`` (None: at the beginning of the list).
    """
    query = _ELIGIBLE if after is None else _ELIGIBLE.where(*_is_after(after))
    found = session.execute(query.order_by(*_ORDER).limit(limit), _at(pool, now))
    return [_wait(row) for row in found]


def shapes(session: Session, pool: str, now: datetime) -> list[Shape]:
    """Return the shapes of the leases without a booking, except those that are held back."""
    return [
        Shape(name, timedelta(seconds=least), timedelta(seconds=most), lease_id)
        for name, least, most, lease_id in session.execute(_SHAPES, _at(pool, now))
    ]


def of_shapes(
    session: Session,
    pool: str,
    now: datetime,
    longest: Mapping[str, timedelta],
    after: Wait | None,
    limit: int,
) -> list[Wait]:
    """Return up to ``limit`` entries without a booking, by rank, that are not held back.

    ``longest`` contains the shapes to return, with the longest duration of each. The result begins
    after the entry ``after`` (None: at the beginning of the list).
    """
    query = _ELIGIBLE.where(
        sa.or_(
            *(
                sa.and_(WAITS.c.shape == name, WAITS.c.length_s <= int(length.total_seconds()))
                for name, length in longest.items()
            )
        )
    )
    if after is not None:
        query = query.where(*_is_after(after))
    query = query.order_by(*_ORDER).limit(limit)
    return [_wait(row) for row in session.execute(query, _at(pool, now))]


def promise(session: Session, lease_id: str, start: datetime | None) -> None:
    """Store the start of the booking of a waiting lease; None if it has no booking any more."""
    _set(session, lease_id, promised_start=start, held_back=None, tried_at=None)


def hold_back(session: Session, wait: Wait, reason: HeldBack, now: datetime) -> None:
    """Store why climate did not place a waiting lease at ``now``. It is tried again later.

    This also holds back the leases for which the same reason certainly or probably applies: those
    of the same shape that are not shorter. If a limit is the reason, they have the same owner.
    """
    alike = [WAITS.c.lease_id == wait.lease_id]
    if reason is not HeldBack.ERROR:
        length = int(wait.length.total_seconds())
        alike = [
            WAITS.c.pool == wait.pool,
            WAITS.c.shape == wait.shape,
            WAITS.c.length_s >= length,
            _has_no_later_end(wait) if reason is HeldBack.NO_WINDOW else _has_same_owner(wait),
        ]
    query = sa.update(WAITS).where(WAITS.c.promised_start.is_(None), *alike)
    session.execute(query.values(held_back=reason.value, tried_at=now))


def _has_no_later_end(wait: Wait) -> sa.ColumnElement[bool]:
    return WAITS.c.end_by <= wait.end_by


def _has_same_owner(wait: Wait) -> sa.ColumnElement[bool]:
    return sa.and_(
        WAITS.c.project_id == wait.project_id,
        WAITS.c.user_id == wait.user_id,
        WAITS.c.is_exempt == wait.is_exempt,
    )


def change(
    session: Session, lease_id: str, priority: int, rank_at: datetime, until: datetime
) -> None:
    """Store a new priority and place, and until when a lease waits."""
    _set(
        session,
        lease_id,
        priority=priority,
        rank_at=rank_at,
        until=until,
        held_back=None,
        tried_at=None,
    )


def leave(session: Session, lease_id: str) -> None:
    """Delete the entry of a lease that does not wait any more."""
    session.execute(sa.delete(WAITS).where(WAITS.c.lease_id == lease_id))


def forget_started(session: Session, pool: str) -> None:
    """Delete the entries of leases whose start has begun, or that are being deleted."""
    gone = session.scalars(_STARTED, {"pool": pool}).all()
    if gone:
        session.execute(sa.delete(WAITS).where(any_of(WAITS.c.lease_id, list(gone))))


def has_started(session: Session, pool: str) -> bool:
    """Return whether ``forget_started`` would delete an entry."""
    return session.scalar(_STARTED.limit(1), {"pool": pool}) is not None


def take_turn(session: Session, pool: str, owner: str, now: datetime, until: datetime) -> bool:
    """Give ``owner`` the turn to place the leases of a pool, until ``until`` at most.

    Returns False if another owner has the turn. Then this owner will look at the pool again.
    """
    present = session.execute(
        sa.select(WAIT_TURNS).where(WAIT_TURNS.c.pool == pool).with_for_update()
    ).one_or_none()
    turn = {"owner": owner, "held_until": until, "is_wanted_again": False}
    if present is None:
        session.execute(sa.insert(WAIT_TURNS).values(pool=pool, **turn))
        return True
    # A turn that lasts longer than a new one was taken before the clock was set back.
    is_free = present.owner is None or not now < present.held_until <= until
    changed = turn if is_free else {"is_wanted_again": True}
    session.execute(sa.update(WAIT_TURNS).where(WAIT_TURNS.c.pool == pool).values(**changed))
    return is_free


def keep_turn(session: Session, pool: str, owner: str, until: datetime) -> bool:
    """Renew the turn of ``owner`` until ``until``; return False if another owner has taken it."""
    is_mine = (WAIT_TURNS.c.pool == pool, WAIT_TURNS.c.owner == owner)
    kept = session.execute(sa.update(WAIT_TURNS).where(*is_mine).values(held_until=until))
    return bool(kept.rowcount)  # type: ignore[attr-defined]


def leave_turn(session: Session, pool: str, owner: str, *, even_if_wanted: bool = False) -> bool:
    """Give back the turn of ``owner``; return False if the pool is wanted again.

    In that case, the owner keeps the turn, unless ``even_if_wanted`` is set.
    """
    is_mine = (WAIT_TURNS.c.pool == pool, WAIT_TURNS.c.owner == owner)
    is_wanted = session.scalar(
        sa.select(WAIT_TURNS.c.is_wanted_again).where(*is_mine).with_for_update()
    )
    stays = bool(is_wanted) and not even_if_wanted
    free: dict[str, Any] = {} if stays else {"owner": None, "held_until": None}
    session.execute(sa.update(WAIT_TURNS).where(*is_mine).values(is_wanted_again=False, **free))
    return not stays


def _set(session: Session, lease_id: str, **fields: Any) -> None:
    session.execute(sa.update(WAITS).where(WAITS.c.lease_id == lease_id).values(**fields))


def _wait(row: Any) -> Wait:  # noqa: ANN401 - a row
    return record(
        Wait,
        row,
        length=timedelta(seconds=row.length_s),
        held_back=None if row.held_back is None else HeldBack(row.held_back),
    )


def _is_after(wait: Wait) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
    return (
        WAITS.c.rank_at >= wait.rank_at,
        sa.or_(WAITS.c.rank_at > wait.rank_at, WAITS.c.lease_id > wait.lease_id),
    )


def _at(pool: str, now: datetime) -> dict[str, Any]:
    return {"pool": pool, "now": now, "long_ago": now - RETRY}


_POOLS = sa.select(WAITS.c.pool).distinct().order_by(WAITS.c.pool)
_PROMISED = (
    sa.select(WAITS)
    .select_from(_WITH_LEASES)
    .where(_POOL, WAITS.c.promised_start > _NOW, LEASES.c.status == _PENDING)
    .order_by(*_ORDER)
)
# A lease without a promise has the status WAITING, so no join is needed.
_IS_ELIGIBLE = (
    _POOL,
    WAITS.c.promised_start.is_(None),
    sa.or_(
        WAITS.c.held_back.is_(None),
        WAITS.c.tried_at <= sa.bindparam("long_ago", type_=WAITS.c.tried_at.type),
        WAITS.c.tried_at > _NOW,  # the clock was set back
    ),
)
_ELIGIBLE = sa.select(WAITS).where(*_IS_ELIGIBLE)
_SHAPES = (
    sa.select(
        WAITS.c.shape,
        sa.func.min(WAITS.c.length_s),
        sa.func.max(WAITS.c.length_s),
        sa.func.min(WAITS.c.lease_id),
    )
    .where(*_IS_ELIGIBLE)
    .group_by(WAITS.c.shape)
)
_STARTED = (
    sa.select(WAITS.c.lease_id)
    .select_from(_WITH_LEASES)
    .where(
        _POOL,
        WAITS.c.promised_start.is_not(None),
        LEASES.c.status != _PENDING,
    )
)
