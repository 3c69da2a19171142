"""How many units of a requirement are taken by bookings, in each bucket of a window.

A requirement says which resources a reservation needs. A unit is a whole resource, or a share of
one, such as 4 VCPU. A bucket is one of the spans of equal length into which the window is divided.
The caller subtracts the highest number of taken units in a bucket from the number of all units. The
difference is the least number of free units in this bucket. The database computes the sums.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.matching.occupancy import Bucket
from climate.core.matching.requirement import EXCLUSIVE, Layout, Requirement
from climate.core.window import Window
from climate.db.engine.types import any_of
from climate.db.resources import fitting
from climate.db.resources.occupancy import arithmetic
from climate.db.resources.occupancy.arithmetic import END, at_least, at_most, bucketed
from climate.db.resources.occupancy.bookings import located, shared, whole
from climate.db.tables.leases import ALLOCATIONS, InventoryRow, ResourceRow

_ZERO: sa.ColumnElement[int] = sa.literal_column("0")
_ONE: sa.ColumnElement[int] = sa.literal_column("1")
_MINUS: sa.ColumnElement[int] = sa.literal_column("-1")


@dataclass(frozen=True, slots=True)
class Taken:
    """The number of units for a requirement, and how many of these units are taken over time.

    A unit is a whole resource, or a share of one, such as 4 VCPU. ``units`` is the number of units
    that fit on the resources if nothing is booked. If bookings occupy a part of the resources,
    fewer units fit; the difference is the number of taken units. ``buckets`` contains the changes
    of this number: an item for each span of time (bucket) with a change.
    """

    units: int
    buckets: Sequence[Bucket]


def taken(
    session: Session,
    parts: Sequence[Requirement],
    window: Window,
    resolution: int,
    ids: Collection[int] | None,
) -> Taken:
    """Return the number of units for a requirement, and how many of them are taken over time.

    ``parts`` contains all requirements of the reservation (see ``Requirement.parts``). Resources
    that match any of these requirements count. If ``ids`` is not None, only the resources with
    these ids count. The layout must not be TOGETHER (all units on one resource). A bucket of the
    result is a span of ``resolution`` seconds.
    """
    # Without amounts: the query of ``_room`` leaves out resources that are too small for a unit.
    shapes = (fitting.shape(replace(part, amounts={})) for part in parts)
    matching = sa.or_(*(sa.and_(*fitting.conditions(shape)) for shape in shapes))
    rows = sa.select(ResourceRow.id).where(matching)
    if ids is not None:
        rows = rows.where(any_of(ResourceRow.id, ids))
    build = _of_whole if parts[0].is_whole else _of_shares
    units, steps = build(parts[0], located(rows, "matching"))
    values = arithmetic.values(window, resolution)
    count = session.scalar(units, {"start": window.start}) or 0
    found = arithmetic.execute(session, bucketed(steps), values)
    return Taken(int(count), [Bucket(*map(int, row)) for row in found])


def _of_whole(_part: Requirement, rows: sa.CTE) -> tuple[sa.Select[Any], sa.FromClause]:
    """Build two queries for a requirement of whole resources; ``rows`` are the matching resources.

    The first query counts the resources. The second query selects steps: changes of the number of
    resources that are not free. A step is +1 when a resource becomes booked, wholly or in part. It
    is -1 when the resource is free again.
    """
    shares = shared(rows).subquery("shares")
    # Shares of a resource can overlap: of each share, use only the time after all earlier ones.
    before = sa.func.max(shares.c.busy_until).over(
        partition_by=shares.c.resource_id,
        order_by=[shares.c.start_at, shares.c.busy_until],
        rows=(None, -1),
    )
    parts = sa.select(shares.c.start_at, shares.c.busy_until, before.label("before"))
    part = parts.subquery("parts")
    uncovered = sa.case((part.c.before > part.c.start_at, part.c.before), else_=part.c.start_at)
    is_uncovered = sa.and_(part.c.busy_until > part.c.before, part.c.before < END)
    counts = sa.or_(part.c.before.is_(None), is_uncovered)
    booked = whole(rows).subquery("booked")
    spans = sa.union_all(
        sa.select(booked.c.start_at.label("begin"), booked.c.busy_until.label("end")),
        sa.select(uncovered, part.c.busy_until).where(counts),
    ).subquery("spans")
    sign = arithmetic.signs()
    at = sa.case((sign.c.sign > 0, spans.c.begin), else_=spans.c.end).label("at")
    paired = sa.select(at, sign.c.sign.label("delta")).select_from(spans.join(sign, sa.true()))
    both = paired.subquery("both")
    steps = both.select().where(both.c.at < END).subquery("steps")
    return sa.select(sa.func.count()).select_from(rows), steps


def _of_shares(part: Requirement, rows: sa.CTE) -> tuple[sa.Select[Any], sa.FromClause]:
    """Build two queries for a requirement of shares, such as 4 VCPU per unit.

    ``rows`` are the resources that match the requirement's query on properties. The first query
    counts the units that fit on these resources while they are empty. The second query selects
    steps: changes of the number of taken units. A step is positive if fewer units fit on a resource
    than before, and negative if more units fit.

    The steps of shares and of bookings of whole resources are computed separately. This is correct
    because a booking of the whole resource never overlaps a share of the resource. An exclusive
    share counts as a booking of the whole resource.
    """
    room = _room(part, rows).cte("room")
    alone = shared(room, room.c.units).where(ALLOCATIONS.c.resource_class == EXCLUSIVE)
    booked = sa.union_all(whole(room, room.c.units), alone).cte("booked")
    levels = _levels(part.amounts, room).subquery("levels")
    left = [
        sa.type_coerce(room.c[f"capacity_{n}"] - levels.c[f"used_{n}"], sa.Double) / float(amount)
        for n, amount in enumerate(part.amounts.values())
    ]
    # PostgreSQL rounds the least fraction down once, which is faster than integer divisions.
    used = sa.select(
        *(levels.c.resource_id, levels.c.at, room.c.units),
        arithmetic.floor(_counted(part, left)).label("present"),
    )
    used_room = used.join(room, room.c.id == levels.c.resource_id).subquery("used_room")
    before = sa.func.lag(used_room.c.present).over(
        partition_by=used_room.c.resource_id, order_by=used_room.c.at
    )
    delta = sa.func.coalesce(before, used_room.c.units) - used_room.c.present
    steps = sa.union_all(
        sa.select(booked.c.start_at.label("at"), booked.c.units.label("delta")),
        sa.select(booked.c.busy_until, -booked.c.units).where(booked.c.busy_until < END),
        sa.select(used_room.c.at, delta),
    ).subquery("steps")
    return sa.select(sa.func.sum(room.c.units)), steps


def _room(part: Requirement, rows: sa.CTE) -> sa.Select[Any]:
    """Build the query for the capacity of the resources ``rows``, one result row per resource.

    A result row contains the capacity for each resource class of the requirement ``part``. The
    column ``units`` is how many units fit on the resource while it is empty. Resources that lack a
    class, or allow only smaller units, are left out.
    """
    query = sa.select(rows.c.id, rows.c.since)
    capacities: list[sa.ColumnElement[int]] = []
    for name, amount in part.amounts.items():
        item = InventoryRow.__table__.alias()
        is_of_class = sa.and_(item.c.resource_id == rows.c.id, item.c.resource_class == name)
        query = query.join(item, is_of_class)
        query = query.where(sa.or_(item.c.max_unit.is_(None), item.c.max_unit >= amount))
        available = item.c.total - item.c.reserved
        capacities.append(arithmetic.floor(available * item.c.allocation_ratio))
    amounts = part.amounts.values()
    left = [capacity // amount for capacity, amount in zip(capacities, amounts, strict=True)]
    labelled = [capacity.label(f"capacity_{n}") for n, capacity in enumerate(capacities)]
    return query.add_columns(*labelled, _counted(part, left).label("units"))


def _levels(amounts: Mapping[str, int], rows: sa.CTE) -> sa.Select[Any]:
    """Build the query for the amounts in use on the resources ``rows``, one row per change.

    A change is the start or the end of shares of a resource. A row contains the resource id, the
    time of the change, and, for each resource class in ``amounts``, the amount that shares use from
    this time on. The rows of changes at the same time have equal amounts: those after all of them.
    """
    names = [f"used_{n}" for n, _ in enumerate(amounts)]
    shares = _shares(amounts, rows).cte("shares")
    changes = sa.union_all(
        sa.select(
            shares.c.resource_id, shares.c.start_at.label("at"), *(shares.c[name] for name in names)
        ),
        sa.select(
            shares.c.resource_id,
            shares.c.busy_until,
            *((-shares.c[name]).label(name) for name in names),
        ).where(shares.c.busy_until < END),
    ).subquery("changes")
    of_resource, at = changes.c.resource_id, changes.c.at
    totals = (
        sa.func.sum(changes.c[name]).over(partition_by=of_resource, order_by=at).label(name)
        for name in names
    )
    return sa.select(of_resource, at, *totals)


def _shares(amounts: Mapping[str, int], rows: sa.CTE) -> sa.Select[Any]:
    """Build the query for the amounts that are booked on the resources ``rows``.

    The table of allocations has one row per share and resource class. The query combines all rows
    of a resource with the same start and end into one result row. The columns of the result row are
    sums of amounts: ``used_0`` for the first resource class in ``amounts``, ``used_1`` for the
    second, and so on.
    """
    of, mark = ALLOCATIONS.c, ALLOCATIONS.alias()
    is_exclusive = sa.exists().where(
        mark.c.resource_id == of.resource_id,
        mark.c.resource_class == EXCLUSIVE,
        mark.c.busy_until > of.start_at,
        mark.c.start_at < of.busy_until,
    )
    wanted = shared(rows, of.resource_class, of.amount).where(
        of.resource_class.in_(list(amounts)), ~is_exclusive
    )
    share = wanted.subquery("share").c
    # Sums of integers are decimal numbers on PostgreSQL and MariaDB, which is slow.
    amount = sa.cast(share.amount, sa.Double)
    used = (
        sa.func.sum(sa.case((share.resource_class == name, amount), else_=0.0)).label(f"used_{n}")
        for n, name in enumerate(amounts)
    )
    key = share.resource_id, share.start_at, share.busy_until
    return sa.select(*key, *used).group_by(*key)


def _counted(part: Requirement, left: Sequence[sa.ColumnElement[Any]]) -> sa.ColumnElement[Any]:
    """Return an SQL expression: how many units fit on a resource.

    ``left`` contains, for each resource class, how many units fit if only this class limits them.
    The result is the least of these numbers, but at least 0. If the units of the requirement
    ``part`` must be on different resources (APART), the result is at most 1. If ``left`` contains
    fractions, so does the result: the caller must round it down.
    """
    most = [_ONE] if part.layout is Layout.APART else []
    return at_least(_ZERO, at_most(*left, *most) if len(left) + len(most) > 1 else left[0])
