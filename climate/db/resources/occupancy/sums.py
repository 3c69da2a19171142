"""How much of the resources is occupied over time, as sums for each bucket of a window.

A window is divided into buckets: spans of equal length, except that the last one can be shorter.
``resolution`` is the length of a bucket in seconds. A booking occupies a part of its resource. The
part is 1 if it books the whole resource. A share books an amount of a resource class, such as 16 of
64 VCPU; its part is then 0.25.

A booking makes two steps. At its start, its part is added to the total of the occupied parts. At
its end, its part is subtracted. The caller needs the integral of this total over each bucket. Two
sums per bucket suffice to compute it: the sum of the steps, and the sum of each step times its
seconds from the start of the bucket. The database computes both.

The functions ``of_...`` return lists of ``climate.core.matching.occupancy.Sums``. A list has an
item for each group of resources, resource class, and bucket in which a booking starts or ends. The
attribute ``name`` of an item is the group. ``of_resources`` also counts the viewer's own bookings:
those of the project that looks at the calendar. In the other results, this count is 0.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session, aliased

from climate.core.lease.lifecycle import LeaseStatus
from climate.core.matching.occupancy import Sums
from climate.core.window import Window
from climate.db.engine.types import any_of
from climate.db.resources.occupancy import arithmetic
from climate.db.resources.occupancy.arithmetic import (
    END,
    START,
    at_least,
    bucket,
    late,
    number,
    seconds,
)
from climate.db.resources.occupancy.bookings import located, shared, whole
from climate.db.tables.leases import (
    ALLOCATIONS,
    InventoryRow,
    LeaseRow,
    ReservationRow,
    ResourceProperty,
    ResourceRow,
)

_ZERO: sa.ColumnElement[int] = sa.literal_column("0")
# With the types of the columns that they are combined with: otherwise PostgreSQL converts each row.
_NO_CLASS: sa.ColumnElement[str] = sa.cast(sa.literal_column("''"), sa.String())
_ONE: sa.ColumnElement[float] = sa.cast(sa.literal_column("1"), sa.Double())
# The first three columns: name, class and bucket.
_KEY: list[sa.ColumnElement[int]] = [sa.literal_column(n) for n in ("1", "2", "3")]
_PROJECT: sa.BindParameter[str] = sa.bindparam("project_id", type_=sa.String())


def of_resources(
    session: Session,
    resource_ids: Collection[int],
    window: Window,
    resolution: int,
    project_id: str,
) -> list[Sums]:
    """Return how much of each resource is occupied, as sums per bucket of ``resolution`` seconds.

    ``name`` in the result is the id of the resource as text, such as "17". The viewer's own
    bookings, which the result counts separately, are those of the project ``project_id``. Bookings
    of held leases, which climate has not confirmed yet, are not among the own bookings.
    """
    if not resource_ids:
        return []
    page = sa.select(ResourceRow.id, ResourceRow.id.label("name"))
    rows = located(page.where(any_of(ResourceRow.id, list(resource_ids))), "page")
    parts = _parts(rows, ALLOCATIONS.c.reservation_id).subquery("parts")
    is_own = sa.and_(LeaseRow.project_id == _PROJECT, LeaseRow.status != LeaseStatus.CREATING.value)
    marked = (
        parts.select()
        .add_columns(sa.case((is_own, sa.literal_column("1")), else_=_ZERO).label("own"))
        .outerjoin(ReservationRow, ReservationRow.id == parts.c.reservation_id)
        .outerjoin(LeaseRow, LeaseRow.id == ReservationRow.lease_id)
    )
    return _run(session, marked, window, resolution, {"project_id": project_id})


def of_types(
    session: Session, resource_types: Collection[str], window: Window, resolution: int
) -> list[Sums]:
    """Return how many resources of each type are occupied, as sums per bucket.

    A bucket is a span of ``resolution`` seconds. ``name`` in the result is the resource type.
    """
    rows = sa.select(ResourceRow.id, ResourceRow.type.label("name"))
    typed = located(rows.where(ResourceRow.type.in_(resource_types)), "typed")
    return _run(session, _parts(typed), window, resolution)


def of_values(
    session: Session, resource_type: str, prop: str, window: Window, resolution: int
) -> list[Sums]:
    """Return how many resources are occupied, by value of a property, as sums per bucket.

    A bucket is a span of ``resolution`` seconds. ``name`` in the result is the value of the
    property ``prop``, or "" for resources without the property.
    """
    rows = located(valued(resource_type, prop), "valued")
    return _run(session, _parts(rows), window, resolution)


def valued(resource_type: str, prop: str) -> sa.Select[Any]:
    """Build the query for the resources of a type, with the value of the property ``prop``.

    The columns are ``id`` of the resource and ``name``, which is the value. ``name`` is "" if the
    resource does not have the property.
    """
    value = aliased(ResourceProperty)
    of_resource = sa.and_(value.resource_id == ResourceRow.id, value.name == prop)
    selected: list[Any] = [ResourceRow.id, sa.func.coalesce(value.value, "").label("name")]
    rows = sa.select(*selected).outerjoin(value, of_resource)
    return rows.where(ResourceRow.type == resource_type)


def count_types(session: Session, resource_types: Collection[str]) -> dict[str, int]:
    """Return the number of resources of each type; types without resources are left out."""
    query = sa.select(ResourceRow.type, sa.func.count()).group_by(ResourceRow.type)
    rows = session.execute(query.where(ResourceRow.type.in_(resource_types)))
    return {name: int(count) for name, count in rows}


def count_values(session: Session, resource_type: str, prop: str, limit: int) -> dict[str, int]:
    """Return the number of resources by value of the property ``prop``.

    The key "" is for resources without the property. The result contains at most ``limit`` values,
    in no particular order.
    """
    rows = valued(resource_type, prop).subquery("valued")
    query = sa.select(rows.c.name, sa.func.count()).group_by(rows.c.name).limit(limit)
    return {name: int(count) for name, count in session.execute(query)}


def count_projects(session: Session, window: Window) -> int:
    """Return the number of projects that have at least one lease which overlaps the window."""
    query = sa.select(sa.func.count(LeaseRow.project_id.distinct())).where(
        LeaseRow.start_at < window.end, LeaseRow.end_at > window.start
    )
    return session.scalar(query) or 0


def of_projects(
    session: Session, resource_type: str, window: Window, resolution: int
) -> list[Sums]:
    """Return how many resources each project occupies, as sums per bucket.

    A bucket is a span of ``resolution`` seconds. ``name`` in the result is the project id. Bookings
    of deleted leases, which last until the cleaning is over, are left out, because the database no
    longer has their project.
    """
    typed = sa.select(ResourceRow.id, _NO_CLASS.label("name"))
    rows = typed.where(ResourceRow.type == resource_type)
    of_reservation = ALLOCATIONS.c.reservation_id
    if _is_postgresql(session):
        parts = _parts_in_one_pass(rows.subquery("typed"), of_reservation).subquery("parts")
        owned = _owned_in_one_pass(parts)
    else:
        owned = _owned(_parts(located(rows, "typed"), of_reservation).subquery("parts"))
    return _run(session, owned, window, resolution)


def _parts(rows: sa.CTE, *more: sa.ColumnElement[Any]) -> sa.CompoundSelect[Any]:
    """Build the query for bookings, with the ``part`` of the resource that each one occupies.

    The database searches the bookings of each resource in an index.

    ``rows`` is a CTE from ``located`` with a further column ``name``: the group of the resource.
    The columns of the query are:

    - ``name``: the group of the booked resource.
    - ``class``: the resource class, or "" if the booking is for the whole resource.
    - ``part``: 1 if the booking is for the whole resource; otherwise the booked amount divided by
      the capacity, at most 1.
    - The start and the end of the booking, its resource id, and the columns ``more``.
    """
    item = InventoryRow.__table__.alias()
    of = ALLOCATIONS.c
    name, no_class = rows.c.name.label("name"), _NO_CLASS.label("class")
    shares = shared(rows, name, of.resource_class.label("class"), _part(item), *more)
    return sa.union_all(
        whole(rows, name, no_class, _ONE.label("part"), *more),
        shares.outerjoin(item, _is_of_class(item)),
    )


def _parts_in_one_pass(rows: sa.Subquery, *more: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Build a query with the same result as that of ``_parts``, which reads all bookings at once.

    ``rows`` contains the columns ``id`` and ``name`` of the resources. On PostgreSQL, this query is
    about a fifth faster if ``rows`` contains all resources of a type and ``more`` contains columns
    that are in no index. On MariaDB, it is slower.
    """
    item = InventoryRow.__table__.alias()
    of = ALLOCATIONS.c
    class_ = sa.func.coalesce(of.resource_class, _NO_CLASS).label("class")
    booked = sa.select(of.resource_id, of.start_at, of.busy_until, rows.c.name, class_)
    return (
        booked.add_columns(_part(item), *more)
        .join(rows, rows.c.id == of.resource_id)
        .outerjoin(item, _is_of_class(item))
        .where(of.start_at < END, of.busy_until > START)
    )


