"""Leases and events for tests of the event queue, stored without admission."""

import datetime as dt
from collections.abc import Sequence
from functools import partial

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.schedule import END, START, rank
from climate.db.engine.database import Database
from climate.db.events import queue as event_queue
from climate.db.events import waiting as line
from climate.db.tables.leases import AllocationRow, EventRow, LeaseRow, ReservationRow, ResourceRow
from tests.conftest import NOON

MINUTE = dt.timedelta(minutes=1)
CLAIM = 5 * MINUTE


def at(minutes: float) -> dt.datetime:
    """Return the time ``minutes`` after noon."""
    return NOON + minutes * MINUTE


def add_hosts(database: Database, count: int) -> list[int]:
    common = {"type": "physical:host", "reservable": True, "created_at": NOON}
    rows = [{"external_id": f"host-{number}", **common} for number in range(count)]
    with database.engine.begin() as connection:
        connection.execute(sa.insert(ResourceRow), rows)
        return list(connection.scalars(sa.select(ResourceRow.id).order_by(ResourceRow.id)))


def add_lease(
    database: Database, name: str, start: float, end: float, hosts: Sequence[int] = ()
) -> None:
    """Add a lease with a start and an end; their ids are "name start" and "name end"."""
    common = {"id": name, "created_at": NOON}
    lease = {"name": name, "user_id": "user", "project_id": "project", "status": "PENDING"}
    reservation = {"lease_id": name, "position": 0, "resource_type": "physical:host"}
    flags = {"missing_resources": False, "resources_changed": False, "status": "pending"}
    with database.engine.begin() as connection:
        dates = {"start_at": at(start), "end_at": at(end), "degraded": False, "notices": []}
        connection.execute(sa.insert(LeaseRow).values(**common, **lease, **dates))
        values = {**common, **reservation, **flags, "params": {}, "details": {}}
        connection.execute(sa.insert(ReservationRow).values(**values))
        for host in hosts:
            booking = {"resource_id": host, "start_at": at(start), "busy_until": at(end)}
            connection.execute(sa.insert(AllocationRow).values(reservation_id=name, **booking))
    add_event(database, name, START, start)
    add_event(database, name, END, end)


def add_event(database: Database, lease: str, kind: str, due: float) -> None:
    """Add an event; the id of "before_end_lease" of lease "a" is "a before_end"."""
    values = {
        "id": f"{lease} {kind.removesuffix('_lease')}",
        "lease_id": lease,
        "kind": kind,
        "rank": rank(kind),
        "due_at": at(due),
        "run_at": at(due),
        "status": "UNDONE",
        "attempt": 0,
        "created_at": NOON,
    }
    with database.engine.begin() as connection:
        connection.execute(sa.insert(EventRow).values(**values))


def claim(database: Database, now: float, owner: str = "me", limit: int = 100) -> list[str]:
    """Claim what is due ``now`` (minutes after noon); return the ids in order."""
    return [id_ for id_, _ in claims(database, now, owner, limit)]


def claims(
    database: Database, now: float, owner: str = "me", limit: int = 100
) -> list[tuple[str, int]]:
    """Claim what is due ``now``; return (id, attempt) of each."""
    with database.read() as session:
        ids = [event.event_id for event in line.pending(session, at(now), 1000)]
    claimed: list[tuple[str, int]] = []
    # Like a manager: skip blocked events and try the next ones.
    while ids and len(claimed) < limit:
        batch, ids = ids[: limit - len(claimed)], ids[limit - len(claimed) :]
        work = partial(_claim, owner=owner, now=now, ids=batch)
        claimed += [(id_, attempt) for id_, _, attempt in database.write(work)]
    return claimed


def _claim(
    session: Session, owner: str, now: float, ids: Sequence[str]
) -> list[tuple[str, str | None, int]]:
    return event_queue.claim(session, owner, at(now), at(now) + CLAIM, ids)


def finish(
    database: Database,
    event_id: str,
    now: float,
    *,
    owner: str = "me",
    attempt: int = 1,
    status: str = "DONE",
    again: float | None = None,
) -> bool:
    """Store an outcome; ``again``: when the event may be retried."""
    outcome = {"status": status} | ({} if again is None else {"run_at": at(again)})
    return database.write(
        lambda session: event_queue.finish(session, event_id, owner, attempt, at(now), **outcome)
    )


def fail(database: Database, event_id: str, now: float, again: float, attempt: int = 1) -> None:
    """Store a failed attempt that is retried at ``again``."""
    assert finish(database, event_id, now, attempt=attempt, status="UNDONE", again=again)


def state(database: Database, event_id: str) -> tuple[str, str | None, int]:
    """Return (status, owner, attempt) of an event."""
    query = sa.select(EventRow.status, EventRow.owner, EventRow.attempt)
    with database.read() as session:
        status, owner, attempt = session.execute(query.where(EventRow.id == event_id)).one()
    return status, owner, attempt
