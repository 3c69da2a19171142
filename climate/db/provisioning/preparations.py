"""Preparations: tasks for provisioners to make a host ready for a lease in time.

A provisioner is a program that powers hosts on and off. Each preparation is for one booking: a
reservation needs a host from ``needed_at`` on. A preparation has one of these states:

- WANTED: no provisioner has claimed the preparation yet.
- ACCEPTED: a provisioner has claimed it and is working on it.
- READY: the host is ready for the lease.
- FAILED: the provisioner could not make the host ready.

A preparation is over when ``over_at`` is set: its lease no longer needs the host.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.model import HOST, LEAVING
from climate.core.page import Page, Part, TaskFilter
from climate.core.provisioning.preparation import OPEN, Preparation, PreparationState
from climate.db.provisioning.tasks import TaskTable
from climate.db.tables.leases import AllocationRow, LeaseRow, ReservationRow, ResourceRow
from climate.db.tables.provisioning import PreparationRow, is_quarantined, is_shut_down

BEGUN = [LeaseStatus.STARTING.value, LeaseStatus.ACTIVE.value, LeaseStatus.ERROR.value]
_GOING_ON = [LeaseStatus.PENDING.value, *BEGUN]
_OPEN = [state.value for state in OPEN]
_IS_READY = PreparationRow.progress == PreparationState.READY.value
_HAS_FAILED = PreparationRow.progress == PreparationState.FAILED.value
_IS_NOT_OVER = PreparationRow.over_at.is_(None)
# When the lease needs the host: from the beginning of the booking on. It is before the start of the
# lease if climate creates resources for the lease, and after it for a host that was added later.
_NEEDED = AllocationRow.start_at
_IS_FOR_BOOKING = (
    PreparationRow.reservation_id == AllocationRow.reservation_id,
    PreparationRow.resource_id == AllocationRow.resource_id,
    PreparationRow.needed_at == _NEEDED,
)
_IS_OFF = is_shut_down(AllocationRow.resource_id)
_IS_QUARANTINED = is_quarantined(PreparationRow.resource_id).correlate(PreparationRow)
# A provisioner claims a preparation within seconds, unless none has the node in its nodes file.
_UNCLAIMED_AFTER = timedelta(seconds=30)
_TASKS = TaskTable(PreparationRow, Preparation, PreparationState, PreparationRow.needed_at)

get, store, forget = _TASKS.get, _TASKS.store, _TASKS.forget


@dataclass(frozen=True, slots=True)
class Booking:
    """A booking: the reservation of a lease needs a host from ``needed_at`` on.

    ``resource_id`` is the id of the host. ``is_off`` means that the host has a shutdown that is not
    over: climate has switched it off, or is switching it off or on.
    """

    resource_id: int
    reservation_id: str
    lease_id: str
    needed_at: datetime
    is_off: bool


def unprepared(
    session: Session, now: datetime, until: datetime | None, lease_id: str | None = None
) -> list[Booking]:
    """Return the bookings of hosts for which climate must still store a preparation.

    These bookings have no preparation, or only one that is over. Only leases that are not over and
    need the host by ``until`` (None: at any time) are considered. If ``lease_id`` is set, only that
    lease is considered. Of a lease that has begun, only the bookings of these hosts are included:

    - hosts that were added after the start of the lease,
    - hosts that climate has switched off.
    """
    reserved = (AllocationRow.resource_id, AllocationRow.reservation_id)
    needs_power = sa.or_(AllocationRow.start_at > LeaseRow.start_at, _IS_OFF)
    query = _host_bookings(*reserved, LeaseRow.id, _NEEDED, _IS_OFF).where(
        LeaseRow.end_at > now,
        sa.or_(
            LeaseRow.status == LeaseStatus.PENDING.value,
            sa.and_(LeaseRow.status.in_(BEGUN), needs_power),
        ),
        ~sa.exists().where(*_IS_FOR_BOOKING, _IS_NOT_OVER),
    )
    if until is not None:
        query = query.where(AllocationRow.start_at <= until)
    if lease_id is not None:
        query = query.where(LeaseRow.id == lease_id)
    return [Booking(*row) for row in session.execute(query.distinct())]


def vanished(session: Session, now: datetime, since: datetime) -> list[str]:
    """Return the ids of the preparations that must end, because their booking no longer exists.

    The booking was deleted or moved, or its lease is over at ``now``.

    ``since`` is a time before ``now``. If the host is in quarantine, an unfinished preparation
    (WANTED, ACCEPTED) with ``needed_at`` after ``since`` is left out. It goes on, to test whether
    the host works again.
    """
    booked = bookings(AllocationRow.id).where(
        *_IS_FOR_BOOKING, LeaseRow.status.in_(_GOING_ON), LeaseRow.end_at > now
    )
    is_on_trial = sa.and_(
        _IS_QUARANTINED, PreparationRow.progress.in_(_OPEN), PreparationRow.needed_at > since
    )
    query = sa.select(PreparationRow.id).where(
        _IS_NOT_OVER, ~booked.correlate(PreparationRow).exists(), ~is_on_trial
    )
    return list(session.scalars(query))


def bookings(*columns: Any) -> sa.Select[Any]:
    """Build a query with one row per allocation, which selects ``columns``.

    ``columns`` may belong to the allocation, its reservation and its lease.
    """
    return (
        sa.select(*columns)
        .select_from(AllocationRow)
        .join(ReservationRow, ReservationRow.id == AllocationRow.reservation_id)
        .join(LeaseRow, LeaseRow.id == ReservationRow.lease_id)
    )


def _host_bookings(*columns: Any) -> sa.Select[Any]:
    """Build a query like ``bookings``, but only with allocations of hosts."""
    is_host = sa.and_(ResourceRow.id == AllocationRow.resource_id, ResourceRow.type == HOST)
    return bookings(*columns).join(ResourceRow, is_host)


def sizes(session: Session, lease_ids: Collection[str]) -> dict[str, int]:
    """Return how many hosts each lease has booked, by lease id.

    Leases without hosts are left out.
    """
    query = _host_bookings(LeaseRow.id, sa.func.count(AllocationRow.resource_id.distinct()))
    rows = session.execute(query.where(LeaseRow.id.in_(lease_ids)).group_by(LeaseRow.id))
    return dict(iter(rows))


def want(session: Session, wanted: Sequence[Preparation]) -> None:
    """Store new preparations, which provisioners can then claim.

    If the same booking already has a preparation that is over, the new preparation replaces it.
    """
    for task in wanted:
        same_booking = (
            PreparationRow.reservation_id == task.reservation_id,
            PreparationRow.resource_id == task.resource_id,
            PreparationRow.needed_at == task.needed_at,
        )
        session.execute(sa.delete(PreparationRow).where(*same_booking, ~_IS_NOT_OVER))
    _TASKS.insert(session, wanted)


def end(session: Session, ids: Collection[str], now: datetime) -> None:
    """Mark these preparations as over since ``now``, except those that are over already."""
    _TASKS.end(session, now, PreparationRow.id.in_(ids))


def retry(session: Session, resource_id: int) -> None:
    """Set the failed preparations of a host to WANTED, so that provisioners can claim them."""
    failed = sa.update(PreparationRow).where(_IS_NOT_OVER, _HAS_FAILED)
    wanted = {"progress": PreparationState.WANTED.value, "owner": None, "claimed_until": None}
    session.execute(failed.where(PreparationRow.resource_id == resource_id).values(**wanted))


def overdue(session: Session, now: datetime) -> list[Preparation]:
    """Return the preparations whose host climate should replace by another host.

    There are two cases:

    - The preparation has failed.
    - The preparation is unfinished and ``replace_at`` has passed, but ``needed_at`` has not. So
      another host can still be ready in time.

    Hosts in quarantine are left out, because climate has replaced them already.
    """
    slow = sa.and_(
        PreparationRow.progress.in_(_OPEN),
        PreparationRow.replace_at <= now,
        PreparationRow.needed_at > now,
    )
    return _TASKS.select(session, _IS_NOT_OVER, sa.or_(slow, _HAS_FAILED), ~_IS_QUARANTINED)


def keep(session: Session, id_: str) -> None:
    """Store that a preparation keeps its host even if the preparation is late.

    ``id_`` is the id of the preparation. If the preparation fails, climate still replaces the host.
    """
    kept = sa.update(PreparationRow).where(PreparationRow.id == id_)
    session.execute(kept.values(replace_at=None))


def find(session: Session, wanted: TaskFilter, page: Page) -> Part[Preparation]:
    """Return the preparations that match the filter ``wanted``, sorted by ``needed_at``.

    ``page`` selects a part of the list. While a host has an unfinished shutdown, no provisioner can
    claim the host's preparations. So these preparations are left out if the filter asks for
    claimable ones (``claimable_at``).
    """
    more = [] if wanted.lease_id is None else [PreparationRow.lease_id == wanted.lease_id]
    if wanted.claimable_at is not None:
        more.append(~is_shut_down(PreparationRow.resource_id))
    return _TASKS.find(session, wanted, page, *more)


def going_on(
    session: Session, *, lease_id: str | None = None, resource_id: int | None = None
) -> list[Preparation]:
    """Return the preparations that are not over, sorted by ``needed_at``.

    ``lease_id`` and ``resource_id`` restrict the result to one lease or one host (None: no
    restriction).
    """
    compared = ((PreparationRow.lease_id, lease_id), (PreparationRow.resource_id, resource_id))
    conditions = [column == value for column, value in compared if value is not None]
    return _TASKS.select(session, _IS_NOT_OVER, *conditions)


def needed_between(session: Session, since: datetime, until: datetime) -> list[Preparation]:
    """Return the preparations whose host was needed in [since, until).

    A preparation that was over before its ``needed_at`` is left out.
    """
    return _TASKS.select(
        session,
        PreparationRow.needed_at >= since,
        PreparationRow.needed_at < until,
        sa.or_(_IS_NOT_OVER, PreparationRow.over_at >= PreparationRow.needed_at),
    )


def in_use(session: Session, now: datetime, settled: datetime) -> set[int]:
    """Return the ids of the hosts that must be up now: they are ready, or a lease uses them.

    ``settled`` is a time before ``now``. Some hosts are left out:

    - Hosts that became ready after ``settled``, because the cloud may not report them as up yet.
    - Hosts of a running lease that are still being prepared.
    - Hosts of a running lease that climate has switched off.
    """
    ready = sa.select(PreparationRow.resource_id).where(
        _IS_NOT_OVER, _IS_READY, PreparationRow.ready_at <= settled
    )
    in_progress = sa.exists().where(
        PreparationRow.reservation_id == AllocationRow.reservation_id,
        PreparationRow.resource_id == AllocationRow.resource_id,
        _IS_NOT_OVER,
        sa.or_(PreparationRow.progress.in_(_OPEN), PreparationRow.ready_at > settled),
    )
    running = bookings(AllocationRow.resource_id).where(
        LeaseRow.status.in_(BEGUN), AllocationRow.start_at <= now, ~in_progress, ~_IS_OFF
    )
    return {*session.scalars(ready), *session.scalars(running)}


def unready(
    session: Session, lease_id: str, reservation_ids: Collection[str] | None = None
) -> set[int]:
    """Return the ids of the hosts of a lease that have no finished preparation (state READY).

    The result contains only hosts of the reservations ``reservation_ids`` (None: of all). Hosts of
    reservations that were removed from the lease are left out.
    """
    ready = sa.exists().where(*_IS_FOR_BOOKING, _IS_NOT_OVER, _IS_READY)
    query = _host_bookings(AllocationRow.resource_id, ReservationRow.details)
    if reservation_ids is not None:
        query = query.where(ReservationRow.id.in_(reservation_ids))
    rows = session.execute(query.where(LeaseRow.id == lease_id, ~ready))
    return {id_ for id_, details in rows if LEAVING not in details}


def counts(session: Session, most: int) -> dict[str, int]:
    """Return how many preparations are not over, by state, for example {"wanted": 3}.

    The sum of these numbers is ``most`` or less: the query stops counting there.
    """
    rows = sa.select(PreparationRow.progress).where(_IS_NOT_OVER).limit(most).subquery()
    query = sa.select(rows.c.progress, sa.func.count()).group_by(rows.c.progress)
    return dict(iter(session.execute(query)))


def unclaimed(session: Session, now: datetime, ids: Collection[str]) -> set[str]:
    """Return which of these preparations no provisioner has claimed for 30 seconds.

    Most likely, no running provisioner has the node in its nodes file.
    """
    query = sa.select(PreparationRow.id).where(*_is_unclaimed(now), PreparationRow.id.in_(ids))
    return set(session.scalars(query)) if ids else set()


def count_unclaimed(session: Session, now: datetime, most: int) -> int:
    """Return how many preparations no provisioner has claimed for 30 seconds, up to ``most``."""
    rows = sa.select(PreparationRow.id).where(*_is_unclaimed(now)).limit(most).subquery()
    return session.scalars(sa.select(sa.func.count()).select_from(rows)).one()


def _is_unclaimed(now: datetime) -> tuple[sa.ColumnElement[bool], ...]:
    """Return the SQL conditions that no provisioner has claimed a preparation for 30 seconds.

    Preparations that cannot be claimed are left out: their host has a shutdown that is not over.
    """
    expiry, before = PreparationRow.claimed_until, now - _UNCLAIMED_AFTER
    return (
        _IS_NOT_OVER,
        PreparationRow.progress.in_(_OPEN),
        PreparationRow.wanted_at <= before,
        sa.or_(expiry.is_(None), expiry <= before),
        ~is_shut_down(PreparationRow.resource_id),
    )


def next_expiry(session: Session, now: datetime) -> datetime | None:
    """Return when the next claim of a provisioner on a preparation expires.

    None means that no claim expires after ``now``.
    """
    column = PreparationRow.claimed_until
    query = sa.select(sa.func.min(column, type_=column.type)).where(column > now)
    return session.scalar(query.where(_IS_NOT_OVER, PreparationRow.progress.in_(_OPEN)))
