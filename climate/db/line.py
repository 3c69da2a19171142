"""Which events wait for a worker, in the order in which their projects get turns.

Nothing is locked or claimed by looking. Of what waits for another event (``order``) there is as
much as of the rest: whoever claims passes it over.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.schedule import ACTIONS, RELEASE
from climate.db.engine.array_in import among, chunks
from climate.db.engine.types import code_points
from climate.db.order import BEGINNING, UNDONE, due
from climate.db.tables.leases import EVENTS, LEASES, RESERVATIONS

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


_NOBODY: Mapping[str, Waiting] = MappingProxyType({})


def waiting(
    session: Session,
    now: datetime,
    limit: int,
    skip: int = 0,
    known: Mapping[str, Waiting] = _NOBODY,
) -> list[Waiting]:
    """Return events that may run now (blocked ones included), as one after the other gets a turn.

    If they are more than ``limit``, first comes the first of each project and kind of thing, then
    the second of each, and so on, so that nobody's many stand before another's few. Those that are
    ``known`` by their ids from a look before need not be asked about again.
    """
    ids = [] if skip else _first(session, BEGINNING, now, limit + 1)
    if skip or len(ids) > limit:
        found = session.execute(_MANY, {"now": now, "limit": limit, "skip": skip})
        return [_waiting(row) for row in found]
    seen = {**known, **_ask(session, [id_ for id_ in ids if id_ not in known])}
    return [seen[id_] for id_ in ids if id_ in seen]


def newcomers(
    session: Session, since: datetime, now: datetime, limit: int, known: Collection[str]
) -> list[Waiting]:
    """Return events that became due ``since`` then, in their order, but those that are ``known``.

    Not more than ``limit`` are looked at.
    """
    fresh = [id_ for id_ in _first(session, since, now, limit) if id_ not in known]
    found = _ask(session, fresh)
    return [found[id_] for id_ in fresh if id_ in found]


def still_waiting(session: Session, event_ids: Collection[str]) -> set[str]:
    """Return those of events that nobody has claimed."""
    parts = (session.scalars(_UNCLAIMED, {"ids": ids}) for ids in chunks(list(event_ids)))
    return {id_ for part in parts for id_ in part}


def _first(session: Session, since: datetime, now: datetime, limit: int) -> Sequence[str]:
    return session.scalars(_FEW, {"since": since, "now": now, "limit": limit}).all()


def _ask(session: Session, event_ids: Sequence[str]) -> dict[str, Waiting]:
    """Return those of the events that are there, by id."""
    parts = (session.execute(_DESCRIBED, {"ids": ids}) for ids in chunks(event_ids))
    return {row.id: _waiting(row) for part in parts for row in part}


def _waiting(row: Any) -> Waiting:  # noqa: ANN401 - a row of _DESCRIBED or _MANY
    id_, project_id, types = row
    return Waiting(id_, project_id, _types(types))


@lru_cache
def _types(joined: str | None) -> frozenset[str]:
    return frozenset(joined.split(",")) if joined else frozenset()


def _few() -> sa.Select[Any]:
    """Select the first ``limit`` events that may run at ``now``, and not before ``since``.

    An index alone tells them.
    """
    since = sa.bindparam("since", type_=EVENTS.c.run_at.type)
    first = sa.select(EVENTS.c.id).where(*due(_NOW, since))
    return first.order_by(EVENTS.c.run_at, EVENTS.c.rank, EVENTS.c.id).limit(_LIMIT)


def _described() -> sa.Select[Any]:
    """Select whose the events with ``ids`` are, and the resource types that they act on."""
    whose = sa.select(LEASES.c.project_id).where(LEASES.c.id == EVENTS.c.lease_id)
    project_id = whose.scalar_subquery().label("project_id")
    described = sa.select(EVENTS.c.id, project_id, _types_of(EVENTS, _acts(EVENTS)))
    return described.where(among(EVENTS.c.id, "ids"))


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
_FEW, _DESCRIBED, _MANY = _few(), _described(), _many()
_UNCLAIMED = sa.select(EVENTS.c.id).where(among(EVENTS.c.id, "ids"), EVENTS.c.status == UNDONE)
