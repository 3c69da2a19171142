"""Statements on the limits of projects and users, and on the resources that they use.

A party is a project or a user. An override is a limit for one party that replaces the configured
limit. A transaction locks the row of a party before it counts the party's use. So two concurrent
requests cannot both be admitted if the limit allows only one of them.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.model import HOST, Lease
from climate.core.limits import Scope, Use
from climate.core.matching.packing import Units
from climate.core.matching.requirement import EXCLUSIVE, Requirement
from climate.db.tables.bulk import certify_where
from climate.db.tables.leases import (
    LEASES,
    LIMITS,
    AllocationRow,
    LeaseRow,
    LimitRow,
    PastLeaseRow,
    PastUseRow,
    ReservationRow,
    ResourceProperty,
    ResourceRow,
)
from climate.db.tables.waiting import WAITS

_VCPUS = "vcpus"
_VCPU_CLASS = "VCPU"
_VOLUME, _GIGABYTES_CLASS = "virtual:volume", "DISK_GB"
# The limits that count resources which one lease has alone, and the type of these resources.
_COUNTED = {"hosts": HOST, "floatingips": "virtual:floatingip", "networks": "virtual:network"}
_OVER = [LeaseStatus.TERMINATED.value, LeaseStatus.DELETING.value]


@dataclass(frozen=True, slots=True, order=True)
class Party:
    """A project or a user to which limits apply."""

    scope: Scope
    owner_id: str


Overrides = dict[Party, dict[str, int]]
# Built once: SQLAlchemy takes longer to build them than the database to run them.
_OF_PARTY = (LIMITS.c.scope == sa.bindparam("scope"), LIMITS.c.owner_id == sa.bindparam("owner_id"))
_LOCK = sa.select(LIMITS.c.overrides).where(*_OF_PARTY).with_for_update()
_INSERT = sa.insert(LIMITS)
_IS_OVER = LEASES.c.end_at <= sa.bindparam("now")
_IS_OTHER = LEASES.c.id != sa.bindparam("excluding")
# The end of a waiting lease is not known yet. Two queries, because both find their rows by index.
_COUNT_WAITING = {
    scope: sa.select(sa.func.count())
    .select_from(WAITS.join(LEASES, LEASES.c.id == WAITS.c.lease_id))
    .where(
        owner == sa.bindparam("owner_id"),
        LEASES.c.status == LeaseStatus.WAITING.value,
        _IS_OVER,
        _IS_OTHER,
    )
    .scalar_subquery()
    for scope, owner in ((Scope.PROJECT, WAITS.c.project_id), (Scope.USER, WAITS.c.user_id))
}
_COUNT_OPEN = {
    scope: sa.select(
        sa.select(sa.func.count())
        .where(
            owner == sa.bindparam("owner_id"),
            ~_IS_OVER,
            LEASES.c.status.not_in(_OVER),
            _IS_OTHER,
        )
        .scalar_subquery()
        + _COUNT_WAITING[scope]
    )
    for scope, owner in ((Scope.PROJECT, LEASES.c.project_id), (Scope.USER, LEASES.c.user_id))
}
_OPEN_OF_PROJECT = _COUNT_OPEN[Scope.PROJECT].add_columns(
    sa.select(LIMITS.c.overrides).where(*_OF_PARTY).scalar_subquery()
)
_Uses = tuple[str, str, str, datetime, datetime, float, int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class UseOf:
    """What a lease uses for some time, with the project and the user of the lease.

    ``lease_id`` is None if the reservation that used the hosts is deleted.
    """

    lease_id: str | None
    project_id: str
    user_id: str
    use: Use

    def is_of(self, party: Party) -> bool:
        """Return whether ``party`` is the project or the user of this use."""
        owner = self.project_id if party.scope is Scope.PROJECT else self.user_id
        return owner == party.owner_id


def overrides(session: Session, parties: Collection[Party]) -> Overrides:
    """Return the overridden limits of these parties (projects or users), by party.

    Parties that have no row are left out.
    """
    return _overrides(session, sa.or_(*(_is(party) for party in parties)))


def all_overrides(session: Session) -> Overrides:
    """Return the overridden limits of all parties (projects or users), by party.

    Parties without any override are left out.
    """
    by_party = _overrides(session, sa.true())
    return {party: values for party, values in by_party.items() if values}


def _overrides(session: Session, which: sa.ColumnElement[bool]) -> Overrides:
    query = sa.select(LimitRow).where(which).order_by(LimitRow.scope, LimitRow.owner_id)
    rows = session.scalars(query)
    return {Party(Scope(row.scope), row.owner_id): dict(row.overrides) for row in rows}


def is_known(session: Session, party: Party) -> bool:
    """Return whether a project or user has or had a lease, or has overridden limits."""
    owners = [_belongs_to(party, table) for table in (LeaseRow, PastLeaseRow, PastUseRow)]
    known = [sa.exists().where(condition) for condition in (*owners, _is(party))]
    return bool(session.scalar(sa.select(sa.or_(*known))))


def lock(session: Session, parties: Collection[Party]) -> Overrides:
    """Lock the rows of parties (projects or users) until the transaction ends.

    Returns the overridden limits by party. Missing rows are inserted. If two transactions want to
    count the use of a party, the second waits here until the first has ended. It then also counts
    the bookings of the first.
    """
    locked: Overrides = {}
    connection = session.connection()
    for party in sorted(parties):
        key = {"scope": party.scope.value, "owner_id": party.owner_id}
        row = connection.execute(_LOCK, key).one_or_none()
        if row is None:  # if another transaction inserts it now, this one is retried
            connection.execute(_INSERT, {**key, "overrides": {}})
        else:
            certify_where(session, LimitRow, partial(_is, party))
        locked[party] = dict(row.overrides) if row else {}
    return locked


def _is(party: Party) -> sa.ColumnElement[bool]:
    return sa.and_(LimitRow.scope == party.scope.value, LimitRow.owner_id == party.owner_id)


def replace(session: Session, party: Party, values: Mapping[str, int]) -> None:
    """Store the overridden limits of a party (a project or user).

    ``values`` contains the limits by name, and replaces all earlier overrides of the party. The row
    of the party must exist.
    """
    session.execute(sa.update(LimitRow).where(_is(party)).values(overrides=dict(values)))


def count_leases(
    session: Session, party: Party, now: datetime, excluding: str | None = None
) -> int:
    """Return how many leases of a party (a project or user) are not over at ``now``.

    The result does not include the lease with the id ``excluding`` (None: includes all leases).
    """
    values = {"owner_id": party.owner_id, "now": now, "excluding": excluding or ""}
    return session.connection().scalar(_COUNT_OPEN[party.scope], values) or 0


def count_offers(session: Session, project_id: str, now: datetime) -> int:
    """Return how many offers of a project are open at ``now``, or are being accepted."""
    is_open = (LeaseRow.offered_until > now, LeaseRow.project_id == project_id)
    query = sa.select(sa.func.count()).select_from(LeaseRow).where(*is_open)
    return session.scalar(query) or 0


def open_leases(session: Session, project: Party, now: datetime) -> tuple[dict[str, int], int]:
    """Return the overridden limits of a project by name, and the number of its open leases.

    A lease is open if it is not over at ``now``.
    """
    values = {"scope": project.scope.value, "owner_id": project.owner_id, "now": now}
    row = session.connection().execute(_OPEN_OF_PROJECT, {**values, "excluding": ""}).one()
    return dict(row[1] or {}), row[0]


def uses(
    session: Session,
    parties: Collection[Party],
    since: datetime,
    until: datetime | None = None,
    *,
    past_too: bool = False,
) -> list[UseOf]:
    """Return what leases of these parties (projects or users) use in ``[since, until)``.

    If ``until`` is None, all use after ``since`` is included. All bookings of a lease with the same
    start are one item of the result. Items may begin before ``since`` and end after ``until``.
    Cleaning time is not use. The use of a lease that is DELETING ends when the deletion began.
    If ``past_too`` is set, the past use by deleted reservations is included.
    """
    of_party = sa.or_(*(_belongs_to(party, LeaseRow) for party in parties))
    query = _uses().where(of_party, LeaseRow.end_at > since)
    past, was_of_party = PastUseRow, sa.or_(*(_belongs_to(party, PastUseRow) for party in parties))
    stored = (
        past.project_id,
        past.user_id,
        past.start_at,
        past.end_at,
        sa.literal(0.0),
        past.hosts,
    )
    nothing = (sa.literal(0), sa.literal(0), sa.literal(0))
    deleted = sa.select(sa.null(), *stored, *nothing).where(was_of_party, past.end_at > since)
    if until is not None:
        query = query.where(until > _USED_FROM)
        deleted = deleted.where(PastUseRow.start_at < until)
    return _use_of(session, sa.union_all(query, deleted) if past_too else query)


def uses_of(session: Session, lease_id: str) -> list[Use]:
    """Return what a lease uses; all its bookings with the same start are one item.

    There are several starts if hosts were added to the lease while it was running.
    """
    return [row.use for row in _use_of(session, _uses().where(LeaseRow.id == lease_id))]


def use_of(
    session: Session, taken: Iterable[tuple[Requirement, Units]], start: datetime, end: datetime
) -> Use:
    """Return what a new lease would use from ``start`` to ``end``.

    ``taken`` contains a pair for each requirement of the lease: the requirement, and a mapping from
    the ids of the chosen resources to the number of units that the lease takes of each resource.
    """
    parts = list(taken)
    whole = [
        id_
        for needs, units in parts
        if needs.is_whole and needs.resource_type == HOST
        for id_ in units
    ]
    query = sa.select(sa.func.sum(ResourceProperty.number)).where(
        ResourceProperty.resource_id.in_(whole), ResourceProperty.name == _VCPUS
    )
    vcpus = _shares(parts, HOST, _VCPU_CLASS) + float(session.scalar(query) or 0)
    counted = {
        name: sum(
            len(units) for need, units in parts if need.is_alone and need.resource_type == type_
        )
        for name, type_ in _COUNTED.items()
    }
    gigabytes = _shares(parts, _VOLUME, _GIGABYTES_CLASS)
    return Use(start=start, end=end, vcpus=vcpus, gigabytes=gigabytes, **counted)


def _shares(parts: Iterable[tuple[Requirement, Units]], resource_type: str, amount: str) -> int:
    return sum(
        needs.amounts.get(amount, 0) * sum(units.values())
        for needs, units in parts
        if needs.resource_type == resource_type
    )


def _belongs_to(
    party: Party, table: type[LeaseRow | PastLeaseRow | PastUseRow]
) -> sa.ColumnElement[bool]:
    column = table.project_id if party.scope is Scope.PROJECT else table.user_id
    return column == party.owner_id


# The time before the start of a lease, in which climate creates resources, is not use.
_USED_FROM = sa.type_coerce(
    sa.case(
        (AllocationRow.start_at > LeaseRow.start_at, AllocationRow.start_at),
        else_=LeaseRow.start_at,
    ),
    LeaseRow.start_at.type,
)


def _uses() -> sa.Select[*_Uses]:
    """Build the query for what leases use.

    The query has one row for all bookings of a lease that start at the same time. The row contains
    the number of VCPUs (all VCPUs of whole hosts, and the VCPUs of shares of hosts), the numbers of
    resources of each type in ``_COUNTED`` that no other lease can use, and the GiB of volumes.
    """
    deleted_at = sa.func.coalesce(LeaseRow.updated_at, LeaseRow.end_at)
    is_deleting = LeaseRow.status == LeaseStatus.DELETING.value
    end_at = sa.case((is_deleting, deleted_at), else_=LeaseRow.end_at)
    lease_columns = (LeaseRow.id, LeaseRow.project_id, LeaseRow.user_id, _USED_FROM)
    vcpus_property = sa.and_(
        ResourceProperty.resource_id == AllocationRow.resource_id,
        ResourceProperty.name == _VCPUS,
        ResourceRow.type == HOST,
    )
    return (
        sa.select(*lease_columns, sa.type_coerce(end_at, LeaseRow.end_at.type), *_sums())
        .join(ReservationRow, ReservationRow.lease_id == LeaseRow.id)
        .join(AllocationRow, AllocationRow.reservation_id == ReservationRow.id)
        .join(ResourceRow, ResourceRow.id == AllocationRow.resource_id)
        .outerjoin(ResourceProperty, vcpus_property)
        .group_by(*lease_columns, LeaseRow.end_at, LeaseRow.status, LeaseRow.updated_at)
    )


def _sums() -> tuple[Any, ...]:
    """Return the columns with the sums of a query for what leases use."""
    row, type_ = AllocationRow, ResourceRow.type
    share = sa.cast(row.amount, sa.Double)
    is_vcpus = sa.and_(type_ == HOST, row.resource_class == _VCPU_CLASS)
    vcpus = sa.case((row.whole_id.is_not(None), ResourceProperty.number), (is_vcpus, share))
    is_alone = sa.or_(row.whole_id.is_not(None), row.resource_class == EXCLUSIVE)
    counts = [
        sa.func.count(sa.case((sa.and_(type_ == counted, is_alone), row.resource_id)))
        for counted in _COUNTED.values()
    ]
    is_gigabytes = sa.and_(type_ == _VOLUME, row.resource_class == _GIGABYTES_CLASS)
    gigabytes = sa.func.sum(sa.case((is_gigabytes, row.amount)))
    return (_or_nothing(sa.func.sum(vcpus)), *counts, _or_nothing(gigabytes))


def _or_nothing(total: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    return sa.func.coalesce(total, 0)


def _use_of(session: Session, query: sa.Select[*_Uses] | sa.CompoundSelect[*_Uses]) -> list[UseOf]:
    return [
        UseOf(
            lease_id=lease_id,
            project_id=project_id,
            user_id=user_id,
            use=Use(
                start=start,
                end=end,
                vcpus=float(vcpus),
                gigabytes=int(gigabytes),
                **dict(zip(_COUNTED, counts, strict=True)),
            ),
        )
        for lease_id, project_id, user_id, start, end, vcpus, *counts, gigabytes in session.execute(
            query
        )
    ]


def keep_past_use(
    session: Session, lease: Lease, reservation_ids: Collection[str], now: datetime
) -> None:
    """Store the past use of some reservations of a lease: how many whole hosts, from when to when.

    The past use counts towards the limit on host-hours. Call this function before the allocations
    of the reservations are deleted. The past use ends at ``now``, or earlier:

    - if the lease is over, at the end of the lease,
    - if the lease is DELETING, when the deletion began.
    """
    deleted = lease.updated_at if lease.status is LeaseStatus.DELETING else None
    end = min(lease.window.end, deleted or now)
    query = _uses().where(ReservationRow.id.in_(reservation_ids))
    party = {"project_id": lease.project_id, "user_id": lease.user_id}
    rows = [
        {**party, "start_at": use.start, "end_at": end, "hosts": use.hosts}
        for use in (row.use for row in _use_of(session, query))
        if use.hosts and use.start < end
    ]
    if rows:
        session.execute(sa.insert(PastUseRow), rows)


def forget_past_use(session: Session, before: datetime) -> None:
    """Delete past use that ended at or before ``before``; it no longer counts for a limit."""
    session.execute(sa.delete(PastUseRow).where(PastUseRow.end_at <= before))
