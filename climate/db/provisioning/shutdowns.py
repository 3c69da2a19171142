"""Shutdowns: tasks for provisioners to switch off a host while no lease needs it.

A provisioner is a program that powers hosts on and off. A host is *idle* if it works, has power,
and now has neither a lease nor a task (a preparation or a shutdown). Leases can book an idle host
for later. climate switches off idle hosts,
but keeps a few on as *spares*, for leases that start at once.

A shutdown has one of these states:

- WANTED: no provisioner has claimed the shutdown yet.
- ACCEPTED: a provisioner is switching the host off.
- OFF: the host is off.
- WAKING: a provisioner must switch the host on again, because climate needs it as a spare.
- ON: a provisioner has switched the host on again.
- KEPT: climate or a provisioner has given the shutdown up.

A shutdown is over when ``over_at`` is set. climate can then use or prepare the host again.
"""

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
    """An idle host: it works, has power, and now has neither a lease nor a task.

    ``idle_since`` is the stored time since when the host is idle (None: not stored yet).
    ``next_start`` is the start of its next booking (None: it has no booking).
    """

    resource_id: int
    idle_since: datetime | None
    next_start: datetime | None


def idle(session: Session, now: datetime) -> list[Idle]:
    """Return the idle hosts, sorted by id: they work, have power, and have neither lease nor task.

    A task is a preparation or a shutdown. Hosts in quarantine are left out. A host has a lease if:

    - ``now`` is in a booking of the host, or in the cleaning time after the booking, or
    - a lease with the host has begun and is not over, even if its end date has passed.
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
    """Return two SQL conditions that select the allocations of the host ``resource_id``.

    The first selects bookings of the whole host, the second bookings of a share of the host. They
    are separate, because each of them uses its own index.
    """
    is_share = AllocationRow.resource_class.is_not(None)
    shared = sa.and_(AllocationRow.resource_id == resource_id, is_share)
    return AllocationRow.whole_id == resource_id, shared


def note_idle(session: Session, idle_ids: Collection[int], now: datetime) -> None:
    """Store that the hosts with the ids ``idle_ids`` are idle now, and that all others are not.

    If a host was not idle before, ``now`` is stored as the start of its idle time. If it was idle
    before, the stored start stays. For all other hosts, the stored start is cleared.
    """
    known = sa.select(ReadinessRow.resource_id).where(ReadinessRow.idle_since.is_not(None))
    before = set(session.scalars(known))
    for ids, since in (({*idle_ids} - before, now), (before - {*idle_ids}, None)):
        if ids:
            _set_idle(session, ids, since)


def _set_idle(session: Session, ids: Collection[int], since: datetime | None) -> None:
    """Store since when these hosts are idle; None means that they are not idle."""
    hosts = sa.update(ReadinessRow).where(ReadinessRow.resource_id.in_(ids))
    session.execute(hosts.values(idle_since=since))


def is_needed(session: Session, task: Shutdown, now: datetime) -> bool:
    """Return whether the host of a shutdown is needed, for a preparation or for a booking.

    The host is needed if it has a preparation that is not over. It is also needed if it has a
    booking that has begun, or that begins in less than ``task.ahead`` seconds.
    """
    soon = AllocationRow.start_at < now + timedelta(seconds=task.ahead)
    booked = [
        sa.exists().where(is_booked, soon, AllocationRow.busy_until > now)
        for is_booked in _booked(task.resource_id)
    ]
    is_used = sa.or_(has_preparation(task.resource_id), *booked)
    return bool(session.scalar(sa.select(is_used)))


def unclaimed(session: Session) -> list[Shutdown]:
    """Return the shutdowns that no provisioner has claimed yet (state WANTED)."""
    return _TASKS.select(session, _IS_NOT_OVER, ShutdownRow.progress == ShutdownState.WANTED.value)


def ended(session: Session, settled: timedelta) -> list[Shutdown]:
    """Return the shutdowns that climate should mark as over, to use their hosts again.

    There are three cases:

    - The shutdown was given up (state KEPT).
    - The host is off or must be switched on again (OFF, WAKING), and a preparation needs it.
    - The state is OFF or WAKING, but the cloud reports the host as up: something other than climate
      has switched the host on. Reports up to ``settled`` after ``off_at`` are ignored, because a
      cloud notices late that a host is off.
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
    """Return the shutdowns of hosts that are off (state OFF) and that leases can book.

    climate can let provisioners switch these hosts on, if it needs more spares.
    """
    bookable = sa.exists().where(
        ResourceRow.id == ShutdownRow.resource_id, ResourceRow.reservable.is_(True)
    )
    is_off = ShutdownRow.progress == ShutdownState.OFF.value
    return _TASKS.select(session, _IS_NOT_OVER, is_off, bookable)


def coming(session: Session, since: datetime) -> list[str]:
    """Return the hardware classes of the hosts that will soon be up, one item per host.

    Such a host has a shutdown in one of two states:

    - WAKING: a provisioner must switch the host on again, or is doing so.
    - ON: a provisioner switched the host on after ``since``, but the host is not up yet.
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
    """Return whether the host ``resource_id`` (None: any host) has a shutdown that is not over."""
    of_host = [] if resource_id is None else [ShutdownRow.resource_id == resource_id]
    exists = sa.exists().where(_IS_NOT_OVER, *of_host)
    return bool(session.scalar(sa.select(exists)))


def want(session: Session, wanted: Sequence[Shutdown]) -> None:
    """Store new shutdowns, which provisioners can then claim.

    Their hosts are then no longer stored as idle, because they have a task.
    """
    _TASKS.insert(session, wanted)
    _set_idle(session, [task.resource_id for task in wanted], None)


def end(session: Session, task: Shutdown, now: datetime) -> bool:
    """Mark a shutdown as over since ``now``; return whether its row was changed.

    The row stays unchanged if the shutdown is over already, or if the stored state is no longer the
    state of ``task``.
    """
    is_unchanged = ShutdownRow.progress == task.progress.value
    return _TASKS.end(session, now, ShutdownRow.id == task.id, is_unchanged)


def off_between(session: Session, since: datetime, until: datetime) -> list[Shutdown]:
    """Return the shutdowns whose host was off at some time in [since, until).

    The host is off from ``off_at`` until the shutdown is over.
    """
    was_open = sa.or_(_IS_NOT_OVER, ShutdownRow.over_at > since)
    return _TASKS.select(session, ShutdownRow.off_at < until, was_open)
