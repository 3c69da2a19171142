"""Conversion of database rows to leases with their reservations and events.

Columns are read by position, because reading them by name takes twice as long.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.lifecycle import EventStatus, LeaseStatus, ReservationStatus
from climate.core.lease.model import Event, Lease, Reservation, Start, StartWhen
from climate.core.lease.schedule import Anchor, Notice
from climate.core.window import Window
from climate.db.engine.types import any_of, chunks
from climate.db.tables.leases import EVENTS, LEASES, RESERVATIONS, columns

# By value: a call of the enumeration takes several times as long.
_LEASE_STATUS = {status.value: status for status in LeaseStatus}
_RESERVATION_STATUS = {status.value: status for status in ReservationStatus}
_EVENT_STATUS = {status.value: status for status in EventStatus}
_START_WHEN = {when.value: when for when in StartWhen}
_NO_LEAD = timedelta(0)


def complete(session: Session, rows: Sequence[Any]) -> list[Lease]:
    """Convert rows of the table of leases to leases with their reservations and events.

    Each row has the columns ``COLUMNS``. The result has the order of ``rows``. Executes two SQL
    statements per 10,000 leases.
    """
    ids = [row[0] for row in rows]
    reservations = _children(session, _RESERVATIONS, ids)
    events = _children(session, _EVENTS, ids)
    return [_lease(row, reservations.get(row[0], ()), events.get(row[0], ())) for row in rows]


def _children(
    session: Session, query: sa.Select[Any], lease_ids: Sequence[str]
) -> dict[str, list[Any]]:
    """Return the rows that belong to leases, such as their events, by lease id.

    ``query`` comes from ``_children_of``. Leases without such rows are left out.
    """
    by_lease: dict[str, list[Any]] = {}
    for ids in chunks(lease_ids):
        for row in session.execute(query, {"lease_ids": ids}).all():  # faster than row by row
            by_lease.setdefault(row[0], []).append(row)
    return by_lease


def _children_of(table: sa.Table, names: str, order: str) -> sa.Select[Any]:
    """Build a query for the rows of a table that belong to leases, sorted by the columns ``order``.

    The query returns the lease id, and then the columns ``names``. In ``names`` and ``order``,
    spaces separate the columns. The SQL parameter ``lease_ids`` selects the leases.
    """
    query = sa.select(table.c.lease_id, *columns(table, names))
    return query.where(any_of(table.c.lease_id, "lease_ids")).order_by(*columns(table, order))


#: The columns of the table of leases that ``complete`` needs.
COLUMNS = columns(
    LEASES,
    "id name user_id project_id start_at end_at status degraded notices created_at updated_at"
    " trust_id trust_lost start_when ready_at start_delayed_at started_at"
    " caught_up_at version offered_until start_lead_s start_began_at cleaning_s",
)
_RESERVATIONS = _children_of(
    RESERVATIONS,
    "id resource_type status params details missing_resources resources_changed created_at"
    " updated_at",
    order="position",
)
_EVENTS = _children_of(
    EVENTS,
    "id kind due_at status attempt last_error created_at updated_at owner",
    order="due_at rank id",
)


def _lease(row: Any, reservations: Iterable[Any], events: Iterable[Any]) -> Lease:  # noqa: ANN401 - rows of COLUMNS and of its children
    id_, name, user_id, project_id, start, end, status, degraded, notices, *rest = row
    created_at, updated_at, trust_id, trust_lost, when, *others = rest
    ready_at, delayed_at, started_at, caught_up_at, version, *margins = others
    offered_until, lead, began_at, cleaning = margins
    return Lease(
        id=id_,
        name=name,
        user_id=user_id,
        project_id=project_id,
        window=Window(start, end),
        status=_LEASE_STATUS[status],
        degraded=degraded,
        notices=tuple([_notice(notice) for notice in notices]),
        reservations=tuple([_reservation(child) for child in reservations]),
        events=tuple([_event(child) for child in events]),
        created_at=created_at,
        updated_at=updated_at,
        trust_id=trust_id,
        trust_lost=trust_lost,
        start=Start(
            when=_START_WHEN[when],
            lead=timedelta(seconds=lead) if lead else _NO_LEAD,
            began_at=began_at,
            ready_at=ready_at,
            delayed_at=delayed_at,
            started_at=started_at,
        ),
        caught_up_at=caught_up_at,
        offered_until=offered_until,
        cleaning=None if cleaning is None else timedelta(seconds=cleaning),
        version=version,
    )


def _notice(stored: Mapping[str, Any]) -> Notice:
    return Notice(stored["kind"], Anchor(stored["anchor"]), stored["offset"])


def _reservation(row: Any) -> Reservation:  # noqa: ANN401 - a row of _RESERVATIONS
    lease_id, id_, type_, status, params, details, missing, changed, created_at, updated_at = row
    return Reservation(
        id=id_,
        lease_id=lease_id,
        resource_type=type_,
        status=_RESERVATION_STATUS[status],
        params=params,
        details=details,
        missing_resources=missing,
        resources_changed=changed,
        created_at=created_at,
        updated_at=updated_at,
    )


def _event(row: Any) -> Event:  # noqa: ANN401 - a row of _EVENTS
    lease_id, id_, kind, due_at, status, attempt, error, created_at, updated_at, owner = row
    return Event(
        id=id_,
        lease_id=lease_id,
        kind=kind,
        due_at=due_at,
        status=_EVENT_STATUS[status],
        attempt=attempt,
        last_error=error,
        created_at=created_at,
        updated_at=updated_at,
        owner=owner,
    )
