"""Shutdowns, tasks to switch off a host: idle hosts, hosts needed again, store and end tasks."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.model import HOST
from climate.core.provisioning.shutdown import Shutdown, ShutdownState
from climate.db.provisioning.preparations import BEGUN, bookings
from climate.db.provisioning.tasks import TaskTable
from climate.db.tables.leases import AllocationRow, LeaseRow, ResourceRow
from climate.db.tables.provisioning import ReadinessRow, ShutdownRow, has_preparation, is_shut_down

_IS_NOT_OVER = ShutdownRow.over_at.is_(None)
_TASKS = TaskTable(ShutdownRow, Shutdown, ShutdownState, ShutdownRow.wanted_at)

get, find, store, forget = _TASKS.get, _TASKS.find, _TASKS.store, _TASKS.forget


@dataclass(frozen=True, slots=True)
class Idle:
    """A host without a lease, since when it is idle, and when its next booking starts."""

    resource_id: int
    idle_since: datetime | None
    next_start: datetime | None


def idle(session: Session, now: datetime) -> list[Idle]:
    """Return the hosts that work, have power, and have neither a lease nor a task, sorted by id.

    A host has a lease until the cleaning time is over. A lease that has begun and is not over
    counts, whatever its dates are. A task is a preparation or a shutdown. Hosts in quarantine are
    left out.
    """
    has_task = sa.or_(has_preparation(ResourceRow.id), is_shut_down(ResourceRow.id))
    taken = [
        sa.exists().where(is_booked, AllocationRow.start_at <= now, AllocationRow.busy_until > now)
        for is_booked in _booked(ResourceRow.id)
    ]
    nexts = [
        sa.select(sa.func.min(AllocationRow.start_at))
        .where(is_booked, AllocationRow.start_at > now, AllocationRow.busy_until > now)
        .scalar_subquery()
        for is_booked in _booked(ResourceRow.id)
    ]
    query = (
        sa.select(ResourceRow.id, ReadinessRow.idle_since, *nexts)
        .join(ReadinessRow, ReadinessRow.resource_id == ResourceRow.id)
        .where(
            ResourceRow.type == HOST,
            ResourceRow.reservable.is_(True),
            ReadinessRow.up.is_(True),
            ReadinessRow.set_aside.is_(None),
            ~has_task,
            *(~is_taken for is_taken in taken),
        )
        .order_by(ResourceRow.id)
    )
    begun = set(
        session.scalars(bookings(AllocationRow.resource_id).where(LeaseRow.status.in_(BEGUN)))
    )
    return [
        Idle(id_, since, min(filter(None, starts), default=None))
        for id_, since, *starts in session.execute(query)
        if id_ not in begun
    ]


def _booked(resource_id: int | sa.SQLColumnExpression[int]) -> tuple[sa.ColumnElement[bool], ...]:
    """Return two SQL conditions on allocations of a resource: of the whole, and of shares.

    Each of them uses its own index.
    """
    is_share = AllocationRow.resource_class.is_not(None)
    shared = sa.and_(AllocationRow.resource_id == resource_id, is_share)
    return AllocationRow.whole_id == resource_id, shared


def note_idle(session: Session, idle_ids: Collection[int], now: datetime) -> None:
    """Store that these hosts, and no others, are idle.

    If a host was not idle before, it is idle since ``now``.
    """
    known = sa.select(ReadinessRow.resource_id).where(ReadinessRow.idle_since.is_not(None))
    before = set(session.scalars(known))
    for ids, since in (({*idle_ids} - before, now), (before - {*idle_ids}, None)):
        if ids:
            _set_idle(session, ids, since)


def _set_idle(session: Session, ids: Collection[int], since: datetime | None) -> None:
    hosts = sa.update(ReadinessRow).where(ReadinessRow.resource_id.in_(ids))
    session.execute(hosts.values(idle_since=since))


def is_needed(session: Session, task: Shutdown, now: datetime) -> bool:
    """Return whether the host of a shutdown has a preparation or a booking that begins soon.

    Soon means in less than ``task.ahead`` seconds. A booking that has begun counts, too.
    """
    soon = AllocationRow.start_at < now + timedelta(seconds=task.ahead)
    booked = [
        sa.exists().where(is_booked, soon, AllocationRow.busy_until > now)
        for is_booked in _booked(task.resource_id)
    ]
    is_used = sa.or_(has_preparation(task.resource_id), *booked)
    return bool(session.scalar(sa.select(is_used)))


def unclaimed(session: Session) -> list[Shutdown]:
    """Return the shutdowns that no provisioner has claimed yet."""
    return _TASKS.select(session, _IS_NOT_OVER, ShutdownRow.progress == ShutdownState.WANTED.value)


def ended(session: Session, settled: timedelta) -> list[Shutdown]:
    """Return the shutdowns that climate should end, because their host may be used again.

    There are three reasons: the task was given up, the host has a preparation, or something other
    than climate has powered the host on. The third reason counts only if the cloud reported the
    host as up more than ``settled`` after it went off, because clouds notice late that a host is
    off.
    """
    prepared = has_preparation(ShutdownRow.resource_id)
    is_off = ShutdownRow.progress.in_([ShutdownState.OFF.value, ShutdownState.WAKING.value])
    was_kept = ShutdownRow.progress == ShutdownState.KEPT.value
    is_needed = sa.or_(was_kept, sa.and_(is_off, prepared))
    kept_or_prepared = _TASKS.select(session, _IS_NOT_OVER, is_needed)
    is_up = (ReadinessRow.up.is_(True), ReadinessRow.seen_at > ShutdownRow.off_at)
    seen_up = (
        sa.select(ShutdownRow, ReadinessRow.seen_at)
        .join(ReadinessRow, ReadinessRow.resource_id == ShutdownRow.resource_id)
        .where(_IS_NOT_OVER, is_off, ~prepared, *is_up)
    )
    up = ((_TASKS.of(row), at) for row, at in session.execute(seen_up))
    return [
        *kept_or_prepared,
        *(task for task, at in up if at and task.off_at and at - task.off_at > settled),
    ]


def resting(session: Session) -> list[Shutdown]:
    """Return the shutdowns whose host is off and can be booked."""
    bookable = sa.exists().where(
        ResourceRow.id == ShutdownRow.resource_id, ResourceRow.reservable.is_(True)
    )
    is_off = ShutdownRow.progress == ShutdownState.OFF.value
    return _TASKS.select(session, _IS_NOT_OVER, is_off, bookable)


def coming(session: Session, since: datetime) -> list[str]:
    """Return the hardware class of each host that is being switched on or boots.

    A host boots if climate switched it on after ``since`` and it is not up yet. If it was switched
    on before ``since`` and is not up, it does not count.
    """
    is_waking = sa.and_(_IS_NOT_OVER, ShutdownRow.progress == ShutdownState.WAKING.value)
    is_up = sa.exists().where(
        ReadinessRow.resource_id == ShutdownRow.resource_id, ReadinessRow.up.is_(True)
    )
    is_on = sa.and_(
        ShutdownRow.over_at > since, ShutdownRow.progress == ShutdownState.ON.value, ~is_up
    )
    return list(session.scalars(sa.select(ShutdownRow.hardware).where(sa.or_(is_waking, is_on))))


def is_going_on(session: Session, resource_id: int | None = None) -> bool:
    """Return whether a shutdown of a host is not over. If no host is given, any host counts."""
    of_host = [] if resource_id is None else [ShutdownRow.resource_id == resource_id]
    exists = sa.exists().where(_IS_NOT_OVER, *of_host)
    return bool(session.scalar(sa.select(exists)))


def want(session: Session, wanted: Sequence[Shutdown]) -> None:
    """Store new shutdowns; their hosts no longer count as idle."""
    _TASKS.insert(session, wanted)
    _set_idle(session, [task.resource_id for task in wanted], None)


def end(session: Session, task: Shutdown, now: datetime) -> bool:
    """Store that a shutdown is over since ``now``; return whether this changed anything.

    Nothing changes if it was over before, or if its stored progress is not that of ``task``.
    """
    is_unchanged = ShutdownRow.progress == task.progress.value
    return _TASKS.end(session, now, ShutdownRow.id == task.id, is_unchanged)


def off_between(session: Session, since: datetime, until: datetime) -> list[Shutdown]:
    """Return the shutdowns whose host was off at some time in [since, until)."""
    was_open = sa.or_(_IS_NOT_OVER, ShutdownRow.over_at > since)
    return _TASKS.select(session, ShutdownRow.off_at < until, was_open)
