"""How leases begin: what is stored of it."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.start import Start
from climate.db.tables.leases import LeaseRow


def values(start: Start) -> dict[str, Any]:
    """Return what is to be stored of a lease about its beginning."""
    return {
        "start_when": start.when.value,
        "ready_at": start.ready_at,
        "start_delayed_at": start.delayed_at,
        "started_at": start.started_at,
    }


def set_ready(session: Session, lease_id: str, now: datetime) -> None:
    """Note that all hosts of a lease are ready, unless that was noted before."""
    _set(session, lease_id, LeaseRow.ready_at.is_(None), ready_at=now)


def set_unready(session: Session, lease_id: str) -> None:
    """Note that a lease which has not started has a host that is not ready."""
    _set(session, lease_id, LeaseRow.started_at.is_(None), ready_at=None)


def delay(session: Session, lease_id: str, now: datetime) -> None:
    """Note that it is told that the start of a lease has to wait."""
    _set(session, lease_id, start_delayed_at=now)


def _set(
    session: Session, lease_id: str, *conditions: sa.ColumnElement[bool], **fields: Any
) -> None:
    session.execute(
        sa.update(LeaseRow).where(LeaseRow.id == lease_id, *conditions).values(**fields)
    )
