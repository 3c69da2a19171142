"""Events that outlive their lease: what is left to do about an end, in the table of events."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.schedule import rank
from climate.db.order import UNDONE
from climate.db.tables.leases import EventRow


def insert(
    session: Session, event_id: str, kind: str, payload: Mapping[str, Any], now: datetime
) -> None:
    """Store what is to be done about an end, from now on; the event outlives its lease."""
    session.execute(
        sa.insert(EventRow).values(
            id=event_id,
            kind=kind,
            rank=rank(kind),
            due_at=now,
            run_at=now,
            status=UNDONE,
            attempt=0,
            created_at=now,
            payload=dict(payload),
        )
    )


def get(session: Session, event_id: str) -> tuple[str, dict[str, Any], datetime] | None:
    """Return what is to be done, about what and since when; None if it was."""
    row = session.get(EventRow, event_id)
    return None if row is None else (row.kind, row.payload or {}, row.due_at)


def find_all(session: Session, kind: str) -> list[dict[str, Any]]:
    """Return what else is to be done of a kind."""
    query = sa.select(EventRow.payload).where(EventRow.kind == kind, EventRow.lease_id.is_(None))
    return [payload or {} for payload in session.scalars(query)]