def _owned(parts: sa.Subquery) -> sa.Select[Any]:
    """Build the query for the bookings ``parts`` that have a lease, with its project as ``name``.

    ``parts`` is a query like that of ``_parts``, with the column ``reservation_id``.
    """
    query = _without_name(parts).add_columns(LeaseRow.project_id.label("name"))
    of_reservation = query.join(ReservationRow, ReservationRow.id == parts.c.reservation_id)
    return of_reservation.join(LeaseRow, LeaseRow.id == ReservationRow.lease_id)


def _owned_in_one_pass(parts: sa.Subquery) -> sa.Select[Any]:
    """Build a query with the same result as that of ``_owned``, which is faster on PostgreSQL.

    PostgreSQL joins the bookings to the leases in the window only, which fit into the processor's
    cache. Some bookings in the window can have a lease that ended before it: those whose cleaning
    reaches into the window. PostgreSQL looks up each of these leases on its own.
    """
    of_lease = sa.select(ReservationRow.id, LeaseRow.project_id).join_from(
        ReservationRow, LeaseRow, LeaseRow.id == ReservationRow.lease_id
    )
    in_window = of_lease.where(LeaseRow.start_at < END, LeaseRow.end_at > START).subquery("owner")
    lease, reservation = aliased(LeaseRow), aliased(ReservationRow)
    other = (
        sa.select(lease.project_id)
        .join(reservation, reservation.lease_id == lease.id)
        .where(reservation.id == parts.c.reservation_id)
        .correlate(parts)
        .scalar_subquery()
    )
    query = _without_name(parts).add_columns(
        sa.func.coalesce(in_window.c.project_id, other).label("name")
    )
    joined = query.outerjoin(in_window, in_window.c.id == parts.c.reservation_id)
    return joined.where(parts.c.reservation_id.is_not(None))


