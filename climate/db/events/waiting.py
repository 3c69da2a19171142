"""Queries for the due events, in the order in which a manager runs them.

The queries neither lock nor claim events. Their results include blocked events: events that must
wait for another event (see the module ``ordering``). The manager passes all of them to ``claim`` in
the module ``queue``, and ``claim`` skips the blocked events.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.schedule import ACTIONS, RELEASE
from climate.db.engine.types import any_of, chunks, code_points
from climate.db.events.ordering import BEGINNING, UNDONE, due
from climate.db.tables.leases import EVENTS, LEASES, RESERVATIONS

#: The project of an event, and the resource types that it acts on.
Group = tuple[str | None, frozenset[str]]


class PendingEvent(NamedTuple):
    """A due event, its project, and the resource types on which it acts.

    If ``types`` is empty, the event calls no plug-in: for example, it only sends a notification.
    """

    event_id: str
    project_id: str | None
    types: frozenset[str]

    @property
    def group(self) -> Group:
        """The project and the resource types; a manager keeps a queue of events for each group."""
        return self.project_id, self.types


_NONE_KNOWN: Mapping[str, PendingEvent] = MappingProxyType({})


def pending(
    session: Session,
    now: datetime,
    limit: int,
    skip: int = 0,
    known: Mapping[str, PendingEvent] = _NONE_KNOWN,
) -> list[PendingEvent]:
    """Return up to ``limit`` due events, including blocked ones, after the first ``skip`` events.

    There are two orders:

    - If ``skip`` is 0 and at most ``limit`` events are due, the events are sorted by ``run_at``.
    - Otherwise, pairs of project and resource type take turns: the result contains the first event
      of each pair, then the second event of each pair, and so on.

    ``known`` contains events that the caller has read before, by id. In the first order, they are
    taken from ``known`` instead of the database.
    """
    ids = [] if skip else _first(session, BEGINNING, now, limit + 1)
    if skip or len(ids) > limit:
        rows = session.execute(_MANY, {"now": now, "limit": limit, "skip": skip})
        return [_pending_event(row) for row in rows]
    events = {**known, **_describe(session, [id_ for id_ in ids if id_ not in known])}
    return [events[id_] for id_ in ids if id_ in events]


def newly_due(
    session: Session, since: datetime, now: datetime, limit: int, known: Collection[str]
) -> list[PendingEvent]:
    """Return due events with ``run_at`` from ``since`` to ``now``, sorted by ``run_at``.

    The query finds the first ``limit`` such events. The result then leaves out the events whose ids
    are in ``known``.
    """
    fresh = [id_ for id_ in _first(session, since, now, limit) if id_ not in known]
    events = _describe(session, fresh)
    return [events[id_] for id_ in fresh if id_ in events]


def unclaimed(session: Session, event_ids: Collection[str]) -> set[str]:
    """Return the ids of the events that no manager has claimed or finished yet."""
    parts = (session.scalars(_UNCLAIMED, {"ids": ids}) for ids in chunks(list(event_ids)))
    return {id_ for part in parts for id_ in part}


def _first(session: Session, since: datetime, now: datetime, limit: int) -> Sequence[str]:
    return session.scalars(_FEW, {"since": since, "now": now, "limit": limit}).all()


def _describe(session: Session, event_ids: Sequence[str]) -> dict[str, PendingEvent]:
    """Return the events with these ids, by id; events that were deleted are left out."""
    parts = (session.execute(_DESCRIBED, {"ids": ids}) for ids in chunks(event_ids))
    return {row.id: _pending_event(row) for part in parts for row in part}


def _pending_event(row: Any) -> PendingEvent:  # noqa: ANN401 - a row of _DESCRIBED or _MANY
    id_, project_id, types = row
    return PendingEvent(id_, project_id, _types(types))


@lru_cache
def _types(joined: str | None) -> frozenset[str]:
    return frozenset(joined.split(",")) if joined else frozenset()


def _few() -> sa.Select[Any]:
    """Build the query for the ids of the first ``limit`` events due from ``since`` to ``now``.

    ``limit``, ``since`` and ``now`` are parameters of the query. The query reads only an index.
    """
    since = sa.bindparam("since", type_=EVENTS.c.run_at.type)
    first = sa.select(EVENTS.c.id).where(*due(_NOW, since))
    return first.order_by(EVENTS.c.run_at, EVENTS.c.rank, EVENTS.c.id).limit(_LIMIT)


def _described() -> sa.Select[Any]:
    """Build the query for the projects of events, and the resource types on which they act."""
    project_of_lease = sa.select(LEASES.c.project_id).where(LEASES.c.id == EVENTS.c.lease_id)
    project_id = project_of_lease.scalar_subquery().label("project_id")
    described = sa.select(EVENTS.c.id, project_id, _types_of(EVENTS, _acts(EVENTS)))
    return described.where(any_of(EVENTS.c.id, "ids"))


def _many() -> sa.Select[Any]:
    """Build the query for due events in turns: ``limit`` events after the first ``skip``.

    ``now``, ``limit`` and ``skip`` are parameters of the query. Pairs of project and resource type
    take turns, as described in ``pending``. If a lease has reservations of several types, the query
    uses the type of the first reservation.
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
    """Return the SQL condition that a manager calls plug-ins when it runs an event."""
    return events.c.kind.in_([*ACTIONS, RELEASE])


def _types_of(events: sa.FromClause, acts: sa.ColumnElement[bool]) -> sa.ColumnElement[str]:
    """Return an SQL expression: the resource types on which an event acts, joined with commas."""
    joined = sa.func.aggregate_strings(RESERVATIONS.c.resource_type, ",")
    of_lease = (RESERVATIONS.c.lease_id == events.c.lease_id, acts)
    return sa.select(joined).where(*of_lease).scalar_subquery().label("types")


_NOW = sa.bindparam("now", type_=EVENTS.c.run_at.type)
_LIMIT = sa.bindparam("limit", type_=sa.Integer)
# Built once: SQLAlchemy takes longer to build them than the database to run them.
_FEW, _DESCRIBED, _MANY = _few(), _described(), _many()
_UNCLAIMED = sa.select(EVENTS.c.id).where(any_of(EVENTS.c.id, "ids"), EVENTS.c.status == UNDONE)
