"""Preparations: which bookings of hosts want one, which have no booking any more, and the rest."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.errors import NotFound
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.page import Page, Part, PreparationFilter
from climate.core.provisioning.preparation import OPEN, Preparation, PreparationState
from climate.db.resources.pages import cut
from climate.db.tables.bulk import insert
from climate.db.tables.leases import AllocationRow, LeaseRow, ReservationRow, ResourceRow
from climate.db.tables.provisioning import PreparationRow, ReadinessRow, is_shut_down

HOST = "physical:host"
BEGUN = [LeaseStatus.STARTING.value, LeaseStatus.ACTIVE.value, LeaseStatus.ERROR.value]
_GOING_ON = [LeaseStatus.PENDING.value, *BEGUN]
_OPEN = [one.value for one in OPEN]
# When the host is needed: what a running lease got later, from then on.
_NEEDED = sa.case(
    (AllocationRow.start_at > LeaseRow.start_at, AllocationRow.start_at), else_=LeaseRow.start_at
)
SAME = (
    PreparationRow.reservation_id == AllocationRow.reservation_id,
    PreparationRow.resource_id == AllocationRow.resource_id,
    PreparationRow.needed_at == _NEEDED,
)
_IS_OFF = is_shut_down(AllocationRow.resource_id)


@dataclass(frozen=True, slots=True)
class Booking:
    """A host that a reservation has from ``needed_at`` on; climate may have switched it off."""

    resource_id: int
    reservation_id: str
    lease_id: str
    needed_at: datetime
    is_off: bool


def unprepared(
    session: Session, now: datetime, until: datetime, lease_id: str | None = None
) -> list[Booking]:
    """Return the bookings of leases that start before ``until`` and have no preparation.

    Of leases that have begun, only what they got later, and what was switched off before them.
    """
    reserved = (AllocationRow.resource_id, AllocationRow.reservation_id)
    query = (
        bookings(*reserved, LeaseRow.id, _NEEDED, _IS_OFF)
        .join(ResourceRow, ResourceRow.id == AllocationRow.resource_id)
        .where(
            ResourceRow.type == HOST,
            LeaseRow.start_at <= until,
            LeaseRow.end_at > now,
            sa.or_(
                LeaseRow.status == LeaseStatus.PENDING.value,
                sa.and_(
                    LeaseRow.status.in_(BEGUN),
                    sa.or_(AllocationRow.start_at > LeaseRow.start_at, _IS_OFF),
                ),
            ),
            ~sa.exists().where(*SAME, PreparationRow.over_at.is_(None)),
        )
        .distinct()
    )
    if lease_id is not None:
        query = query.where(LeaseRow.id == lease_id)
    return [Booking(*row) for row in session.execute(query)]


def vanished(session: Session, now: datetime, since: datetime) -> list[str]:
    """Return the ids of preparations whose host is not booked like that any more.

    One of a host that was set aside goes on, if it was needed after ``since``: it may show that
    the host works after all.
    """
    booked = bookings(AllocationRow.id).where(
        *SAME, LeaseRow.status.in_(_GOING_ON), LeaseRow.end_at > now
    )
    on_trial = (
        sa.exists()
        .where(
            ReadinessRow.resource_id == PreparationRow.resource_id,
            ReadinessRow.set_aside.is_not(None),
            PreparationRow.progress.in_(_OPEN),
            PreparationRow.needed_at > since,
        )
        .correlate(PreparationRow)
    )
    query = sa.select(PreparationRow.id).where(
        PreparationRow.over_at.is_(None), ~booked.correlate(PreparationRow).exists(), ~on_trial
    )
    return list(session.scalars(query))


def bookings(*columns: Any) -> sa.Select[Any]:
    """Return the select of something about allocations that are a lease's."""
    return (
        sa.select(*columns)
        .select_from(AllocationRow)
        .join(ReservationRow, ReservationRow.id == AllocationRow.reservation_id)
        .join(LeaseRow, LeaseRow.id == ReservationRow.lease_id)
    )


