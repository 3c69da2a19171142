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
from climate.db.order import UNDONE
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

    First comes the first action and the first that only tells of each project, then the second of
    each, and so on, so that nobody's many stand before another's few.
    """
    found = session.execute(_WAITING, {"now": now, "limit": limit, "skip": skip}).all()
    return [Waiting(id_, project_id, _types(types)) for id_, project_id, types in found]


@lru_cache
def _types(joined: str | None) -> frozenset[str]:
    return frozenset(joined.split(",")) if joined else frozenset()


def _waiting() -> sa.Select[Any]:
    """Select the events that may run at ``now``, page by page: ``limit`` of them after ``skip``."""
    acts = EVENTS.c.kind.in_([*ACTIONS, RELEASE])  # all that calls plugins
    # Not by resource type: to look that up for all that is due takes longer than all else.
    whose = (code_points(LEASES.c.project_id), acts)
    order = (EVENTS.c.run_at, EVENTS.c.rank, code_points(EVENTS.c.id))
    turn = sa.func.row_number().over(partition_by=whose, order_by=order)
    columns = (EVENTS.c.id, EVENTS.c.lease_id, LEASES.c.project_id, EVENTS.c.run_at, EVENTS.c.rank)
    due = (
        sa.select(*columns, acts.label("acts"), turn.label("turn"))
        .outerjoin(LEASES, LEASES.c.id == EVENTS.c.lease_id)
        .where(EVENTS.c.status == UNDONE, EVENTS.c.run_at <= _NOW)
        .subquery()
    )
    types = (
        sa.select(sa.func.aggregate_strings(RESERVATIONS.c.resource_type, ","))
        .where(RESERVATIONS.c.lease_id == due.c.lease_id, due.c.acts)
        .scalar_subquery()
    )
    return (
        sa.select(due.c.id, due.c.project_id, types.label("types"))
        .order_by(due.c.turn, due.c.run_at, due.c.rank, code_points(due.c.id))
        .limit(sa.bindparam("limit", type_=sa.Integer))
        .offset(sa.bindparam("skip", type_=sa.Integer))
    )


_NOW = sa.bindparam("now", type_=EVENTS.c.run_at.type)
# Made once: putting it together takes longer than the database needs to answer it.
_WAITING = _waiting()
