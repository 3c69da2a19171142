"""Which events wait for a worker, in the order in which their projects get turns.

Nothing is locked or claimed by looking. Of what waits for another event (``order``) there is as
much as of the rest: whoever claims passes it over.
"""

from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.schedule import ACTIONS, RELEASE
from climate.db.order import UNDONE, due
from climate.db.tables import EVENTS, LEASES, RESERVATIONS
from climate.db.types import code_points

#: Whose an event is, and the resource types that it acts on.
Group = tuple[str | None, frozenset[str]]


class Waiting(NamedTuple):
    """An event that may run: whose it is, and the resource types that it acts on, if it does."""

    event_id: str
    project_id: str | None
    types: frozenset[str]

    @property
    def group(self) -> Group:
        """Those of one group get turns among themselves in their order."""
        return self.project_id, self.types


def waiting(session: Session, now: datetime, limit: int, skip: int = 0) -> list[Waiting]:
    """Return events that may run now (blocked ones included), as one after the other gets a turn.

    If they are more than ``limit``, first comes the first of each project and kind of thing, then
    the second of each, and so on, so that nobody's many stand before another's few.
    """
    found = [] if skip else session.execute(_FEW, {"now": now, "limit": limit}).all()
    if skip or len(found) == limit:
        found = session.execute(_MANY, {"now": now, "limit": limit, "skip": skip}).all()
    return [Waiting(id_, project_id, _types(types)) for id_, project_id, types in found]


@lru_cache
def _types(joined: str | None) -> frozenset[str]:
    return frozenset(joined.split(",")) if joined else frozenset()


def _few() -> sa.Select[Any]:
    """Select the first ``limit`` events that may run at ``now``; no others are looked at."""
    order = ("run_at", "rank", "id")
    columns = [EVENTS.c[name] for name in (*order, "lease_id", "kind")]
    first = sa.select(*columns).where(*due(_NOW)).order_by(*columns[: len(order)])
    some = first.limit(_LIMIT).subquery()
    whose = sa.select(LEASES.c.project_id).where(LEASES.c.id == some.c.lease_id).scalar_subquery()
    found = sa.select(some.c.id, whose.label("project_id"), _types_of(some, _acts(some)))
    return found.order_by(*(some.c[name] for name in order))


def _many() -> sa.Select[Any]:
    """Select the events that may run at ``now``, page by page: ``limit`` of them after ``skip``.

    A thing's kind is the resource type of its lease's first reservation.
    """
    first = RESERVATIONS.alias()
    is_first = (first.c.lease_id == EVENTS.c.lease_id, first.c.position == 0, _acts(EVENTS))
    turn = sa.func.row_number().over(
        partition_by=(code_points(LEASES.c.project_id), first.c.resource_type),
        order_by=(EVENTS.c.run_at, EVENTS.c.rank, code_points(EVENTS.c.id)),
    )
    columns = (EVENTS.c.id, EVENTS.c.lease_id, LEASES.c.project_id, EVENTS.c.run_at, EVENTS.c.rank)
    all_due = (
        sa.select(*columns, _acts(EVENTS).label("acts"), turn.label("turn"))
        .outerjoin(LEASES, LEASES.c.id == EVENTS.c.lease_id)
        .outerjoin(first, sa.and_(*is_first))
        .where(EVENTS.c.status == UNDONE, EVENTS.c.run_at <= _NOW)
        .subquery()
    )
    of = all_due.c
    return (
        sa.select(of.id, of.project_id, _types_of(all_due, of.acts))
        .order_by(of.turn, of.run_at, of.rank, code_points(of.id))
        .limit(_LIMIT)
        .offset(sa.bindparam("skip", type_=sa.Integer))
    )


def _acts(events: sa.FromClause) -> sa.ColumnElement[bool]:
    """Tell whether an event calls plugins."""
    return events.c.kind.in_([*ACTIONS, RELEASE])


def _types_of(events: sa.FromClause, acts: sa.ColumnElement[bool]) -> sa.ColumnElement[str]:
    """Select the resource types that an event acts on, joined."""
    joined = sa.func.aggregate_strings(RESERVATIONS.c.resource_type, ",")
    mine = (RESERVATIONS.c.lease_id == events.c.lease_id, acts)
    return sa.select(joined).where(*mine).scalar_subquery().label("types")


_NOW = sa.bindparam("now", type_=EVENTS.c.run_at.type)
_LIMIT = sa.bindparam("limit", type_=sa.Integer)
# Made once: putting them together takes longer than the database needs to answer.
_FEW, _MANY = _few(), _many()