def sizes(session: Session, lease_ids: Collection[str]) -> dict[str, int]:
    """Return how many hosts each lease has."""
    query = (
        bookings(LeaseRow.id, sa.func.count(AllocationRow.resource_id.distinct()).label("hosts"))
        .join(ResourceRow, ResourceRow.id == AllocationRow.resource_id)
        .where(LeaseRow.id.in_(lease_ids), ResourceRow.type == HOST)
        .group_by(LeaseRow.id)
    )
    return {row.id: row.hosts for row in session.execute(query)}


def want(session: Session, wanted: Sequence[Preparation]) -> None:
    """Store new preparations, in the place of such that are over."""
    for one in wanted:
        session.execute(
            sa.delete(PreparationRow).where(
                PreparationRow.reservation_id == one.reservation_id,
                PreparationRow.resource_id == one.resource_id,
                PreparationRow.needed_at == one.needed_at,
                PreparationRow.over_at.is_not(None),
            )
        )
    insert(session, (PreparationRow, [_values(one) for one in wanted]))


def store(session: Session, mine: Preparation) -> None:
    """Store what became of a preparation that is locked."""
    session.execute(
        sa.update(PreparationRow).where(PreparationRow.id == mine.id).values(**_values(mine))
    )


def end(session: Session, ids: Collection[str], now: datetime) -> None:
    """Have these be over."""
    session.execute(
        sa.update(PreparationRow)
        .where(PreparationRow.id.in_(ids), PreparationRow.over_at.is_(None))
        .values(over_at=now, claimed_until=None)
    )


def retry(session: Session, resource_id: int) -> None:
    """Have somebody try again what failed of a host and is not over."""
    session.execute(
        sa.update(PreparationRow)
        .where(
            PreparationRow.resource_id == resource_id,
            PreparationRow.over_at.is_(None),
            PreparationRow.progress == PreparationState.FAILED.value,
        )
        .values(progress=PreparationState.WANTED.value, owner=None, claimed_until=None)
    )


def overdue(session: Session, now: datetime) -> list[Preparation]:
    """Return those instead of whose host another is to be taken, and the host not yet set aside.

    They have failed, or are not ready while there is still time for another.
    """
    set_aside = sa.exists().where(
        ReadinessRow.resource_id == PreparationRow.resource_id, ReadinessRow.set_aside.is_not(None)
    )
    slow = sa.and_(
        PreparationRow.progress.in_(_OPEN),
        PreparationRow.replace_at <= now,
        PreparationRow.needed_at > now,
    )
    has_failed = PreparationRow.progress == PreparationState.FAILED.value
    return _found(session, PreparationRow.over_at.is_(None), sa.or_(slow, has_failed), ~set_aside)


def keep(session: Session, id_: str) -> None:
    """Have no other host taken instead, however long it takes."""
    session.execute(
        sa.update(PreparationRow).where(PreparationRow.id == id_).values(replace_at=None)
    )


