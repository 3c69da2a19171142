"""The bookings of many resources during a span of time.

For a new lease, climate computes from these bookings when resources are free, and which leases
stand in the way. The times of all bookings include the cleaning after the lease.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.lifecycle import LeaseStatus
from climate.core.matching.calendar import Booking, Timeline
from climate.core.matching.requirement import Requirement
from climate.core.window import Window
from climate.db.engine.types import any_of, chunks
from climate.db.resources import capacity
from climate.db.tables.leases import (
    ALLOCATIONS,
    LEASES,
    LeaseRow,
    ReservationRow,
    columns,
)

_IS_HELD = LeaseRow.status == LeaseStatus.CREATING.value


@dataclass(frozen=True, slots=True)
class Blocker:
    """A lease that has booked a resource which a new lease needs at the same time.

    ``window`` is the time for which the resource is booked, including the cleaning after the lease.
    """

    lease_id: str
    lease_name: str
    window: Window


def timelines(
    session: Session, requirement: Requirement, resource_ids: Sequence[int], span: Window
) -> list[Timeline]:
    """Return the timeline of each resource: its capacity, and its bookings that overlap ``span``.

    The result has the order of ``resource_ids``. If ``requirement`` is for whole resources, the
    capacities are empty. Executes up to two SQL statements per 10,000 resources.
    """
    shared = capacity.find_some(session, resource_ids) if requirement.amounts else defaultdict(dict)
    bookings: dict[int, list[Booking]] = {id_: [] for id_ in resource_ids}
    selected = columns(ALLOCATIONS, "resource_id start_at busy_until resource_class amount")
    for ids in chunks(resource_ids):
        rows = session.execute(sa.select(*selected).where(*_during(session, ids, span)))
        for resource_id, start, end, name, amount in rows:
            bookings[resource_id].append(Booking(start, end, name, amount or 0))
    return [
        Timeline({name: item.capacity for name, item in shared[id_].items()}, bookings[id_])
        for id_ in resource_ids
    ]


def blockers(
    session: Session, resource_ids: Collection[int], span: Window, project_id: str, limit: int
) -> list[Blocker]:
    """Return up to ``limit`` leases of a project that have booked the resources during ``span``.

    Such a lease has booked at least one of the resources. Held leases are left out, because no API
    shows them before climate has confirmed them. If the lease's bookings have different windows,
    the result contains the lease once per window. The result is sorted by the start of the window.
    """
    taken = _taken(session, resource_ids, span)
    selected = (*columns(LEASES, "id name"), taken.c.start_at, taken.c.busy_until)
    query = (
        _with_leases(taken, selected)
        .where(LeaseRow.project_id == project_id, ~_IS_HELD)
        .group_by(*selected)  # not DISTINCT: with it, PostgreSQL sorts by selected columns only
        .order_by(taken.c.start_at, LeaseRow.id)
        .limit(limit)
    )
    return [
        Blocker(id_, name, Window(start, end)) for id_, name, start, end in session.execute(query)
    ]


def taken_by_others(
    session: Session, resource_ids: Collection[int], span: Window, project_id: str, limit: int
) -> list[tuple[int, Window]]:
    """Return up to ``limit`` bookings during ``span`` by leases that ``project_id`` cannot see.

    These are leases of other projects, and held leases. Each item is (resource id, window of the
    booking), sorted by start. The window includes the cleaning after the lease.
    """
    taken = _taken(session, resource_ids, span)
    query = (
        _with_leases(taken, (taken.c.resource_id, taken.c.start_at, taken.c.busy_until))
        .where(sa.or_(LeaseRow.project_id != project_id, _IS_HELD))
        .order_by(taken.c.start_at, taken.c.id)
        .limit(limit)
    )
    return [(id_, Window(start, end)) for id_, start, end in session.execute(query)]


def _taken(session: Session, resource_ids: Collection[int], span: Window) -> sa.CTE:
    """Return the bookings of the resources during ``span``, to be joined with their leases.

    PostgreSQL must compute them first. Otherwise it may read all bookings of a project, which can
    be a million.
    """
    selected = columns(ALLOCATIONS, "id resource_id reservation_id start_at busy_until")
    query = sa.select(*selected).where(*_during(session, resource_ids, span)).cte("taken")
    return query.prefix_with("MATERIALIZED", dialect="postgresql")


def _with_leases(taken: sa.CTE, selected: Sequence[sa.ColumnElement[Any]]) -> sa.Select[Any]:
    return (
        sa.select(*selected)
        .select_from(taken)
        .join(ReservationRow, ReservationRow.id == taken.c.reservation_id)
        .join(LeaseRow, LeaseRow.id == ReservationRow.lease_id)
    )


def _during(
    session: Session, resource_ids: Collection[int], span: Window
) -> list[sa.ColumnElement[bool]]:
    """Return the conditions for bookings of the resources that overlap ``span``."""
    ids, is_share = list(resource_ids), ALLOCATIONS.c.resource_class.is_not(None)
    of_resources: sa.ColumnElement[bool] = any_of(ALLOCATIONS.c.resource_id, ids)
    if session.connection().dialect.name == "postgresql":
        # So that it uses the index of whole bookings and that of shares, which contain the times.
        of_resources = sa.or_(any_of(ALLOCATIONS.c.whole_id, ids), sa.and_(is_share, of_resources))
    return [of_resources, ALLOCATIONS.c.busy_until > span.start, ALLOCATIONS.c.start_at < span.end]
