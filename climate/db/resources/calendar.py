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
from climate.db.engine.types import chunks
from climate.db.resources import capacity
from climate.db.tables.leases import (
    ALLOCATIONS,
    LEASES,
    AllocationRow,
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
        rows = session.execute(sa.select(*selected).where(*_during(ids, span)))
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
    selected = (*columns(LEASES, "id name"), *columns(ALLOCATIONS, "start_at busy_until"))
    query = (
        _with_leases(selected, resource_ids, span)
        .where(LeaseRow.project_id == project_id, ~_IS_HELD)
        .group_by(*selected)  # not DISTINCT: with it, PostgreSQL sorts by selected columns only
        .order_by(AllocationRow.start_at, LeaseRow.id)
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
    selected = columns(ALLOCATIONS, "resource_id start_at busy_until")
    query = (
        _with_leases(selected, resource_ids, span)
        .where(sa.or_(LeaseRow.project_id != project_id, _IS_HELD))
        .order_by(AllocationRow.start_at, AllocationRow.id)
        .limit(limit)
    )
    return [(id_, Window(start, end)) for id_, start, end in session.execute(query)]


def _with_leases(
    selected: Sequence[sa.ColumnElement[Any]], resource_ids: Collection[int], span: Window
) -> sa.Select[Any]:
    return (
        sa.select(*selected)
        .join(ReservationRow, ReservationRow.id == AllocationRow.reservation_id)
        .join(LeaseRow, LeaseRow.id == ReservationRow.lease_id)
        .where(*_during(resource_ids, span))
    )


def _during(resource_ids: Collection[int], span: Window) -> list[sa.ColumnElement[bool]]:
    return [
        AllocationRow.resource_id.in_(resource_ids),
        AllocationRow.busy_until > span.start,
        AllocationRow.start_at < span.end,
    ]