def get(session: Session, id_: str, *, lock: bool = False) -> Preparation:
    """Return a preparation; with ``lock``, nobody else changes it. Raises NotFound."""
    query = sa.select(PreparationRow).where(PreparationRow.id == id_)
    query = query.execution_options(populate_existing=True)
    row = session.scalars(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        raise NotFound(f"There is no preparation {id_}")
    return _record(row)


def find(session: Session, wanted: PreparationFilter, page: Page) -> Part[Preparation]:
    """Return a page of preparations by when they are needed."""
    query = sa.select(PreparationRow).where(*_conditions(wanted))
    rows = session.scalars(cut(query, PreparationRow.needed_at, PreparationRow.id, page)).all()
    items = [_record(row) for row in rows[: page.limit]]
    return Part(items=items, more=len(rows) > page.limit)


def going_on(
    session: Session, *, lease_id: str | None = None, resource_id: int | None = None
) -> list[Preparation]:
    """Return those of a lease or a host that are not over, the first needed first."""
    mine = [
        column == wanted
        for column, wanted in (
            (PreparationRow.lease_id, lease_id),
            (PreparationRow.resource_id, resource_id),
        )
        if wanted is not None
    ]
    return _found(session, PreparationRow.over_at.is_(None), *mine)


def needed_between(session: Session, since: datetime, until: datetime) -> list[Preparation]:
    """Return those whose host was needed then, and not given up before."""
    return _found(
        session,
        PreparationRow.needed_at >= since,
        PreparationRow.needed_at < until,
        sa.or_(
            PreparationRow.over_at.is_(None), PreparationRow.over_at >= PreparationRow.needed_at
        ),
    )


def in_use(session: Session, now: datetime, settled: datetime) -> set[int]:
    """Return the ids of the hosts that have to be up: what was ready for a lease, and its hosts.

    Those that are off by us, that somebody is still getting ready, or that were so only after
    ``settled``, are not among them: the cloud may not have noticed yet.
    """
    ready = sa.select(PreparationRow.resource_id).where(
        PreparationRow.over_at.is_(None),
        PreparationRow.progress == PreparationState.READY.value,
        PreparationRow.ready_at <= settled,
    )
    at_it = sa.exists().where(
        PreparationRow.reservation_id == AllocationRow.reservation_id,
        PreparationRow.resource_id == AllocationRow.resource_id,
        PreparationRow.over_at.is_(None),
        sa.or_(PreparationRow.progress.in_(_OPEN), PreparationRow.ready_at > settled),
    )
    running = bookings(AllocationRow.resource_id).where(
        LeaseRow.status.in_(BEGUN), AllocationRow.start_at <= now, ~at_it, ~_IS_OFF
    )
    return {*session.scalars(ready), *session.scalars(running)}


def forget(session: Session, before: datetime) -> None:
    """Remove what was over by then."""
    session.execute(sa.delete(PreparationRow).where(PreparationRow.over_at < before))


def _found(session: Session, *conditions: sa.ColumnElement[bool]) -> list[Preparation]:
    query = sa.select(PreparationRow).where(*conditions)
    ordered = query.order_by(PreparationRow.needed_at, PreparationRow.id)
    return [_record(row) for row in session.scalars(ordered)]


def _conditions(wanted: PreparationFilter) -> list[sa.ColumnElement[bool]]:
    compared: Iterable[tuple[Any, Any]] = (
        (PreparationRow.node, wanted.node),
        (PreparationRow.lease_id, wanted.lease_id),
        (PreparationRow.hardware, wanted.hardware),
    )
    found = [column == value for column, value in compared if value is not None]
    over = PreparationState.OVER.value
    if wanted.states:
        is_there = sa.and_(
            PreparationRow.over_at.is_(None), PreparationRow.progress.in_(wanted.states)
        )
        is_over = PreparationRow.over_at.is_not(None)
        found.append(sa.or_(is_there, is_over) if over in wanted.states else is_there)
    if wanted.claimable_at is not None:
        unclaimed = sa.or_(
            PreparationRow.progress == PreparationState.WANTED.value,
            PreparationRow.claimed_until <= wanted.claimable_at,
        )
        mine = [PreparationRow.over_at.is_(None), PreparationRow.progress.in_(_OPEN)]
        found += [*mine, unclaimed, ~is_shut_down(PreparationRow.resource_id)]
    return found


def _values(one: Preparation) -> Mapping[str, Any]:
    return {**asdict(one), "progress": one.progress.value, "seconds": dict(one.seconds)}


def _record(row: PreparationRow) -> Preparation:
    values = {name: getattr(row, name) for name in Preparation.__dataclass_fields__}
    return Preparation(**{**values, "progress": PreparationState(row.progress)})
