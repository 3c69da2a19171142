"""Leases with their reservations and events as records: from rows of the table of leases.

What there are very many of is read by its place in the row: by its name would take twice as long.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease import Event, Lease, Reservation
from climate.core.lifecycle import EventStatus, LeaseStatus, ReservationStatus
from climate.core.schedule import Anchor, Notice
from climate.core.window import Window
from climate.db import starts
from climate.db.among import among
from climate.db.tables import EVENTS, RESERVATIONS

# By their texts: to ask the enumeration takes several times as long.
_LEASE_STATUS = {status.value: status for status in LeaseStatus}
_RESERVATION_STATUS = {status.value: status for status in ReservationStatus}
_EVENT_STATUS = {status.value: status for status in EventStatus}


def complete(session: Session, rows: Sequence[Any]) -> list[Lease]:
    """Complete rows of the table of leases with their children, one statement per kind of child."""
    ids = [row.id for row in rows]
    reservations = _children(session, _RESERVATIONS, ids)
    events = _children(session, _EVENTS, ids)
    return [
        Lease(
            id=row.id,
            name=row.name,
            user_id=row.user_id,
            project_id=row.project_id,
            window=Window(row.start_at, row.end_at),
            status=_LEASE_STATUS[row.status],
            degraded=row.degraded,
            notices=tuple(
                Notice(notice["kind"], Anchor(notice["anchor"]), notice["offset"])
                for notice in row.notices
            ),
            reservations=tuple([_reservation(r) for r in reservations.get(row.id, ())]),
            events=tuple([_event(e) for e in events.get(row.id, ())]),
            created_at=row.created_at,
            updated_at=row.updated_at,
            trust_id=row.trust_id,
            trust_lost=row.trust_lost,
            start=starts.record(row),
        )
        for row in rows
    ]


def _children(
    session: Session, query: sa.Select[Any], lease_ids: Sequence[str]
) -> dict[str, list[Any]]:
    """Return the rows that a query finds for ``lease_ids``, by lease id."""
    found: dict[str, list[Any]] = {}
    for ids in _chunks(lease_ids):
        for row in session.execute(query, {"lease_ids": ids}).all():  # quicker than one by one
            found.setdefault(row[0], []).append(row)
    return found


def _children_of(table: sa.Table, columns: str, order: str) -> sa.Select[Any]:
    """Select columns of the rows of a table that refer to ``lease_ids``, that id first."""
    of = table.c
    query = sa.select(of.lease_id, *(of[name] for name in columns.split()))
    return query.where(among(of.lease_id, "lease_ids")).order_by(
        *(of[name] for name in order.split())
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


def _chunks(ids: Sequence[str], size: int = 10_000) -> Iterable[Sequence[str]]:
    """Stay below what a statement may be long on MariaDB, which has each id in its text."""
    return (ids[at : at + size] for at in range(0, len(ids), size))


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
