"""Queries of the self-audit: check the invariants in slices of the database, and keep the progress.

An invariant is a rule on stored data that must always hold (ARCHITECTURE.md numbers them). A query
checks a *slice*: a limited number of rows after a *position*, such as an id. A *round* is all
slices from the beginning to the end of the table. A *verdict* is the stored result of a query:
since when the invariant is broken, and the violations of the present round.

A query returns the violations in a slice, and the position of the next slice (None: the round is
complete). All statements of a query must see the same state, so a query needs a session of
``Database.snapshot``. Overdue work is a violation only after ``PATIENCE``, because a manager may be
about to do it.

A manager claims the next slice of a query by setting ``next_at`` to a later time. Before that time,
no other manager runs the query. After that time, another manager can claim the slice. If one does,
the result of the first manager is not stored.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, Session, mapped_column

from climate.core.invariants import (
    Due,
    Verdict,
    booked_twice,
    shared_exclusively,
    wrong_events,
    wrong_place,
)
from climate.core.lease.blazar_wire import date
from climate.core.lease.lifecycle import LeaseStatus, ReservationStatus
from climate.core.lease.model import HOST, LEAVING
from climate.core.lease.schedule import PATIENCE
from climate.core.matching.calendar import Booking
from climate.core.window import Window
from climate.db.engine.types import MARIADB, any_of
from climate.db.events.ordering import IN_PROGRESS, blocked, due
from climate.db.resources import capacity
from climate.db.tables.leases import (
    EVENTS,
    LEASES,
    AllocationRow,
    Base,
    ReservationRow,
    ResourceRow,
    columns,
)
from climate.db.tables.notifications import OutboxRow, RelayRow
from climate.db.tables.waiting import WAITS

_Lease = Any  # a row of _leases
#: The violations of a slice, and the position of the next slice (None: the round is complete).
Findings = tuple[list[str], str | None]

# Rows per slice.
_RESOURCES = 100
_LEASES = 500
_NUMBERS = 10_000
# Violations per slice.
_FINDINGS = 20

_HOLDING = [
    status.value for status in (LeaseStatus.PENDING, LeaseStatus.STARTING, LeaseStatus.ACTIVE)
]
_UNRELEASED = (
    sa.select(LEASES.c.id)
    .join(ReservationRow, ReservationRow.lease_id == LEASES.c.id)
    .join(AllocationRow, AllocationRow.reservation_id == ReservationRow.id)
    .where(LEASES.c.offered_until < sa.bindparam("since", type_=LEASES.c.offered_until.type))
    .distinct()
)
_WAITING = LeaseStatus.WAITING.value
_DUE = sa.select(EVENTS.c.lease_id, EVENTS.c.kind, EVENTS.c.status, EVENTS.c.due_at).where(
    any_of(EVENTS.c.lease_id, "ids")
)


def bookings(session: Session, after: str, now: datetime) -> Findings:
    """Check invariant 1: after ``now``, no resource is booked twice or beyond its capacity.

    Checks a slice of the resources with ids above ``after`` (empty: from the beginning).
    """
    query = sa.select(ResourceRow.id, ResourceRow.external_id).order_by(ResourceRow.id)
    page = session.execute(query.where(ResourceRow.id > int(after or 0)).limit(_RESOURCES))
    names = {row.id: row.external_id for row in page}
    taken: dict[int, list[Booking]] = defaultdict(list)
    rows = sa.select(AllocationRow).where(
        AllocationRow.resource_id.in_(names), AllocationRow.busy_until > now
    )
    for row in session.scalars(rows):
        window, amount = (row.start_at, row.busy_until), row.amount or 0
        booking = Booking(*window, row.resource_class, amount, row.reservation_id)
        taken[row.resource_id].append(booking)
    inventories = capacity.find_some(session, taken)
    violations: list[str] = []
    for id_, booked in taken.items():
        capacities = {name: item.capacity for name, item in inventories[id_].items()}
        faults = [*booked_twice(booked, capacities), *shared_exclusively(booked)]
        violations += [f"resource {names[id_]} {fault}" for fault in faults]
    return violations, str(max(names)) if len(names) == _RESOURCES else None


def open_events(session: Session, after: str, now: datetime) -> Findings:
    """Check invariant 2: at the time ``now``, a lease has the open events that its status requires.

    A lease also has the entry in the wait list that its status requires. Checks a slice of the
    leases with ids above ``after`` (empty: from the beginning).
    """
    leases, end = _leases(session, after)
    events: dict[str, list[Due]] = defaultdict(list)
    for lease_id, *event in session.execute(_DUE, {"ids": [lease.id for lease in leases]}):
        events[lease_id].append(Due(*event))
    promised = sa.select(WAITS.c.lease_id, WAITS.c.promised_start)
    entries = {
        lease_id: entry
        for lease_id, *entry in session.execute(
            promised.where(any_of(WAITS.c.lease_id, [lease.id for lease in leases]))
        )
    }
    violations = []
    for lease in leases:
        window = Window(lease.start_at, lease.end_at)
        if fault := wrong_events(lease.status, window, events[lease.id], now, lease.offered_until):
            violations.append(f"lease {lease.id} {fault}")
        if fault := wrong_place(lease.status, window, entries.get(lease.id)):
            violations.append(f"lease {lease.id} {fault}")
    return violations, end


def claims(session: Session, _after: str, now: datetime) -> Findings:
    """Check invariant 3: managers renew their claims, and attempt each event that is due.

    A claim reserves an event for one manager until the claim expires. Also, managers free the
    resources of expired offers. All events are checked as one slice, so the position ``_after`` is
    not used.
    """
    since = now - PATIENCE
    of, time_type = EVENTS.c, EVENTS.c.run_at.type
    lost = sa.or_(of.owner.is_(None), of.claimed_until.is_(None), of.claimed_until < since)
    unowned = sa.select(of.id).where(of.status == IN_PROGRESS, lost)
    is_due = (*due(sa.literal(since, time_type)), ~blocked(sa.literal(now, time_type)))
    overdue = sa.select(of.id, of.kind, of.run_at).where(*is_due, of.attempt == 0)
    violations = [
        f"event {id_} is claimed, but no manager renews its claim"
        for id_ in session.scalars(unowned.limit(_FINDINGS))
    ]
    violations += [
        f"event {row.id} ({row.kind}) could run since {row.run_at} and was never attempted"
        for row in session.execute(overdue.order_by(of.run_at).limit(_FINDINGS))
    ]
    violations += [
        f"offer {id_} expired, and still has resources"
        for id_ in session.scalars(_UNRELEASED.limit(_FINDINGS), {"since": since})
    ]
    return violations, None


def numbers(session: Session, after: str, _now: datetime) -> Findings:
    """Check invariant 4: the sequence numbers of the stored notifications have no gap.

    Checks a slice of the numbers above ``after`` (empty: from the oldest stored notification).
    """
    last = session.scalar(sa.select(RelayRow.last_seq)) or 0
    bounds = sa.select(sa.func.min(OutboxRow.seq), sa.func.max(OutboxRow.seq))
    oldest, newest = session.execute(bounds).one()
    if newest is None or oldest is None:
        return [], None
    if newest > last:
        return [f"number {newest} was assigned, but {last} is stored as the last"], None
    begin = max(int(after or 0), oldest - 1)
    end = min(begin + _NUMBERS, last)
    between = sa.and_(OutboxRow.seq > begin, OutboxRow.seq <= end)
    count = session.scalar(sa.select(sa.func.count()).select_from(OutboxRow).where(between)) or 0
    missing = end - begin - count
    violations = [f"{missing} of the numbers {begin + 1} to {end} are missing"] if missing else []
    return violations, str(end) if end < last else None


def announced_dates(session: Session, after: str, _now: datetime) -> Findings:
    """Check invariant 4: the latest notification of a lease contains the dates of the lease.

    Checks a slice of the leases with ids above ``after`` (empty: from the beginning).
    """
    leases, end = _leases(session, after)
    confirmed = [lease for lease in leases if lease.status != LeaseStatus.CREATING.value]
    latest = (
        sa.select(sa.func.max(OutboxRow.id))
        .where(
            any_of(OutboxRow.lease_id, [lease.id for lease in confirmed]),
            OutboxRow.event_type.not_like("node.%"),  # notifications about a node contain no dates
        )
        .group_by(OutboxRow.lease_id)
    )
    query = sa.select(OutboxRow.lease_id, OutboxRow.payload).where(OutboxRow.id.in_(latest))
    payloads = {row.lease_id: row.payload for row in session.execute(query)}
    oldest = sa.select(OutboxRow.created_at).order_by(OutboxRow.id).limit(1)
    stored_since = session.scalar(oldest)
    violations = [
        f"lease {lease.id} {fault}"
        for lease in confirmed
        if (fault := _announcement_fault(lease, payloads.get(lease.id), stored_since))
    ]
    return violations, end


def _announcement_fault(
    lease: _Lease, payload: dict[str, Any] | None, stored_since: datetime | None
) -> str | None:
    """Return, as a text, what is wrong with the latest notification of a lease, or None.

    ``payload`` is the content of the notification (None: it is not stored). ``stored_since`` is the
    time of the oldest notification of any lease (None: none is stored). Two things are wrong:

    - The notification has other dates than the lease.
    - The notification is not stored, although the lease was created after ``stored_since``.
    """
    if payload is None:
        is_stored = stored_since is not None and lease.created_at > stored_since
        return "has no notification" if is_stored else None
    present = {"start_date": date(lease.start_at), "end_date": date(lease.end_at)}
    differs = any(payload.get(name, value) != value for name, value in present.items())
    return "has other dates than its latest notification" if differs else None


def whole_leases(session: Session, after: str, _now: datetime) -> Findings:
    """Check invariant 5: a lease has enough hosts, and its allocations last until its end.

    A waiting lease has none.

    Checks a slice of the leases with ids above ``after`` (empty: from the beginning).
    """
    leases, end = _leases(session, after)
    holding = {lease.id: lease for lease in leases if lease.status in {*_HOLDING, _WAITING}}
    query = (
        sa.select(ReservationRow, AllocationRow)
        .outerjoin(AllocationRow, AllocationRow.reservation_id == ReservationRow.id)
        .where(
            any_of(ReservationRow.lease_id, holding),
            ReservationRow.status != ReservationStatus.DELETED.value,
        )
    )
    allocations: dict[ReservationRow, list[AllocationRow]] = defaultdict(list)
    for row, allocation in session.execute(query):
        allocations[row] += filter(None, [allocation])
    violations = [
        f"reservation {row.id} of lease {row.lease_id} {fault}"
        for row, held in allocations.items()
        if (fault := _booking_fault(holding[row.lease_id], row, held))
    ]
    return violations, end


def _booking_fault(lease: _Lease, row: ReservationRow, held: list[AllocationRow]) -> str | None:
    """Return, as a text, what is wrong with the allocations of a reservation, or None.

    ``row`` is the reservation of ``lease``, and ``held`` are the allocations of the reservation.
    """
    if LEAVING in row.details:  # the reservation was removed from the lease
        return None
    if lease.status == _WAITING:
        return f"waits, and has {len(held)} hosts or shares" if held else None
    booked_from = lease.start_at - timedelta(seconds=lease.start_lead_s)
    for of in held:
        if of.start_at < booked_from or of.busy_until < lease.end_at:
            return (
                f"holds a resource from {of.start_at} to {of.busy_until}, not for the whole lease"
            )
    minimum = row.params.get("min") if row.resource_type == HOST else None
    if not row.missing_resources and isinstance(minimum, int) and len(held) < minimum:
        return f"has {len(held)} hosts, fewer than its minimum of {minimum}"
    return None


def _leases(session: Session, after: str) -> tuple[Sequence[_Lease], str | None]:
    """Return a slice of the leases with ids above ``after``, and the position of the next slice.

    The position is None if this slice is the last one.
    """
    of = LEASES.c
    names = "id status start_at end_at created_at offered_until start_lead_s"
    query = sa.select(*columns(LEASES, names))
    rows = session.execute(query.where(of.id > after).order_by(of.id).limit(_LEASES)).all()
    return rows, rows[-1].id if len(rows) == _LEASES else None


# The queries by name, with the number of their invariant in ARCHITECTURE.md.
LOOKS: dict[str, tuple[int, Callable[[Session, str, datetime], Findings]]] = {
    "bookings": (1, bookings),
    "open_events": (2, open_events),
    "claims": (3, claims),
    "numbers": (4, numbers),
    "told": (4, announced_dates),
    "whole_leases": (5, whole_leases),
}


class SelfAuditRow(Base):
    """The table with one row per query of the self-audit: the progress and verdict of the query.

    No manager runs the query before ``next_at``. The next slice (part of the checked rows) begins
    at ``position``. ``found`` contains the violations found so far in the present round (a pass
    over all slices). The invariant is broken since ``broken_since`` (NULL: it holds).
    """

    __tablename__ = "self_audit"
    __table_args__ = (MARIADB,)

    name: Mapped[str] = mapped_column(sa.String(32), primary_key=True)
    next_at: Mapped[datetime]
    position: Mapped[str] = mapped_column(sa.String(36))
    found: Mapped[list[Any]]
    broken_since: Mapped[datetime | None]


@dataclass(frozen=True, slots=True)
class Turn:
    """A manager's claim to run a query of the self-audit on its next slice (part of the rows).

    ``name`` is the name of the query. The claim lasts until ``until``. The slice begins at
    ``position``. ``verdict`` is the stored result so far: since when the invariant is broken, and
    the violations of the present round.
    """

    name: str
    until: datetime
    position: str
    verdict: Verdict


def broken(session: Session) -> set[str]:
    """Return the names of the queries whose invariant is broken, by the stored verdicts."""
    query = sa.select(SelfAuditRow.name).where(SelfAuditRow.broken_since.is_not(None))
    return set(session.scalars(query))


def is_due(session: Session, name: str, now: datetime) -> bool:
    """Return whether a manager may claim the next slice (part) of the query ``name`` now."""
    next_at = session.scalar(sa.select(SelfAuditRow.next_at).where(SelfAuditRow.name == name))
    return next_at is None or next_at <= now


def take_turn(session: Session, name: str, now: datetime, until: datetime) -> Turn | None:
    """Claim the next slice (part of the rows) of the query ``name`` until ``until``.

    Returns the claim. Returns None if the query is not due at ``now``, because a manager has
    claimed it or has run it a short time ago.
    """
    query = sa.select(SelfAuditRow).where(SelfAuditRow.name == name).with_for_update()
    row = session.scalars(query.execution_options(populate_existing=True)).one_or_none()
    if row is None:
        # A concurrent insert violates the key; its transaction is retried and finds this row.
        row = SelfAuditRow(name=name, position="", found=[], broken_since=None)
        session.add(row)
    elif row.next_at > now:
        return None
    row.next_at = until
    return Turn(name, until, row.position, Verdict(row.broken_since, tuple(row.found)))


def store(session: Session, turn: Turn, position: str, verdict: Verdict) -> bool:
    """Store the result of a slice (part of the rows); return whether it was stored.

    ``turn`` is the claim of the caller. ``position`` is where the next slice begins. Nothing is
    stored if another manager has claimed the query in the meantime.
    """
    result = session.execute(
        sa.update(SelfAuditRow)
        .where(SelfAuditRow.name == turn.name, SelfAuditRow.next_at == turn.until)
        .values(
            position=position, found=list(verdict.violations), broken_since=verdict.broken_since
        )
    )
    return bool(result.rowcount)  # type: ignore[attr-defined]
