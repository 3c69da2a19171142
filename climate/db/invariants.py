"""Queries of the self-audit: examine the invariants in bounded slices, and keep their progress.

A query starts where the previous one ended. It returns the violations that it found and its own
end, or None at the end of a round. All statements of one query must see the same state:
``Database.snapshot``. Work that a manager is late with counts only after a while, because the
manager may be about to do it.

The manager that moves ``next_at`` forward owns the next examination until that time. Its result is
stored only if no other manager became the owner meanwhile. So one manager examines at a time, and
each change is reported once.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, Session, mapped_column

from climate.core.invariants import Due, Verdict, booked_twice, wrong_events
from climate.core.lease.blazar_wire import date
from climate.core.lease.lifecycle import LeaseStatus, ReservationStatus
from climate.core.lease.model import HOST, LEAVING
from climate.core.lease.schedule import PATIENCE
from climate.core.matching.calendar import Booking
from climate.core.window import Window
from climate.db.engine.array_in import among
from climate.db.engine.types import MARIADB
from climate.db.events.ordering import IN_PROGRESS, blocked, due
from climate.db.resources import capacity
from climate.db.tables.leases import (
    EVENTS,
    LEASES,
    AllocationRow,
    Base,
    EventRow,
    ReservationRow,
    ResourceRow,
)
from climate.db.tables.notifications import OutboxRow, RelayRow

_Lease = Any  # a row of _leases
Taken = tuple[datetime, datetime]
Look = Callable[[Session, str, datetime], tuple[list[str], str | None]]


_RESOURCES = 100
_SOME = 500
_NUMBERS = 10_000
_FINDINGS = 20

_HOLDING = [
    status.value for status in (LeaseStatus.PENDING, LeaseStatus.STARTING, LeaseStatus.ACTIVE)
]


_DUE = sa.select(EVENTS.c.lease_id, EVENTS.c.kind, EVENTS.c.status, EVENTS.c.due_at).where(
    among(EVENTS.c.lease_id, "ids")
)


def bookings(session: Session, after: str, now: datetime) -> tuple[list[str], str | None]:
    """1: from now on, nothing is taken twice or beyond what there is."""
    query = sa.select(ResourceRow.id, ResourceRow.external_id).where(
        ResourceRow.id > int(after or 0)
    )
    page = session.execute(query.order_by(ResourceRow.id).limit(_RESOURCES))
    names = {row.id: row.external_id for row in page}
    taken: dict[int, list[Booking]] = defaultdict(list)
    rows = sa.select(AllocationRow).where(
        AllocationRow.resource_id.in_(names), AllocationRow.busy_until > now
    )
    for row in session.scalars(rows):
        booking = Booking(row.start_at, row.busy_until, row.resource_class, row.amount or 0)
        taken[row.resource_id].append(booking)
    there = capacity.find_some(session, taken)
    found = [
        f"resource {names[id_]} {what}"
        for id_, mine in taken.items()
        for what in booked_twice(mine, {name: one.capacity for name, one in there[id_].items()})
    ]
    return found, str(max(names)) if len(names) == _RESOURCES else None


def open_events(session: Session, after: str, _now: datetime) -> tuple[list[str], str | None]:
    """2: a lease has the open events that its state calls for."""
    leases, end = _leases(session, after)
    events: dict[str, list[Due]] = defaultdict(list)
    for lease_id, *event in session.execute(_DUE, {"ids": [one.id for one in leases]}):
        events[lease_id].append(Due(*event))
    found = [
        f"lease {one.id} {wrong}"
        for one in leases
        if (wrong := wrong_events(one.status, Window(one.start_at, one.end_at), events[one.id]))
    ]
    return found, end


def claims(session: Session, _after: str, now: datetime) -> tuple[list[str], str | None]:
    """3: what is claimed has an owner who is alive; what is due is tried."""
    since = now - PATIENCE
    lost = sa.or_(
        EventRow.owner.is_(None),
        EventRow.claimed_until.is_(None),
        EventRow.claimed_until < since,
    )
    nobodys = sa.select(EventRow.id).where(EventRow.status == IN_PROGRESS, lost)
    moments = EVENTS.c.run_at.type
    overdue = sa.select(EventRow.id, EventRow.kind, EventRow.run_at).where(
        *due(sa.literal(since, moments)),
        EventRow.attempt == 0,
        ~blocked(sa.literal(now, moments)),
    )
    found = [
        f"event {id_} is claimed, and nobody is at it"
        for id_ in session.scalars(nobodys.limit(_FINDINGS))
    ]
    found += [
        f"event {row.id} ({row.kind}) may run since {row.run_at} and was never tried"
        for row in session.execute(overdue.order_by(EventRow.run_at).limit(_FINDINGS))
    ]
    return found, None


def numbers(session: Session, after: str, _now: datetime) -> tuple[list[str], str | None]:
    """4: public numbers have no gaps, from the oldest that is kept to the last that was given."""
    last = session.scalar(sa.select(RelayRow.last_seq)) or 0
    oldest, newest = session.execute(
        sa.select(sa.func.min(OutboxRow.seq), sa.func.max(OutboxRow.seq))
    ).one()
    if newest is None or oldest is None:
        return [], None
    if newest > last:
        return [f"number {newest} was given, and {last} is said to be the last"], None
    begin = max(int(after or 0), oldest - 1)
    end = min(begin + _NUMBERS, last)
    between = sa.and_(OutboxRow.seq > begin, OutboxRow.seq <= end)
    there = session.scalar(sa.select(sa.func.count()).select_from(OutboxRow).where(between)) or 0
    missing = end - begin - there
    found = [f"{missing} of the numbers {begin + 1} to {end} are missing"] if missing else []
    return found, str(end) if end < last else None


def told(session: Session, after: str, _now: datetime) -> tuple[list[str], str | None]:
    """4: what was last told of a lease are the dates that it has."""
    leases, end = _leases(session, after)
    known = [one for one in leases if one.status != LeaseStatus.CREATING.value]
    latest = (
        sa.select(sa.func.max(OutboxRow.id))
        .where(
            among(OutboxRow.lease_id, [one.id for one in known]),
            OutboxRow.event_type.not_like("node.%"),  # is about a node, and has no dates
        )
        .group_by(OutboxRow.lease_id)
    )
    query = sa.select(OutboxRow.lease_id, OutboxRow.payload).where(OutboxRow.id.in_(latest))
    payloads = {row.lease_id: row.payload for row in session.execute(query)}
    oldest = sa.select(OutboxRow.created_at).order_by(OutboxRow.id).limit(1)
    kept_since = session.scalar(oldest)
    found = [
        f"lease {one.id} {wrong}"
        for one in known
        if (wrong := _mistold(one, payloads.get(one.id), kept_since))
    ]
    return found, end


def _mistold(
    lease: _Lease, payload: dict[str, Any] | None, kept_since: datetime | None
) -> str | None:
    """Say what is wrong with what was last told; what is not kept any more was right."""
    if payload is None:
        is_kept = kept_since is not None and lease.created_at > kept_since
        return "was never told of" if is_kept else None
    present = {"start_date": date(lease.start_at), "end_date": date(lease.end_at)}
    differs = any(payload.get(name, value) != value for name, value in present.items())
    return "was last told of with other dates than it has" if differs else None


def whole_leases(session: Session, after: str, _now: datetime) -> tuple[list[str], str | None]:
    """5: nothing is half done: what a lease has, it has for all its time, and enough of it."""
    leases, end = _leases(session, after)
    windows = {one.id: one for one in leases if one.status in _HOLDING}
    query = (
        sa.select(ReservationRow, AllocationRow.start_at, AllocationRow.busy_until)
        .outerjoin(AllocationRow, AllocationRow.reservation_id == ReservationRow.id)
        .where(
            among(ReservationRow.lease_id, windows),
            ReservationRow.status != ReservationStatus.DELETED.value,
        )
    )
    held: dict[str, tuple[ReservationRow, list[Taken]]] = {}
    for row, start, until in session.execute(query):
        spans = held.setdefault(row.id, (row, []))[1]
        if start is not None:
            spans.append((start, until))
    found = [
        f"reservation {id_} of lease {row.lease_id} {wrong}"
        for id_, (row, spans) in held.items()
        if (wrong := _half_done(windows[row.lease_id], row, spans))
    ]
    return found, end


def _half_done(lease: _Lease, row: ReservationRow, taken: list[Taken]) -> str | None:
    if LEAVING in row.details:  # no part of the lease any more
        return None
    for start, until in taken:
        if start < lease.start_at or until < lease.end_at:
            return f"has something from {start} to {until}, not until the end"
    least = row.params.get("min") if row.resource_type == HOST else None
    if not row.missing_resources and isinstance(least, int) and len(taken) < least:
        return f"has {len(taken)} hosts, and asked for {least} at least"
    return None


def _leases(session: Session, after: str) -> tuple[Sequence[_Lease], str | None]:
    of = LEASES.c
    query = sa.select(of.id, of.status, of.start_at, of.end_at, of.created_at)
    found = session.execute(query.where(of.id > after).order_by(of.id).limit(_SOME)).all()
    return found, found[-1].id if len(found) == _SOME else None


# Each by its name, with the number of its invariant in ARCHITECTURE.md.
LOOKS: dict[str, tuple[int, Look]] = {
    "bookings": (1, bookings),
    "open_events": (2, open_events),
    "claims": (3, claims),
    "numbers": (4, numbers),
    "told": (4, told),
    "whole_leases": (5, whole_leases),
}


class SelfAuditRow(Base):
    """A look at an invariant, by its name: where the next one begins, and what is known so far."""

    __tablename__ = "self_audit"
    __table_args__ = (MARIADB,)

    name: Mapped[str] = mapped_column(sa.String(32), primary_key=True)
    next_at: Mapped[datetime]
    position: Mapped[str] = mapped_column(sa.String(36))
    found: Mapped[list[Any]]
    broken_since: Mapped[datetime | None]


@dataclass(frozen=True, slots=True)
class Turn:
    """The turn to look at an invariant until ``until``, from ``position`` on."""

    name: str
    until: datetime
    position: str
    verdict: Verdict


def broken(session: Session) -> set[str]:
    """Return the names of the looks that found something wrong."""
    query = sa.select(SelfAuditRow.name).where(SelfAuditRow.broken_since.is_not(None))
    return set(session.scalars(query))


def is_due(session: Session, name: str, now: datetime) -> bool:
    """Tell whether nobody has the turn."""
    query = sa.select(SelfAuditRow.next_at).where(SelfAuditRow.name == name)
    next_at = session.scalar(query)
    return next_at is None or next_at <= now


def take_turn(session: Session, name: str, now: datetime, until: datetime) -> Turn | None:
    """Have the turn until then, None if somebody else has it."""
    query = sa.select(SelfAuditRow).where(SelfAuditRow.name == name).with_for_update()
    row = session.scalars(query.execution_options(populate_existing=True)).one_or_none()
    if row is None:
        # Whoever does the same at this moment fails on the key, runs again and finds our row.
        row = SelfAuditRow(name=name, position="", found=[], broken_since=None)
        session.add(row)
    elif row.next_at > now:
        return None
    row.next_at = until
    return Turn(name, until, row.position, Verdict(row.broken_since, tuple(row.found)))


def store(session: Session, turn: Turn, position: str, verdict: Verdict) -> bool:
    """Store what is known now; False if the turn is not ours any more."""
    result = session.execute(
        sa.update(SelfAuditRow)
        .where(SelfAuditRow.name == turn.name, SelfAuditRow.next_at == turn.until)
        .values(position=position, found=list(verdict.found), broken_since=verdict.broken_since)
    )
    return bool(result.rowcount)  # type: ignore[attr-defined]
