"""Shutdowns: which hosts nobody has, which of those that are off are needed, and the rest."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.errors import NotFound
from climate.core.page import Page, Part, ShutdownFilter
from climate.core.provisioning.shutdown import OPEN, Shutdown, ShutdownState
from climate.db.preparations import BEGUN, HOST, bookings
from climate.db.resources.pages import cut
from climate.db.tables.bulk import insert
from climate.db.tables.leases import AllocationRow, LeaseRow, ResourceRow
from climate.db.tables.provisioning import PreparationRow, ReadinessRow, ShutdownRow, is_shut_down


@dataclass(frozen=True, slots=True)
class Idle:
    """A host that nobody has, since when that was seen, and when it is next booked."""

    resource_id: int
    idle_since: datetime | None
    next_start: datetime | None


def idle(session: Session, now: datetime) -> list[Idle]:
    """Return the hosts that work, have power, and that nobody has or gets ready or switches off.

    Nobody has a host that no lease has begun with or is about to, and that is not being cleaned.
    """
    going_on = sa.or_(
        sa.exists().where(
            PreparationRow.resource_id == ResourceRow.id, PreparationRow.over_at.is_(None)
        ),
        is_shut_down(ResourceRow.id),
    )
    taken = [
        sa.exists().where(mine, AllocationRow.start_at <= now, AllocationRow.busy_until > now)
        for mine in _booked(ResourceRow.id)
    ]
    nexts = [
        sa.select(sa.func.min(AllocationRow.start_at))
        .where(mine, AllocationRow.start_at > now, AllocationRow.busy_until > now)
        .scalar_subquery()
        for mine in _booked(ResourceRow.id)
    ]
    query = (
        sa.select(ResourceRow.id, ReadinessRow.idle_since, *nexts)
        .join(ReadinessRow, ReadinessRow.resource_id == ResourceRow.id)
        .where(
            ResourceRow.type == HOST,
            ResourceRow.reservable.is_(True),
            ReadinessRow.up.is_(True),
            ReadinessRow.set_aside.is_(None),
            ~going_on,
            *(~one for one in taken),
        )
        .order_by(ResourceRow.id)
    )
    begun = _begun(session)
    return [
        Idle(id_, since, min(filter(None, starts), default=None))
        for id_, since, *starts in session.execute(query)
        if id_ not in begun
    ]


def _booked(resource_id: int | sa.SQLColumnExpression[int]) -> tuple[sa.ColumnElement[bool], ...]:
    """Return what bookings of the whole of a host meet, and of shares: each has an index."""
    shared = AllocationRow.resource_class.is_not(None)
    return AllocationRow.whole_id == resource_id, sa.and_(
        AllocationRow.resource_id == resource_id, shared
    )


def _begun(session: Session) -> set[int]:
    """Return the ids of the hosts with which a lease has begun, and that it may still have."""
    query = bookings(AllocationRow.resource_id).where(LeaseRow.status.in_(BEGUN))
    return set(session.scalars(query))


def note_idle(session: Session, idle_ids: Collection[int], now: datetime) -> None:
    """Remember since when hosts are idle, and that the others are not."""
    known = session.execute(
        sa.select(ReadinessRow.resource_id).where(ReadinessRow.idle_since.is_not(None))
    )
    before = {id_ for (id_,) in known}
    for ids, since in (({*idle_ids} - before, now), (before - {*idle_ids}, None)):
        if ids:
            _set_idle(session, ids, since)


def _set_idle(session: Session, ids: Collection[int], since: datetime | None) -> None:
    session.execute(
        sa.update(ReadinessRow).where(ReadinessRow.resource_id.in_(ids)).values(idle_since=since)
    )


def is_needed(session: Session, mine: Shutdown, now: datetime) -> bool:
    """Tell whether a host is got ready, or is booked too soon to go off for a while."""
    soon = AllocationRow.start_at < now + timedelta(seconds=mine.ahead)
    booked = [
        sa.exists().where(here, soon, AllocationRow.busy_until > now)
        for here in _booked(mine.resource_id)
    ]
    prepared = sa.exists().where(
        PreparationRow.resource_id == mine.resource_id, PreparationRow.over_at.is_(None)
    )
    return bool(session.scalar(sa.select(sa.or_(prepared, *booked))))


def unclaimed(session: Session) -> list[Shutdown]:
    """Return those that nobody has begun with."""
    return _found(session, ShutdownRow.progress == ShutdownState.WANTED.value)


def ended(session: Session, settled: timedelta) -> list[Shutdown]:
    """Return those whose host is to be used again.

    It was kept on, is to be got ready, or has power again by other hands: so the cloud said,
    ``settled`` after it went off, as a cloud needs time to notice.
    """
    prepared = sa.exists().where(
        PreparationRow.resource_id == ShutdownRow.resource_id, PreparationRow.over_at.is_(None)
    )
    is_off = ShutdownRow.progress.in_([ShutdownState.OFF.value, ShutdownState.WAKING.value])
    was_kept = ShutdownRow.progress == ShutdownState.KEPT.value
    found = _found(session, sa.or_(was_kept, sa.and_(is_off, prepared)))
    seen = (
        sa.select(ShutdownRow, ReadinessRow.seen_at)
        .join(ReadinessRow, ReadinessRow.resource_id == ShutdownRow.resource_id)
        .where(
            ShutdownRow.over_at.is_(None),
            is_off,
            ~prepared,
            ReadinessRow.up.is_(True),
            ReadinessRow.seen_at > ShutdownRow.off_at,
        )
    )
    up = ((_record(row), at) for row, at in session.execute(seen))
    return [*found, *(one for one, at in up if at and one.off_at and at - one.off_at > settled)]


def resting(session: Session) -> list[Shutdown]:
    """Return those whose host is off, and can be booked."""
    bookable = sa.exists().where(
        ResourceRow.id == ShutdownRow.resource_id, ResourceRow.reservable.is_(True)
    )
    return _found(session, ShutdownRow.progress == ShutdownState.OFF.value, bookable)


def coming(session: Session, since: datetime) -> list[str]:
    """Return the class of each host that wakes, or was switched on after ``since`` and is not up.

    One that is not up by then will hardly be.
    """
    is_waking = sa.and_(
        ShutdownRow.over_at.is_(None), ShutdownRow.progress == ShutdownState.WAKING.value
    )
    is_up = sa.exists().where(
        ReadinessRow.resource_id == ShutdownRow.resource_id, ReadinessRow.up.is_(True)
    )
    is_on = sa.and_(
        ShutdownRow.over_at > since, ShutdownRow.progress == ShutdownState.ON.value, ~is_up
    )
    return list(session.scalars(sa.select(ShutdownRow.hardware).where(sa.or_(is_waking, is_on))))


def is_going_on(session: Session, resource_id: int | None = None) -> bool:
    """Tell whether any host (or this one) is off, or on its way there or back."""
    mine = [] if resource_id is None else [ShutdownRow.resource_id == resource_id]
    there = sa.exists().where(ShutdownRow.over_at.is_(None), *mine)
    return bool(session.scalar(sa.select(there)))


def want(session: Session, wanted: Sequence[Shutdown]) -> None:
    """Store new ones; when they are over, their hosts are not idle before that is seen again."""
    insert(session, (ShutdownRow, [_values(one) for one in wanted]))
    _set_idle(session, [one.resource_id for one in wanted], None)


def store(session: Session, mine: Shutdown) -> None:
    """Store what became of a shutdown that is locked."""
    session.execute(sa.update(ShutdownRow).where(ShutdownRow.id == mine.id).values(**_values(mine)))


def end(session: Session, mine: Shutdown, now: datetime) -> bool:
    """Have it be over if it is still as it was; tell whether it was."""
    ended = session.execute(
        sa.update(ShutdownRow)
        .where(
            ShutdownRow.id == mine.id,
            ShutdownRow.over_at.is_(None),
            ShutdownRow.progress == mine.progress.value,
        )
        .values(over_at=now, claimed_until=None)
    )
    return bool(ended.rowcount)  # type: ignore[attr-defined]


def get(session: Session, id_: str, *, lock: bool = False) -> Shutdown:
    """Return a shutdown; with ``lock``, nobody else changes it. Raises NotFound."""
    query = sa.select(ShutdownRow).where(ShutdownRow.id == id_)
    query = query.execution_options(populate_existing=True)
    row = session.scalars(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        raise NotFound(f"There is no shutdown {id_}")
    return _record(row)


def find(session: Session, wanted: ShutdownFilter, page: Page) -> Part[Shutdown]:
    """Return a page of shutdowns by when they were wanted."""
    query = sa.select(ShutdownRow).where(*_conditions(wanted))
    rows = session.scalars(cut(query, ShutdownRow.wanted_at, ShutdownRow.id, page)).all()
    items = [_record(row) for row in rows[: page.limit]]
    return Part(items=items, more=len(rows) > page.limit)


def off_between(session: Session, since: datetime, until: datetime) -> list[Shutdown]:
    """Return those whose host was off at some time of these."""
    query = sa.select(ShutdownRow).where(
        ShutdownRow.off_at < until,
        sa.or_(ShutdownRow.over_at.is_(None), ShutdownRow.over_at > since),
    )
    return [_record(row) for row in session.scalars(query)]


def forget(session: Session, before: datetime) -> None:
    """Remove what was over by then."""
    session.execute(sa.delete(ShutdownRow).where(ShutdownRow.over_at < before))


def _found(session: Session, *conditions: sa.ColumnElement[bool]) -> list[Shutdown]:
    query = sa.select(ShutdownRow).where(ShutdownRow.over_at.is_(None), *conditions)
    ordered = query.order_by(ShutdownRow.wanted_at, ShutdownRow.id)
    return [_record(row) for row in session.scalars(ordered)]


def _conditions(wanted: ShutdownFilter) -> list[sa.ColumnElement[bool]]:
    compared: Iterable[tuple[Any, Any]] = (
        (ShutdownRow.node, wanted.node),
        (ShutdownRow.hardware, wanted.hardware),
    )
    found = [column == value for column, value in compared if value is not None]
    is_there = ShutdownRow.over_at.is_(None)
    if wanted.states:
        among = sa.and_(is_there, ShutdownRow.progress.in_(wanted.states))
        over = ShutdownState.OVER.value in wanted.states
        found.append(sa.or_(among, ~is_there) if over else among)
    if wanted.claimable_at is not None:
        is_free = sa.or_(
            ShutdownRow.claimed_until.is_(None), ShutdownRow.claimed_until <= wanted.claimable_at
        )
        found += [is_there, ShutdownRow.progress.in_(_OPEN), is_free]
    return found


_OPEN = [one.value for one in OPEN]


def _values(one: Shutdown) -> dict[str, Any]:
    return {**asdict(one), "progress": one.progress.value}


def _record(row: ShutdownRow) -> Shutdown:
    values = {name: getattr(row, name) for name in Shutdown.__dataclass_fields__}
    return Shutdown(**{**values, "progress": ShutdownState(row.progress)})