def _without_name(parts: sa.Subquery) -> sa.Select[Any]:
    return sa.select(*(column for column in parts.c if column.name != "name")).select_from(parts)


def _is_postgresql(session: Session) -> bool:
    return session.get_bind().dialect.name == "postgresql"


def _part(item: sa.FromClause) -> sa.ColumnElement[Any]:
    """Return an SQL expression: the part of its resource that a booking occupies, from 0 to 1.

    ``item`` is the inventory of the booked resource class. If the booking is for the whole
    resource, there is no such inventory: its columns are NULL, and the result is 1.
    """
    amount = ALLOCATIONS.c.amount
    available = (item.c.total - item.c.reserved) * item.c.allocation_ratio
    share = amount / sa.cast(available, sa.Double)
    return sa.case((available > amount, share), else_=_ONE).label("part")


def _is_of_class(item: sa.FromClause) -> sa.ColumnElement[bool]:
    of = ALLOCATIONS.c
    return sa.and_(item.c.resource_id == of.resource_id, item.c.resource_class == of.resource_class)


def _run(
    session: Session,
    parts: sa.SelectBase,
    window: Window,
    resolution: int,
    more: Mapping[str, str] | None = None,
) -> list[Sums]:
    """Execute the query for the sums over the bookings ``parts``, and return its result.

    ``parts`` is a query like that of ``_parts``. It can have a further column ``own``: 1 for the
    viewer's own bookings, 0 for others. Without this column, the result has no own bookings.
    ``more`` contains the values of additional SQL parameters, by name.
    """
    item = parts.subquery("item")
    grouped = (_by_sets(item) if _is_postgresql(session) else _by_steps(item)).subquery("grouped")
    name, class_, of_bucket, *summed = grouped.c
    query = sa.select(name, class_, number(of_bucket), *summed)
    values = {**arithmetic.values(window, resolution), **(more or {})}
    length = arithmetic.length(window)
    return [
        _found(row, min(resolution, length - int(row[2]) * resolution))
        for row in arithmetic.execute(session, query, values)
    ]


