"""Statements on leases with their reservations and events: find, lock, store and delete them.

A *held* lease (status CREATING) has booked its resources, but climate has not confirmed it yet, so
no API shows it. A *trust* is a Keystone trust, with which managers act in the cloud as the user of
a lease. The *version* of a lease shows a manager whether its copy of the lease is out of date. A
manager can store the progress of many leases in one statement (``advance``, ``catch_up``).
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.errors import InvalidInput, NotFound
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.model import Event, Lease, Reservation, StartWhen
from climate.core.lease.schedule import START, rank
from climate.db.engine.types import any_of
from climate.db.leases.records import COLUMNS, complete
from climate.db.tables.bulk import Rows, certify, insert, values
from climate.db.tables.bulk import update as update_rows
from climate.db.tables.leases import (
    ALLOCATIONS,
    LEASES,
    RESERVATIONS,
    AllocationRow,
    EventRow,
    LeaseRow,
    ReservationRow,
    ResourceRow,
    columns,
)

_NO_LEAD = timedelta(0)


def rows(lease: Lease) -> tuple[Rows, Rows, Rows]:
    """Return the row of a new lease, the rows of its reservations, and the rows of its events."""
    return (
        (LeaseRow, [_lease_values(lease)]),
        _reservations(lease.reservations),
        _events(lease.events, lease.start.lead),
    )


def insert_reservations(
    session: Session, reservations: Sequence[Reservation], position: int = 0
) -> None:
    """Store new reservations of a lease; their positions count up from ``position``."""
    insert(session, _reservations(reservations, position))


def _reservations(reservations: Sequence[Reservation], position: int = 0) -> Rows:
    return ReservationRow, [
        {
            **values(reservation, "id lease_id resource_type missing_resources resources_changed"),
            **values(reservation, "created_at updated_at"),
            "position": at,
            "status": reservation.status.value,
            "params": dict(reservation.params),
            "details": dict(reservation.details),
        }
        for at, reservation in enumerate(reservations, position)
    ]


def delete_reservations(session: Session, ids: Collection[str]) -> None:
    """Delete reservations with their allocations."""
    if ids:
        # Not by the cascade: InnoDB fires no triggers for it, and the booking feed needs them.
        session.execute(sa.delete(ALLOCATIONS).where(ALLOCATIONS.c.reservation_id.in_(ids)))
        session.execute(sa.delete(RESERVATIONS).where(RESERVATIONS.c.id.in_(ids)))


def insert_events(
    session: Session, events: Sequence[Event], *others: Rows, lead: timedelta = _NO_LEAD
) -> None:
    """Store new events; managers can run each from its due time on, and a start ``lead`` earlier.

    ``others`` are rows of other tables, which PostgreSQL inserts in the same statement.
    """
    insert(session, _events(events, lead), *others)


def _events(events: Sequence[Event], lead: timedelta) -> Rows:
    return EventRow, [
        {
            **values(event, "id lease_id kind due_at attempt created_at"),
            "rank": rank(event.kind),
            "run_at": event.due_at - lead if lead and event.kind == START else event.due_at,
            "status": event.status.value,
        }
        for event in events
    ]


def get(session: Session, lease_id: str, *, lock: bool = False) -> Lease:
    """Return a lease with its reservations and events. Raises NotFound.

    If ``lock`` is set, lock the lease first, as ``lock_one`` does.
    """
    if lock:
        lock_one(session, lease_id)
    by_id = find_some(session, [lease_id])
    if not by_id:
        raise NotFound(f"Object with {{'lease_id': '{lease_id}'}} not found")
    return by_id[lease_id]


def lock_one(session: Session, lease_id: str) -> None:
    """Lock a lease until this transaction ends, and increment its version (see ``count_up``)."""
    count_up(session, [lease_id])


def count_up(session: Session, lease_ids: Collection[str]) -> None:
    """Increment the versions of leases, because the leases change.

    If a manager has read such a lease earlier, the new version shows that its copy is out of date.
    """
    session.execute(_COUNT_UP, {"lease_ids": list(lease_ids)})


def find_some(
    session: Session, lease_ids: Collection[str], *, lock: bool = False, patient: bool = True
) -> dict[str, Lease]:
    """Return the leases with these ids, by id; ids that do not exist are left out.

    If ``lock`` is set, lock the leases in the order of their ids until this transaction ends. If
    ``patient`` is set, wait for leases that another transaction has locked, else leave them out.
    Unlike ``lock_one``, this does not increment versions: use it to store the progress of events.
    """
    query = _LOCKING[patient] if lock else _FIND
    rows = session.execute(query, {"lease_ids": list(lease_ids)}).all()
    if lock:
        certify(session, LeaseRow, [row.id for row in rows])
    return {lease.id: lease for lease in complete(session, rows)}


def lock_unchanged(session: Session, known: Collection[Lease], *, patient: bool) -> set[str]:
    """Lock leases as ``find_some`` does; return the ids of those that have not changed.

    ``known`` are the leases as the caller read them earlier. A lease has changed if its version,
    status or ``updated_at`` differs. If ``patient`` is set, wait for leases that another
    transaction has locked, else leave them out.
    """
    ids = [lease.id for lease in known]
    rows = session.execute(_VERSIONS[patient], {"lease_ids": ids}).all()
    certify(session, LeaseRow, [row.id for row in rows])
    versions = {(lease.id, lease.version, lease.status, lease.updated_at) for lease in known}
    return {row[0] for row in rows if tuple(row) in versions}


def find_all(
    session: Session, project_id: str | None, limit: int | None = None, after: str | None = None
) -> list[Lease]:
    """Return the leases of a project (None: of all projects), sorted by start time.

    Held leases (not confirmed yet) and waiting leases are left out. The result begins after the
    lease with the id ``after`` (None: with the first lease), and has at most ``limit`` leases
    (None: no limit).
    Raises InvalidInput if the lease ``after`` is not in the list. Executes one SQL statement for
    the leases, one more if ``after`` is given, and two per 10,000 leases for reservations and
    events.
    """
    start, id_ = LEASES.c.start_at, LEASES.c.id
    hidden = [LeaseStatus.CREATING.value, LeaseStatus.WAITING.value]
    shown: list[sa.ColumnElement[bool]] = [LEASES.c.status.not_in(hidden)]
    if project_id is not None:
        shown.append(LEASES.c.project_id == project_id)
    query = sa.select(*COLUMNS).where(*shown).order_by(start, id_).limit(limit)
    if after is not None:
        last = session.scalar(sa.select(start).where(*shown, id_ == after))
        if last is None:
            raise InvalidInput(f"marker: there is no lease {after} in this list: start again")
        query = query.where(start >= last, sa.or_(start > last, id_ > after))
    return complete(session, session.execute(query).all())


def ailing(session: Session, now: datetime, until: datetime | None) -> list[str]:
    """Return the ids of the leases to heal: they are degraded, or have booked a failing resource.

    A resource is failing while it is not reservable. A lease is degraded if climate found no
    replacement for a failing resource, even if the resource works again now. Only leases that end
    after ``now`` and start before ``until`` are included (None: at any time).
    """
    failing = (
        sa.select(AllocationRow.id)
        .join(ReservationRow, ReservationRow.id == AllocationRow.reservation_id)
        .join(ResourceRow, ResourceRow.id == AllocationRow.resource_id)
        .where(ReservationRow.lease_id == LeaseRow.id, ResourceRow.reservable.is_(False))
        .correlate(LeaseRow)
        .exists()
    )
    alive = LeaseRow.status.in_([LeaseStatus.PENDING.value, LeaseStatus.ACTIVE.value])
    query = sa.select(LeaseRow.id).where(alive, LeaseRow.end_at > now)
    if until is not None:
        query = query.where(LeaseRow.start_at < until)
    return list(session.scalars(query.where(sa.or_(LeaseRow.degraded, failing))))


def with_trusts(session: Session, until: datetime) -> list[tuple[str, str]]:
    """Return (lease id, trust id) of each lease that has a trust and starts before ``until``.

    Leases that have started are included. Held leases (not confirmed yet) are left out.
    """
    confirmed = LEASES.c.status != LeaseStatus.CREATING.value
    query = sa.select(LEASES.c.id, LEASES.c.trust_id).where(confirmed, LEASES.c.start_at < until)
    rows = session.execute(query.where(LEASES.c.trust_id.is_not(None)))
    return [(id_, trust_id) for id_, trust_id in rows if trust_id]


def all_trust_ids(session: Session) -> set[str]:
    """Return the ids of the Keystone trusts of all leases, including held (unconfirmed) leases."""
    query = sa.select(LEASES.c.trust_id).where(LEASES.c.trust_id.is_not(None))
    return {trust_id for trust_id in session.scalars(query) if trust_id}


def names(session: Session, lease_ids: Collection[str]) -> dict[str, str]:
    """Return the names of leases by lease id.

    Leases that do not exist, or are held (not confirmed yet), are left out.
    """
    is_visible = LEASES.c.status != LeaseStatus.CREATING.value
    query = sa.select(LEASES.c.id, LEASES.c.name).where(any_of(LEASES.c.id, lease_ids), is_visible)
    return {row.id: row.name for row in session.execute(query)} if lease_ids else {}


def exists(session: Session, lease_id: str) -> bool:
    """Return whether a lease with this id is stored, even if it is held (not confirmed yet)."""
    return session.scalar(sa.select(LEASES.c.id).where(LEASES.c.id == lease_id)) is not None


def update(session: Session, lease: Lease) -> None:
    """Store all fields of a lease, but not its reservations and events."""
    _set(session, lease.id, **_lease_values(lease))


def extend_hold(session: Session, lease_id: str, until: datetime, now: datetime) -> None:
    """Store ``until`` as the expiry of an offer that a request accepts or withdraws at ``now``.

    The caller moves the RELEASE event of the offer to the same time.
    """
    _set(session, lease_id, offered_until=until, updated_at=now)


def accept_offer(session: Session, lease: Lease, now: datetime) -> bool:
    """Lock an offer and store the status and the name of ``lease``, the confirmed lease.

    Returns False, and stores nothing, if the offer is not open: it has expired at ``now``, it is
    deleted, or a request accepts it or has accepted it. The caller must also remove the RELEASE
    event.
    """
    fields = {"offer_id": lease.id, "new_name": lease.name, "accepted_at": lease.updated_at}
    result = session.connection().execute(_ACCEPT, {**fields, "now": now})
    return bool(result.rowcount)


def set_status(session: Session, lease_id: str, status: LeaseStatus, now: datetime) -> None:
    """Store a new status of a lease, and ``now`` as the time of the change."""
    _set(session, lease_id, status=status.value, updated_at=now)


def set_trust(session: Session, lease_id: str, trust_id: str | None) -> None:
    """Store the id of the Keystone trust of a lease; None if the lease has no trust any more.

    Also clears ``trust_lost``, the reason why the previous trust did not work.
    """
    _set(session, lease_id, trust_id=trust_id, trust_lost=None)


def set_ready(session: Session, lease_id: str, now: datetime) -> None:
    """Store ``now`` as the time when all that a lease needs became ready, if none is stored."""
    _set(session, lease_id, LEASES.c.ready_at.is_(None), ready_at=now)


def set_hosts_ready(session: Session, lease_id: str, now: datetime) -> None:
    """Do the same when all hosts of a lease are ready.

    If the lease does not wait for them, only what climate creates before its start counts.
    """
    _set(session, lease_id, LEASES.c.ready_at.is_(None), _IS_READY_BY_HOSTS, ready_at=now)


def set_unready(session: Session, lease_id: str, *, is_created: bool = False) -> None:
    """Clear the time when all hosts, or with ``is_created`` all resources, became ready.

    If the lease has started, the time stays.
    """
    which = sa.true() if is_created else _IS_READY_BY_HOSTS
    _set(session, lease_id, LEASES.c.started_at.is_(None), which, ready_at=None)


def set_began(session: Session, lease_id: str, now: datetime) -> None:
    """Store ``now`` as the time when climate began to create the resources of a lease."""
    _set(session, lease_id, start_began_at=now)


def delay_start(session: Session, lease_id: str, now: datetime) -> None:
    """Store ``now`` as the time when climate announced that the start of a lease is delayed."""
    _set(session, lease_id, start_delayed_at=now)


def _set(
    session: Session, lease_id: str, *conditions: sa.ColumnElement[bool], **fields: Any
) -> None:
    session.execute(sa.update(LEASES).where(LEASES.c.id == lease_id, *conditions).values(**fields))


def advance(session: Session, changes: Iterable[tuple[Lease, Lease]]) -> None:
    """Store the progress of many leases and their reservations.

    ``changes`` contains two objects for each lease: the lease before and after the progress. Stored
    columns are:

    - of leases: ``status``, ``degraded``, ``updated_at`` and ``started_at``,
    - of reservations: ``status``, ``details``, ``missing_resources`` and ``updated_at``.

    A lease or reservation is not written if it is the same object before and after. The version of
    the lease does not change.
    """
    ids_by_values: dict[tuple[str, bool, datetime | None, datetime | None], list[str]] = {}
    reservations = []
    for before, after in changes:
        if after is not before:
            stored = (after.status.value, after.degraded, after.updated_at, after.start.started_at)
            ids_by_values.setdefault(stored, []).append(after.id)
            pairs = zip(before.reservations, after.reservations, strict=True)
            reservations += [_progress(new) for old, new in pairs if new is not old]
    for (status, degraded, now, since), ids in ids_by_values.items():
        new = {"new_status": status, "is_degraded": degraded, "now": now, "since": since}
        session.execute(_ADVANCE, {"ids": ids, **new})
    update_rows(session, ReservationRow, reservations)


def _progress(reservation: Reservation) -> dict[str, Any]:
    return {
        **values(reservation, "id missing_resources updated_at"),
        "status": reservation.status.value,
        "details": dict(reservation.details),
    }


def catch_up(session: Session, lease_ids: Collection[str], now: datetime) -> None:
    """Store ``now`` as the time of the latest catch-up notification of these leases.

    A catch-up notification lists all late events of a lease. Later, only events that became late
    after ``now`` cause another catch-up notification.
    """
    statement = sa.update(LEASES).where(any_of(LEASES.c.id, lease_ids))
    session.execute(statement.values(caught_up_at=now))


def set_reservation(session: Session, reservation_id: str, now: datetime, **fields: Any) -> None:
    """Store new values of a reservation's columns, and ``now`` as the time of the change.

    ``fields`` contains the values by column name.
    """
    session.execute(
        sa.update(RESERVATIONS)
        .where(RESERVATIONS.c.id == reservation_id)
        .values(**fields, updated_at=now)
    )


def delete(session: Session, lease_id: str) -> None:
    """Delete a lease with its events, its reservations, and their allocations."""
    # Not one statement with a subquery: MariaDB would run it for each allocation of all leases.
    of_lease = sa.select(RESERVATIONS.c.id).where(RESERVATIONS.c.lease_id == lease_id)
    delete_reservations(session, session.scalars(of_lease).all())
    session.execute(sa.delete(LEASES).where(LEASES.c.id == lease_id))


def _lease_values(lease: Lease) -> dict[str, Any]:
    return {
        **values(lease, "id name user_id project_id degraded created_at updated_at"),
        **values(lease, "trust_id trust_lost offered_until"),
        "start_at": lease.window.start,
        "end_at": lease.window.end,
        "status": lease.status.value,
        "notices": [values(notice, "kind anchor offset") for notice in lease.notices],
        **values(lease.start, "ready_at started_at"),
        "start_when": lease.start.when.value,
        "start_delayed_at": lease.start.delayed_at,
        "start_lead_s": round(lease.start.lead.total_seconds()),
        "start_began_at": lease.start.began_at,
        "cleaning_s": None if lease.cleaning is None else round(lease.cleaning.total_seconds()),
    }


# Whether ``ready_at`` of a lease is about its hosts, and not about what climate creates.
_IS_READY_BY_HOSTS = sa.or_(
    LEASES.c.start_began_at.is_(None) & (LEASES.c.start_lead_s == 0),
    LEASES.c.start_when == StartWhen.READY.value,
)
_COUNT_UP = (
    sa.update(LEASES).where(any_of(LEASES.c.id, "lease_ids")).values(version=LEASES.c.version + 1)
)
_ACCEPT = (
    sa.update(LEASES)
    .where(
        LEASES.c.id == sa.bindparam("offer_id"),
        LEASES.c.status == LeaseStatus.CREATING.value,
        LEASES.c.offered_until > sa.bindparam("now", type_=LEASES.c.offered_until.type),
        LEASES.c.updated_at.is_(None),
    )
    .values(
        name=sa.bindparam("new_name"),
        status=LeaseStatus.PENDING.value,
        offered_until=None,
        updated_at=sa.bindparam("accepted_at"),
        version=LEASES.c.version + 1,
    )
)
_ADVANCE = (
    sa.update(LEASES)
    .where(any_of(LEASES.c.id, "ids"))
    .values(
        status=sa.bindparam("new_status"),
        degraded=sa.bindparam("is_degraded"),
        updated_at=sa.bindparam("now"),
        started_at=sa.bindparam("since"),
    )
)
_FIND = sa.select(*COLUMNS).where(any_of(LEASES.c.id, "lease_ids")).order_by(LEASES.c.id)
# By ``patient``. With ``key_share`` other transactions can insert rows that refer to the lease
# (new events) on PostgreSQL.
_LOCKING = {
    patient: _FIND.with_for_update(key_share=True, skip_locked=not patient)
    for patient in (True, False)
}
_VERSIONS = {
    patient: query.with_only_columns(*columns(LEASES, "id version status updated_at"))
    for patient, query in _LOCKING.items()
}