def _by_steps(item: sa.Subquery) -> sa.Select[Any]:
    """Build the query for the sums of each bucket (a span of the window), on any database.

    Each booking makes up to two steps, which change the total of the occupied parts; see
    ``_steps``.
    """
    steps = _steps(item).subquery("steps")
    delta, at, own = steps.c.delta, steps.c.at, steps.c.get("own")
    sums: list[Any] = [sa.func.sum(delta), sa.func.sum(delta * late(at))]
    if own is not None:
        begins = sa.case((own > 0, sa.literal_column("1")), else_=_ZERO)
        sums += [sa.func.sum(own), sa.func.sum(begins)]
    labelled = [item.label(f"sum_{n}") for n, item in enumerate(sums)]
    key = steps.c.name, steps.c["class"], bucket(at).label("bucket")
    return sa.select(*key, *labelled).group_by(*_KEY)


def _steps(item: sa.Subquery) -> sa.Select[Any]:
    """Build the query for the steps in the window: changes of the total of the occupied parts.

    A booking makes a step of +part when it starts, and one of -part when it ends. If it starts
    before the window, its first step is at the start of the window. If it ends after the window, it
    has no second step.
    """
    signs = arithmetic.signs()
    sign = signs.c.sign
    at = sa.case((sign > 0, at_least(item.c.start_at, START)), else_=item.c.busy_until)
    changes = [at.label("at"), (item.c.part * sign).label("delta")]
    if "own" in item.c:
        changes.append((item.c.own * sign).label("own"))
    paired = sa.select(item.c.name, item.c["class"], *changes)
    steps = paired.select_from(item.join(signs, sa.true())).subquery("paired")
    return steps.select().where(steps.c.at < END)


def _by_sets(item: sa.Subquery) -> sa.Select[Any]:
    """Build a faster form of the query of ``_by_steps``, for PostgreSQL.

    The clause GROUPING SETS, which some databases lack, groups each booking twice in one pass: by
    the bucket of its start, and by the bucket of its end. So PostgreSQL need not turn each booking
    into two rows.
    """
    begin = at_least(item.c.start_at, START)
    end = sa.case((item.c.busy_until < END, item.c.busy_until))  # NULL: not in the window
    moments = begin.label("begin_at"), end.label("end_at")
    buckets = bucket(begin).label("begins_in"), bucket(end).label("ends_in")
    more = [item.c.own] if "own" in item.c else []
    # The OFFSET lets PostgreSQL compute each bucket once for each booking, not for each use.
    binned = sa.select(item.c.name, item.c["class"], item.c.part, *more, *moments, *buckets)
    row = binned.offset(_ZERO).subquery("binned").c
    sums: list[Any] = [sa.func.sum(row.part)]
    sums += [
        sa.func.sum(row.part * seconds(at - of_bucket))
        for at, of_bucket in ((row.begin_at, row.begins_in), (row.end_at, row.ends_in))
    ]
    sums += [sa.func.sum(row.own)] if more else []
    labelled = [item.label(f"total_{n}") for n, item in enumerate(sums)]
    sets = (sa.tuple_(row.name, row["class"], of) for of in (row.begins_in, row.ends_in))
    totals = sa.select(row.name, row["class"], row.begins_in, row.ends_in, *labelled)
    return _signed(totals.group_by(sa.func.grouping_sets(*sets)).subquery("totals"))


def _signed(totals: sa.Subquery) -> sa.Select[Any]:
    """Build the query for the sums of each bucket: totals of starts minus totals of ends.

    Each row of ``totals`` contains totals either of the bookings that start in the bucket
    ``begins_in``, or of the bookings that end in the bucket ``ends_in``. The other column is NULL.
    """
    row = totals.c
    begins = row.begins_in.is_not(None)
    of_bucket = sa.func.coalesce(row.begins_in, row.ends_in)
    sums = [
        sa.case((begins, row.total_0), else_=-row.total_0),
        sa.case((begins, row.total_1), else_=-row.total_2),
    ]
    if "total_3" in row:
        own = row.total_3
        sums += [sa.case((begins, own), else_=-own), sa.case((begins, own), else_=_ZERO)]
    labelled = [sa.func.sum(item).label(f"sum_{n}") for n, item in enumerate(sums)]
    query = sa.select(row.name, row["class"], of_bucket.label("bucket"), *labelled)
    return query.where(of_bucket.is_not(None)).group_by(*_KEY)


def _found(row: Sequence[Any], seconds: int) -> Sums:
    """Return the Sums of one bucket, from a row of the database.

    ``seconds`` is the length of the bucket. The function computes the attribute ``area``: the sum
    of each step times the seconds from the step to the end of the bucket.
    """
    name, class_, number_, delta, late_, *own = row
    area = float(delta) * seconds - float(late_)
    return Sums(str(name), class_, int(number_), float(delta), area, *map(int, own or (0, 0)))
